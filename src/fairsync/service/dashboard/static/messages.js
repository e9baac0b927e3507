// The sentences of the dashboard: numbers of the API explained in words.

import { compact, count, duration, figure, percentRoundedDown, plural, precisePercent, smallPercent, when } from "./format.js";

/** A map key for a group label: the number 7 and the text "7" are two groups. */
export const labelKey = (label) => `${typeof label}:${label}`;

/** The sentence at the top of the page. */
export function headline(promises) {
  const all = promises.length;
  const countOf = (state) => promises.filter((promise) => promise.state === state).length;
  const impossible = countOf("impossible"), atRisk = countOf("at risk"), kept = countOf("kept");
  if (all === 0) return "Nothing is promised yet.";
  const only = all === 1 ? "The only promise" : null;
  if (impossible) {
    const rest = atRisk ? ` ${count(atRisk)} more ${plural(atRisk, "is", "are")} at risk.` : "";
    return `${only ?? `${count(impossible)} of ${count(all)} promises`} cannot be kept.${rest}`;
  }
  if (atRisk) return `${only ?? `${count(atRisk)} of ${count(all)} promises`} ${plural(atRisk, "is", "are")} at risk.`;
  if (kept === all) return all === 1 ? "The promise is kept." : `All ${count(all)} promises are kept.`;
  return all === 1 ? "The promise is on track." : `All ${count(all)} promises are on track.`;
}

/** The worst state among the promises; it colours the headline. */
export function worstState(promises) {
  for (const state of ["impossible", "at risk"]) if (promises.some((one) => one.state === state)) return state;
  if (promises.length === 0) return "no promise";
  return promises.every((one) => one.state === "kept") ? "kept" : "on track";
}

const ratioFormat = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const timesText = (ratio) => (ratio < 1.005 ? "hardly more than" : `${ratioFormat.format(ratio)} times`);

// The ratio to the least possible cost says nothing when both costs are close to zero.
const ratioMatters = (least) => least.ratio !== null && least.cost_share >= 0.0001;

/** The cost of the promises, compared with no promises and with the least possible cost. */
export function costSentence(overview) {
  const { least } = overview;
  if (overview.promises.length === 0) return "";
  if (ratioMatters(least)) return `Fairness costs about ${precisePercent(least.cost_share)} of relevance, ${timesText(least.ratio)} the least possible.`;
  const cost = least.cost_share ?? overview.cost_share;
  if (cost === null) return "The cost of fairness is not known yet.";
  if (cost < 0.0001) return "Fairness costs almost no relevance.";
  if (least.cost_share !== null) return `Fairness costs about ${precisePercent(cost)} of relevance.`;
  return `Fairness costs ${smallPercent(overview.cost_share)} of relevance, at most.`;
}

/** The figures of the cost and their explanations, by the id of the element that shows each. */
export function costFigures(overview, now) {
  const { least, cost_share: most } = overview;
  const atMost = most === null ? "" : ` Counted over all requests, the cost is at most ${smallPercent(Math.max(most, 0))}.`;
  // After a reload another replica may answer, with an estimate of its own.
  const replica = least.replica ? ` Each replica of the service makes its estimate from the requests that it answered itself. This is ${least.replica}.` : "";
  if (least.cost_share === null) {
    const figures = { least: "–", "least-of": "not estimated yet", "cost-known": `${least.reason}${replica}${atMost}` };
    return most === null
      ? { ...figures, cost: "–", "cost-of": "not known yet" }
      : { ...figures, cost: smallPercent(Math.max(most, 0)), "cost-of": "of relevance, at most" };
  }
  const range = least.cost_share >= 0.0001 && !ratioMatters(least) ? ""
    : !ratioMatters(least) ? "Almost no relevance was given up on them."
    : least.ratio_high < 1.005 ? "The cost is hardly more than the least possible."
    : `The cost is probably between ${ratioFormat.format(least.ratio_low)} and ${ratioFormat.format(least.ratio_high)} times the least possible.`;
  const leastOf = least.least_share === null ? "not estimated"
    : !ratioMatters(least) ? "of relevance, about"
    : least.ratio < 1.005 ? "of relevance, about the same" : `about; the cost is ${timesText(least.ratio)} that`;
  return {
    cost: precisePercent(least.cost_share), "cost-of": "of relevance, about",
    least: least.least_share === null ? "–" : precisePercent(least.least_share), "least-of": leastOf,
    "cost-known": `${least.least_share === null ? "This is an estimate" : "Both are estimates"} from a random sample of ${count(least.sample)} requests, made ` +
      `${duration(Math.max(now - new Date(least.at), 0))} ago. ${range}${replica}${atMost}${least.reason && ` ${least.reason}`}`,
  };
}

