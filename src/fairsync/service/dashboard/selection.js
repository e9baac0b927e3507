// Which rows are shown, and in which order.

import { STATES } from "./states.js";
import { keyOf } from "./words.js";

/** A row for each promise, and for each group that has none. */
export function rowsOf(overview) {
  const groups = new Map(overview.groups.map((group) => [keyOf(group.group), group]));
  const promised = new Set(overview.promises.map((promise) => keyOf(promise.group)));
  const rows = overview.promises.map((promise) => ({
    id: promise.id, label: String(promise.group), state: promise.state, promise, group: groups.get(keyOf(promise.group)),
  }));
  for (const [key, group] of groups) {
    if (!promised.has(key)) rows.push({ id: `group ${key}`, label: String(group.group), state: "no promise", promise: null, group });
  }
  return rows;
}

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
const byName = (a, b) => collator.compare(a.label, b.label) || collator.compare(a.id, b.id);
const rank = (row) => STATES.indexOf(row.state);
const part = (row) => (row.promise ? row.promise.projected / Math.max(row.promise.floor, 1) : Infinity);
const progress = (row) => (row.promise ? row.promise.exposures / Math.max(row.promise.floor, 1) : Infinity);

const ORDERS = {
  urgency: (a, b) => rank(a) - rank(b) || (b.promise?.shortfall ?? 0) - (a.promise?.shortfall ?? 0) || part(a) - part(b),
  name: byName,
  floor: (a, b) => (b.promise?.floor ?? 0) - (a.promise?.floor ?? 0),
  progress: (a, b) => progress(a) - progress(b),
  missing: (a, b) => (b.promise?.shortfall ?? 0) - (a.promise?.shortfall ?? 0),
  help: (a, b) => (a.group?.price ?? Infinity) - (b.group?.price ?? Infinity),
  cost: (a, b) => (b.group?.cost_share ?? -1) - (a.group?.cost_share ?? -1),
  end: (a, b) => (Date.parse(a.promise?.end) || Infinity) - (Date.parse(b.promise?.end) || Infinity) || 0,
};

const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLocaleLowerCase();

/** The rows that match, sorted. Every promise unless a state is asked for. */
export function select(rows, { text, state, order }) {
  const wanted = fold(text.trim());
  const shown = rows.filter((row) =>
    (state === "all" ? row.promise !== null : row.state === state) && (!wanted || fold(row.label).includes(wanted)));
  return shown.sort((a, b) => ORDERS[order](a, b) || byName(a, b));
}

export function tally(rows) {
  const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const row of rows) counts[row.state] += 1;
  return { ...counts, all: rows.length - counts["no promise"] };
}
