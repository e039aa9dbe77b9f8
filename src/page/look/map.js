// The block map of the live view: between two drawings, only what changed is drawn again.
import { drawBlock, prepare } from "../draw/30_draw.js";
import { BlockMap } from "../draw/40_map.js";
import { LivePool } from "./pool.js";

const PLAIN = ["shared", "cached", "free", "other"];  // look the same wherever they are

export class LiveMap extends BlockMap {
  constructor(canvas, name, world, beside) {
    super(canvas, new LivePool(1), name, world, beside);
    this.stamps = new Map();
  }

  update(pool) {
    const { request = -1, block = -1, group } = this.marks ?? {};
    const freshBefore = this.fresh ?? [];
    const [pointed, dirty] = [this.pointed, pool.dirty];
    if (pool !== this.pool) {
      this.show(pool);
      this.stale = true;
    }
    const now = this.world.marks(this);
    const size = `${this.canvas.parentElement.clientWidth} ${window.innerHeight} ${window.devicePixelRatio}`;
    if (this.stale || size !== this.drawnSize || request !== now.request || group !== now.group) {
      this.drawnSize = size;
      this.draw();
    } else if (dirty.size > 0 || block !== now.block || freshBefore.size > 0 || now.fresh.length > 0) {
      const cells = new Set(freshBefore);
      for (const one of [...dirty, ...now.fresh]) cells.add(Math.floor(one / this.perCell));
      this.drawSome(cells, [block, now.block]);
    }
    if (pointed >= 0 && dirty.has(pointed)) this.world.say(this.describe(pointed));
    dirty.clear();
  }

  /** Of one K/V group, the blocks of the others are faint. */
  isFaint(cell, state) {
    const { group } = this.marks;
    if (super.isFaint(cell) || group === undefined || state === "free" || state === "other") return super.isFaint(cell);
    const end = Math.min((cell + 1) * this.perCell, this.pool.numBlocks);
    for (let block = cell * this.perCell; block < end; ++block) if (this.pool.group[block] === group) return false;
    return true;
  }

  describe(cell) {
    const group = this.perCell > 1 ? undefined : this.world.group(this, cell);
    return group === undefined ? super.describe(cell) : `${super.describe(cell)} ${group}`;
  }

  draw() {
    this.stale = false;
    this.stamps.clear();
    super.draw();
  }

  /** `cells`, and those where a ring is or was. */
  drawSome(cells, ringed) {
    this.readMarks();
    this.setFont();
    const all = new Set(cells);
    const rings = [this.pointed, ...[...ringed, this.marks.block].map((block) => Math.floor(block / this.perCell))];
    for (const cell of rings) if (cell >= 0) for (const near of this.around(cell)) all.add(near);
    for (const cell of all) this.clear(cell);
    for (const cell of all) this.drawCell(cell);
    this.drawRings();
  }

  redraw(before, now) {
    const cells = [before, now].filter((cell) => cell >= 0).flatMap((cell) => this.around(cell));
    if (this.context) this.drawSome(cells, []);
  }

  /** A ring reaches into the neighbours of its cell. */
  around(cell) {
    const column = cell % this.across;
    const out = [];
    for (let at = cell - this.across; at <= cell + this.across; at += this.across) {
      for (let move = -1; move <= 1; ++move) {
        const inRow = column + move >= 0 && column + move < this.across;
        if (inRow && at + move >= 0 && at + move < this.cells) out.push(at + move);
      }
    }
    return out;
  }

  clear(cell) {
    const [x, y] = this.place(cell);
    const last = cell % this.across === this.across - 1 || cell === this.cells - 1;
    // A number's background may reach one pixel into the gap before it; in the margins nothing else is but rings.
    const before = this.gap >= 2 ? 1 : 0;
    const left = cell % this.across === 0 ? 3 : before;
    const below = cell + this.across >= this.cells ? 3 : 0;
    this.context.clearRect(x - left, y - before, left + this.size - before + (last ? 3 : 0), this.size + below);
  }

  fill(state, owner, x, y, inner) {
    if (!PLAIN.includes(state) || inner < 2) return super.fill(state, owner, x, y, inner);
    let stamp = this.stamps.get(state);
    if (stamp === undefined) {
      stamp = document.createElement("canvas");
      drawBlock(prepare(stamp, inner, inner), state, 0, 0, 0, inner);
      this.stamps.set(state, stamp);
    }
    this.context.drawImage(stamp, x, y, inner, inner);
    return undefined;
  }
}
