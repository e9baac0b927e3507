// The dialog that creates, changes or deletes a promise, with a preview of its feasibility and cost.

import * as api from "./api.js";
import { announce, byId, draw, make, setAttribute, setText } from "./dom.js";
import { compact, count, fromLocal, smallPercent, toLocal } from "./format.js";
import { sign } from "./states.js";
import { labelKey, promiseText } from "./messages.js";

const DEBOUNCE_MS = 250, MESSAGE_MS = 6000;
const dialog = byId("editor"), form = byId("editor-form"), fields = form.elements;
const verdict = byId("verdict"), save = byId("save"), problem = byId("editor-problem");

let target = null; // {promise or null, onSaved}
let groups = new Map();
let previews = 0; // an answer to any but the latest preview is ignored
let timer = null;

const DAY = 86_400_000;

function fillTimeZones() {
  const zones = byId("zones");
  if (!zones.children.length) zones.append(...["UTC", ...Intl.supportedValuesOf("timeZone")].map((zone) => make("option", { value: zone })));
}

/** Open the dialog for an existing promise, or for a new one, optionally of a given group. */
export function openPromiseEditor({ promise = null, group = null, labels, now, zone, onSaved }) {
  target = { promise, onSaved };
  // The number 7 and the text "7" are two groups.
  const twice = new Set(labels.map(String).filter((text, place, all) => all.indexOf(text) !== place));
  const nameOf = (label) => (twice.has(String(label)) && typeof label === "string" ? `${label} (text)` : String(label));
  groups = new Map(labels.map((label) => [nameOf(label), label]));
  fillTimeZones();
  byId("labels").replaceChildren(...[...groups.keys()].map((name) => make("option", { value: name })));
  setText(byId("editor-title"), promise ? `Promise for ${promise.group}` : "New promise");
  setText(save, promise ? "Save" : "Promise it");
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
  showCampaignFields();
  clearVerdict();
  dialog.showModal();
  (promise || group !== null ? fields.floor : fields.group).focus();
  if (promise || group !== null) fields.floor.select();
  requestPreview();
}

function showCampaignFields() {
  const campaign = fields.every.value === "campaign";
  for (const name of ["start", "end"]) {
    fields[name].closest("label").hidden = !campaign;
    fields[name].required = campaign;
  }
}

function clearVerdict() {
  verdict.replaceChildren();
  verdict.dataset.kind = "none";
  setText(problem, "");
  setAttribute(save, "disabled", true);
}

/** The promise in the form, or null while a field is missing or invalid. */
function readForm() {
  fields.group.setCustomValidity(groups.has(fields.group.value) ? "" : "There is no such group: choose one from the list.");
  let zoned = true;
  try {
    Intl.DateTimeFormat(undefined, { timeZone: fields.zone.value });
  } catch {
    zoned = false;
  }
  fields.zone.setCustomValidity(zoned && fields.zone.value ? "" : "There is no such time zone: choose one from the list.");
  const campaign = fields.every.value === "campaign";
  fields.end.setCustomValidity(campaign && fields.end.value <= fields.start.value ? "It must end after it starts." : "");
  if (!form.checkValidity()) return null;
  const zone = fields.zone.value;
  const window = { every: fields.every.value, zone };
  const before = target.promise?.window;
  for (const name of ["start", "end"]) {
    if (campaign) window[name] = fromLocal(fields[name].value, zone).toISOString();
    else if (before?.every === window.every && before[name]) window[name] = before[name]; // kept: the form does not show them
  }
  return { group: groups.get(fields.group.value), floor: Number(fields.floor.value), window };
}

