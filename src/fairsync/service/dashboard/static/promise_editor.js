// The dialog that creates, changes or deletes a promise, with a preview of its feasibility and cost.

import * as api from "./api.js";
import { announce, byId, draw, make, setAttribute, setText } from "./dom.js";
import { focusFirst, loadAttributes, readConditions, showConditions } from "./conditions.js";
import { compact, count, fromLocal, percentRoundedDown, smallPercent, toLocal } from "./format.js";
import { sign } from "./states.js";
import { promiseText, titleOf } from "./messages.js";

const DEBOUNCE_MS = 250, MESSAGE_MS = 6000;
const dialog = byId("editor"), form = byId("editor-form"), fields = form.elements;
const verdict = byId("verdict"), save = byId("save"), problem = byId("editor-problem");

let target = null; // {promise or null, onSaved}
/** The id to change or delete: a promise for each label is changed as a whole. */
const idOf = (promise) => promise?.series ?? promise?.id;

let previews = 0; // an answer to any but the latest preview is ignored
let timer = null;

const DAY = 86_400_000;

function fillTimeZones() {
  const zones = byId("zones");
  if (!zones.children.length) zones.append(...["UTC", ...Intl.supportedValuesOf("timeZone")].map((zone) => make("option", { value: zone })));
}

const isShare = (bound) => typeof bound === "number" && bound > 0 && bound < 1; // whole numbers of exposures are 0, 1, 2, …

/** Show a bound in the form: a number of exposures, or a share in per cent. */
function showBound(name, unit, bound) {
  fields[unit].value = isShare(bound) ? "share" : "count";
  fields[name].value = bound === null || bound === undefined ? "" : isShare(bound) ? +(100 * bound).toPrecision(12) : bound;
}

/** Open the dialog for an existing promise, or for a new one, optionally of a given group. */
export async function openPromiseEditor({ promise = null, group = null, now, zone, nameOf, onSaved }) {
  await loadAttributes();
  target = { promise, nameOf, onSaved };
  fillTimeZones();
  setText(byId("editor-title"), promise ? `Promise for ${titleOf(promise)}` : "New promise");
  setText(save, promise ? "Save" : "Promise it");
  form.reset();
  showConditions({ promise, group, change: requestPreview });
  byId("delete").hidden = promise === null;
  byId("further").open = promise !== null && (promise.priority !== 1 || promise.at_most_per_list !== null || promise.max_price !== null);
  if (promise) {
    showBound("at_least", "least_unit", promise.at_least);
    showBound("at_most", "most_unit", promise.at_most);
    fields.priority.value = promise.priority;
    fields.at_most_per_list.value = promise.at_most_per_list ?? "";
    fields.max_price.value = promise.max_price ?? "";
    fields.title.value = promise.name;
    fields.every.value = promise.window.days ? "days" : promise.window.every;
    if (promise.window.days) fields.days.value = promise.window.days;
  }
  fields.zone.value = promise?.window.zone ?? zone;
  const start = promise?.window.start ? new Date(promise.window.start) : now;
  const end = promise?.window.end ? new Date(promise.window.end) : new Date(+now + 14 * DAY);
  fields.start.value = toLocal(start, fields.zone.value);
  fields.end.value = toLocal(end, fields.zone.value);
  showCampaignFields();
  clearVerdict();
  dialog.showModal();
  if (promise || group !== null) {
    fields.at_least.focus();
    fields.at_least.select();
  } else focusFirst();
  requestPreview();
}

function showCampaignFields() {
  const campaign = fields.every.value === "campaign";
  for (const name of ["start", "end"]) {
    fields[name].closest("label").hidden = !campaign;
    fields[name].required = campaign;
  }
  fields.days.closest("label").hidden = fields.every.value !== "days";
  fields.days.required = fields.every.value === "days";
}

function clearVerdict() {
  verdict.replaceChildren();
  verdict.dataset.kind = "none";
  setText(problem, "");
  setAttribute(save, "disabled", true);
}

/** A bound in the form as the service takes it; null if there is none. */
function readBound(name, unit) {
  const text = fields[name].value, share = fields[unit].value === "share", value = Number(text);
  const wrong = text === "" ? "" : share
    ? (value > 0 && value < 100 ? "" : "A share lies between 0 and 100 %.")
    : Number.isInteger(value) && value <= Number.MAX_SAFE_INTEGER ? "" : "Give a whole number of exposures.";
  fields[name].setCustomValidity(wrong);
  fields[name].max = share ? "100" : "9007199254740991";
  return text === "" ? null : share ? +(value / 100).toPrecision(12) : value;
}

const optional = (name) => (fields[name].value === "" ? null : Number(fields[name].value));

