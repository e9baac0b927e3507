// The dashboard's entry point: polls the service every 1.5 seconds and renders the answer.

import * as api from "./api.js";
import { showAlerts } from "./alerts.js";
import { showArms } from "./arms.js";
import { watchAudit } from "./audit.js";
import { byId, setAttribute, setText } from "./dom.js";
import { clock, compact, duration, percentRoundedDown } from "./format.js";
import { costFigures, costSentence, headline, titleOf, trafficSentence, worstState } from "./messages.js";
import { byPromise, showPastWindows } from "./past_windows.js";
import { openPromiseEditor } from "./promise_editor.js";
import { PromiseList } from "./promise_list.js";
import { showConnection, showShards } from "./service_health.js";
import { sign } from "./states.js";

const POLL_MS = 1500, MAX_POLL_MS = 12_000, PAST_POLL_MS = 15_000, STALE_MS = 6000, MAX_PAST_WINDOWS = 1000;

const list = new PromiseList({
  edit: (promise) => openEditor({ promise }),
  add: (group) => openEditor({ group }),
  pace: (row) => fetchPace(row),
});
let latest = null; // {overview, at}: the last answer, and when it arrived by this machine's monotonic clock
let past = [], pastFetchedAt = -Infinity, pastOfPeriod = null;
let timer = null, failures = 0, polling = false, pollAgain = false;

/** The service's time at its last answer. The service's clock counts, not the clock of this machine. */
const serviceTime = () => new Date(Date.parse(latest.overview.now));

async function poll() {
  clearTimeout(timer);
  if (polling) {
    pollAgain = true;
    return;
  }
  polling = true;
  try {
    const overview = await api.overview();
    const at = performance.now();
    latest = { overview, at };
    failures = 0;
    if (at - pastFetchedAt > PAST_POLL_MS || pastOfPeriod !== overview.period_end) {
      past = await api.past(MAX_PAST_WINDOWS);
      showArms(overview.experiment ? await api.arms() : null);
      [pastFetchedAt, pastOfPeriod] = [at, overview.period_end];
    }
    render();
    await Promise.all(list.openRows().filter((row) => row.near).map(fetchPace));
  } catch (error) {
    if (error.status === 401 || (error.status === 403 && !latest)) {
      askForToken(error);
    } else if (error instanceof api.ServiceError) {
      failures += 1;
    } else {
      throw error;
    }
  } finally {
    polling = false;
    showFreshness();
    scheduleNextPoll();
  }
}

/** Poll at a fixed interval, with exponential backoff after failures, and not at all while the tab is hidden. */
function scheduleNextPoll() {
  clearTimeout(timer);
  if (document.hidden || !byId("login").hidden) return;
  timer = setTimeout(poll, pollAgain ? 0 : Math.min(POLL_MS * 2 ** Math.min(failures, 4), MAX_POLL_MS));
  pollAgain = false;
}

async function fetchPace(row) {
  try {
    row.setPace(await api.pace(row.id));
  } catch (error) {
    if (error.status !== 404) throw error; // deleted in the meantime: the next overview will not contain it
  }
}

function render() {
  const { overview } = latest, now = serviceTime();
  byId("login").hidden = true;
  byId("page").hidden = false;
  byId("signout").hidden = api.token.get() === null;
  const state = worstState(overview.promises);
  setText(byId("headline-text"), headline(overview.promises));
  if (byId("headline").dataset.state !== state) {
    byId("headline").dataset.state = state;
    byId("headline").querySelector("svg")?.remove();
    byId("headline").prepend(sign(state));
  }
  setText(byId("lead"), `${costSentence(overview)} ${trafficSentence(overview, now)}.`.trim());
  document.title = `${headline(overview.promises)} FairSync`;
  for (const [id, text] of Object.entries(costFigures(overview, now))) setText(byId(id), text);
  setText(byId("requests"), compact(overview.requests));
  const arrived = overview.expected_requests > 0 ? overview.requests / overview.expected_requests : 0;
  setText(byId("requests-of"), `${percentRoundedDown(arrived)} of those expected`);
  const kept = past.filter((one) => one.kept).length;
  setText(byId("kept"), past.length ? percentRoundedDown(kept / past.length) : "–");
  const up = overview.shards.filter((one) => one.up).length;
  byId("up").parentNode.hidden = overview.shards.length === 0; // the catalog is searched in one process
  setText(byId("up"), `${up} of ${overview.shards.length}`);
  setAttribute(byId("up"), "data-bad", up < overview.shards.length);
  const counted = overview.count === "impressions" ? "an item that was reported as shown" : "an item that was retrieved";
  setText(byId("settings"), `${overview.policy} policy, ${overview.k} candidates per request, ${compact(overview.items)} items. ` +
    `An exposure is ${counted}.`);
  showAlerts(byId("alerts"), overview, now, (id) => list.reveal(id));
  list.update(overview, byPromise(past), now);
  showPastWindows(byId("past"), past, overview.promises, now);
  showShards(byId("health"), overview);
}

/** Show how old the displayed data is. Runs every second. */
function showFreshness() {
  if (!byId("login").hidden) {
    byId("offline").hidden = true;
    return;
  }
  if (!latest) {
    if (failures) showConnection("offline", "No answer from the service yet. Trying again.");
    byId("offline").hidden = failures === 0;
    return;
  }
  const age = performance.now() - latest.at;
  if (document.hidden) showConnection("paused", "Paused");
  else if (failures || age > STALE_MS) showConnection("offline", `No answer. Last update ${duration(age)} ago`);
  else showConnection("live", "Live");
  byId("offline").hidden = byId("connection").dataset.kind !== "offline";
  const zone = latest.overview.promises[0]?.window.zone;
  setText(byId("offline-since"), `This page shows the state at ${clock(serviceTime(), zone)}. Trying again.`);
}

function askForToken(error) {
  const hadToken = api.token.get() !== null;
  api.token.remove();
  document.querySelectorAll("dialog[open]").forEach((one) => one.close());
  byId("login").hidden = false;
  byId("page").hidden = true;
  showConnection("paused", "Not signed in");
  setText(byId("login-problem"), hadToken ? `${error.message} Check the token, or ask the operator of the service for one.` : "");
  byId("token").value = "";
  byId("token").focus();
}

function openEditor(target) {
  if (!latest) return;
  const { overview } = latest;
  const zones = overview.promises.map((promise) => promise.window.zone);
  openPromiseEditor({
    ...target, now: serviceTime(), onSaved: poll,
    nameOf: (id) => titleOf(overview.promises.find((one) => one.id === id) ?? { name: id }),
    zone: zones[0] ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
  });
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.token.set(byId("token").value.trim());
  byId("login").hidden = true;
  poll();
});
byId("signout").addEventListener("click", () => {
  api.token.remove();
  location.reload();
});
byId("retry").addEventListener("click", poll);
byId("add").addEventListener("click", () => openEditor({}));
document.addEventListener("visibilitychange", () => {
  showFreshness();
  if (document.hidden) clearTimeout(timer);
  else poll();
});
addEventListener("online", poll);
setInterval(showFreshness, 1000);
watchAudit();
poll();
