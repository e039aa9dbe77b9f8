// Builds elements. Text is only ever set as text; `html` does not exist here on purpose.
const properties = new Set(["value", "checked", "hidden", "disabled", "open"]);

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "text") node.textContent = value;
    else if (properties.has(key)) node[key] = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

export function button(text, onclick, props = {}) {
  return el("button", { type: "button", class: "small", text, onclick, ...props });
}

const keyOf = (control) => control.dataset.key ?? control.textContent;

// Redraws what may have the focus: then the button with the same data-key, or text, has it again, or else `other`.
export function keepFocus(container, redraw, other) {
  const focused = container.contains(document.activeElement) ? document.activeElement : undefined;
  redraw();
  if (!focused || focused.isConnected) return;
  const again = [...container.querySelectorAll("button:not(:disabled)")].find((one) => keyOf(one) === keyOf(focused));
  (again ?? other)?.focus({ preventScroll: true });
}

// Calls `close` when the focus leaves a panel that lies over others, which would hide what has the focus then.
export function closeBehindFocus(panel, close) {
  panel.addEventListener("focusout", ({ relatedTarget: next }) => {
    if (next && !panel.contains(next) && getComputedStyle(panel).position === "absolute" && !document.querySelector("dialog[open]")) close();
  });
}

let announced = 0;

// Said once by screen readers. The same text twice in a row needs a change, or nothing is said.
export function announce(text) {
  announced += 1;
  byId("announce").textContent = text + (announced % 2 ? "" : "\u00a0");
}

// Grows a text box with its text, up to what the style allows.
export function grow(box) {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

export async function copyText(text, control) {
  const before = control.textContent;
  let said = "Copied";
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copyByCommand(text)) said = "Not allowed by the browser";
  } catch {
    said = "Not allowed by the browser";
  }
  control.textContent = said;
  announce(said);
  setTimeout(() => { control.textContent = before; }, 1500);
}

// navigator.clipboard is missing where the page is not served from this machine or over TLS.
function copyByCommand(text) {
  const box = el("textarea", { value: text, class: "visually-hidden", "aria-hidden": "true" });
  const before = document.activeElement;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  before?.focus();
  return done;
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
