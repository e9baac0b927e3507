// The alerts at the top of the page, the most severe first.

import { announce, make, setText } from "./dom.js";
import { count } from "./format.js";
import { sinceText } from "./messages.js";
import { sign } from "./states.js";

const SEVERITY = ["impossible", "ledger", "shard", "clock", "budget", "degraded", "at risk"];
const TITLES = { budget: "Budget", shard: "Shards", clock: "Clock skew" };
const VISIBLE = 3;
let known = null;

// The identity of an alert. Its message is no part of it, because the numbers in it change.
const alertKey = (alert) => JSON.stringify([alert.kind, alert.group, alert.promise]);

/** Render the alerts, and announce new ones to screen readers. */
export function showAlerts(root, overview, now, reveal) {
  const alerts = [...overview.alerts].sort((a, b) => SEVERITY.indexOf(a.kind) - SEVERITY.indexOf(b.kind));
  const added = alerts.filter((alert) => known !== null && !known.has(alertKey(alert)));
  if (added.length) announce(added.slice(0, 3).map((alert) => `${alert.kind}: ${alert.message}`).join(" "));
  known = new Set(alerts.map(alertKey));
  const zones = new Map(overview.promises.map((one) => [one.id, one.window.zone]));
  const items = alerts.map((alert) => {
    const zone = zones.get(alert.promise);
    // An alert that begins now was found when the service started: its real beginning is unknown.
    const since = new Date(alert.since) < now ? `Known ${sinceText(alert.since, zone, now)}.` : "";
    return { alert, since, key: alertKey(alert) };
  });
  // Rebuild only after a change, so that the focused element is not removed.
  const rendered = items.map((item) => item.key + item.alert.message).join();
  if (root.dataset.rendered === rendered) {
    root.querySelectorAll(".since").forEach((element, i) => setText(element, items[i].since));
    return;
  }
  root.dataset.rendered = rendered;
  const open = root.querySelector("details")?.open ?? false;
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const rows = items.map((item) => alertRow(item, reveal));
  const rest = rows.splice(VISIBLE);
  root.replaceChildren(make("ul", { class: "plain" }, ...rows));
  if (rest.length) {
    root.append(make("details", { open }, make("summary", {}, `${count(rest.length)} more`), make("ul", { class: "plain" }, ...rest)));
  }
  if (focused) [...root.querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
}

function alertRow({ alert, since, key }, reveal) {
  const title = TITLES[alert.kind] ?? alert.kind[0].toUpperCase() + alert.kind.slice(1);
  const showButton = make("button", { type: "button", class: "quiet", "data-key": key, onclick: () => reveal(alert.promise) },
    "Show", make("span", { class: "visually-hidden" }, ` ${alert.group ?? alert.name}`));
  return make("li", { class: "alert", "data-state": alert.kind },
    sign(alert.kind),
    make("p", {}, make("strong", {}, `${title}. `), alert.message, " ", make("span", { class: "dim since" }, since)),
    alert.promise ? showButton : null);
}