/** Request a preview when typing pauses. Saving is disabled until it arrives. */
function requestPreview() {
  clearTimeout(timer);
  previews += 1;
  setAttribute(save, "disabled", true);
  setText(problem, "");
  const promise = readForm();
  if (!promise) {
    verdict.replaceChildren();
    verdict.dataset.kind = "none";
    const wrong = [...fields].find((field) => field.value && field.willValidate && !field.validity.valid);
    if (wrong) setText(problem, wrong.validationMessage);
    return;
  }
  verdict.dataset.waiting = "";
  const number = previews;
  timer = setTimeout(async () => {
    try {
      const found = await api.preview(promise, target.promise?.id);
      if (number === previews) showVerdict(found, promise);
    } catch (error) {
      if (number !== previews) return;
      verdict.replaceChildren();
      verdict.dataset.kind = "none";
      setText(problem, error.explanation ?? String(error));
    } finally {
      if (number === previews) delete verdict.dataset.waiting;
    }
  }, DEBOUNCE_MS);
}

function showVerdict(found, promise) {
  const safe = found.feasible && promise.floor <= found.safe;
  const state = !found.feasible ? "impossible" : safe ? "kept" : "at risk";
  const title = !found.feasible ? "This cannot be kept." : safe ? "This can be kept, even if traffic is low." : "This can be kept if traffic comes as expected.";
  const cost = found.least_cost_share === null
    ? "Its cost is not known yet."
    : found.least_cost_share <= 0 ? "It would cost no relevance." : `In the long run, all promises together would then cost at least ${smallPercent(found.least_cost_share)} of relevance.`;
  const limits = found.safe < found.largest
    ? `The expected traffic can carry ${count(found.largest)} beside all other promises, and ${count(found.safe)} if it is low.`
    : `The expected traffic can carry ${count(found.largest)} beside all other promises.`;
  const use = (value, text) =>
    value > 0 && value < promise.floor
      ? make("button", { type: "button", class: "quiet", onclick: () => useFloor(value) }, `Use ${count(value)}`, make("span", { class: "dim" }, ` ${text}`))
      : null;
  verdict.dataset.kind = state;
  verdict.replaceChildren(
    make("p", { class: "title" }, sign(state), make("strong", {}, title)),
    make("p", {}, limits),
    scale(found, promise.floor),
    make("p", { class: "uses" }, use(found.safe, "safe"), found.largest !== found.safe ? use(found.largest, "largest") : null),
    found.feasible ? make("p", {}, cost) : make("details", {}, make("summary", {}, "In full"), make("p", { class: "dim" }, found.message)),
  );
  setAttribute(save, "disabled", !found.feasible);
}

function useFloor(value) {
  fields.floor.value = value;
  fields.floor.focus();
  requestPreview();
}

/** A scale that shows whether the floor is safe, possible or impossible. */
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

async function send(action, message) {
  const buttons = dialog.querySelectorAll("button");
  buttons.forEach((button) => setAttribute(button, "disabled", true));
  try {
    await action();
    dialog.close();
    announce(message);
    setText(byId("saved"), message);
    setTimeout(() => setText(byId("saved"), ""), MESSAGE_MS);
    target.onSaved();
  } catch (error) {
    setText(problem, error.status === 403 ? "This token may read promises but not change them. Sign in with one that has the role admin." : (error.explanation ?? String(error)));
  } finally {
    buttons.forEach((button) => setAttribute(button, "disabled", false));
  }
}

form.addEventListener("input", () => {
  showCampaignFields();
  requestPreview();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const promise = readForm();
  if (!promise || save.disabled) return;
  const { promise: old } = target;
  const message = `Promised: ${promiseText(promise)} for ${promise.group}.`;
  send(() => (old ? api.updatePromise(old.id, promise) : api.createPromise(promise)), message);
});
byId("cancel").addEventListener("click", () => dialog.close());
byId("delete").addEventListener("click", () => {
  const { promise } = target;
  setText(byId("confirm-text"), `${promiseText(promise)} for ${promise.group} would no longer be promised. Its items are then retrieved by relevance alone.`);
  byId("confirm").showModal();
});
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm-yes").addEventListener("click", () => {
  byId("confirm").close();
  const { promise } = target;
  send(() => api.deletePromise(promise.id), `The promise for ${promise.group} is deleted.`);
});
dialog.addEventListener("close", () => {
  clearTimeout(timer);
  previews += 1;
});

/** The distinct group labels of the catalog. */
export const groupLabels = (overview) => [...new Map(overview.groups.map((one) => [labelKey(one.group), one.group])).values()];
