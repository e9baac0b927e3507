// The pace chart of a promise: exposures so far, the pace that the forecast requires, and the projection to the end.

import { draw, make } from "./dom.js";
import { clock, compact, count, day, full, plural } from "./format.js";
import { titleOf } from "./messages.js";

// The margins in pixels: those at the sides are at least as wide, and wider where labels need it.
const TOP = 26, BOTTOM = 22, LEFT = 46, RIGHT = 74, GAP = 7;
const BOOST_HEIGHT = 40;
const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
  2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY];

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** Linear interpolation between points, constant outside of them. */
function interpolate(points, t) {
  const next = points.findIndex(([at]) => at >= t);
  if (next === 0 || points.length === 0) return points[0]?.[1] ?? 0;
  if (next < 0) return points.at(-1)[1];
  const [[t0, v0], [t1, v1]] = [points[next - 1], points[next]];
  return t1 === t0 ? v1 : v0 + ((v1 - v0) * (t - t0)) / (t1 - t0);
}

/** The width of the longest of some labels in pixels: how long a number is depends on the language. */
function widest(texts) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(Math.max(...texts.map((text) => pen.measureText(text).width)));
}

function niceStep(range, most) {
  const rough = Math.max(range / most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

/** The line from now to the end, in the shape of the forecast: flat at night, when few requests come. */
function projection(expected, now, end, from, to) {
  const inside = [now, ...expected.map(([t]) => t).filter((t) => t > now && t < end), end];
  const [low, high] = [interpolate(expected, now), interpolate(expected, end)];
  return inside.map((t) => {
    const part = high > low ? (interpolate(expected, t) - low) / (high - low) : (t - now) / Math.max(end - now, 1);
    return [t, from + (to - from) * part];
  });
}

function parse(pace) {
  const start = Date.parse(pace.start), end = Date.parse(pace.end);
  const points = pace.points.map((one) => ({ ...one, t: Date.parse(one.at) })).filter((one) => one.t >= start);
  const expected = pace.expected.map(([at, value]) => [Date.parse(at), value]);
  return { start, end, points, expected };
}

/** The floor and the ceiling in words. */
function bounds(pace) {
  const ceiling = pace.cap === null ? "" : `ceiling ${count(pace.cap)}`;
  return [pace.floor || !ceiling ? `floor ${count(pace.floor)}` : "", ceiling].filter(Boolean).join(", ");
}

/** The chart as a sentence, for screen readers. */
function summary(pace, promise, now) {
  const { expected } = parse(pace);
  const due = Math.round(interpolate(expected, now));
  return `Pace of ${titleOf(promise)}: ${count(promise.exposures)} ${plural(promise.exposures, "exposure", "exposures")} so far, ${count(due)} due by now, about ` +
    `${count(Math.round(pace.projected))} expected at the end, ${bounds(pace)}.`;
}

/** Draw the chart; `width` is in pixels. */
export function paceChart(pace, promise, now, width) {
  const zone = promise.window.zone;
  const { start, end, points, expected } = parse(pace);
  const low = pace.low ?? pace.projected, high = pace.high ?? pace.projected;
  const most = Math.max(pace.floor, pace.cap ?? 0, pace.projected, high, promise.exposures, 1) * 1.06;
  const step = niceStep(most, 4), ticks = Array.from({ length: Math.floor(most / step) + 1 }, (_, place) => place * step);
  const labels = [pace.floor ? ["floor", `floor ${compact(pace.floor)}`, pace.floor] : null,
    pace.cap === null ? null : ["cap", `most ${compact(pace.cap)}`, pace.cap],
    ["end", `end ${compact(Math.round(pace.projected))}`, pace.projected]].filter(Boolean);
  const left = Math.max(LEFT, widest(ticks.map(compact)) + GAP), right = Math.max(RIGHT, widest(labels.map(([, text]) => text)) + GAP);
  const inner = Math.max(width - left - right, 60), height = width < 480 ? 170 : 220;
  const x = (t) => left + (inner * (t - start)) / (end - start);
  const y = (value) => TOP + (height * (most - value)) / most;
  const foot = TOP + height;
  const whole = foot + BOTTOM + BOOST_HEIGHT + 22;

  const svg = draw("svg", {
    class: "pace", width, height: whole, viewBox: `0 0 ${width} ${whole}`, role: "img",
    "aria-label": summary(pace, promise, now),
  });
  const add = (tag, attributes, ...children) => svg.append(draw(tag, attributes, ...children));

  for (const value of ticks) {
    add("line", { class: "grid", x1: left, x2: left + inner, y1: y(value), y2: y(value) });
    add("text", { class: "tick", x: left - GAP, y: y(value) + 4, "text-anchor": "end" }, compact(value));
  }
  const span = STEPS.find((one) => (end - start) / one <= inner / 64) ?? STEPS.at(-1);
  for (let t = start; t <= end; t += span) {
    const label = span >= DAY ? day(t, zone) : clock(t, zone);
    add("text", { class: "tick", x: x(t), y: foot + 16, "text-anchor": "middle" }, label);
    add("line", { class: "grid", x1: x(t), x2: x(t), y1: foot, y2: foot + 4 });
  }

  if (pace.floor) add("path", { class: "expected", d: path(expected.map(([t, value]) => [x(t), y(value)])) });
  if (pace.floor) add("line", { class: "floor", x1: left, x2: left + inner, y1: y(pace.floor), y2: y(pace.floor) });
  if (pace.cap !== null) {
    add("rect", { class: "above", x: left, width: inner, y: TOP, height: Math.max(y(pace.cap) - TOP, 0) });
    add("line", { class: "cap", x1: left, x2: left + inner, y1: y(pace.cap), y2: y(pace.cap) });
  }

  const since = Math.max(now, start); // of a window that is still to come, all is ahead
  const ahead = (to) => projection(expected, since, end, promise.exposures, to).map(([t, value]) => [x(t), y(value)]);
  if (now < end) {
    if (high > low) add("path", { class: "band", d: `${path([...ahead(high), ...ahead(low).reverse()])}Z` });
    add("path", { class: "ahead", d: path(ahead(pace.projected)) });
    add("circle", { class: "end", cx: x(end), cy: y(pace.projected), r: 3.5 });
  }
  if (now >= start) {
    const was = [...points.map((one) => [one.t, one.exposures]), [now, promise.exposures]]
      .map(([t, value]) => [x(Math.min(t, end)), y(value)]);
    add("path", { class: "area", d: `${path(was)}L${was.at(-1)[0]} ${foot}L${was[0][0]} ${foot}Z` });
    add("path", { class: "was", d: path(was) });
    add("line", { class: "now", x1: x(now), x2: x(now), y1: TOP - 8, y2: foot });
    add("circle", { class: "here", cx: x(now), cy: y(promise.exposures), r: 3.5 });
    const beside = x(now) > left + inner - 40 ? "end" : x(now) < left + 40 ? "start" : "middle";
    add("text", { class: "label", x: x(now), y: TOP - 13, "text-anchor": beside }, `now ${clock(now, zone)}`);
  }

  // The labels are at the right edge. If two would overlap, the upper one is moved up.
  const places = labels.map(([kind, text, value]) => [kind, text, y(value)]).sort((a, b) => b[2] - a[2]);
  for (let i = 1; i < places.length; i += 1) places[i][2] = Math.min(places[i][2], places[i - 1][2] - 14);
  for (const [kind, text, place] of places) add("text", { class: `label ${kind}`, x: left + inner + GAP, y: place + 4 }, text);

  drawBoost(add, points, now, x, foot + BOTTOM + 16, left, left + inner);
  return svg;
}

/** The boost over the same time, below the chart. */
function drawBoost(add, points, now, x, top, left, right) {
  const boost = points.map((one) => [one.t, Math.max(-(one.price ?? 0), 0)]);
  const most = Math.max(...boost.map(([, value]) => value), 1e-12);
  const y = (value) => top + BOOST_HEIGHT - (BOOST_HEIGHT * value) / most;
  const line = boost.length ? [...boost, [now, boost.at(-1)[1]]].map(([t, value]) => [x(t), y(value)]) : [];
  add("line", { class: "grid", x1: left, x2: right, y1: top + BOOST_HEIGHT, y2: top + BOOST_HEIGHT });
  add("text", { class: "label", x: left - GAP, y: top + BOOST_HEIGHT, "text-anchor": "end" }, "boost");
  if (line.length) {
    add("path", { class: "boost-area", d: `${path(line)}L${line.at(-1)[0]} ${top + BOOST_HEIGHT}L${line[0][0]} ${top + BOOST_HEIGHT}Z` });
    add("path", { class: "boost", d: path(line) });
  }
}

/** The legend of the chart. */
export function legend(pace) {
  const key = (kind, text) => make("li", {}, make("span", { class: `key ${kind}`, "aria-hidden": "true" }), text);
  return make(
    "ul",
    { class: "legend" },
    key("was", "exposures"),
    pace.floor ? key("expected", "pace required by the forecast") : null,
    pace.cap === null ? null : key("cap", "ceiling"),
    key("ahead", "expected from now on"),
    pace.low !== undefined ? key("band", "with low or high traffic") : null,
  );
}

/** The chart as a table of about twelve rows, for readers who cannot see it. */
export function paceTable(pace, promise, now) {
  const { points, expected } = parse(pace);
  const every = Math.max(Math.ceil(points.length / 12), 1);
  const rows = points.filter((_, place) => place % every === 0 || place === points.length - 1);
  const cells = (one) => [
    full(one.t, promise.window.zone), count(one.exposures), count(Math.round(interpolate(expected, one.t))), count(one.requests),
  ];
  return make(
    "table",
    {},
    make("caption", { class: "visually-hidden" }, summary(pace, promise, now)),
    make("thead", {}, make("tr", {}, ...["At", "Exposures", "Due", "Requests"].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows.map((one) => make("tr", {}, ...cells(one).map((text) => make("td", {}, text))))),
  );
}
