// ---- the block map ----

import { count, plural } from "./05_words.js";
import { drawBlock, onOwner, prepare, theme } from "./30_draw.js";

const MOST_CELLS = 40000;  // beyond, a cell stands for several blocks
const SMALLEST = 3;  // cells, in pixels
const LARGEST = 48;

export class BlockMap {
  /**
   * `of`: Blocks that also know blocksOf(request) and holdersOf(block). `world`: `id(request)`, what is written on its blocks;
   * `marks(map)`, what stands out: {request, block, fresh}, -1 for none, and the blocks just taken; `say(text)` and
   * `choose(map, block)`, when a block is pointed at or chosen. `beside`: the squares need not be much larger than that map's.
   */
  constructor(canvas, of, name, world, beside) {
    this.canvas = canvas;
    this.name = name;
    this.world = world;
    this.beside = beside;
    this.pointed = -1;
    this.show(of);
    canvas.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("blur", () => this.point(-1));
    canvas.addEventListener("click", (event) => this.choose(this.cellAt(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(of) {
    this.pool = of;
    this.perCell = Math.ceil(of.numBlocks / MOST_CELLS);
    this.cells = Math.ceil(of.numBlocks / this.perCell);
  }

  /** The largest squares that fit, in rows of a round number. */
  layout() {
    const width = this.canvas.parentElement.clientWidth;
    const most = Math.min(window.innerHeight * 0.5, 460);
    const gutter = 40;
    const rounds = [4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200, 250, 320, 400];
    const largestSquare = this.beside ? Math.max(this.beside.size, 14) : LARGEST;
    const choices = rounds.map((across) => {
      const fits = Math.min((width - gutter) / across, most / Math.ceil(this.cells / across), largestSquare);
      return { across, size: Math.max(SMALLEST, Math.floor(fits)) };
    }).filter(({ across, size }) => gutter + across * size <= width);
    const largest = Math.max(...choices.map(({ size }) => size));
    const best = choices.findLast(({ size }) => size >= largest * 0.85) ||
      { size: SMALLEST, across: Math.max(1, Math.floor((width - gutter) / SMALLEST)) };
    this.across = best.across;
    this.size = best.size;
    this.gutter = gutter;
    this.gap = this.size >= 16 ? 3 : this.size >= 8 ? 2 : this.size > 4 ? 1 : 0;
    this.width = width;
    this.height = Math.ceil(this.cells / this.across) * this.size;
  }

  place(cell) {
    return [this.gutter + (cell % this.across) * this.size, Math.floor(cell / this.across) * this.size];
  }

  cellAt(event) {
    const column = Math.floor((event.offsetX - this.gutter) / this.size);
    const cell = Math.floor(event.offsetY / this.size) * this.across + column;
    return column >= 0 && column < this.across && cell < this.cells ? cell : -1;
  }

  /** The state of a cell, and its owner: of the block, or what most of its blocks are. */
  look(cell) {
    if (this.perCell === 1) return [this.pool.stateOf(cell), this.pool.ownerOf(cell)];
    const votes = new Map();
    const end = Math.min((cell + 1) * this.perCell, this.pool.numBlocks);
    for (let block = cell * this.perCell; block < end; ++block) {
      const state = this.pool.stateOf(block);
      const key = state === "owned" ? this.pool.ownerOf(block) : state;
      votes.set(key, (votes.get(key) || 0) + 1);
    }
    const [best] = [...votes].sort((a, b) => b[1] - a[1])[0];
    return typeof best === "number" ? ["owned", best] : [best, -1];
  }

  draw() {
    this.layout();
    this.context = prepare(this.canvas, this.width, this.height);
    this.readMarks();
    this.setFont();
    for (let cell = 0; cell < this.cells; ++cell) this.drawCell(cell);
    this.drawRows(this.context);
    this.drawRings();
  }

  readMarks() {
    this.marks = this.world.marks(this);
    const cell = (block) => Math.floor(block / this.perCell);
    this.fresh = new Set([...this.marks.fresh].map(cell));
    this.chosen = this.marks.request < 0 ? undefined : new Set([...this.pool.blocksOf(this.marks.request)].map(cell));
  }

  setFont() {
    this.context.font = `${Math.min(12, (this.size - this.gap) * 0.45)}px system-ui, sans-serif`;
    this.context.textAlign = "center";
    this.context.textBaseline = "middle";
  }

  drawCell(cell) {
    const context = this.context;
    const inner = this.size - this.gap;
    const [x, y] = this.place(cell);
    const [state, owner] = this.look(cell);
    const alpha = this.isFaint(cell, state) ? 0.28 : 1;
    context.globalAlpha = alpha;
    this.fill(state, owner, x, y, inner);
    context.globalAlpha = 1;  // the number stays legible
    if (inner >= 20) this.label(context, cell, state, owner, x + inner / 2, y + inner / 2 + 0.5, inner, alpha < 1);
    if (!this.fresh.has(cell) || inner <= 3 || state === "free") return;
    const thick = inner >= 16 ? 2 : 1;
    context.globalAlpha = alpha;
    context.strokeStyle = theme.ink;
    context.lineWidth = thick;
    context.strokeRect(x + thick / 2, y + thick / 2, inner - thick, inner - thick);
    context.globalAlpha = 1;
  }

  /** Whether others stand out, and it does not. */
  isFaint(cell) {
    return this.chosen !== undefined && !this.chosen.has(cell);
  }

  fill(state, owner, x, y, inner) {
    drawBlock(this.context, state, owner, x, y, inner);
  }

  label(context, cell, state, owner, x, y, inner, faint) {
    const text = state === "owned" ? this.world.id(owner) : state === "shared" ? `×${this.pool.holders[cell]}` : "";
    if (text === "" || context.measureText(text).width > inner - 2) return;
    if (state === "shared") {
      const half = context.measureText(text).width / 2 + 2;
      context.fillStyle = theme.panel;
      context.fillRect(x - half, y - 7, 2 * half, 14);
    }
    context.fillStyle = state === "owned" && !faint ? onOwner(owner) : theme.ink;
    context.fillText(text, x, y);
  }

  drawRows(context) {
    context.fillStyle = theme.quiet;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    const every = Math.ceil(13 / this.size);
    const rows = Math.ceil(this.cells / this.across);
    for (let row = 0; row < rows; row += every) {
      const y = row * this.size + Math.min(this.size - this.gap, 22) / 2;
      context.fillText(count(row * this.across * this.perCell), this.gutter - 6, Math.max(y, 6));
    }
  }

  drawRings() {
    const inner = this.size - this.gap;
    const ring = (cell, colour, thick) => {
      const [x, y] = this.place(cell);
      this.context.strokeStyle = colour;
      this.context.lineWidth = thick;
      this.context.strokeRect(x - 1, y - 1, inner + 2, inner + 2);
    };
    if (this.marks.block >= 0) ring(Math.floor(this.marks.block / this.perCell), theme.accent, 3);
    if (this.pointed >= 0 && this.pointed < this.cells) ring(this.pointed, theme.ink, 1.5);
  }

  describe(cell) {
    if (this.perCell > 1) {
      const [state, owner] = this.look(cell);
      const end = Math.min((cell + 1) * this.perCell, this.pool.numBlocks);
      const most = state === "owned" ? `held by #${this.world.id(owner)}` : state;
      return `${this.name}s ${count(cell * this.perCell)} to ${count(end - 1)}: most are ${most}.`;
    }
    const [state, owner] = this.look(cell);
    const text = {
      free: "free.",
      cached: "cached: no request holds it, and its contents can still be hit.",
      owned: `held by #${this.world.id(owner)}.`,
      other: "not yours; whether others hold it is not shown.",
      shared: "",
    }[state];
    if (state !== "shared") return `${this.name} ${count(cell)}: ${text}`;
    return `${this.name} ${count(cell)}: shared by ${idList(this.pool.holdersOf(cell).map(this.world.id))}.`;
  }

  point(cell) {
    if (cell === this.pointed) return;
    const before = this.pointed;
    this.pointed = cell;
    this.world.say(cell < 0 ? "" : this.describe(cell));
    this.redraw(before, cell);
  }

  /** The pointer went from one cell to another. */
  redraw() {
    this.draw();
  }

  choose(cell) {
    if (cell < 0) return;
    this.world.choose(this, cell * this.perCell);
  }

  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across }[event.key];
    if (move !== undefined) {
      const next = this.pointed < 0 ? 0 : this.pointed + move;
      if (next >= 0 && next < this.cells) this.point(next);
    } else if (event.key === "Enter" && this.pointed >= 0) {
      this.choose(this.pointed);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

/** "#3, #7 and 2 others" */
function idList(all, most = 8) {
  const ids = all.slice(0, most).map((id) => `#${id}`);
  const left = all.length - ids.length;
  if (left > 0) return `${ids.join(", ")} and ${plural(left, "other")}`;
  return ids.length < 2 ? ids.join("") : `${ids.slice(0, -1).join(", ")} and ${ids[ids.length - 1]}`;
}