/** The cost of a promise, or of a group's promises: a figure and its explanation. */
export function promiseCost(promise, group, overview) {
  const cost = promise?.cost_share ?? group?.cost_share ?? null;
  if (cost === null) return { text: "–", explanation: `Not known yet. ${overview.least.reason}` };
  if (cost <= 0) return { text: "none", explanation: "None: its items did not displace better ones." };
  const size = cost < 0.0001 ? `Less than ${smallPercent(0.0001)}` : `About ${smallPercent(cost)}`;
  const part = percentRoundedDown(Math.min(cost / overview.least.cost_share, 1));
  return { text: smallPercent(cost), explanation: `${size} of all relevance, which is ${part} of the cost of fairness.` };
}

const PER_WINDOW = { hour: "an hour", day: "a day", week: "a week", campaign: "in the campaign" };

const perWindow = (window) => (window.days ? `in its first ${count(window.days)} ${plural(window.days, "day", "days")}` : PER_WINDOW[window.every]);

/** How a promise is called: its label, or its name. */
export function titleOf(promise) {
  if (promise.group !== null && promise.group !== undefined) return String(promise.group);
  if (promise.name) return promise.name;
  const conditions = Object.entries(promise.where ?? {}).map(([name, value]) => `${name}=${value}`);
  return [...(promise.each ? [`each ${promise.each}`] : []), ...conditions].join(", ") || "all items";
}

/** A bound in words: a number of exposures, or a share in per cent. */
export const boundText = (bound, format = count) => (Number.isInteger(bound) ? format(bound) : precisePercent(bound));

/** Bounds on the exposures of a window, and a limit per list, which has no window of its own unless that comes once. */
function boundsInWindow(bounds, limit, window) {
  const comesOnce = window.days || window.every === "campaign";
  if (!bounds.length) return comesOnce ? `${limit} ${perWindow(window)}` : limit;
  return `${bounds.join(", ")} ${perWindow(window)}${limit && `, ${limit}`}`;
}

/** The bounds of a promise in a few signs: a floor alone is a plain number. */
export function boundsText(promise, format = compact) {
  const { at_least: low, at_most: high, at_most_per_list: limit } = promise;
  const parts = [];
  if (low !== null && low !== undefined) parts.push(high === null && limit === null ? boundText(low, format) : `≥ ${boundText(low, format)}`);
  if (high !== null && high !== undefined) parts.push(`≤ ${boundText(high, format)}`);
  return boundsInWindow(parts, limit === null || limit === undefined ? "" : `≤ ${format(limit)} per list`, promise.window);
}

export function promiseText(promise) {
  const { at_least: low, at_most: high, at_most_per_list: limit } = promise;
  const words = [];
  const unit = (bound) => (Number.isInteger(bound) ? ` ${plural(bound, "exposure", "exposures")}` : " of all slots");
  if (low !== null && low !== undefined) words.push(`${high === null && limit === null ? "" : "at least "}${boundText(low)}${unit(low)}`);
  if (high !== null && high !== undefined) words.push(`at most ${boundText(high)}${unit(high)}`);
  return boundsInWindow(words, limit === null || limit === undefined ? "" : `at most ${count(limit)} per list`, promise.window);
}

/** When the window of a promise ends, and the time left until then. */
function endText(promise, now) {
  const end = new Date(promise.end);
  return `${when(end, promise.window.zone, now)} (in ${duration(end - now)})`;
}

