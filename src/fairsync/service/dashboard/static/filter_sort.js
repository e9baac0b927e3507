// Filter and sort the rows of the promise list.

import { STATES } from "./states.js";
import { labelKey, titleOf } from "./messages.js";

/** One row per promise, and one per group without a promise. */
export function rowsOf(overview) {
  const groups = new Map(overview.groups.map((group) => [labelKey(group.group), group]));
  const promised = new Set(overview.promises.map((promise) => labelKey(promise.group)));
  const rows = overview.promises.map((promise) => ({
    id: promise.id, label: titleOf(promise), state: promise.state, promise, group: groups.get(labelKey(promise.group)),
  }));
  for (const [key, group] of groups) {
    if (!promised.has(key)) rows.push({ id: `group ${key}`, label: String(group.group), state: "no promise", promise: null, group });
  }
  return rows;
}

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
const byName = (a, b) => collator.compare(a.label, b.label) || collator.compare(a.id, b.id);
const rank = (row) => STATES.indexOf(row.state);
const projected = (row) => (row.promise ? row.promise.projected / Math.max(row.promise.floor, 1) : Infinity);
const progress = (row) => (row.promise ? row.promise.exposures / Math.max(row.promise.floor, 1) : Infinity);

const costOf = (row) => row.promise?.cost_share ?? row.group?.cost_share ?? -1;
const priceOf = (row) => row.promise?.price ?? row.group?.price ?? Infinity;

const ORDERS = {
  urgency: (a, b) => rank(a) - rank(b) || (b.promise?.shortfall ?? 0) - (a.promise?.shortfall ?? 0) || projected(a) - projected(b),
  name: byName,
  floor: (a, b) => (b.promise?.floor ?? 0) - (a.promise?.floor ?? 0),
  progress: (a, b) => progress(a) - progress(b),
  missing: (a, b) => (b.promise?.shortfall ?? 0) - (a.promise?.shortfall ?? 0),
  boost: (a, b) => priceOf(a) - priceOf(b),
  priority: (a, b) => (a.promise?.priority ?? Infinity) - (b.promise?.priority ?? Infinity) || 0,
  cost: (a, b) => costOf(b) - costOf(a),
  end: (a, b) => (Date.parse(a.promise?.end) || Infinity) - (Date.parse(b.promise?.end) || Infinity) || 0,
};

const normalize = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLocaleLowerCase();

/** The sorted rows that match. The state "all" matches every promise. */
export function filterAndSort(rows, { text, state, order }) {
  const wanted = normalize(text.trim());
  const matching = rows.filter((row) =>
    (state === "all" ? row.promise !== null : row.state === state) && (!wanted || normalize(row.label).includes(wanted)));
  return matching.sort((a, b) => ORDERS[order](a, b) || byName(a, b));
}

/** The number of rows in each state. */
export function countByState(rows) {
  const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const row of rows) counts[row.state] += 1;
  return { ...counts, all: rows.length - counts["no promise"] };
}
