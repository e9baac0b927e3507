// The audit: who made, changed and ended which promise, and whether anything is missing from it.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { count, full } from "./format.js";

const PAGE = 20;
const WORDS = { made: "made", changed: "changed to", ended: "ended", found: "found", restored: "restored" };

/** Load the entries when the list is opened, and again whenever it is opened later. */
export function watchAudit() {
  byId("audit-details").addEventListener("toggle", () => byId("audit-details").open && load());
}

async function load(before = null) {
  const list = byId("audit");
  if (before === null) list.replaceChildren();
  list.parentNode.querySelector("button")?.remove();
  try {
    const answer = await api.audit(PAGE, before);
    if (before === null) byId("audit-state").replaceChildren(stateOf(answer));
    list.append(...answer.entries.map(entry));
    const last = answer.entries.at(-1);
    if (last && last.number > 1) {
      list.after(make("button", { type: "button", class: "quiet", onclick: () => load(last.number) }, "Earlier entries"));
    }
  } catch (error) {
    if (!(error instanceof api.ServiceError)) throw error;
    byId("audit-state").replaceChildren(error.explanation);
  }
}

function stateOf({ total, complete, damage }) {
  if (complete) return total ? `${count(total)} entries, none missing.` : "No promise has been made yet.";
  return make("strong", { class: "problem" }, `The ledger was changed from outside: ${damage.join("; ")}.`);
}

function entry(one) {
  const time = make("time", { datetime: one.at, class: "dim" }, full(new Date(one.at)));
  const by = one.by ? make("strong", {}, one.by) : make("span", { class: "dim" }, one.note ? "nobody" : "no token");
  const was = one.action === "changed" && one.before_text ? ` (before: ${one.before_text})` : "";
  const text = [WORDS[one.action], one.text].filter(Boolean).join(" ");
  return make("li", { "data-number": one.number }, time, " ", by, ` ${text}${was}`, one.note ? make("span", { class: "dim" }, `; ${one.note}`) : "");
}
