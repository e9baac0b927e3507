// Alerts, and how the parts of the service are.

import { announce, byId, make, say } from "./dom.js";
import { count, portion } from "./format.js";
import { sign } from "./states.js";
import { sinceWords } from "./words.js";

const RANK = ["impossible", "ledger", "shard", "clock", "degraded", "at risk"];
const NAMES = { shard: "Shards", clock: "Clock skew" };
const FIRST = 3;
let known = null;

// Not by its words, which hold numbers that change.
const name = (alert) => JSON.stringify([alert.kind, alert.group, alert.promise]);

/** Alerts on top, the gravest first; new ones are told to screen readers. */
export function showAlerts(root, overview, now, show) {
  const alerts = [...overview.alerts].sort((a, b) => RANK.indexOf(a.kind) - RANK.indexOf(b.kind));
  const fresh = alerts.filter((alert) => known !== null && !known.has(name(alert)));
  if (fresh.length) announce(fresh.slice(0, 3).map((alert) => `${alert.kind}: ${alert.message}`).join(" "));
  known = new Set(alerts.map(name));
  // Drawn anew only when something changed: what has the focus must not go away.
  const zones = new Map(overview.promises.map((one) => [one.id, one.window.zone]));
  const items = alerts.map((alert) => {
    const zone = zones.get(alert.promise);
    // Since this very moment: the service does not know for how long.
    const since = new Date(alert.since) < now ? `Known ${sinceWords(alert.since, zone, now)}.` : "";
    return { alert, message: alert.message, since, key: name(alert) };
  });
  const said = items.map((item) => item.key + item.message).join();
  if (root.dataset.said === said) {
    root.querySelectorAll(".since").forEach((place, i) => say(place, items[i].since));
    return;
  }
  root.dataset.said = said;
  const open = root.querySelector("details")?.open ?? false;
  const held = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const rows = items.map(({ alert, message, since, key }) =>
    make("li", { class: "alert", "data-state": alert.kind },
      sign(alert.kind),
      make("p", {}, make("strong", {}, `${NAMES[alert.kind] ?? alert.kind[0].toUpperCase() + alert.kind.slice(1)}. `), message, " ",
        make("span", { class: "dim since" }, since)),
      alert.promise
        ? make("button", { type: "button", class: "quiet", "data-key": key, onclick: () => show(alert.promise) },
          "Show", make("span", { class: "unseen" }, ` ${alert.group}`))
        : null));
  const rest = rows.splice(FIRST);
  root.replaceChildren(make("ul", { class: "plain" }, ...rows));
  if (rest.length) {
    root.append(make("details", { open }, make("summary", {}, `${count(rest.length)} more`), make("ul", { class: "plain" }, ...rest)));
  }
  if (held) [...root.querySelectorAll("button")].find((button) => button.dataset.key === held)?.focus();
}

/** Shards: those that are down by name, the others as a count. */
export function showHealth(root, overview) {
  const { shards, degraded } = overview;
  const down = shards.filter((one) => !one.up);
  const said = JSON.stringify([shards, degraded]);
  if (root.dataset.said === said) return;
  root.dataset.said = said;
  const answers = degraded > 0
    ? `${portion(1 - degraded)} of recent answers saw the whole catalog.` : "All recent answers saw the whole catalog.";
  const cells = shards.map((one) =>
    make("li", { class: one.up ? "up" : "down" }, make("strong", {}, `Shard ${one.shard}.${one.replica}`),
      ` ${one.up ? "up" : "down"}, ${count(one.items)} items`, one.error ? make("span", { class: "dim" }, `: ${one.error}`) : ""));
  root.replaceChildren(
    make("p", {}, shards.length ? `${count(shards.length - down.length)} of ${count(shards.length)} shards up. ` : "", answers),
    make("ul", { class: "shards plain" }, ...cells),
  );
}

/** How fresh the page is. Its words change each second, so it is not a live region; a change of its kind is announced. */
export function showLink(kind, text) {
  const place = byId("link");
  if (place.dataset.kind !== kind) {
    if (kind === "lost") announce("The service does not answer. What is shown may be old.");
    else if (place.dataset.kind === "lost") announce("The service answers again.");
    place.dataset.kind = kind;
    document.body.classList.toggle("stale", kind === "lost");
  }
  say(place.querySelector("span"), text);
}
