// ---- colours, patterns, canvases ----

import { Phase } from "./05_words.js";

export const OWNERS = 8;
export let theme = {};

export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  theme = {};
  for (const name of ["panel", "ink", "quiet", "line", "faint", "accent", "free", "cached", "shared", "wait", "alarm",
    "mark", "held"]) {
    theme[name] = of(name);
  }
  theme.cachedBack = of("cached-back");
  theme.sharedBack = of("shared-back");
  theme.owners = Array.from({ length: OWNERS }, (unused, i) => of(`owner-${i}`));
  theme.onOwners = theme.owners.map((colour) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
      .map((value) => (value <= 0.04 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#101416" : "#ffffff";
  });
}

export const ownerColour = (index) => theme.owners[index % OWNERS];
export const onOwner = (index) => theme.onOwners[index % OWNERS];

/** Sets a canvas to its size on the page and clears it; its context, in CSS pixels. */
export function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Slanted lines over a rectangle. */
export function stripes(context, x, y, width, height, colour, gap, thick = 1.5) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = thick;
  context.beginPath();
  const first = Math.floor((x - y - height) / gap) * gap;
  for (let at = first; at < x + width - y; at += gap) {
    context.moveTo(at + y, y);
    context.lineTo(at + y + height, y + height);
  }
  context.stroke();
  context.restore();
}

export function dots(context, x, y, width, height, colour, gap, radius = 1) {
  context.fillStyle = colour;
  const across = Math.max(1, Math.floor(width / gap));
  const down = Math.max(1, Math.floor(height / gap));
  for (let i = 0; i < across; ++i) {
    for (let j = 0; j < down; ++j) {
      context.beginPath();
      context.arc(x + (i + 0.5) * width / across, y + (j + 0.5) * height / down, radius, 0, 2 * Math.PI);
      context.fill();
    }
  }
}

/** A block of a map. Small ones do without patterns: their shades still differ. */
export function drawBlock(context, state, owner, x, y, size) {
  const fine = size >= 9;
  if (state === "owned") {
    context.fillStyle = ownerColour(owner);
    context.fillRect(x, y, size, size);
  } else if (state === "shared") {
    context.fillStyle = size > 3 ? theme.sharedBack : theme.shared;
    context.fillRect(x, y, size, size);
    if (fine) stripes(context, x, y, size, size, theme.shared, Math.max(4, size / 4), size / 12 + 0.6);
    else if (size > 3) stripes(context, x, y, size, size, theme.shared, size, 1.2);
  } else if (state === "cached") {
    context.fillStyle = size > 3 ? theme.cachedBack : theme.cached;
    context.fillRect(x, y, size, size);
    if (size > 3) dots(context, x, y, size, size, theme.cached, fine ? Math.max(5, size / 3) : size, size > 20 ? 1.5 : 1);
  } else if (state === "other") {
    context.fillStyle = theme.line;
    context.fillRect(x, y, size, size);
  } else if (size > 3) {
    context.strokeStyle = theme.free;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }
}

/** A request's bar in a frame or more of one phase. */
export function drawPhase(context, phase, owner, x, y, width, height) {
  const middle = y + height / 2;
  context.fillStyle = ownerColour(owner);
  if (phase === Phase.prefill) {
    context.fillRect(x, y, width, height);
  } else if (phase === Phase.decode) {
    context.fillRect(x, y + height * 0.22, width, height * 0.56);
  } else if (phase === Phase.stalled) {
    context.strokeStyle = ownerColour(owner);
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + height * 0.22 + 0.5, Math.max(width - 1, 0.5), height * 0.56 - 1);
  } else if (phase === Phase.queued) {
    context.fillStyle = theme.wait;
    context.fillRect(x, middle - 0.75, width, 1.5);
  } else if (phase === Phase.preempted) {
    stripes(context, x, middle - 3, width, 6, theme.alarm, 5, 1.3);
    context.fillStyle = theme.alarm;
    context.fillRect(x, middle - 0.5, width, 1);
  } else {
    context.fillStyle = theme.wait;
    for (let at = Math.ceil(x / 4) * 4; at < x + width; at += 4) context.fillRect(at, middle - 2, 2, 4);
  }
}

/** Legends are small canvases: [[draw, text]...]. */
export function fillLegend(list, entries, width, height) {
  list.replaceChildren(...entries.map(([draw, text]) => {
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    draw(prepare(canvas, width, height));
    return element("li", {}, canvas, text);
  }));
}

/** A DOM element. Text is only ever set as text. */
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** [[name, text or list]...]; undefined: leave it out. */
export function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== undefined)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, ...[value].flat())]));
}
