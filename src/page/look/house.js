// What the messages say: requests, and the pools step by step, forwards and backwards.
import { Change, Decision, Phase, Wait, isWaiting } from "../draw/05_words.js";
import { History } from "./history.js";
import { LivePool } from "./pool.js";

const GONE = 255;
const MOST_FRAMES = 30000;
const MOST_MICROS = 5 * 60e6;  // of steps kept
const MOST_LOOKS = 500;        // of a request's life

export class House {
  constructor(start) {
    this.config = start.config;
    this.own = start.own;  // the reader's own requests alone
    this.groups = start.groups;
    this.requests = [];    // undefined: forgotten
    this.byId = new Map();
    this.causes = [];
    this.frames = [];
    this.at = -1;  // the frame shown, in `frames`; what the pools and looks are at
    this.pool = new LivePool(start.config.num_blocks, start.own);
    this.host = start.config.num_host_blocks > 0 && !start.own ? new LivePool(start.config.num_host_blocks) : undefined;
    this.present = new Set();  // requests that are there at the frame shown
    this.history = new History();
    this.hits = [0, 0];        // tokens found, and looked for
    this.preemptions = 0;
    this.evictions = 0;        // blocks
    this.ended = { requests: 0, tokens: 0 };
  }

  /** Takes a message; follows to its last frame if `follow`. */
  append(message, follow) {
    for (const request of message.requests ?? []) {
      this.requests[request.i] = { ...request, life: [], needs: [], computed: 0, total: request.prompt };
      this.byId.set(request.id, request.i);
    }
    this.causes.push(...message.causes ?? []);
    for (const step of message.steps ?? []) this.addFrame(step);
    this.noteTimes(message.took ?? []);
    this.history.at(message.clock_us);
    for (const { i, tokens, text } of message.ended ?? []) {
      const request = this.requests[i];
      if (request === undefined) continue;
      Object.assign(request, { tokens, end: text });
      this.ended.requests += 1;
      this.ended.tokens += request.prompt + tokens;
    }
    this.noteProgress(message.progress ?? [], message.clock_us);
    if (follow) this.seek(this.frames.length - 1);
    this.dropOld();
  }

  addFrame(step) {
    const frame = { ...step, took: 0, evicted: [], events: [] };
    for (const name of ["blocks", "groups", "host_blocks", "looks"]) frame[name] ??= [];
    const flat = step.events ?? [];
    for (let i = 0; i < flat.length; i += 5) {
      const event = { kind: flat[i], request: flat[i + 1], a: flat[i + 2], b: flat[i + 3], cause: flat[i + 4] - 1 };
      frame.events.push(event);
      this.noteEvent(event, frame);
    }
    for (let k = 0; k < frame.blocks.length; k += 3) if (frame.blocks[k] === Change.evict) frame.evicted.push(frame.blocks[k + 1]);
    this.evictions += frame.evicted.length;
    for (let k = 0; k < frame.looks.length; k += 4) {
      const request = this.requests[frame.looks[k]];
      const { life } = request;
      if (frame.looks[k + 1] % 8 !== Phase.queued) request.admitted = true;  // also if that was before the page was opened
      if (life.length >= MOST_LOOKS) life.splice(0, MOST_LOOKS / 2);
      life.push({ n: step.n, us: step.began_us, look: lookOf(frame.looks, k) });
    }
    this.history.addStep(frame);
    this.frames.push(frame);
  }

  noteEvent(event, frame) {
    const request = this.requests[event.request];
    if (event.kind === Decision.hit && request) request.found = event.a;
    if (event.kind === Decision.admit && request) this.noteAdmission(request);
    if (event.kind === Decision.finish && request) request.over = true;
    if (event.kind === Decision.preempt) {
      ++this.preemptions;
      this.history.addPreemption(frame);
    }
    if (event.kind !== Decision.skip || event.a !== Wait.blocks || request === undefined) return;
    if (request.needs.length >= MOST_LOOKS) request.needs.splice(0, MOST_LOOKS / 2);
    if (request.needs.at(-1)?.blocks !== event.b) request.needs.push({ n: frame.n, blocks: event.b });
  }

  /** Counted as /metrics does: readmissions and forks of a request that is still there are left out. */
  noteAdmission(request) {
    const forked = request.fork_of !== undefined && this.requests[request.fork_of]?.over !== true;
    if (!request.admitted && !forked && this.config.enable_prefix_caching !== false) {
      this.hits[0] += request.found ?? 0;
      this.hits[1] += request.prompt;
    }
    request.admitted = true;
    request.found = undefined;
  }

