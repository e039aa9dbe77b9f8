// ---- the block map ----

const MOST_CELLS = 40000;  // beyond, a cell stands for several blocks
const SMALLEST = 3;  // cells, in pixels
const LARGEST = 48;

class BlockMap {
  /** `beside`: the squares need not be much larger than that map's. */
  constructor(canvas, of, name, beside) {
    this.canvas = canvas;
    this.pool = of;
    this.name = name;
    this.beside = beside;
    this.perCell = Math.ceil(of.numBlocks / MOST_CELLS);
    this.cells = Math.ceil(of.numBlocks / this.perCell);
    this.pointed = -1;
    canvas.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("blur", () => this.point(-1));
    canvas.addEventListener("click", (event) => this.choose(this.cellAt(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
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
    const context = prepare(this.canvas, this.width, this.height);
    const inner = this.size - this.gap;
    const fresh = new Set(this.pool.changesOf(view.frame).filter((change) => change.kind === Change.take)
      .map((change) => Math.floor(change.block / this.perCell)));
    // Of a request that holds nothing now, nothing stands out.
    const holds = view.request >= 0 && (pool.held[view.request] > 0 || (hostPool && hostPool.held[view.request] > 0));
    const chosen = holds ? this.cellsOf(view.request) : undefined;
    context.font = `${Math.min(12, inner * 0.45)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let cell = 0; cell < this.cells; ++cell) {
      const [x, y] = this.place(cell);
      const [state, owner] = this.look(cell);
      context.globalAlpha = chosen && !chosen.has(cell) ? 0.28 : 1;
      drawBlock(context, state, owner, x, y, inner);
      const faint = context.globalAlpha < 1;
      context.globalAlpha = 1;  // the number stays legible
      if (inner >= 20) this.label(context, cell, state, owner, x + inner / 2, y + inner / 2 + 0.5, inner, faint);
      context.globalAlpha = faint ? 0.28 : 1;
      if (fresh.has(cell) && inner > 3 && state !== "free" && view.frame > 0) {
        const thick = inner >= 16 ? 2 : 1;
        context.strokeStyle = theme.ink;
        context.lineWidth = thick;
        context.strokeRect(x + thick / 2, y + thick / 2, inner - thick, inner - thick);
      }
    }
    context.globalAlpha = 1;
    this.drawRows(context);
    this.drawMarks(context, inner);
  }

  label(context, cell, state, owner, x, y, inner, faint) {
    const text = state === "owned" ? requests[owner].id : state === "shared" ? `×${this.pool.holders[cell]}` : "";
    if (text === "" || context.measureText(text).width > inner - 2) return;
    if (state === "shared") {
      const half = context.measureText(text).width / 2 + 2;
      context.fillStyle = theme.panel;
      context.fillRect(x - half, y - 7, 2 * half, 14);
    }
    context.fillStyle = state === "owned" && !faint ? onOwner(owner) : theme.ink;
    context.fillText(text, x, y);
  }

  cellsOf(request) {
    const cells = new Set();
    if (this.pool.held[request] === 0) return cells;
    for (let block = 0; block < this.pool.numBlocks; ++block) {
      const state = this.pool.stateOf(block);
      const own = state === "owned" ? this.pool.ownerOf(block) === request
        : state === "shared" && this.sharedBy(request, block);
      if (own) cells.add(Math.floor(block / this.perCell));
    }
    return cells;
  }

  /** The blocks that a request holds with others, found once a frame. */
  sharedBy(request, block) {
    if (this.sharedFrame !== this.pool.frame || this.sharedRequest !== request) {
      this.sharedFrame = this.pool.frame;
      this.sharedRequest = request;
      this.sharedBlocks = new Set();
      for (let i = 0; i < this.pool.ends[this.pool.frame]; ++i) {
        if (this.pool.whose[i] !== request) continue;
        if (this.pool.kinds[i] === Change.take) this.sharedBlocks.add(this.pool.blocks[i]);
        else this.sharedBlocks.delete(this.pool.blocks[i]);
      }
    }
    return this.sharedBlocks.has(block);
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

  drawMarks(context, inner) {
    const ring = (cell, colour, thick) => {
      const [x, y] = this.place(cell);
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.strokeRect(x - 1, y - 1, inner + 2, inner + 2);
    };
    const chosen = view.block && view.block.map === this ? Math.floor(view.block.block / this.perCell) : -1;
    if (chosen >= 0) ring(chosen, theme.accent, 3);
    if (this.pointed >= 0 && this.pointed < this.cells) ring(this.pointed, theme.ink, 1.5);
  }

  describe(cell) {
    if (this.perCell > 1) {
      const [state, owner] = this.look(cell);
      const end = Math.min((cell + 1) * this.perCell, this.pool.numBlocks);
      const most = state === "owned" ? `held by #${requests[owner].id}` : state;
      return `${this.name}s ${count(cell * this.perCell)} to ${count(end - 1)}: most are ${most}.`;
    }
    const state = this.pool.stateOf(cell);
    const text = {
      free: "free.",
      cached: "cached: no request holds it, and its contents can still be hit.",
      owned: `held by #${requests[this.pool.ownerOf(cell)]?.id}.`,
      shared: "",
    }[state];
    if (state !== "shared") return `${this.name} ${count(cell)}: ${text}`;
    return `${this.name} ${count(cell)}: shared by ${idList(this.pool.holdersOf(cell))}.`;
  }

  point(cell) {
    if (cell === this.pointed) return;
    this.pointed = cell;
    showPointed(cell < 0 ? "" : this.describe(cell));
    this.draw();
  }

  choose(cell) {
    if (cell < 0) return;
    choose({ block: { map: this, block: cell * this.perCell } });
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
function idList(indices, most = 8) {
  const ids = indices.slice(0, most).map((index) => `#${requests[index].id}`);
  const left = indices.length - ids.length;
  if (left > 0) return `${ids.join(", ")} and ${plural(left, "other")}`;
  return ids.length < 2 ? ids.join("") : `${ids.slice(0, -1).join(", ")} and ${ids[ids.length - 1]}`;
}
