// A pool of blocks that goes forwards and backwards in time.
import { Change } from "../draw/05_words.js";
import { Blocks } from "../draw/15_blocks.js";

const NOTHING = new Set();

export class LivePool extends Blocks {
  /** `own`: of the pool only what the reader's own requests hold is known. */
  constructor(numBlocks, own = false) {
    super(numBlocks);
    this.own = own;
    this.of = new Map();     // by request: its blocks
    this.dirty = new Set();  // blocks that were changed and not yet drawn
    this.group = new Uint8Array(numBlocks);  // K/V group, by block
  }

  /** Applies changes, flat: kind, block, request; returns which of the blocks were cached before. */
  apply(changes) {
    const before = new Uint8Array(changes.length / 3);
    for (let i = 0; i < changes.length; i += 3) {
      before[i / 3] = this.cached[changes[i + 1]];
      this.change(changes[i], changes[i + 1], changes[i + 2]);
      this.dirty.add(changes[i + 1]);
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

  /** Puts blocks into K/V groups, flat: block, group; returns the groups in which they were before. */
  place(groups) {
    const before = new Uint8Array(groups.length / 2);
    for (let i = 0; i < groups.length; i += 2) {
      before[i / 2] = this.group[groups[i]];
      this.group[groups[i]] = groups[i + 1];
      this.dirty.add(groups[i]);
    }
    return before;
  }

  placeBack(groups, before) {
    for (let i = groups.length - 2; i >= 0; i -= 2) this.group[groups[i]] = before[i / 2];
  }

  /** [{held, cached}], in blocks, by K/V group. */
  countGroups(groups) {
    const out = Array.from({ length: groups }, () => ({ held: 0, cached: 0 }));
    for (let block = 0; block < this.numBlocks; ++block) {
      if (this.holders[block] > 0) ++out[this.group[block]].held;
      else if (this.cached[block]) ++out[this.group[block]].cached;
    }
    return out;
  }

  hold(block, whose, more) {
    super.hold(block, whose, more);
    let blocks = this.of.get(whose);
    if (blocks === undefined) this.of.set(whose, blocks = new Set());
    if (more > 0) blocks.add(block); else blocks.delete(block);
    if (blocks.size === 0) this.of.delete(whose);
  }

  stateOf(block) {
    return this.own && this.holders[block] === 0 ? "other" : super.stateOf(block);
  }

  blocksOf(request) {
    return this.of.get(request) ?? NOTHING;
  }
  holdersOf(block) {
    return [...this.of.keys()].filter((request) => this.of.get(request).has(block)).sort((a, b) => a - b);
  }
}
