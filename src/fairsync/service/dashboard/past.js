// Windows that are over: a mark for each, and the missed ones by name.

import { aside, draw, make } from "./dom.js";
import { count, portion, span, when } from "./format.js";
import { keyOf } from "./words.js";

const MOST = 10, STEP = 9, TALL = 18;

/** The windows of each promise, the oldest first. */
export function byPromise(past) {
  const found = new Map();
  for (const one of [...past].sort((a, b) => Date.parse(a.start) - Date.parse(b.start))) {
    if (!found.has(one.promise)) found.set(one.promise, []);
    found.get(one.promise).push(one);
  }
  return found;
}

/** One mark per window: kept ones stand full, missed ones are as short as they fell, with a gap above. */
export function strip(windows, zone) {
  const last = windows.slice(-MOST);
  if (last.length === 0) return make("span", { class: "dim" }, "none yet");
  const kept = last.filter((one) => one.kept).length;
  const words = `${count(kept)} of the last ${count(last.length)} windows kept`;
  const svg = draw("svg", { class: "strip", width: last.length * STEP, height: TALL, role: "img", "aria-label": words });
  last.forEach((one, place) => {
    const tall = one.kept ? TALL : Math.max((TALL * one.exposures) / Math.max(one.floor, 1), 2) * 0.8;
    const title = `${span(new Date(one.start), new Date(one.end), zone)}: ${count(one.exposures)} of ${count(one.floor)}, ` +
      (one.kept ? "kept" : "missed");
    const mark = draw("g", { class: one.kept ? "kept" : "missed" }, draw("title", {}, title));
    mark.append(draw("rect", { x: place * STEP, y: TALL - tall, width: STEP - 3, height: tall, rx: 1 }));
    if (!one.kept) mark.append(draw("path", { d: `M${place * STEP} 1h${STEP - 3}` }));
    svg.append(mark);
  });
  return svg;
}

/** How many were kept, and which were not. */
export function showPast(root, past, promises, now) {
  const missed = past.filter((one) => !one.kept).sort((a, b) => Date.parse(b.end) - Date.parse(a.end));
  const said = JSON.stringify([past.length, past.at(-1)?.end, missed.length]);
  if (root.dataset.said === said) return;
  root.dataset.said = said;
  if (past.length === 0) {
    root.replaceChildren(make("p", { class: "dim" }, "No window is over yet."));
    return;
  }
  const zones = new Map(promises.map((one) => [one.id, one.window.zone]));
  const kept = past.length - missed.length;
  const line = make("p", {}, make("strong", {}, portion(kept / past.length)),
    ` of the last ${count(past.length)} windows were kept`, missed.length ? `; ${count(missed.length)} missed:` : ".");
  const rows = missed.slice(0, 12).map((one) => {
    const zone = zones.get(one.promise) ?? "UTC";
    const known = one.impossible_since
      ? `known since ${when(new Date(one.impossible_since), zone, new Date(one.start))}` : "not foreseen";
    return make("li", { "data-group": keyOf(one.group) },
      make("strong", {}, String(one.group)), ` ${span(new Date(one.start), new Date(one.end), zone)}: `,
      make("span", { class: "missing" }, `${count(one.floor - one.exposures)} of ${count(one.floor)} missing`),
      make("span", { class: "dim" }, `, ${known}`));
  });
  const more = missed.length - rows.length;
  root.replaceChildren(line, make("ul", { class: "plain" }, ...rows), more > 0 ? aside(`and ${count(more)} more`) : "");
}
