// What the messages say: requests, and the pools step by step, forwards and backwards.
import { Change, Decision, Phase } from "../draw/05_words.js";

const GONE = 255;
const MOST_FRAMES = 20000;
const MOST_MICROS = 5 * 60e6;  // of steps kept

/** A pool of blocks at the frame shown. */
class Pool {
  constructor(numBlocks) {
    this.numBlocks = numBlocks;
    this.holders = new Uint16Array(numBlocks);
    this.sum = new Float64Array(numBlocks);  // of the holders' numbers: the holder, where there is one
    this.cached = new Uint8Array(numBlocks);
    this.dirty = new Set();
  }

  /** Applies changes, flat: kind, block, request; returns which blocks were cached before each. */
  apply(changes) {
    const before = new Uint8Array(changes.length / 3);
    for (let i = 0; i < changes.length; i += 3) {
      const [kind, block, whose] = [changes[i], changes[i + 1], changes[i + 2]];
      before[i / 3] = this.cached[block];
      if (kind <= Change.dropToCache) this.hold(block, whose, kind === Change.take ? 1 : -1);
      if (kind !== Change.drop) this.cached[block] = kind === Change.dropToCache || kind === Change.isCached ? 1 : 0;
      this.dirty.add(block);
    }
    return before;
  }

  undo(changes, before) {
    for (let i = changes.length - 3; i >= 0; i -= 3) {
      const [kind, block, whose] = [changes[i], changes[i + 1], changes[i + 2]];
      if (kind <= Change.dropToCache) this.hold(block, whose, kind === Change.take ? -1 : 1);
      this.cached[block] = before[i / 3];
      this.dirty.add(block);
    }
  }

  hold(block, whose, more) {
    this.holders[block] += more;
    this.sum[block] += more * whose;
  }

  stateOf(block) {
    if (this.holders[block] > 1) return "shared";
    if (this.holders[block] === 1) return "owned";
    return this.cached[block] ? "cached" : "free";
  }
}

export class House {
  constructor(start) {
    this.config = start.config;
    this.own = start.own;  // the reader's own requests alone
    this.groups = start.groups;
    this.requests = [];
    this.causes = [];
    this.frames = [];
    this.at = -1;  // the frame shown, in `frames`; what the pools and looks are at
    this.pool = new Pool(start.config.num_blocks);
    this.host = start.config.num_host_blocks > 0 && !start.own ? new Pool(start.config.num_host_blocks) : undefined;
    this.present = new Set();  // requests that are there at the frame shown
    this.hits = [0, 0];        // tokens found, and looked for
    this.preemptions = 0;
    this.evictions = 0;        // blocks
  }

  /** Takes a message; follows to its last frame if `follow`. */
  append(message, follow) {
    for (const request of message.requests ?? []) {
      this.requests[request.i] = { ...request, life: [], held: 0, computed: 0, total: request.prompt };
    }
    this.causes.push(...message.causes ?? []);
    for (const step of message.steps ?? []) this.addFrame(step);
    this.noteTimes(message.took ?? []);
    for (const { i, tokens, text } of message.ended ?? []) Object.assign(this.requests[i], { tokens, end: text });
    this.noteProgress(message.progress ?? [], message.clock_us);
    if (follow) this.seek(this.frames.length - 1);
    this.dropOld();
  }

  addFrame(step) {
    const frame = {
      ...step, took: 0, blocks: step.blocks ?? [], host_blocks: step.host_blocks ?? [], looks: step.looks ?? [], events: [],
    };
    const flat = step.events ?? [];
    for (let i = 0; i < flat.length; i += 5) {
      const event = { kind: flat[i], i: flat[i + 1], a: flat[i + 2], b: flat[i + 3], cause: flat[i + 4] };
      frame.events.push(event);
      if (event.kind === Decision.hit) {
        this.hits[0] += event.a;
        this.hits[1] += event.b;
      }
      if (event.kind === Decision.preempt) ++this.preemptions;
      if (event.kind === Decision.skip && this.requests[event.i]) this.requests[event.i].needs = event.b;
    }
    for (let k = 0; k < frame.blocks.length; k += 3) this.evictions += frame.blocks[k] === Change.evict ? 1 : 0;
    for (let k = 0; k < frame.looks.length; k += 4) {
      const look = lookOf(frame.looks, k);
      this.requests[frame.looks[k]].life.push({ n: step.n, us: step.began_us, look });
    }
    this.frames.push(frame);
  }

  noteTimes(took) {
    for (let k = 0; k < took.length; k += 2) {
      const frame = this.frames[this.frames.length - 1 - Math.min(this.lastStep() - took[k], this.frames.length - 1)];
      if (frame?.n === took[k]) frame.took = took[k + 1];
    }
  }

  noteProgress(progress, clock) {
    for (let k = 0; k < progress.length; k += 3) {
      const request = this.requests[progress[k]];
      const [computed, total] = [progress[k + 1], progress[k + 2]];
      const before = request.seen;
      if (!before || clock - before.clock > 5e5) {
        if (before && total > before.total) request.speed = (total - before.total) * 1e6 / (clock - before.clock);
        request.seen = { total, clock };
      }
      Object.assign(request, { computed, total });
    }
  }

  dropOld() {
    const newest = this.frames[this.frames.length - 1]?.began_us ?? 0;
    let drop = 0;
    while (drop < this.at && (this.frames.length - drop > MOST_FRAMES || newest - this.frames[drop].began_us > MOST_MICROS)) ++drop;
    if (drop < 200) return;  // not one by one
    this.frames.splice(0, drop);
    this.at -= drop;
  }

  lastStep() {
    return this.frames[this.frames.length - 1]?.n ?? 0;
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
    this.countHeld(frame.blocks, 1);
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
    this.countHeld(frame.blocks, -1);
    this.pool.undo(frame.blocks, frame.blocksBefore);
  }

  countHeld(changes, sign) {
    for (let i = 0; i < changes.length; i += 3) {
      if (changes[i] > Change.dropToCache) continue;
      this.requests[changes[i + 2]].held += changes[i] === Change.take ? sign : -sign;
    }
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
}

export const isWaiting = (phase) => phase === Phase.queued || phase === Phase.preempted || phase === Phase.swapped;

function lookOf(flat, k) {
  const code = flat[k + 1];
  if (code === GONE) return undefined;
  return { phase: code % 8, reason: Math.floor(code / 8), behind: flat[k + 2], cause: flat[k + 3] };
}