  noteTimes(took) {
    for (let k = 0; k < took.length; k += 2) {
      const frame = this.frames[this.indexOf(took[k])];
      if (frame?.n !== took[k]) continue;
      frame.took = took[k + 1];
      this.history.addTime(frame);
    }
  }

  noteProgress(progress, clock) {
    for (let k = 0; k < progress.length; k += 3) {
      const request = this.requests[progress[k]];
      const [computed, total] = [progress[k + 1], progress[k + 2]];
      const before = request.seen;
      if (!before || clock - before.clock > (request.speed === undefined ? 1.5e5 : 5e5)) {
        if (before && total > before.total) request.speed = (total - before.total) * 1e6 / (clock - before.clock);
        request.seen = { total, clock };
      }
      Object.assign(request, { computed, total });
    }
  }

  /** Whoever looks at the oldest frames is moved on when they go. */
  dropOld() {
    const newest = this.frames.at(-1)?.began_us ?? 0;
    let drop = 0;
    while (drop + 1 < this.frames.length &&
           (this.frames.length - drop > MOST_FRAMES || newest - this.frames[drop].began_us > MOST_MICROS)) ++drop;
    if (drop < 200) return;  // not one by one
    if (this.at < drop) this.seek(drop);
    for (const { looks } of this.frames.slice(0, drop)) {
      for (let k = 0; k < looks.length; k += 4) if (looks[k + 1] === GONE) this.forget(looks[k]);
    }
    this.frames.splice(0, drop);
    this.at -= drop;
  }

  /** Its end is no longer shown; blocks may be named after it for a little longer. */
  forget(i) {
    const request = this.requests[i];
    if (request === undefined || this.pool.of.has(i) || this.host?.of.has(i)) return;
    if (this.byId.get(request.id) === i) this.byId.delete(request.id);
    this.requests[i] = undefined;
  }

  /** Of the last frame whose step is not after `n`; 0 if there is none. */
  indexOf(n) {
    let low = 0;
    let high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle].n <= n) low = middle; else high = middle - 1;
    }
    // What is told after a last step has the number of that step.
    while (low > 0 && this.frames[low].after) --low;
    return low;
  }

  /** Of the last frame that began by then; 0 if there is none. */
  indexOfTime(us) {
    let low = 0;
    let high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle].began_us <= us) low = middle; else high = middle - 1;
    }
    return low;
  }

  /** The frame shown is the last one; of it alone the progress of requests is known. */
  get isNewest() {
    return this.at === this.frames.length - 1;
  }

  get frame() {
    return this.frames[this.at];
  }

  /** Makes pools and looks those of a frame. */
  seek(to) {
    const target = Math.max(Math.min(to, this.frames.length - 1), Math.min(0, this.frames.length - 1));
    while (this.at < target) this.enter(this.frames[++this.at]);
    while (this.at > target) this.leave(this.frames[this.at--]);
  }

  enter(frame) {
    frame.blocksBefore = this.pool.apply(frame.blocks);
    frame.groupsBefore = this.pool.place(frame.groups);
    if (this.host) frame.hostBefore = this.host.apply(frame.host_blocks);
    frame.looksBefore = [];
    for (let k = 0; k < frame.looks.length; k += 4) {
      const request = this.requests[frame.looks[k]];
      frame.looksBefore.push(request.look);
      this.setLook(request, lookOf(frame.looks, k));
    }
  }

  leave(frame) {
    for (let k = frame.looks.length - 4; k >= 0; k -= 4) {
      this.setLook(this.requests[frame.looks[k]], frame.looksBefore[k / 4]);
    }
    if (this.host) this.host.undo(frame.host_blocks, frame.hostBefore);
    this.pool.placeBack(frame.groups, frame.groupsBefore);
    this.pool.undo(frame.blocks, frame.blocksBefore);
  }

  setLook(request, look) {
    request.look = look;
    if (look) this.present.add(request.i); else this.present.delete(request.i);
  }

  /** Requests of the frame shown: those that run and those that wait, each in order of arrival. */
  census() {
    const out = { runs: [], waits: [] };
    for (const i of [...this.present].sort((a, b) => a - b)) {
      const request = this.requests[i];
      (isWaiting(request.look.phase) ? out.waits : out.runs).push(request);
    }
    return out;
  }

  /** The blocks that a request was said to need when it was the first in line, at the frame shown. */
  neededBy(request) {
    return request.needs.findLast(({ n }) => n <= this.frame.n)?.blocks;
  }
}

function lookOf(flat, k) {
  const code = flat[k + 1];
  if (code === GONE) return undefined;
  return { phase: code % 8, reason: Math.floor(code / 8), behind: flat[k + 2], cause: flat[k + 3] - 1 };
}
