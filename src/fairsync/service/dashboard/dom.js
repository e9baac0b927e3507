// Making and changing elements. Text always goes in as text: labels are other people's.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Make an HTML element: make("p", {class: "dim"}, "text", child). */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Set a text if it is another one: a selection, and what a screen reader is saying, survive updates. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute if it is another one. */
export function mark(element, name, value) {
  const text = value === null || value === undefined || value === false ? null : value === true ? "" : String(value);
  if (element.getAttribute(name) === text) return;
  if (text === null) element.removeAttribute(name);
  else element.setAttribute(name, text);
}

/** A text that only screen readers say. */
export function aside(text) {
  return make("span", { class: "unseen" }, text);
}

let announced = 0;

/** Tell it to screen readers. Two places take turns, so that the same words are said again. */
export function announce(text) {
  const places = document.querySelectorAll("#announcer > span");
  announced = (announced + 1) % places.length;
  places.forEach((place, index) => say(place, index === announced ? text : ""));
}
