// ---- the run, decoded; see run_timeline.h for what the streams say ----

const run = JSON.parse(document.getElementById("run").textContent);

/** LEB128 numbers of a base64 text. */
function numbers(text) {
  const bytes = atob(text);
  const out = new Float64Array(bytes.length);
  let count = 0;
  let value = 0;
  let scale = 1;
  for (let i = 0; i < bytes.length; ++i) {
    const byte = bytes.charCodeAt(i);
    value += (byte & 127) * scale;
    scale *= 128;
    if (byte < 128) {
      out[count++] = value;
      value = 0;
      scale = 1;
    }
  }
  return out.subarray(0, count);
}

/** A signed number of its zigzag form. */
function signed(value) {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

/** A column of which the stream has the differences. */
function column(text) {
  const values = numbers(text);
  let sum = 0;
  for (let i = 0; i < values.length; ++i) values[i] = sum += signed(values[i]);
  return values;
}

const columns = Object.fromEntries(Object.entries(run.columns).map(([name, text]) => [name, column(text)]));
const requests = run.requests;
const numSteps = run.last - run.first + 1;
const firstBegan = columns.began_us[0];

/** Frames are steps, counted from 0, and one more: the end. */
const numFrames = numSteps + 1;
const stepOf = (frame) => run.first + frame;
const frameOf = (step) => Math.min(Math.max(step - run.first, 0), numSteps);

for (const request of requests) {
  const stream = numbers(request.segments);
  request.segments = [];
  let from = stream.length > 0 ? stream[0] - run.first : 0;
  for (let i = 1; i + 3 < stream.length; i += 4) {
    const to = from + stream[i + 3];
    request.segments.push({
      from, to, phase: stream[i] % 8, reason: Math.floor(stream[i] / 8), behind: stream[i + 1] - 1,
      cause: stream[i + 2] - 1,
    });
    from = to;
  }
}

/** What a request does in a frame; undefined if it is not there. */
function segmentAt(request, frame) {
  const segments = request.segments;
  if (segments.length === 0 || frame < segments[0].from || frame >= segments[segments.length - 1].to) return undefined;
  let low = 0;
  let high = segments.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (segments[middle].from <= frame) low = middle; else high = middle - 1;
  }
  return segments[low];
}

/** By frame: its events, [{kind, request, a, b, cause}], requests and causes by index or -1. */
const events = (() => {
  const stream = numbers(run.events);
  const out = [];
  for (let i = 0; i < stream.length;) {
    const list = [];
    for (let n = stream[i++]; n > 0; --n, i += 5) {
      list.push({
        kind: stream[i], request: stream[i + 1] - 1, a: stream[i + 2], b: stream[i + 3], cause: stream[i + 4] - 1,
      });
    }
    out.push(list);
  }
  while (out.length < numFrames) out.push([]);
  return out;
})();

/** Requests that came after the step before a frame, by frame. */
const arrivals = new Map();
requests.forEach((request, index) => {
  const frame = request.arrived + 1 - run.first;
  if (frame < 0) return;
  if (!arrivals.has(frame)) arrivals.set(frame, []);
  arrivals.get(frame).push(index);
});
