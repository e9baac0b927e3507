// What the numbers mean, in sentences for people who promised something.

import { compact, count, duration, figure, finely, portion, share, when } from "./format.js";

export const keyOf = (label) => `${typeof label}:${label}`;

const plural = (n, one, many) => (n === 1 ? one : many);

/** The one sentence at the top. */
export function headline(promises) {
  const all = promises.length;
  const how = (state) => promises.filter((promise) => promise.state === state).length;
  const lost = how("impossible"), risky = how("at risk"), kept = how("kept");
  if (all === 0) return "Nothing is promised yet.";
  const of = all === 1 ? "The only promise" : null;
  if (lost) {
    const rest = risky ? ` ${count(risky)} more ${plural(risky, "is", "are")} at risk.` : "";
    return `${of ?? `${count(lost)} of ${count(all)} promises`} cannot be kept.${rest}`;
  }
  if (risky) return `${of ?? `${count(risky)} of ${count(all)} promises`} ${plural(risky, "is", "are")} at risk.`;
  if (kept === all) return all === 1 ? "The promise is kept." : `All ${count(all)} promises are kept.`;
  return all === 1 ? "The promise is on course." : `All ${count(all)} promises are on course.`;
}

/** The tone of the page: that of its worst promise. */
export function worst(promises) {
  for (const state of ["impossible", "at risk"]) if (promises.some((one) => one.state === state)) return state;
  if (promises.length === 0) return "no promise";
  return promises.every((one) => one.state === "kept") ? "kept" : "on track";
}

const many = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const times = (ratio) => (ratio < 1.005 ? "hardly more than" : `${many.format(ratio)} times`);

// Of next to nothing, nobody wants to know how many times the least it is.
const worthTelling = (least) => least.ratio !== null && least.cost_share >= 0.0001;

/** What fairness costs, against the same requests without promises, and against what it has to cost. */
export function costWords(overview) {
  const { least } = overview;
  if (overview.promises.length === 0) return "";
  if (worthTelling(least)) return `Fairness costs about ${finely(least.cost_share)} of relevance, ${times(least.ratio)} the least possible.`;
  if (overview.cost_share === null) return "What fairness costs is not known yet.";
  if (overview.cost_share < 0.0001) return "Fairness costs next to no relevance.";
  return `Fairness costs ${share(overview.cost_share)} of relevance, at most.`;
}

/** The same as figures with their explanations, by the place where each belongs. */
export function costFigures(overview, now) {
  const { least, cost_share: most } = overview;
  const atMost = most === null ? "" : ` Counted on every request, the cost is ${share(Math.max(most, 0))} at most.`;
  // Whoever asks for the page again may be answered by another one.
  const whose = least.replica ? ` Each replica of the service estimates from requests that it has answered itself. This is ${least.replica}.` : "";
  if (least.cost_share === null) {
    const figures = { least: "–", "least-of": "not estimated yet", "cost-known": `${least.reason}${whose}${atMost}` };
    return most === null
      ? { ...figures, cost: "–", "cost-of": "not known yet" }
      : { ...figures, cost: share(Math.max(most, 0)), "cost-of": "of relevance, at most" };
  }
  const range = !worthTelling(least)
    ? "Next to nothing was given up on them."
    : least.ratio_high < 1.005 ? "What is given up is hardly more than the least possible."
    : `What is given up is probably between ${many.format(least.ratio_low)} and ${many.format(least.ratio_high)} times the least possible.`;
  return {
    cost: finely(least.cost_share), "cost-of": "of relevance, about",
    least: finely(least.least_share),
    "least-of": !worthTelling(least) ? "of relevance, about" : least.ratio < 1.005 ? "of relevance, about the same" : `about; given up is ${times(least.ratio)} that`,
    "cost-known": `Both are estimates, from ${count(least.sample)} requests picked at random, made ` +
      `${duration(Math.max(now - new Date(least.at), 0))} ago. ${range}${whose}${atMost}${least.reason && ` ${least.reason}`}`,
  };
}

