// Small helpers around the document.

/** The element with this id; it is an error where there is none. */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

/** A new element; `fields` are properties, `data-*` and `aria-*` and `role` are attributes. */
export function make(tag, fields = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** An icon of the sprite in index.html; screen readers do not see it. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Show or hide elements by the `hidden` property. */
export function show(on, ...elements) {
  for (const element of elements) element.hidden = !on;
}

/** Write a text only where it differs, so that live regions do not repeat it. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Milliseconds of the page's own clock; it never runs backwards. */
export function now() {
  return performance.now();
}

/** 83 → "1:23". */
export function clockText(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  const tail = String(whole % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${tail}` : `${minutes}:${tail}`;
}
