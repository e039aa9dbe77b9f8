// ---- which request holds which block, at any frame ----

import { Change } from "./05_words.js";
import { Blocks } from "./15_blocks.js";

const KEYFRAME_BYTES = 48e6;  // of all keyframes together

/** A pool of blocks over time. Between keyframes the changes are applied one by one. */
class Pool extends Blocks {
  constructor(stream, numBlocks) {
    super(numBlocks);
    this.readChanges(numbers(stream));
    this.frame = -1;
    this.held = new Uint32Array(requests.length);  // blocks by request
    const bytes = numBlocks * 13 + requests.length * 4;
    this.interval = Math.max(32, Math.ceil(numFrames * bytes / KEYFRAME_BYTES));
    this.keyframes = [];
    for (let frame = 0; frame < numFrames; ++frame) {
      if (frame % this.interval === 0) this.keyframes.push(this.snapshot());
      this.apply(frame);
    }
  }

  readChanges(stream) {
    const most = stream.length / 2;
    this.kinds = new Uint8Array(most);
    this.blocks = new Uint32Array(most);
    this.whose = new Int32Array(most);
    this.ends = new Uint32Array(numFrames);
    let n = 0;
    let i = 0;
    for (let frame = 0; frame < numFrames && i < stream.length; ++frame) {
      let block = 0;
      let whose = 0;
      for (let left = stream[i++]; left > 0; --left, ++n) {
        this.kinds[n] = stream[i++];
        block += signed(stream[i++]);
        if (this.kinds[n] <= Change.dropToCache) whose += signed(stream[i++]);
        this.blocks[n] = block;
        this.whose[n] = this.kinds[n] <= Change.dropToCache ? whose : -1;
      }
      this.ends[frame] = n;
    }
  }

  snapshot() {
    return {
      holders: this.holders.slice(), sum: this.sum.slice(), cached: this.cached.slice(), held: this.held.slice(),
    };
  }

  /** The changes of a frame since the one before. */
  changesOf(frame) {
    const out = [];
    for (let i = frame === 0 ? 0 : this.ends[frame - 1]; i < this.ends[frame]; ++i) {
      out.push({ kind: this.kinds[i], block: this.blocks[i], request: this.whose[i] });
    }
    return out;
  }

  apply(frame) {
    for (let i = frame === 0 ? 0 : this.ends[frame - 1]; i < this.ends[frame]; ++i) {
      const kind = this.kinds[i];
      this.change(kind, this.blocks[i], this.whose[i]);
      if (kind <= Change.dropToCache) this.held[this.whose[i]] += kind === Change.take ? 1 : -1;
    }
    this.frame = frame;
  }

  seek(frame) {
    if (frame === this.frame) return;
    const key = Math.floor(frame / this.interval);
    if (frame < this.frame || key * this.interval > this.frame + 1) {
      const from = this.keyframes[key];
      for (const name of ["holders", "sum", "cached", "held"]) this[name].set(from[name]);
      this.frame = key * this.interval - 1;
    }
    while (this.frame < frame) this.apply(this.frame + 1);
  }

  /** The blocks that a request holds, alone or with others, at the frame sought. */
  blocksOf(request) {
    const own = new Set();
    if (this.held[request] === 0) return own;
    for (let i = 0; i < this.ends[this.frame]; ++i) {
      if (this.whose[i] !== request) continue;
      if (this.kinds[i] === Change.take) own.add(this.blocks[i]); else own.delete(this.blocks[i]);
    }
    return own;
  }

  /** The requests that hold a block at the frame sought. */
  holdersOf(block) {
    const found = new Set();
    for (let i = 0; i < this.ends[this.frame]; ++i) {
      if (this.blocks[i] !== block || this.whose[i] < 0) continue;
      if (this.kinds[i] === Change.take) found.add(this.whose[i]); else found.delete(this.whose[i]);
    }
    return [...found].sort((a, b) => a - b);
  }

  /** The states of a block one after the other: [{from, to, state, holders}], to exclusive, in frames. */
  history(block) {
    const out = [];
    const holders = new Set();
    let cached = false;
    let i = 0;
    for (let frame = 0; frame < numFrames; ++frame) {
      let changed = frame === 0;
      for (; i < this.ends[frame]; ++i) {
        if (this.blocks[i] !== block) continue;
        changed = true;
        const kind = this.kinds[i];
        cached = kind === Change.dropToCache || kind === Change.isCached;
        if (kind === Change.take) holders.add(this.whose[i]);
        if (kind === Change.drop || kind === Change.dropToCache) holders.delete(this.whose[i]);
      }
      if (!changed) continue;
      const state = holders.size > 1 ? "shared" : holders.size === 1 ? "owned" : cached ? "cached" : "free";
      const now = { from: frame, to: numFrames, state, holders: [...holders].sort((a, b) => a - b) };
      const last = out[out.length - 1];
      if (last && last.state === state && last.holders.join() === now.holders.join()) continue;
      if (last) last.to = frame;
      out.push(now);
    }
    return out;
  }
}

/** How many blocks of a pool are worth drawing: the others were never used. */
const shownBlocks = (total, used) => (used * 2 < total ? Math.max(used, 1) : total);

const poolSize = shownBlocks(run.config.num_blocks, run.blocks_used);
const pool = new Pool(run.blocks, poolSize);
const hostPool = run.host_blocks_used > 0
  ? new Pool(run.host, shownBlocks(run.config.num_host_blocks, run.host_blocks_used)) : undefined;
