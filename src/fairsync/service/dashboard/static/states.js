// The state of a promise as a shape and a word, because colour alone is not accessible.

import { draw, make } from "./dom.js";

/** All states, the most urgent first. */
export const STATES = ["impossible", "at risk", "on track", "kept", "no promise"];

const SHAPES = {
  impossible: ["M4.5 1h7L15 4.5v7L11.5 15h-7L1 11.5v-7z", "M5.2 5.2l5.6 5.6M10.8 5.2l-5.6 5.6"],
  "at risk": ["M8 1.2L15.3 14.5H.7z", "M8 6v4M8 12v.6"],
  "on track": ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1z", "M4.6 8h6.4M8.4 5.2L11.2 8l-2.8 2.8"],
  kept: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1z", "M4.6 8.3l2.4 2.4 4.5-5"],
  "no promise": ["M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3z", ""],
  notice: ["M8 .8L15.2 8 8 15.2.8 8z", "M8 4.8v3.6M8 10.6v.6"],
};

/** The icon of a state. It is hidden from screen readers, because the word is next to it. */
export function sign(state) {
  const [outline, mark] = SHAPES[state] ?? SHAPES.notice;
  return draw(
    "svg",
    { viewBox: "0 0 16 16", class: "sign", "aria-hidden": "true", "data-state": state },
    draw("path", { class: "outline", d: outline }),
    mark ? draw("path", { class: "mark", d: mark }) : null,
  );
}

/** The icon and the word of a state. */
export function badge(state) {
  return make("span", { class: "state", "data-state": state }, sign(state), state);
}
