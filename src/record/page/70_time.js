// ---- over time: how full the pool is, which requests run and wait, each request ----

import { BELOW, GUTTER, drawAxis, drawColumns, drawCursor, drawLine, fillingIcon, lineIcon, niceTop, plotWidth, preemptionMark, roundStep, scaleOf, scrubOn } from "./35_chart.js";

const ROW = 18;

/** The frames that are shown: [from, to). */
const range = { from: 0, to: numFrames };

const timeWidth = (canvas) => canvas.parentElement.clientWidth;
const xOf = (frame, width) => GUTTER + (frame - range.from) / (range.to - range.from) * plotWidth(width);
const frameAt = (x, width) =>
  clampFrame(range.from + Math.floor((x - GUTTER) / plotWidth(width) * (range.to - range.from)));
const clampFrame = (frame) => Math.min(Math.max(frame, 0), numSteps);

/** The steps around the one shown, `factor` times as many. */
function zoom(factor) {
  const span = Math.min(numFrames, Math.max(12, Math.round((range.to - range.from) * factor)));
  const at = (view.frame - range.from) / (range.to - range.from);
  range.from = Math.round(view.frame - Math.min(Math.max(at, 0), 1) * span);
  range.from = Math.min(Math.max(range.from, 0), numFrames - span);
  range.to = range.from + span;
  drawTime();
}

/** The range follows the step. */
function keepInRange() {
  const span = range.to - range.from;
  if (view.frame >= range.from && view.frame < range.to) return;
  range.from = Math.min(Math.max(view.frame - Math.floor(span / 3), 0), numFrames - span);
  range.to = range.from + span;
}

/** The largest of a column's values in each pixel column. */
function* pixels(values, width) {
  const span = range.to - range.from;
  const many = plotWidth(width);
  const parts = Math.min(span, Math.ceil(many));
  for (let i = 0; i < parts; ++i) {
    const from = range.from + Math.floor(i * span / parts);
    const to = Math.max(from + 1, range.from + Math.floor((i + 1) * span / parts));
    let most = 0;
    for (let frame = from; frame < to; ++frame) most = Math.max(most, values(Math.min(frame, numSteps - 1)));
    yield [xOf(from, width), xOf(to, width), most];
  }
}

/** Round numbers of steps, as they fit: [[x, text]...]. */
function ticks(width) {
  const span = range.to - range.from;
  const step = roundStep(span / Math.max(3, Math.floor(plotWidth(width) / 110)));
  const out = [];
  for (let at = Math.ceil(stepOf(range.from) / step) * step; at - run.first < range.to; at += step) {
    out.push([xOf(at - run.first, width), count(at)]);
  }
  return out;
}

function drawFrameCursor(context, width, height) {
  if (view.frame < range.from || view.frame >= range.to) return;
  drawCursor(context, xOf(view.frame, width), xOf(view.frame + 1, width), height);
}

function drawUsage() {
  const canvas = document.getElementById("usage");
  const width = timeWidth(canvas);
  const height = 112;
  const context = prepare(canvas, width, height);
  const filled = (frame) => columns.held[frame] + columns.cached[frame];
  // A pool that is never half full would be a line at the bottom.
  const top = Math.min(largest(filled) * 2 < run.config.num_blocks ? niceTop(largest(filled)) : Infinity, run.config.num_blocks);
  const parts = [[filled, "cached"], [(frame) => columns.held[frame], "held"], [(frame) => columns.shared[frame], "shared"]];
  for (const [values, look] of parts) drawColumns(context, look, pixels(values, width), height - BELOW, scaleOf(height, top));
  drawAxis(context, width, height, top, ticks(width), "step");
  for (const frame of eventFrames.get("preemption")) {
    if (frame >= range.from && frame < range.to) preemptionMark(context, (xOf(frame, width) + xOf(frame + 1, width)) / 2, 0);
  }
  drawFrameCursor(context, width, height - 14);
}

const largest = (values) => {
  let most = 1;
  for (let frame = 0; frame < numSteps; ++frame) most = Math.max(most, values(frame));
  return most;
};

function drawQueue() {
  const canvas = document.getElementById("queue");
  const width = timeWidth(canvas);
  const height = 84;
  const context = prepare(canvas, width, height);
  const top = niceTop(largest((frame) => Math.max(columns.running[frame], columns.waiting[frame])));
  drawAxis(context, width, height, top, ticks(width), "step");
  for (const [values, look] of [[columns.running, "run"], [columns.waiting, "wait"]]) {
    drawLine(context, look, pixels((frame) => values[frame], width), height - BELOW, scaleOf(height, top));
  }
  drawFrameCursor(context, width, height - 14);
}

