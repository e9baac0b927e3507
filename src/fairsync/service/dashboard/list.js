// The list of promises: searched, filtered, sorted; hundreds of rows, of which only those near the screen are drawn.

import { byId, mark, say } from "./dom.js";
import { count } from "./format.js";
import { Row } from "./row.js";
import { rowsOf, select, tally } from "./selection.js";
import { usualRelevance } from "./words.js";

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
    new ResizeObserver(() => this.opened().forEach((row) => row.drawDetail())).observe(this.root);
  }

  update(overview, past, now) {
    this.entries = rowsOf(overview);
    this.usual = usualRelevance(overview) || this.usual || 0; // a tick that has just begun knows none yet
    this.view = { past, now, usual: this.usual, overview };
    for (const [state, number] of Object.entries(tally(this.entries))) {
      const place = this.form.querySelector(`[data-count="${state}"]`);
      say(place, count(number));
      // A choice that would show nothing is not offered, unless it is the present one.
      const input = place.closest("label").querySelector("input");
      place.closest("label").hidden = number === 0 && state !== "all" && !input.checked;
    }
    this.show(false);
  }

  /** Put the rows in order. While somebody is at one of them, they stay where they are. */
  show(asked) {
    if (!this.entries) return;
    const choice = Object.fromEntries(new FormData(this.form));
    let chosen = select(this.entries, choice);
    const busy = !asked && (this.root.matches(":hover") || this.root.contains(document.activeElement));
    if (busy) {
      const places = new Map([...this.root.children].map((element, place) => [element.row.id, place]));
      const place = (entry) => places.get(entry.id) ?? Infinity;
      chosen = chosen.map((entry, i) => [entry, i]).sort((a, b) => place(a[0]) - place(b[0]) || a[1] - b[1]).map(([entry]) => entry);
    }
    const wanted = new Set(chosen.map((entry) => entry.id));
    for (const [id, row] of this.rows) if (!wanted.has(id)) this.drop(id, row);
    for (const entry of chosen) {
      if (!this.rows.has(entry.id)) this.rows.set(entry.id, new Row(entry.id, this.actions));
      this.rows.get(entry.id).update(entry, this.view);
    }
    this.arrange(chosen.map((entry) => this.rows.get(entry.id).element));
    mark(byId("columns"), "hidden", chosen.length === 0);
    const promised = this.entries.some((entry) => entry.promise);
    const nothing = promised || choice.text || choice.state !== "all"
      ? "No group matches." : "Nothing is promised yet: make a new promise, or look through the groups without one.";
    say(byId("matches"), chosen.length ? "" : nothing);
    byId("columns").classList.toggle("groups", choice.state === "no promise");
  }

  arrange(elements) {
    const held = this.root.contains(document.activeElement) ? document.activeElement : null;
    elements.forEach((element, place) => {
      const here = this.root.children[place];
      if (here === element) return;
      const isNew = element.parentNode === null;
      this.root.insertBefore(element, here ?? null);
      if (isNew) this.observer.observe(element);
    });
    if (held && held !== document.activeElement) held.focus({ preventScroll: true });
  }

  drop(id, row) {
    this.observer.unobserve(row.element);
    row.element.remove();
    this.rows.delete(id);
  }

  opened() {
    return [...this.rows.values()].filter((row) => row.open && row.detail);
  }

  /** Bring one promise before the reader, whatever was chosen before. */
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