/** The promise in the form, or null while a field is missing or invalid. */
function readForm() {
  const conditions = readConditions();
  const at_least = readBound("at_least", "least_unit"), at_most = readBound("at_most", "most_unit");
  const at_most_per_list = optional("at_most_per_list");
  if (at_least === null && at_most === null && at_most_per_list === null) fields.at_least.setCustomValidity("Give at least one bound.");
  let zoned = true;
  try {
    Intl.DateTimeFormat(undefined, { timeZone: fields.zone.value });
  } catch {
    zoned = false;
  }
  fields.zone.setCustomValidity(zoned && fields.zone.value ? "" : "There is no such time zone: choose one from the list.");
  const campaign = fields.every.value === "campaign", days = fields.every.value === "days";
  fields.every.setCustomValidity(days && !conditions.each ? "First days begin for each: choose “each label”." : "");
  fields.end.setCustomValidity(campaign && fields.end.value <= fields.start.value ? "It must end after it starts." : "");
  if (!form.checkValidity()) return null;
  const zone = fields.zone.value;
  const window = days ? { every: "campaign", zone, days: Number(fields.days.value) } : { every: fields.every.value, zone };
  const before = target.promise?.window;
  for (const name of ["start", "end"]) {
    if (campaign) window[name] = fromLocal(fields[name].value, zone).toISOString();
    else if (!days && before?.every === window.every && before[name]) window[name] = before[name]; // kept: the form does not show them
  }
  const name = target.promise && fields.title.value === target.promise.name ? "" : fields.title.value;
  return { ...conditions, at_least, at_most, at_most_per_list, priority: Number(fields.priority.value), max_price: optional("max_price"), name, window };
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
    const wrong = [...fields].find((field) => (field.value || field === fields.at_least && fields.at_most.value) && field.willValidate && !field.validity.valid);
    if (wrong) setText(problem, wrong.validationMessage);
    return;
  }
  verdict.dataset.waiting = "";
  const number = previews;
  timer = setTimeout(async () => {
    try {
      const found = await api.preview(promise, idOf(target.promise));
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
  const share = isShare(promise.at_least), number = promise.at_least !== null && !share;
  const safe = found.feasible && (!number || promise.at_least <= found.safe);
  const state = !found.feasible ? "impossible" : safe ? "kept" : "at risk";
  const title = !found.feasible ? "This cannot be kept." : safe ? "This can be kept, even if traffic is low." : "This can be kept if traffic comes as expected.";
  const cost = found.least_cost_share === null
    ? "Its cost is not known yet."
    : found.least_cost_share <= 0 ? "It would cost no relevance." : `In the long run, all promises together would then cost at least ${smallPercent(found.least_cost_share)} of relevance.`;
  const most = share && found.largest_share !== null ? percentRoundedDown(found.largest_share) : count(found.largest);
  const limits = promise.at_least === null ? "" : number && found.safe < found.largest
    ? `The expected traffic can carry ${most} beside all other promises, and ${count(found.safe)} if it is low.`
    : `The expected traffic can carry ${most} beside all other promises.`;
  const out = found.pushes_out.map((id) => target.nameOf?.(id) ?? id);
  const use = (value, text) =>
    number && value > 0 && value < promise.at_least
      ? make("button", { type: "button", class: "quiet", onclick: () => useFloor(value) }, `Use ${count(value)}`, make("span", { class: "dim" }, ` ${text}`))
      : null;
  const some = out.length > 3 ? `${out.slice(0, 3).join(", ")} and ${count(out.length - 3)} more` : out.join(", ");
  verdict.dataset.kind = state;
  verdict.replaceChildren(
    make("p", { class: "title" }, sign(state), make("strong", {}, title)),
    limits ? make("p", {}, limits) : "",
    number ? scale(found, promise.at_least) : "",
    make("p", { class: "uses" }, use(found.safe, "safe"), found.largest !== found.safe ? use(found.largest, "largest") : null),
    out.length ? make("p", { class: "pushes-out" }, `It would push out ${some}.`) : "",
    found.feasible ? make("p", {}, cost) : make("details", {}, make("summary", {}, "In full"), make("p", { class: "dim" }, found.message)),
  );
  setAttribute(save, "disabled", !found.feasible);
}

function useFloor(value) {
  fields.least_unit.value = "count";
  fields.at_least.value = value;
  fields.at_least.focus();
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
  const message = `Promised: ${promiseText(promise)} for ${old ? titleOf(old) : titleOf(promise)}.`;
  send(() => (old ? api.updatePromise(idOf(old), promise) : api.createPromise(promise)), message);
});
byId("cancel").addEventListener("click", () => dialog.close());
byId("delete").addEventListener("click", () => {
  const { promise } = target;
  setText(byId("confirm-text"), `${promiseText(promise)} for ${promise.series ? `each ${promise.each}` : titleOf(promise)} would no longer be promised. Its items are then retrieved by relevance alone.`);
  byId("confirm").showModal();
});
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm-yes").addEventListener("click", () => {
  byId("confirm").close();
  const { promise } = target;
  send(() => api.deletePromise(idOf(promise)), `The promise for ${titleOf(promise)} is deleted.`);
});
dialog.addEventListener("close", () => {
  clearTimeout(timer);
  previews += 1;
});
