// The conditions of a promise in the editor: an attribute and a label each, with completion; all of them must be met.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { labelKey } from "./messages.js";

const DEBOUNCE_MS = 150, RETRY_MS = 1000, MOST_SUGGESTED = 100;
const EACH = "each"; // one promise for every label
const root = byId("conditions");

let attributes = []; // of the catalog, as /v1/attributes lists them
let fixed = null; // conditions of a promise that is changed, which the form cannot show as labels
let rows = []; // one per condition: the elements, and the labels by what is typed
let onChange = () => {};

/** What is typed for a label. The number 7 and the text "7" are two labels. */
function nameOf(label, labels) {
  const twice = labels.some((other) => String(other) === String(label) && labelKey(other) !== labelKey(label));
  return twice && typeof label === "string" ? `${label} (text)` : String(label);
}

/** Load the attributes; again and again while the service does not answer, which the page says meanwhile. */
export async function loadAttributes() {
  for (;;) {
    try {
      attributes = (await api.attributes(null, "", MOST_SUGGESTED)).filter((one) => one.kind === "labels");
      return attributes;
    } catch (error) {
      if (error.status !== 0 && error.status !== 503) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Show the conditions of a promise, or one of the first attribute with a given label. */
export function showConditions({ promise = null, group = null, change }) {
  onChange = change;
  rows = [];
  root.replaceChildren();
  fixed = null;
  const where = promise ? promise.where : group === null ? {} : { [attributes[0]?.name ?? "group"]: group };
  const plain = Object.values(where).every((value) => ["string", "number", "boolean"].includes(typeof value));
  if (promise && (!plain || promise.each)) {
    fixed = { where: promise.each ? rest(promise) : where, each: promise.each ?? null };
    root.append(make("li", {}, make("input", { readonly: true, "aria-label": "Conditions", value: promise.each ? `each ${promise.each}` : promise.name })));
  } else {
    for (const [name, value] of Object.entries(where)) addCondition(name, value, promise !== null);
    if (!rows.length) addCondition(attributes[0]?.name, undefined, false);
  }
  byId("add-condition").hidden = promise !== null || attributes.length < 2;
}

/** The conditions of a promise for each label beside the label itself. */
function rest(promise) {
  return Object.fromEntries(Object.entries(promise.where).filter(([name]) => name !== promise.each));
}

function addCondition(name, value, readOnly) {
  const number = rows.length, list = `labels-${number}`;
  const names = attributes.some((one) => one.name === name) || name === undefined ? attributes.map((one) => one.name) : [name, ...attributes.map((one) => one.name)];
  const select = make("select", { name: "attribute", "aria-label": "Attribute", disabled: readOnly },
    ...names.map((one) => make("option", { value: one, selected: one === name }, one)));
  const input = make("input", { name: "label", list, "aria-label": "Label", required: true, autocomplete: "off", spellcheck: "false", readonly: readOnly, placeholder: "label" });
  const each = make("input", { type: "checkbox", name: EACH });
  const remove = number === 0 ? null : make("button", { type: "button", class: "quiet", "aria-label": "Remove this condition", onclick: () => removeCondition(row) }, "×");
  const element = make("li", {}, select, input, make("datalist", { id: list }),
    number === 0 && !readOnly ? make("label", { class: "each" }, each, "each label") : null, remove);
  const row = { element, select, input, each, labels: new Map(), timer: null };
  rows.push(row);
  root.append(element);
  select.addEventListener("change", () => { input.value = ""; suggest(row); });
  input.addEventListener("input", () => { clearTimeout(row.timer); row.timer = setTimeout(() => complete(row), DEBOUNCE_MS); });
  each.addEventListener("change", () => { input.disabled = each.checked; });
  suggest(row);
  if (value !== undefined) {
    const known = attributes.find((one) => one.name === name)?.labels ?? [];
    input.value = nameOf(value, known);
    row.labels.set(input.value, value);
  }
  return row;
}

function removeCondition(row) {
  rows = rows.filter((one) => one !== row);
  row.element.remove();
  onChange();
}

function suggest(row, labels = attributes.find((one) => one.name === row.select.value)?.labels ?? []) {
  for (const label of labels) row.labels.set(nameOf(label, labels), label);
  row.element.querySelector("datalist").replaceChildren(...labels.map((label) => make("option", { value: nameOf(label, labels) })));
}

/** Ask the service for labels that contain what was typed, if the catalog has more than are known here. */
async function complete(row) {
  const attribute = attributes.find((one) => one.name === row.select.value);
  if (!attribute || attribute.total <= attribute.labels.length || row.labels.has(row.input.value)) return;
  const [found] = await api.attributes(attribute.name, row.input.value, MOST_SUGGESTED).catch(() => []);
  if (!found) return;
  suggest(row, found.labels);
  onChange();
}

/** The conditions in the form: {where, each}; null while a label is missing or unknown, which `onChange` explains. */
export function readConditions() {
  if (fixed) return fixed;
  const where = {};
  let each = null;
  for (const row of rows) {
    const { select, input } = row;
    if (row.each.checked) {
      each = select.value;
      input.setCustomValidity("");
      continue;
    }
    const known = row.labels.has(input.value);
    input.setCustomValidity(known ? (select.value in where ? `${select.value} has a condition already.` : "") : `There is no such ${select.value}: choose one from the list.`);
    if (known) where[select.value] = row.labels.get(input.value);
  }
  return { where, each };
}

/** Whether there are labels to read; only then is the rest of the form worth checking. */
export const focusFirst = () => rows[0]?.input.focus();

byId("add-condition").addEventListener("click", () => {
  const free = attributes.find((one) => !rows.some((row) => row.select.value === one.name));
  addCondition((free ?? attributes[0]).name, undefined, false).input.focus();
  onChange();
});
