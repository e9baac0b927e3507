// Create and change elements. Text is always inserted as text, never as markup: labels are untrusted input.

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

/** Create an HTML element: make("p", {class: "dim"}, "text", child). */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Set the text of an element if it differs. An unchanged element keeps the user's selection, and is not announced again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute if it differs. */
export function setAttribute(element, name, value) {
  const text = value === null || value === undefined || value === false ? null : value === true ? "" : String(value);
  if (element.getAttribute(name) === text) return;
  if (text === null) element.removeAttribute(name);
  else element.setAttribute(name, text);
}

/** A text for screen readers only. */
export function hiddenText(text) {
  return make("span", { class: "visually-hidden" }, text);
}

let announced = 0;

/** Announce a text to screen readers. Two live regions alternate, so that a repeated text is announced again. */
export function announce(text) {
  const regions = document.querySelectorAll("#announcer > span");
  announced = (announced + 1) % regions.length;
  regions.forEach((region, index) => setText(region, index === announced ? text : ""));
}
