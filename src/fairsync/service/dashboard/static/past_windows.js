// Past windows: a small bar for each, and a list of the missed ones.

import { draw, hiddenText, make } from "./dom.js";
import { count, percentRoundedDown, span, when } from "./format.js";
import { labelKey, titleOf } from "./messages.js";

const MAX_BARS = 10, STEP = 9, HEIGHT = 18, MAX_MISSED = 12;

/** The past windows of each promise, the oldest first. */
export function byPromise(past) {
  const found = new Map();
  for (const one of [...past].sort((a, b) => Date.parse(a.start) - Date.parse(b.start))) {
    if (!found.has(one.promise)) found.set(one.promise, []);
    found.get(one.promise).push(one);
  }
  return found;
}

/** One bar per window. A kept window has the full height; a missed one is lower, with a line above it. */
export function windowBars(windows, zone) {
  const last = windows.slice(-MAX_BARS);
  if (last.length === 0) return make("span", { class: "dim" }, "none yet");
  const kept = last.filter((one) => one.kept).length;
  const label = `${count(kept)} of the last ${count(last.length)} windows kept`;
  const svg = draw("svg", { class: "strip", width: last.length * STEP, height: HEIGHT, role: "img", "aria-label": label });
  last.forEach((one, place) => {
    const height = one.kept ? HEIGHT : Math.max((HEIGHT * one.exposures) / Math.max(one.floor, 1), 2) * 0.8;
    const title = `${span(new Date(one.start), new Date(one.end), zone)}: ${count(one.exposures)}${one.floor ? ` of ${count(one.floor)}` : ""}${one.cap === null ? "" : `, at most ${count(one.cap)}`}, ` +
      (one.kept ? "kept" : "missed");
    const bar = draw("g", { class: one.kept ? "kept" : "missed" }, draw("title", {}, title));
    bar.append(draw("rect", { x: place * STEP, y: HEIGHT - height, width: STEP - 3, height: height, rx: 1 }));
    if (!one.kept) bar.append(draw("path", { d: `M${place * STEP} 1h${STEP - 3}` }));
    svg.append(bar);
  });
  return svg;
}

/** Show the share of windows that were kept, and list the missed ones. */
export function showPastWindows(root, past, promises, now) {
  const missed = past.filter((one) => !one.kept).sort((a, b) => Date.parse(b.end) - Date.parse(a.end));
  const rendered = JSON.stringify([past.length, past.at(-1)?.end, missed.length]);
  if (root.dataset.rendered === rendered) return;
  root.dataset.rendered = rendered;
  if (past.length === 0) {
    root.replaceChildren(make("p", { class: "dim" }, "No window has ended yet."));
    return;
  }
  const zones = new Map(promises.map((one) => [one.id, one.window.zone]));
  const kept = past.length - missed.length;
  const line = make("p", {}, make("strong", {}, percentRoundedDown(kept / past.length)),
    ` of the last ${count(past.length)} windows were kept`, missed.length ? `; ${count(missed.length)} missed:` : ".");
  const rows = missed.slice(0, MAX_MISSED).map((one) => {
    const zone = zones.get(one.promise) ?? "UTC";
    const known = one.impossible_since
      ? `known since ${when(new Date(one.impossible_since), zone, new Date(one.start))}` : "not predicted";
    return make("li", { "data-group": labelKey(one.group) },
      make("strong", {}, titleOf(one)), ` ${span(new Date(one.start), new Date(one.end), zone)}: `,
      make("span", { class: "missing" }, whatWasMissed(one)),
      make("span", { class: "dim" }, `, ${known}${one.note ? `: ${one.note}` : ""}`));
  });
  const more = missed.length - rows.length;
  root.replaceChildren(line, make("ul", { class: "plain" }, ...rows), more > 0 ? hiddenText(`and ${count(more)} more`) : "");
}

function whatWasMissed(one) {
  if (one.exposures < one.floor) return `${count(one.floor - one.exposures)} of ${count(one.floor)} missing`;
  if (one.cap !== null && one.exposures > one.cap) return `${count(one.exposures - one.cap)} above the ceiling of ${count(one.cap)}`;
  return "the limit per list was not kept";
}
