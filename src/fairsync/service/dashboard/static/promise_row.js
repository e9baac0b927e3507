// One row of the promise list: a line of figures, and below it, when opened, the pace chart.

import { draw, make, setAttribute, setText } from "./dom.js";
import { compact, count, duration, full, smallPercent } from "./format.js";
import { boundsText, groupBoost, promiseCost, promiseText, statusSentence, titleOf, wouldCost } from "./messages.js";
import { legend, paceChart, paceTable } from "./pace_chart.js";
import { windowBars } from "./past_windows.js";
import { badge } from "./states.js";

const term = (name, text) => make("div", { class: name }, make("dt", {}, text), make("dd", {}));

export class PromiseRow {
  /** Creates the name and the state only. The figures are rendered while the row is near the viewport. */
  constructor(id, actions) {
    this.id = id;
    this.actions = actions;
    this.open = false;
    this.pace = null;
    this.detailId = `detail-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;
    this.label = make("span", { class: "label", dir: "auto" });
    this.name = make("button", { type: "button", class: "name", "aria-expanded": "false", onclick: () => this.toggle() }, this.label);
    this.badge = make("span", {});
    this.figures = make("div", { class: "figures" });
    this.element = make("li", { class: "row" }, make("div", { class: "line" }, make("h3", {}, this.name), this.badge, this.figures));
    this.element.row = this;
  }

  update(entry, view) {
    this.entry = entry;
    this.view = view;
    setText(this.label, entry.label);
    setAttribute(this.label, "title", entry.label.length > 24 ? entry.label : null);
    if (this.badge.dataset.state !== entry.state) {
      this.badge.replaceChildren(badge(entry.state));
      this.badge.dataset.state = entry.state;
      this.element.dataset.state = entry.state;
    }
    if (!entry.promise) {
      setAttribute(this.name, "aria-expanded", null);
      setAttribute(this.name, "disabled", true);
    }
    if (this.near) this.draw();
  }

  /** Called when the row comes near the viewport or leaves it. */
  setNear(near) {
    this.near = near || this.element.contains(document.activeElement);
    if (this.near) this.draw();
    else if (this.parts) {
      this.figures.replaceChildren();
      this.parts = null;
    }
  }

  draw() {
    this.parts ??= this.build();
    const { promise, group } = this.entry, { typical, now, overview } = this.view, parts = this.parts;
    const boost = groupBoost(promise?.price ?? group?.price ?? 0, typical, promise?.state), cost = promiseCost(promise, group, overview);
    setText(parts.boost, boost.text);
    setAttribute(parts.boost, "title", boost.explanation);
    setText(parts.cost, cost.text);
    setAttribute(parts.cost, "title", cost.explanation);
    if (!promise) {
      setText(parts.promise, `${count(group.items)} items`);
      setText(parts.soFar, compact(group[overview.count]));
      return;
    }
    const [start, end] = [promise.start, promise.end].map((moment) => new Date(moment));
    const later = start > now ? `begins in ${duration(start - now, true)}` : "";
    const priority = promise.priority === 1 ? "" : `, priority ${count(promise.priority)}`;
    setText(parts.promise, `${boundsText(promise)}${priority}${later && `, ${later}`}`);
    setAttribute(parts.promise, "title", `${promise.window.zone}, ${later ? `from ${full(start, promise.window.zone)} ` : ""}until ${full(end, promise.window.zone)}`);
    setText(parts.soFar, compact(promise.exposures));
    // Shares are of all slots of the window: those so far, and those that are expected.
    const share = [promise.at_least, promise.at_most].some((bound) => bound !== null && !Number.isInteger(bound));
    const ofSlots = share && promise.slots > 0 ? ` (${smallPercent(promise.projected / promise.slots)})` : "";
    setText(parts.atEnd, `${compact(Math.round(promise.projected))}${ofSlots}`);
    setText(parts.missing, promise.shortfall > 0 ? compact(Math.ceil(promise.shortfall)) : "0");
    parts.missing.classList.toggle("some", promise.shortfall > 0);
    setText(parts.left, later ? "–" : duration(end - now, true));
    this.drawBar(parts.bar, promise);
    const windows = this.view.past.get(promise.id) ?? [];
    const latest = `${windows.length} ${windows.at(-1)?.end}`;
    if (parts.past.dataset.latest !== latest) {
      parts.past.dataset.latest = latest;
      parts.past.replaceChildren(windowBars(windows, promise.window.zone));
    }
    if (this.open) this.drawDetail();
  }

  build() {
    const { promise, label } = this.entry;
    const names = promise
      ? { promise: "Promised", bar: "Progress", soFar: "So far", atEnd: "At the end", missing: "Shortfall", left: "Time left",
          boost: "Boost", cost: "Cost", past: "Past windows" }
      : { promise: "Group", soFar: "So far", boost: "Boost", cost: "Cost" };
    const list = make("dl", {});
    const parts = {};
    for (const [key, text] of Object.entries(names)) {
      const cell = term(key, text);
      parts[key] = cell.lastChild;
      list.append(cell);
    }
    if (parts.bar) {
      parts.bar.append(draw("svg", { class: "bar", role: "img", height: 14, width: "100%" },
        ...["rail", "ahead", "done"].map((kind) => draw("rect", { class: kind, y: 3, height: 8, rx: 1.5 })),
        draw("rect", { class: "floor", y: 0, width: 2, height: 14 }), draw("rect", { class: "cap", y: 0, width: 2, height: 14 })));
    }
    const button = promise
      ? make("button", { type: "button", class: "quiet", "aria-label": `Edit the promise for ${label}`, onclick: () => this.actions.edit(this.entry.promise) }, "Edit")
      : make("button", { type: "button", class: "quiet", "aria-label": `Promise exposures to ${label}`, onclick: () => this.actions.add(this.entry.group.group) }, "Promise");
    this.figures.replaceChildren(list, make("div", { class: "act" }, button));
    return parts;
  }

  /** The progress bar: exposures so far, those expected at the end, and the floor as a notch. */
  drawBar(cell, promise) {
    const most = Math.max(promise.floor, promise.cap ?? 0, promise.projected, promise.exposures, 1) * 1.02;
    const at = (value) => `${((100 * value) / most).toFixed(2)}%`;
    const [rail, ahead, done, floor, cap] = cell.firstChild.children;
    setAttribute(rail, "width", "100%");
    setAttribute(ahead, "width", at(Math.max(promise.projected, promise.exposures)));
    setAttribute(done, "width", at(promise.exposures));
    setAttribute(floor, "x", at(promise.floor));
    setAttribute(floor, "visibility", promise.floor ? null : "hidden");
    setAttribute(cap, "x", at(promise.cap ?? 0));
    setAttribute(cap, "visibility", promise.cap === null ? "hidden" : null);
    const of = promise.floor ? ` of ${count(promise.floor)}` : "", ceiling = promise.cap === null ? "" : `, at most ${count(promise.cap)}`;
    setAttribute(cell.firstChild, "aria-label",
      `${count(promise.exposures)}${of}${ceiling}, about ${count(Math.round(promise.projected))} at the end`);
  }

  toggle(open = !this.open) {
    this.open = open;
    setAttribute(this.name, "aria-expanded", String(open));
    setAttribute(this.name, "aria-controls", open ? this.detailId : null);
    this.element.classList.toggle("open", open);
    if (!open) {
      this.detail?.remove();
      this.detail = null;
      return;
    }
    this.detail = make("div", { class: "detail", id: this.detailId, role: "region", "aria-label": `Pace of ${this.entry.label}` },
      make("p", { class: "status" }), make("div", { class: "chart" }), make("dl", { class: "facts" }),
      make("details", {}, make("summary", {}, "As a table"), make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Pace as a table" })));
    this.element.append(this.detail);
    this.drawDetail();
    this.actions.pace(this);
  }

  setPace(pace) {
    this.pace = pace;
    if (this.open) this.drawDetail();
  }

  drawDetail() {
    const { promise, group } = this.entry, { now, typical, overview } = this.view;
    const [status, chart, facts, table] = this.detail.children;
    setText(status, statusSentence(promise, now));
    if (!this.pace) {
      if (!chart.firstChild) chart.append(make("p", { class: "dim" }, "Loading the pace"));
      return;
    }
    chart.replaceChildren(paceChart(this.pace, promise, now, Math.max(chart.clientWidth, 240)), legend(this.pace));
    const boost = groupBoost(promise.price ?? group?.price ?? 0, typical, promise.state);
    const known = { Promise: promiseText(promise), Boost: boost.explanation, Cost: promiseCost(promise, group, overview).explanation };
    known.Window = `${promise.window.zone}, ${full(new Date(promise.start), promise.window.zone)} to ${full(new Date(promise.end), promise.window.zone)}`;
    if (promise.priority !== 1) known.Priority = `${count(promise.priority)}: promises with smaller numbers are kept first.`;
    if (promise.max_price !== null) known["Highest price"] = `${count(promise.max_price * 100)} % of the relevance of a typical last candidate`;
    if (promise.gives_way_to.length) {
      const names = new Map(overview.promises.map((one) => [one.id, titleOf(one)]));
      const some = promise.gives_way_to.slice(0, 5).map((id) => names.get(id) ?? id).join(", ");
      const more = promise.gives_way_to.length > 5 ? ` and ${count(promise.gives_way_to.length - 5)} more` : "";
      known["Gives way to"] = `${some}${more}, by ${count(Math.ceil(promise.shortfall))} exposures`;
    }
    if (promise.would_cost !== null) known["Would cost"] = wouldCost(promise, overview);
    if (facts.children.length !== Object.keys(known).length) {
      facts.replaceChildren(...Object.keys(known).map((name) => make("div", {}, make("dt", {}, name), make("dd", {}))));
    }
    Object.entries(known).forEach(([name, text], place) => {
      setText(facts.children[place].firstChild, name);
      setText(facts.children[place].lastChild, text);
    });
    if (table.open) table.lastChild.replaceChildren(paceTable(this.pace, promise, now));
    else table.ontoggle ??= () => this.drawDetail();
  }
}