/** The legends of both charts, with the numbers of the step. */
function showChartLegends() {
  // After the last step the columns say nothing more.
  const now = (values, what) => (view.frame < numSteps ? `${count(values[view.frame])} ${what}` : what);
  fillLegend(document.getElementById("usage-legend"), [
    [fillingIcon("held"), now(columns.held, "held")],
    [fillingIcon("shared"), now(columns.shared, "of them shared")],
    [fillingIcon("cached"), now(columns.cached, "cached")],
    [(context) => preemptionMark(context, 9, 4), "preemption"],
  ], 18, 18);
  fillLegend(document.getElementById("queue-legend"), [
    [lineIcon("run"), now(columns.running, "run")],
    [lineIcon("wait"), now(columns.waiting, "wait")],
  ], 34, 16);
}

// ---- the bars ----

let rows = [];  // indices of requests

function chooseRows() {
  const onlyNow = document.getElementById("only-now").checked;
  rows = [];
  requests.forEach((request, index) => {
    if (!onlyNow || segmentAt(request, view.frame) !== undefined || index === view.request) rows.push(index);
  });
}

function drawBars() {
  chooseRows();
  const scroller = document.getElementById("bars");
  const canvas = document.getElementById("bars-canvas");
  const width = scroller.clientWidth;
  const height = Math.min(rows.length * ROW + 4, 420);
  document.getElementById("bars-space").style.height = `${Math.max(0, rows.length * ROW + 4)}px`;
  scroller.style.height = `${Math.max(height, ROW)}px`;
  const context = prepare(canvas, width, Math.max(height, ROW));
  const first = Math.floor(scroller.scrollTop / ROW);
  const last = Math.min(rows.length, Math.ceil((scroller.scrollTop + height) / ROW));
  for (let row = first; row < last; ++row) drawBar(context, rows[row], row * ROW - scroller.scrollTop, width);
  drawFrameCursor(context, width, height);
}

function drawBar(context, index, y, width) {
  const request = requests[index];
  if (index === view.request) {
    context.fillStyle = theme.mark;
    context.fillRect(0, y, width, ROW);
  }
  context.fillStyle = ownerColour(index);
  context.fillRect(4, y + 5, 9, 9);
  context.fillStyle = theme.ink;
  context.font = `${index === view.request ? "700 " : ""}12px system-ui, sans-serif`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(`#${request.id}`, 17, y + ROW / 2 + 1, GUTTER - 20);
  context.save();
  context.beginPath();
  context.rect(GUTTER, y, plotWidth(width), ROW);
  context.clip();
  for (const segment of request.segments) {
    if (segment.to <= range.from || segment.from >= range.to) continue;
    const x = xOf(segment.from, width);
    drawPhase(context, segment.phase, index, x, y + 2, Math.max(xOf(segment.to, width) - x, 1), ROW - 4);
  }
  if (request.refused !== "") {
    context.fillStyle = theme.alarm;
    context.fillText("refused", xOf(Math.max(request.arrived + 1 - run.first, 0), width) + 2, y + ROW / 2 + 1);
  }
  context.restore();
}

function scrollToRow(index) {
  const row = rows.indexOf(index);
  const scroller = document.getElementById("bars");
  if (row < 0) return;
  if (row * ROW < scroller.scrollTop) scroller.scrollTop = row * ROW;
  if ((row + 1) * ROW > scroller.scrollTop + scroller.clientHeight) {
    scroller.scrollTop = (row + 1) * ROW - scroller.clientHeight + 4;
  }
}

function drawTime() {
  keepInRange();
  showChartLegends();
  drawUsage();
  drawQueue();
  drawBars();
  document.getElementById("zoom-fit").disabled = range.to - range.from === numFrames;
  document.getElementById("zoom-out").disabled = range.to - range.from === numFrames;
}

/** Press or drag to go to a step. */
const scrubSteps = (canvas, onPress) => scrubOn(canvas, (x) => goTo(frameAt(x, canvas.clientWidth)), onPress);

function listenToTime() {
  scrubSteps(document.getElementById("usage"));
  scrubSteps(document.getElementById("queue"));
  const bars = document.getElementById("bars");
  scrubSteps(document.getElementById("bars-canvas"), (event) => {
    const index = rows[Math.floor((event.offsetY + bars.scrollTop) / ROW)];
    if (index !== undefined) choose({ request: index });
  });
  bars.addEventListener("scroll", drawBars);
  bars.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (move === undefined || rows.length === 0) return;
    event.preventDefault();
    const at = rows.indexOf(view.request);
    const next = at < 0 ? 0 : Math.min(Math.max(at + move, 0), rows.length - 1);
    choose({ request: rows[next] });
    scrollToRow(rows[next]);
  });
  document.getElementById("only-now").addEventListener("change", drawBars);
  document.getElementById("zoom-in").addEventListener("click", () => zoom(0.5));
  document.getElementById("zoom-out").addEventListener("click", () => zoom(2));
  document.getElementById("zoom-fit").addEventListener("click", () => zoom(Infinity));
}
