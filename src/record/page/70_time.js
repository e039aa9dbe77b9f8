// ---- over time: how full the pool is, which requests run and wait, each request ----

const GUTTER = 58;  // left of all three, for numbers and names
const ROW = 18;
const RIGHT = 10;

/** The frames that are shown: [from, to). */
const range = { from: 0, to: numFrames };

const timeWidth = (canvas) => canvas.parentElement.clientWidth;
const plotWidth = (width) => Math.max(10, width - GUTTER - RIGHT);
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

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value && Number.isInteger(n)) || 1;
}

function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
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

function drawAxis(context, width, height, top, unit) {
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.fillStyle = theme.quiet;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of [0, top]) {
    const y = Math.round(value === 0 ? height - 16 : 6) + 0.5;
    context.beginPath();
    context.moveTo(GUTTER, y);
    context.lineTo(width - RIGHT, y);
    context.stroke();
    context.fillText(count(value), GUTTER - 6, y);
  }
  context.textBaseline = "alphabetic";
  const span = range.to - range.from;
  const step = roundStep(span / Math.max(3, Math.floor(plotWidth(width) / 110)));
  const first = Math.ceil(stepOf(range.from) / step) * step;
  context.textAlign = "center";
  for (let at = first; frameSafe(at) < range.to; at += step) {
    const x = xOf(frameSafe(at), width);
    if (x > width - RIGHT - 12) break;
    context.fillText(count(at), x, height - 3);
  }
  context.textAlign = "left";
  context.fillText(unit, 4, height - 3);
}
const frameSafe = (step) => step - run.first;

function drawCursor(context, width, height) {
  const left = xOf(view.frame, width);
  const right = xOf(view.frame + 1, width);
  if (view.frame < range.from || view.frame >= range.to) return;
  context.fillStyle = theme.ink;
  context.globalAlpha = 0.13;
  context.fillRect(left, 0, Math.max(right - left, 1), height);
  context.globalAlpha = 1;
  context.fillRect(Math.round((left + right) / 2) - 0.75, 0, 1.5, height);
}

function drawUsage() {
  const canvas = document.getElementById("usage");
  const width = timeWidth(canvas);
  const height = 112;
  const context = prepare(canvas, width, height);
  const filled = (frame) => columns.held[frame] + columns.cached[frame];
  // A pool that is never half full would be a line at the bottom.
  const top = Math.min(largest(filled) * 2 < run.config.num_blocks ? niceTop(largest(filled)) : Infinity, run.config.num_blocks);
  const base = height - 16;
  const scale = (height - 22) / top;
  const columnsOf = [[filled, "cached"], [(frame) => columns.held[frame], "held"], [(frame) => columns.shared[frame], "shared"]];
  for (const [values, look] of columnsOf) {
    for (const [from, to, value] of pixels(values, width)) {
      const tall = Math.round(value * scale);
      const x = Math.round(from);
      drawFilling(context, look, x, base - tall, Math.max(Math.round(to) - x, 1), tall);
    }
  }
  drawAxis(context, width, height, top, "step");
  for (const frame of eventFrames.get("preemption")) {
    if (frame >= range.from && frame < range.to) preemptionMark(context, (xOf(frame, width) + xOf(frame + 1, width)) / 2, 0);
  }
  drawCursor(context, width, height - 14);
}

/** A part of the pool in the chart: plain, striped or dotted, in one grid over the whole chart. */
function drawFilling(context, look, x, y, width, height) {
  context.fillStyle = { cached: theme.cachedBack, held: theme.held, shared: theme.sharedBack }[look];
  context.fillRect(x, y, width, height);
  if (look === "shared") stripes(context, x, y, width, height, theme.shared, 5);
  if (look !== "cached") return;
  context.fillStyle = theme.cached;
  for (let dot = Math.ceil(x / 6) * 6; dot < x + width; dot += 6) {
    for (let at = Math.ceil(y / 6) * 6 + (dot / 6 % 2) * 3; at < y + height - 1; at += 6) context.fillRect(dot, at, 1.4, 1.4);
  }
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
  const scale = (height - 22) / top;
  const base = height - 16;
  drawAxis(context, width, height, top, "step");
  for (const look of ["run", "wait"]) {
    lineLook(context, look);
    const values = look === "run" ? columns.running : columns.waiting;
    context.beginPath();
    for (const [x, to, value] of pixels((frame) => values[frame], width)) {
      context.lineTo(x, base - value * scale);
      context.lineTo(to, base - value * scale);
    }
    context.stroke();
  }
  context.setLineDash([]);
  drawCursor(context, width, height - 14);
}

function lineLook(context, look) {
  context.strokeStyle = look === "run" ? theme.accent : theme.alarm;
  context.lineWidth = 1.8;
  context.setLineDash(look === "run" ? [] : [5, 3]);
}

/** The legends of both charts, with the numbers of the step. */
function showChartLegends() {
  // After the last step the columns say nothing more.
  const now = (values, what) => (view.frame < numSteps ? `${count(values[view.frame])} ${what}` : what);
  const filling = (look) => (context) => drawFilling(context, look, 0, 0, 18, 18);
  fillLegend(document.getElementById("usage-legend"), [
    [filling("held"), now(columns.held, "held")],
    [filling("shared"), now(columns.shared, "of them shared")],
    [filling("cached"), now(columns.cached, "cached")],
    [(context) => preemptionMark(context, 9, 4), "preemption"],
  ], 18, 18);
  const line = (look) => (context) => {
    lineLook(context, look);
    context.beginPath();
    context.moveTo(0, 8);
    context.lineTo(34, 8);
    context.stroke();
  };
  fillLegend(document.getElementById("queue-legend"), [
    [line("run"), now(columns.running, "run")],
    [line("wait"), now(columns.waiting, "wait")],
  ], 34, 16);
}

function preemptionMark(context, x, y) {
  context.fillStyle = theme.alarm;
  context.beginPath();
  context.moveTo(x - 3.5, y);
  context.lineTo(x + 3.5, y);
  context.lineTo(x, y + 6);
  context.fill();
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
  drawCursor(context, width, height);
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
function scrubOn(canvas, onPress) {
  const seek = (event) => goTo(frameAt(event.offsetX, canvas.clientWidth));
  canvas.addEventListener("pointerdown", (event) => {
    if (onPress) onPress(event);
    if (event.offsetX < GUTTER) return;
    canvas.setPointerCapture(event.pointerId);
    seek(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons === 1 && canvas.hasPointerCapture(event.pointerId)) seek(event);
  });
}

function listenToTime() {
  scrubOn(document.getElementById("usage"));
  scrubOn(document.getElementById("queue"));
  const bars = document.getElementById("bars");
  scrubOn(document.getElementById("bars-canvas"), (event) => {
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
