// Making, changing and deleting a promise, with a preview of what would come of it.

import * as api from "./api.js";
import { announce, byId, draw, make, mark, say } from "./dom.js";
import { compact, count, fromLocal, share, toLocal } from "./format.js";
import { sign } from "./states.js";
import { keyOf, promiseWords } from "./words.js";

const WAIT = 250;
const dialog = byId("editor"), form = byId("editor-form"), fields = form.elements;
const verdict = byId("verdict"), save = byId("save"), problem = byId("editor-problem");

let subject = null; // {promise or null, done}
let groups = new Map();
let asked = 0;
let timer = null;

const DAY = 86_400_000;

function options() {
  const zones = byId("zones");
  if (!zones.children.length) zones.append(...["UTC", ...Intl.supportedValuesOf("timeZone")].map((zone) => make("option", { value: zone })));
}

/** Open it: for a promise to change, or for a new one, perhaps for a known group. */
export function edit({ promise = null, group = null, labels, now, zone, done }) {
  subject = { promise, done };
  // A label that is a number and one that is the same digits as text are two groups.
  const twice = new Set(labels.map(String).filter((text, place, all) => all.indexOf(text) !== place));
  const nameOf = (label) => (twice.has(String(label)) && typeof label === "string" ? `${label} (text)` : String(label));
  groups = new Map(labels.map((label) => [nameOf(label), label]));
  options();
  byId("labels").replaceChildren(...[...groups.keys()].map((name) => make("option", { value: name })));
  say(byId("editor-title"), promise ? `Promise for ${promise.group}` : "New promise");
  say(save, promise ? "Save" : "Promise it");
  form.reset();
  const known = promise?.group ?? group;
  fields.group.value = known === null ? "" : nameOf(known);
  fields.group.readOnly = promise !== null;
  byId("delete").hidden = promise === null;
  if (promise) {
    fields.floor.value = promise.floor;
    fields.every.value = promise.window.every;
  }
  fields.zone.value = promise?.window.zone ?? zone;
  const start = promise?.window.start ? new Date(promise.window.start) : now;
  const end = promise?.window.end ? new Date(promise.window.end) : new Date(+now + 14 * DAY);
  fields.start.value = toLocal(start, fields.zone.value);
  fields.end.value = toLocal(end, fields.zone.value);
  arrange();
  forget();
  dialog.showModal();
  (promise || group !== null ? fields.floor : fields.group).focus();
  if (promise || group !== null) fields.floor.select();
  ask();
}

function arrange() {
  const campaign = fields.every.value === "campaign";
  for (const name of ["start", "end"]) {
    fields[name].closest("label").hidden = !campaign;
    fields[name].required = campaign;
  }
}

function forget() {
  verdict.replaceChildren();
  verdict.dataset.kind = "none";
  say(problem, "");
  mark(save, "disabled", true);
}

/** What is written in the form; null as long as something is missing or wrong. */
function written() {
  fields.group.setCustomValidity(groups.has(fields.group.value) ? "" : "There is no such group: choose one of the list.");
  let zoned = true;
  try {
    Intl.DateTimeFormat(undefined, { timeZone: fields.zone.value });
  } catch {
    zoned = false;
  }
  fields.zone.setCustomValidity(zoned && fields.zone.value ? "" : "There is no such time zone: choose one of the list.");
  const campaign = fields.every.value === "campaign";
  fields.end.setCustomValidity(campaign && fields.end.value <= fields.start.value ? "It must end after it starts." : "");
  if (!form.checkValidity()) return null;
  const zone = fields.zone.value;
  const window = { every: fields.every.value, zone };
  const before = subject.promise?.window;
  for (const name of ["start", "end"]) {
    if (campaign) window[name] = fromLocal(fields[name].value, zone).toISOString();
    else if (before?.every === window.every && before[name]) window[name] = before[name]; // they are not in the form
  }
  return { group: groups.get(fields.group.value), floor: Number(fields.floor.value), window };
}

/** Ask for a preview, once typing pauses. Saving waits for it. */
function ask() {
  clearTimeout(timer);
  asked += 1;
  mark(save, "disabled", true);
  say(problem, "");
  const promise = written();
  if (!promise) {
    verdict.replaceChildren();
    verdict.dataset.kind = "none";
    const wrong = [...fields].find((field) => field.value && field.willValidate && !field.validity.valid);
    if (wrong) say(problem, wrong.validationMessage);
    return;
  }
  verdict.dataset.waiting = "";
  const number = asked;
  timer = setTimeout(async () => {
    try {
      const found = await api.preview(promise, subject.promise?.id);
      if (number === asked) show(found, promise);
    } catch (error) {
      if (number !== asked) return;
      verdict.replaceChildren();
      verdict.dataset.kind = "none";
      say(problem, error.words ?? String(error));
    } finally {
      if (number === asked) delete verdict.dataset.waiting;
    }
  }, WAIT);
}

