// Making elements. Texts are always set as text.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, { class: names = "", text, ...attributes } = {}, ...children) {
  return fill(document.createElement(name), names, text, attributes, children);
}

export function svg(name, { class: names = "", text, ...attributes } = {}, ...children) {
  return fill(document.createElementNS(SVG, name), names, text, attributes, children);
}

export const byId = (id) => document.getElementById(id);

export function setText(id, text) {
  const target = byId(id);
  if (target.textContent !== text) target.textContent = text;
}

export const percent = (share) => `${Math.round(100 * share)} %`;

function fill(target, names, text, attributes, children) {
  if (names) target.setAttribute("class", names);
  if (text !== undefined) target.textContent = text;
  for (const [key, value] of Object.entries(attributes)) target.setAttribute(key, value);
  target.append(...children);
  return target;
}
