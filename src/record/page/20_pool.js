// ---- which request holds which block, at any frame ----

const KEYFRAME_BYTES = 48e6;  // of all keyframes together

/** A pool of blocks over time. Between keyframes the changes are applied one by one. */
class Pool {
  constructor(stream, numBlocks) {
    this.numBlocks = numBlocks;
    this.readChanges(numbers(stream));
    this.frame = -1;
    this.holders = new Uint32Array(numBlocks);
    this.sum = new Float64Array(numBlocks);  // of the holders' indices: the holder, where there is one
    this.cached = new Uint8Array(numBlocks);
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
      const block = this.blocks[i];
      const kind = this.kinds[i];
      if (kind === Change.evict) this.cached[block] = 0;
      if (kind === Change.isCached) this.cached[block] = 1;
      if (kind > Change.dropToCache) continue;
      const more = kind === Change.take ? 1 : -1;
      this.holders[block] += more;
      this.sum[block] += more * this.whose[i];
      this.held[this.whose[i]] += more;
      this.cached[block] = kind === Change.dropToCache ? 1 : 0;
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

  /** "free", "cached", "owned" (by ownerOf) or "shared". */
  stateOf(block) {
    if (this.holders[block] > 1) return "shared";
    if (this.holders[block] === 1) return "owned";
    return this.cached[block] ? "cached" : "free";
  }
  ownerOf(block) {
    return this.sum[block];
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
