// The A/B test: the arms beside each other, and the verdict.

import { byId, make, setText } from "./dom.js";
import { count, percentRoundedDown, precise, precisePercent } from "./format.js";

const HEADS = ["Arm", "Users", "Requests", "Relevance", "Difference", "Cost", "Exposures", "Difference", "Past windows kept"];

/** Show the comparison of the arms, or nothing if the service has none. */
export function showArms(report) {
  byId("arms").hidden = report === null;
  if (report === null) return;
  setText(byId("arms-title"), `A/B test: ${report.experiment}`);
  setText(byId("arms-verdict"), report.verdict);
  const heads = make("tr", {}, ...HEADS.map((head) => make("th", { scope: "col" }, head)));
  byId("arms-table").replaceChildren(make("thead", {}, heads), make("tbody", {}, ...report.arms.map(row)));
}

function row(arm) {
  const kept = arm.past ? `${count(arm.kept)} of ${count(arm.past)}` : "–";
  const cells = [
    percentRoundedDown(arm.share), count(arm.requests), estimate(arm.relevance), estimate(arm.relevance_difference),
    estimate(arm.cost, precisePercent), estimate(arm.exposures), estimate(arm.exposures_difference), kept,
  ];
  return make("tr", { "data-arm": arm.name }, make("th", { scope: "row" }, arm.name), ...cells.map((cell) => make("td", {}, cell)));
}

/** A value with its interval, as far as they are known. */
function estimate(one, format = precise) {
  if (!one || one.value === null) return "–";
  return one.low === null ? format(one.value) : `${format(one.value)} (${format(one.low)} to ${format(one.high)})`;
}
