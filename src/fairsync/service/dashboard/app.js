// The dashboard: asks the service every second and a half, and shows what it says.

import * as api from "./api.js";
import { byId, mark, say } from "./dom.js";
import { edit, labelsOf } from "./editor.js";
import { clock, compact, duration, portion } from "./format.js";
import { showAlerts, showHealth, showLink } from "./health.js";
import { PromiseList } from "./list.js";
import { byPromise, showPast } from "./past.js";
import { sign } from "./states.js";
import { costFigures, costWords, headline, trafficWords, worst } from "./words.js";

const EVERY = 1500, SLOWEST = 12_000, PAST_EVERY = 15_000, LATE = 6000, MOST_PAST = 1000;

const list = new PromiseList({
  edit: (promise) => openEditor({ promise }),
  add: (group) => openEditor({ group }),
  pace: (row) => fetchPace(row),
});
let seen = null; // {overview, at}: the last answer, and when it came by this machine's clock
let past = [], pastAt = -Infinity, pastOf = null;
let timer = null, failures = 0, asking = false, again = false;

/** The service's own time, now: its clock counts, not that of this machine. */
const now = () => new Date(Date.parse(seen.overview.now));

async function poll() {
  clearTimeout(timer);
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    const overview = await api.overview();
    const at = performance.now();
    seen = { overview, at };
    failures = 0;
    if (at - pastAt > PAST_EVERY || pastOf !== overview.period_end) {
      past = await api.past(MOST_PAST);
      [pastAt, pastOf] = [at, overview.period_end];
    }
    show();
    await Promise.all(list.opened().filter((row) => row.near).map(fetchPace));
  } catch (error) {
    if (error.status === 401 || (error.status === 403 && !seen)) {
      askForToken(error);
    } else if (error instanceof api.ServiceError) {
      failures += 1;
    } else {
      throw error;
    }
  } finally {
    asking = false;
    tick();
    plan();
  }
}

/** Come back soon; after failures more and more slowly; never while nobody looks. */
function plan() {
  clearTimeout(timer);
  if (document.hidden || !byId("login").hidden) return;
  timer = setTimeout(poll, again ? 0 : Math.min(EVERY * 2 ** Math.min(failures, 4), SLOWEST));
  again = false;
}

async function fetchPace(row) {
  try {
    row.setPace(await api.pace(row.id));
  } catch (error) {
    if (error.status !== 404) throw error; // deleted meanwhile: the next overview lacks it
  }
}

function show() {
  const { overview } = seen, at = now();
  byId("login").hidden = true;
  byId("page").hidden = false;
  byId("signout").hidden = api.token.get() === null;
  const tone = worst(overview.promises);
  say(byId("headline-text"), headline(overview.promises));
  if (byId("headline").dataset.state !== tone) {
    byId("headline").dataset.state = tone;
    byId("headline").querySelector("svg")?.remove();
    byId("headline").prepend(sign(tone));
  }
  say(byId("lead"), `${costWords(overview)} ${trafficWords(overview, at)}.`.trim());
  document.title = `${headline(overview.promises)} FairSync`;
  for (const [id, text] of Object.entries(costFigures(overview, at))) say(byId(id), text);
  say(byId("requests"), compact(overview.requests));
  const came = overview.expected_requests > 0 ? overview.requests / overview.expected_requests : 0;
  say(byId("requests-of"), `${portion(came)} of those expected`);
  const kept = past.filter((one) => one.kept).length;
  say(byId("kept"), past.length ? portion(kept / past.length) : "–");
  const up = overview.shards.filter((one) => one.up).length;
  byId("up").parentNode.hidden = overview.shards.length === 0; // all in one process
  say(byId("up"), `${up} of ${overview.shards.length}`);
  mark(byId("up"), "data-bad", up < overview.shards.length);
  say(byId("settings"), `${overview.policy} policy, ${overview.k} candidates a request, ${compact(overview.items)} items. ` +
    `An exposure is what was ${overview.count}.`);
  showAlerts(byId("alerts"), overview, at, (id) => list.reveal(id));
  list.update(overview, byPromise(past), at);
  showPast(byId("past"), past, overview.promises, at);
  showHealth(byId("health"), overview);
}

/** Each second: how fresh is what is shown? */
function tick() {
  if (!byId("login").hidden) {
    byId("lost").hidden = true;
    return;
  }
  if (!seen) {
    if (failures) showLink("lost", "No answer from the service yet. Trying again.");
    byId("lost").hidden = failures === 0;
    return;
  }
  const age = performance.now() - seen.at;
  if (document.hidden) showLink("paused", "Paused");
  else if (failures || age > LATE) showLink("lost", `No answer. Last update ${duration(age)} ago`);
  else showLink("live", "Live");
  byId("lost").hidden = byId("link").dataset.kind !== "lost";
  const zone = seen.overview.promises[0]?.window.zone;
  say(byId("lost-since"), `What is shown is how it stood at ${clock(now(), zone)}. Trying again.`);
}

function askForToken(error) {
  const had = api.token.get() !== null;
  api.token.forget();
  document.querySelectorAll("dialog[open]").forEach((one) => one.close());
  byId("login").hidden = false;
  byId("page").hidden = true;
  showLink("paused", "Not signed in");
  say(byId("login-problem"), had ? `${error.message} Check it, or ask whoever runs the service for one.` : "");
  byId("token").value = "";
  byId("token").focus();
}

function openEditor(subject) {
  if (!seen) return;
  const { overview } = seen;
  const zones = overview.promises.map((promise) => promise.window.zone);
  edit({
    ...subject, labels: labelsOf(overview), now: now(), done: poll,
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
  api.token.forget();
  location.reload();
});
byId("retry").addEventListener("click", poll);
byId("add").addEventListener("click", () => openEditor({}));
document.addEventListener("visibilitychange", () => {
  tick();
  if (document.hidden) clearTimeout(timer);
  else poll();
});
addEventListener("online", poll);
setInterval(tick, 1000);
poll();