/** What the promises of a group cost. */
export function costOf(group, overview) {
  const cost = group?.cost_share ?? null;
  if (cost === null) return { text: "–", words: `Not known yet. ${overview.least.reason}` };
  if (cost <= 0) return { text: "none", words: "None: its items took the place of no better ones." };
  const all = overview.least.cost_share;
  return { text: share(cost), words: `${cost < 0.0001 ? `Less than ${share(0.0001)}` : `About ${share(cost)}`} of all relevance, which is ${portion(Math.min(cost / all, 1))} of what fairness costs.` };
}

const EACH = { hour: "an hour", day: "a day", week: "a week", campaign: "in the campaign" };

export const each = (window) => EACH[window.every];

export function promiseWords(promise) {
  return `${count(promise.floor)} ${plural(promise.floor, "exposure", "exposures")} ${each(promise.window)}`;
}

/** When its window ends, and in how long. */
export function endWords(promise, now) {
  const end = new Date(promise.end);
  return `${when(end, promise.window.zone, now)} (in ${duration(end - now)})`;
}

/** What a promise is about to become, for its detail. */
export function outlookWords(promise, now) {
  const end = endWords(promise, now);
  const missing = count(Math.ceil(promise.shortfall));
  if (new Date(promise.end) <= now) return promise.state === "kept" ? "Its time is over, and the floor was reached." : `Its time is over. ${missing} were missing.`;
  if (new Date(promise.start) > now) return `It begins ${when(new Date(promise.start), promise.window.zone, now)}, and the traffic expected can carry it.`;
  const last = promise.window.every !== "campaign" && promise.window.end === promise.end ? " It is the last one." : "";
  if (promise.state === "kept") return `The floor is reached. The window goes on until ${end}.${last}`;
  if (promise.state === "impossible") {
    const since = promise.impossible_since ? sinceWords(promise.impossible_since, promise.window.zone, now) : "";
    return `About ${missing} will be missing at ${end}: the traffic expected until then cannot carry more.${since && ` Known ${since}.`}`;
  }
  if (promise.state === "at risk") return `If traffic stays low, the floor may be missed at ${end}.`;
  return `The floor is expected to be reached by ${end}.`;
}

export function sinceWords(moment, zone, now) {
  const since = new Date(moment);
  if (now - since < 60_000) return "just now";
  return `since ${when(since, zone, now)} (${duration(now - since)} ago)`;
}

/** The help a group gets: its subsidy, next to the relevance of a usual candidate. */
export function helpOf(price, usual, state) {
  if (price === null) return { text: "masked", words: "The group is held back from all candidates." };
  if (Math.abs(price) < 1e-12) {
    const short = state === "impossible" || state === "at risk";
    return { text: "none", words: short ? "It gets none at present." : "It is found often enough without help." };
  }
  const size = usual > 0 ? share(Math.abs(price) / usual) : figure(Math.abs(price));
  const what = usual > 0 ? `${size} of the relevance of a usual candidate` : `${size} points of relevance`;
  if (price < 0) return { text: `+${size}`, words: `Each of its items is lifted by ${what}.` };
  return { text: `−${size}`, words: `Each of its items is lowered by ${what}.` };
}

/** Relevance of a usual candidate in the present tick; 0 if nothing was answered yet. */
export function usualRelevance(overview) {
  return overview.requests > 0 ? overview.relevance / (overview.requests * overview.k) : 0;
}

/** Requests that came, of those expected. */
export function trafficWords(overview, now) {
  const end = new Date(overview.period_end);
  // A tick ends because the window of a promise does: by that one's clock.
  const zone = overview.promises.find((one) => Date.parse(one.end) === +end)?.window.zone;
  return `${compact(overview.requests)} of about ${compact(overview.expected_requests)} requests by ${when(end, zone, now)}`;
}