/** The status of a promise, for its detail view. */
export function statusSentence(promise, now) {
  const end = endText(promise, now);
  const lacking = Math.ceil(promise.shortfall);
  const missing = `${count(lacking)} ${plural(lacking, "exposure", "exposures")}`;
  const over = promise.cap === null ? 0 : promise.exposures - promise.cap;
  if (new Date(promise.end) <= now) {
    if (over > 0) return `The window has ended. The ceiling of ${count(promise.cap)} was exceeded by ${count(over)}.`;
    return promise.state === "kept" ? "The window has ended, and the floor was reached." : `The window has ended. ${missing} ${plural(lacking, "was", "were")} missing.`;
  }
  if (new Date(promise.start) > now) {
    return `It begins ${when(new Date(promise.start), promise.window.zone, now)}, and the expected traffic can carry it.`;
  }
  const last = promise.window.every !== "campaign" && Date.parse(promise.window.end) === Date.parse(promise.end) ? " It is the last window." : "";
  if (promise.state === "kept") return `The floor is reached. The window ends at ${end}.${last}`;
  if (over > 0) return `The ceiling of ${count(promise.cap)} is exceeded by ${count(over)}. The window ends at ${end}.`;
  if (promise.state === "impossible" && lacking === 0 && promise.reason) return `It cannot be kept: ${promise.reason}. The window ends at ${end}.`;
  if (promise.floor === 0) {
    const limit = promise.cap === null ? "limit" : `ceiling of ${count(promise.cap)}`;
    return `The ${limit} is kept until ${end}.${last}`;
  }
  if (promise.state === "impossible") {
    const since = promise.impossible_since ? sinceText(promise.impossible_since, promise.window.zone, now) : "";
    return `About ${missing} will be missing at ${end}: ${promise.reason || "the traffic expected until then cannot carry more"}.${since && ` Known ${since}.`}`;
  }
  if (promise.state === "at risk" && promise.reason) return `The floor will probably be missed at ${end}: ${promise.reason}.`;
  if (promise.state === "at risk") return `If traffic stays low, the floor may be missed at ${end}.`;
  return `The floor is expected to be reached by ${end}.`;
}

export function sinceText(moment, zone, now) {
  const since = new Date(moment);
  if (now - since < 60_000) return "just now";
  return `since ${when(since, zone, now)} (${duration(now - since)} ago)`;
}

/** The boost of a group, as a share of the relevance of a typical candidate: a figure and its explanation. */
export function groupBoost(price, typical, state) {
  if (price === null) return { text: "masked", explanation: "The group is excluded from all candidates." };
  if (Math.abs(price) < 1e-12) {
    const isShort = state === "impossible" || state === "at risk";
    return { text: "none", explanation: isShort ? "It gets no boost at present." : "It needs no boost at present." };
  }
  const size = typical > 0 ? smallPercent(Math.abs(price) / typical) : figure(Math.abs(price));
  const amount = typical > 0 ? `${size} of the relevance of a typical candidate` : `${size} points of relevance`;
  if (price < 0) return { text: `+${size}`, explanation: `The relevance of each of its items is raised by ${amount}.` };
  return { text: `−${size}`, explanation: `The relevance of each of its items is lowered by ${amount}.` };
}

/** What keeping a promise that is given up would cost, as a share of the relevance of its window. */
export function wouldCost(promise, overview) {
  const whole = typicalRelevance(overview) * promise.slots;
  const amount = whole > 0 ? `${smallPercent(promise.would_cost / whole)} of the relevance of its window` : `${figure(promise.would_cost)} points of relevance`;
  return `About ${amount}, to get the exposures that are given up.`;
}

/** Mean relevance of a candidate in the present period; 0 before the first request. */
export function typicalRelevance(overview) {
  return overview.requests > 0 ? overview.relevance / (overview.requests * overview.k) : 0;
}

/** Requests so far, and those expected in the whole period. */
export function trafficSentence(overview, now) {
  const end = new Date(overview.period_end);
  // A period ends because the window of a promise ends: use the time zone of that window.
  const zone = overview.promises.find((one) => Date.parse(one.end) === +end)?.window.zone;
  return `${compact(overview.requests)} of about ${compact(overview.expected_requests)} requests by ${when(end, zone, now)}`;
}
