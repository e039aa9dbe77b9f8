// ---- a pool of blocks at one moment ----

import { Change } from "./05_words.js";

/** Who holds which block. What is known of the time before and after is its heirs' matter. */
export class Blocks {
  constructor(numBlocks) {
    this.numBlocks = numBlocks;
    this.holders = new Uint32Array(numBlocks);
    this.sum = new Float64Array(numBlocks);  // of the holders' indices: the holder, where there is one
    this.cached = new Uint8Array(numBlocks);
  }

  change(kind, block, whose) {
    if (kind === Change.evict) this.cached[block] = 0;
    if (kind === Change.isCached) this.cached[block] = 1;
    if (kind > Change.dropToCache) return;
    this.hold(block, whose, kind === Change.take ? 1 : -1);
    this.cached[block] = kind === Change.dropToCache ? 1 : 0;
  }

  hold(block, whose, more) {
    this.holders[block] += more;
    this.sum[block] += more * whose;
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
}