function show(found, promise) {
  const safe = found.feasible && promise.floor <= found.safe;
  const state = !found.feasible ? "impossible" : safe ? "kept" : "at risk";
  const title = !found.feasible ? "This cannot be kept." : safe ? "This can be kept, also if traffic is low." : "This can be kept if traffic comes as expected.";
  const cost = found.least_cost_share === null
    ? "What it would cost is not known yet."
    : found.least_cost_share <= 0 ? "It would cost no relevance." : `In the long run, all promises together would then cost at least ${share(found.least_cost_share)} of relevance.`;
  const limits = found.safe < found.largest
    ? `The traffic expected can carry ${count(found.largest)} beside all other promises, and ${count(found.safe)} if it is low.`
    : `The traffic expected can carry ${count(found.largest)} beside all other promises.`;
  const use = (value, text) =>
    value > 0 && value < promise.floor
      ? make("button", { type: "button", class: "quiet", onclick: () => take(value) }, `Use ${count(value)}`, make("span", { class: "dim" }, ` ${text}`))
      : null;
  verdict.dataset.kind = state;
  verdict.replaceChildren(
    make("p", { class: "title" }, sign(state), make("strong", {}, title)),
    make("p", {}, limits),
    scale(found, promise.floor),
    make("p", { class: "uses" }, use(found.safe, "safe"), found.largest !== found.safe ? use(found.largest, "largest") : null),
    found.feasible ? make("p", {}, cost) : make("details", {}, make("summary", {}, "In full"), make("p", { class: "dim" }, found.message)),
  );
  mark(save, "disabled", !found.feasible);
}

function take(value) {
  fields.floor.value = value;
  fields.floor.focus();
  ask();
}

/** Where the floor lies: safe, as expected, or beyond. */
function scale(found, floor) {
  const most = Math.max(found.largest * 1.25, floor * 1.08, 1);
  const at = (value) => `${((100 * value) / most).toFixed(2)}%`;
  const part = (kind, from, to) => draw("rect", { class: kind, x: at(from), width: at(Math.max(to - from, 0)), y: 14, height: 8 });
  const anchor = (value) => (value / most > 0.8 ? "end" : value / most < 0.2 ? "start" : "middle");
  return draw(
    "svg", { class: "scale", width: "100%", height: 44, role: "img", "aria-label": `${count(floor)}; safe up to ${count(found.safe)}, possible up to ${count(found.largest)}` },
    part("safe", 0, found.safe), part("expected", found.safe, found.largest), part("beyond", found.largest, most),
    draw("rect", { class: "here", x: at(floor), y: 11, width: 2.5, height: 14 }),
    draw("text", { x: at(floor), y: 8, "text-anchor": anchor(floor), class: "here" }, compact(floor)),
    draw("text", { x: at(found.largest), y: 38, "text-anchor": anchor(found.largest) }, `most ${compact(found.largest)}`),
    found.safe < found.largest * 0.6 && found.safe > most * 0.1 ? draw("text", { x: at(found.safe), y: 38, "text-anchor": anchor(found.safe) }, `safe ${compact(found.safe)}`) : null,
  );
}

async function send(action, told) {
  const buttons = dialog.querySelectorAll("button");
  buttons.forEach((button) => mark(button, "disabled", true));
  try {
    await action();
    dialog.close();
    announce(told);
    say(byId("told"), told);
    setTimeout(() => say(byId("told"), ""), 6000);
    subject.done();
  } catch (error) {
    say(problem, error.status === 403 ? "This token may look but not change promises. Sign in with one that may." : (error.words ?? String(error)));
  } finally {
    buttons.forEach((button) => mark(button, "disabled", false));
  }
}

form.addEventListener("input", () => {
  arrange();
  ask();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const promise = written();
  if (!promise || save.disabled) return;
  const { promise: old } = subject;
  const words = `Promised: ${promiseWords(promise)} for ${promise.group}.`;
  send(() => (old ? api.change(old.id, promise) : api.add(promise)), words);
});
byId("cancel").addEventListener("click", () => dialog.close());
byId("delete").addEventListener("click", () => {
  const { promise } = subject;
  say(byId("confirm-text"), `${promiseWords(promise)} for ${promise.group} would no longer be promised. The group is then found only as often as its relevance brings it up.`);
  byId("confirm").showModal();
});
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm-yes").addEventListener("click", () => {
  byId("confirm").close();
  const { promise } = subject;
  send(() => api.remove(promise.id), `The promise for ${promise.group} is deleted.`);
});
dialog.addEventListener("close", () => {
  clearTimeout(timer);
  asked += 1;
});

export const labelsOf = (overview) => [...new Map(overview.groups.map((one) => [keyOf(one.group), one.group])).values()];
