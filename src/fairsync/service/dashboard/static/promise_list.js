// The list of promises. It may have hundreds of rows; only those near the viewport are rendered in full.

import { byId, setAttribute, setText } from "./dom.js";
import { countByState, filterAndSort, rowsOf } from "./filter_sort.js";
import { count } from "./format.js";
import { typicalRelevance } from "./messages.js";
import { PromiseRow } from "./promise_row.js";

const NEAR = "600px 0px";

export class PromiseList {
  constructor(actions) {
    this.actions = actions;
    this.rows = new Map();
    this.root = byId("promises");
    this.form = byId("choose");
    this.observer = new IntersectionObserver(
      (seen) => seen.forEach((one) => one.target.row.setNear(one.isIntersecting)), { rootMargin: NEAR });
    this.form.addEventListener("input", () => this.show(true));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    new ResizeObserver(() => this.openRows().forEach((row) => row.drawDetail())).observe(this.root);
  }

  update(overview, past, now) {
    this.entries = rowsOf(overview);
    this.typical = typicalRelevance(overview) || this.typical || 0; // at the start of a period: that of the period before
    this.view = { past, now, typical: this.typical, overview };
    for (const [state, number] of Object.entries(countByState(this.entries))) {
      const counter = this.form.querySelector(`[data-count="${state}"]`);
      setText(counter, count(number));
      // Hide a filter that would match nothing, unless it is selected.
      const input = counter.closest("label").querySelector("input");
      counter.closest("label").hidden = number === 0 && state !== "all" && !input.checked;
    }
    this.show(false);
  }

  /** Filter and sort the rows. An update does not reorder rows while the pointer or the focus is on one of them. */
  show(byUser) {
    if (!this.entries) return;
    const choice = Object.fromEntries(new FormData(this.form));
    let chosen = filterAndSort(this.entries, choice);
    const busy = !byUser && (this.root.matches(":hover") || this.root.contains(document.activeElement));
    if (busy) {
      const places = new Map([...this.root.children].map((element, place) => [element.row.id, place]));
      const place = (entry) => places.get(entry.id) ?? Infinity;
      chosen = chosen.map((entry, i) => [entry, i]).sort((a, b) => place(a[0]) - place(b[0]) || a[1] - b[1]).map(([entry]) => entry);
    }
    const wanted = new Set(chosen.map((entry) => entry.id));
    for (const [id, row] of this.rows) if (!wanted.has(id)) this.remove(id, row);
    for (const entry of chosen) {
      if (!this.rows.has(entry.id)) this.rows.set(entry.id, new PromiseRow(entry.id, this.actions));
      this.rows.get(entry.id).update(entry, this.view);
    }
    this.reorder(chosen.map((entry) => this.rows.get(entry.id).element));
    setAttribute(byId("columns"), "hidden", chosen.length === 0);
    const promised = this.entries.some((entry) => entry.promise);
    const nothing = promised || choice.text || choice.state !== "all"
      ? "No group matches." : "Nothing is promised yet: make a new promise, or list the groups without one.";
    setText(byId("matches"), chosen.length ? "" : nothing);
    byId("columns").classList.toggle("groups", choice.state === "no promise");
  }

  reorder(elements) {
    const focused = this.root.contains(document.activeElement) ? document.activeElement : null;
    let here = this.root.firstElementChild; // walked along: the place of a child would be counted anew for each of thousands
    for (const element of elements) {
      if (here === element) {
        here = here.nextElementSibling;
        continue;
      }
      const isNew = element.parentNode === null;
      this.root.insertBefore(element, here);
      if (isNew) this.observer.observe(element);
    }
    if (focused && focused !== document.activeElement) focused.focus({ preventScroll: true });
  }

  remove(id, row) {
    this.observer.unobserve(row.element);
    row.element.remove();
    this.rows.delete(id);
  }

  openRows() {
    return [...this.rows.values()].filter((row) => row.open && row.detail);
  }

  /** Scroll to a promise and open it. Resets the filter if it hides the promise. */
  reveal(id) {
    if (!this.rows.has(id)) {
      this.form.reset();
      this.show(true);
    }
    const row = this.rows.get(id);
    if (!row) return;
    row.setNear(true);
    row.toggle(true);
    row.name.focus({ preventScroll: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    row.element.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  }
}
