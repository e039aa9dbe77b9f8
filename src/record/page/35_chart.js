// ---- charts over time: what those of a run that ended and those of one that goes on have in common ----

import { count } from "./05_words.js";
import { stripes, theme } from "./30_draw.js";

export const GUTTER = 58;  // left of a chart, for numbers and names
export const RIGHT = 10;
export const BELOW = 16;   // for the words under the axis
const ABOVE = 6;

/** Pixels from left to right, of a chart of that width. */
export const plotWidth = (width) => Math.max(10, width - GUTTER - RIGHT);

/** Pixels of one unit, in a chart of that height whose largest value is `top`. */
export const scaleOf = (height, top) => (height - BELOW - ABOVE) / top;

/** A round number not below `value`. */
export function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value && Number.isInteger(n)) || 1;
}

export function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

/** `ticks`: [[x, text]...]; `unit`: what these are; `words(value)`: a number of the other axis. */
export function drawAxis(context, width, height, top, ticks, unit, words = count) {
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.fillStyle = theme.quiet;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of [0, top]) {
    const y = Math.round(value === 0 ? height - BELOW : ABOVE) + 0.5;
    context.beginPath();
    context.moveTo(GUTTER, y);
    context.lineTo(width - RIGHT, y);
    context.stroke();
    context.fillText(words(value), GUTTER - 6, y);
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "center";
  for (const [x, text] of ticks) {
    if (x > width - RIGHT - 12) break;
    context.fillText(text, x, height - 3);
  }
  context.textAlign = "left";
  context.fillText(unit, 4, height - 3);
}

/** What is shown lies between two places. */
export function drawCursor(context, left, right, height) {
  context.fillStyle = theme.ink;
  context.globalAlpha = 0.13;
  context.fillRect(left, 0, Math.max(right - left, 1), height);
  context.globalAlpha = 1;
  context.fillRect(Math.round((left + right) / 2) - 0.75, 0, 1.5, height);
}

/** Filled up to their values. `columns`: [from, to, value]..., in pixels but for the values. */
export function drawColumns(context, look, columns, base, scale) {
  for (const [from, to, value] of columns) {
    const tall = Math.round(value * scale);
    const x = Math.round(from);
    drawFilling(context, look, x, base - tall, Math.max(Math.round(to) - x, 1), tall);
  }
}

/** A line in steps. */
export function drawLine(context, look, columns, base, scale) {
  lineLook(context, look);
  context.beginPath();
  for (const [from, to, value] of columns) {
    context.lineTo(from, base - value * scale);
    context.lineTo(to, base - value * scale);
  }
  context.stroke();
  context.setLineDash([]);
}

/** A part of a chart: plain, striped or dotted, in one grid over the whole chart. */
export function drawFilling(context, look, x, y, width, height) {
  context.fillStyle = { cached: theme.cachedBack, held: theme.held, shared: theme.sharedBack }[look];
  context.fillRect(x, y, width, height);
  if (look === "shared") stripes(context, x, y, width, height, theme.shared, 5);
  if (look !== "cached") return;
  context.fillStyle = theme.cached;
  for (let dot = Math.ceil(x / 6) * 6; dot < x + width; dot += 6) {
    for (let at = Math.ceil(y / 6) * 6 + (dot / 6 % 2) * 3; at < y + height - 1; at += 6) context.fillRect(dot, at, 1.4, 1.4);
  }
}

export function lineLook(context, look) {
  context.strokeStyle = look === "run" ? theme.ink : theme.alarm;
  context.lineWidth = 1.8;
  context.setLineDash(look === "run" ? [] : [5, 3]);
}

export function preemptionMark(context, x, y) {
  context.fillStyle = theme.alarm;
  context.beginPath();
  context.moveTo(x - 3.5, y);
  context.lineTo(x + 3.5, y);
  context.lineTo(x, y + 6);
  context.fill();
}

/** For a legend. */
export const fillingIcon = (look) => (context) => drawFilling(context, look, 0, 0, 18, 18);
export const lineIcon = (look) => (context) => {
  lineLook(context, look);
  context.beginPath();
  context.moveTo(0, 8);
  context.lineTo(34, 8);
  context.stroke();
};

/** Press or drag in a chart: `seek(x)`, in its pixels. `onPress(event)`: where it was pressed. */
export function scrubOn(canvas, seek, onPress = () => {}) {
  canvas.addEventListener("pointerdown", (event) => {
    onPress(event);
    if (event.offsetX < GUTTER) return;
    canvas.setPointerCapture(event.pointerId);
    seek(event.offsetX);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons === 1 && canvas.hasPointerCapture(event.pointerId)) seek(event.offsetX);
  });
}
