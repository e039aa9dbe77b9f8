// The block map of the live view: only blocks that changed are drawn again.
import { count } from "../draw/05_words.js";
import { drawBlock, onOwner, prepare, theme } from "../draw/30_draw.js";

const GUTTER = 44;

export class LiveMap {
  /** `say(text)`: about the block under the pointer; `choose(request number or -1)`. */
  constructor(canvas, name, say, choose) {
    this.canvas = canvas;
    this.name = name;
    this.say = say;
    this.choose = choose;
    this.pointed = -1;
    canvas.addEventListener("pointermove", (event) => this.point(this.blockAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("click", (event) => this.pick(this.blockAt(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(house, pool, chosen) {
    const width = this.canvas.parentElement.clientWidth;
    const anew = house !== this.house || width !== this.width || chosen !== this.chosen || this.stale;
    Object.assign(this, { house, pool, chosen, stale: false });
    if (anew) this.layout(width);
    const blocks = anew ? Array.from({ length: pool.numBlocks }, (unused, block) => block) : pool.dirty;
    for (const block of blocks) this.draw(block);
    pool.dirty.clear();
  }

  /** The largest squares with which everything fits into a bit less than half of the window. */
  layout(width) {
    this.width = width;
    const most = Math.max(140, Math.min(window.innerHeight * 0.42, 420));
    const fits = (size) => Math.ceil(this.pool.numBlocks / Math.max(1, Math.floor((width - GUTTER) / size))) * size <= most;
    this.size = 26;
    while (this.size > 4 && !fits(this.size)) --this.size;
    const rounds = [400, 320, 250, 200, 160, 128, 100, 80, 64, 50, 40, 32, 25, 20, 16, 10, 8, 5, 4];
    const across = Math.max(1, Math.floor((width - GUTTER) / this.size));
    this.across = rounds.find((round) => round <= across) ?? across;
    this.inner = this.size - (this.size >= 16 ? 3 : this.size >= 8 ? 2 : 1);
    const rows = Math.ceil(this.pool.numBlocks / this.across);
    this.context = prepare(this.canvas, width, rows * this.size);
    this.context.fillStyle = theme.quiet;
    this.context.font = "11px system-ui, sans-serif";
    this.context.textAlign = "right";
    const every = Math.ceil(14 / this.size);
    for (let row = 0; row < rows; row += every) {
      this.context.fillText(count(row * this.across), GUTTER - 6, row * this.size + Math.min(this.inner, 11));
    }
  }

  draw(block) {
    const context = this.context;
    const x = GUTTER + (block % this.across) * this.size;
    const y = Math.floor(block / this.across) * this.size;
    const [state, owner] = this.look(block);
    context.clearRect(x - 1, y - 1, this.size, this.size);
    context.globalAlpha = this.chosen >= 0 && !(state === "owned" && owner === this.chosen) && state !== "shared" ? 0.28 : 1;
    drawBlock(context, state, owner, x, y, this.inner);
    context.globalAlpha = 1;
    if (state === "owned" && this.inner >= 20) this.label(String(this.house.requests[owner].id), owner, x, y);
    if (block !== this.pointed) return;
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5;
    context.strokeRect(x + 0.75, y + 0.75, this.inner - 1.5, this.inner - 1.5);
  }

  label(text, owner, x, y) {
    const context = this.context;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    if (context.measureText(text).width > this.inner - 2) return;
    context.fillStyle = onOwner(owner);
    context.fillText(text, x + this.inner / 2, y + this.inner / 2 + 0.5);
  }

  look(block) {
    const state = this.pool.stateOf(block);
    if (this.house.own && state !== "owned" && state !== "shared") return ["other", -1];
    return [state, this.pool.sum[block]];
  }

  blockAt(event) {
    const column = Math.floor((event.offsetX - GUTTER) / this.size);
    const block = Math.floor(event.offsetY / this.size) * this.across + column;
    return column >= 0 && column < this.across && block >= 0 && block < this.pool.numBlocks ? block : -1;
  }

  describe(block) {
    const [state, owner] = this.look(block);
    const text = {
      free: "free.",
      cached: "cached: no request holds it, and its contents can still be hit.",
      owned: `held by #${this.house.requests[owner]?.id}.`,
      shared: `shared by ${this.pool.holders[block]} requests.`,
      other: "not yours; whether others hold it is not shown.",
    }[state];
    return `${this.name} ${count(block)}: ${text}`;
  }

  point(block) {
    if (this.pool === undefined || block === this.pointed) return;
    const before = this.pointed;
    this.pointed = block;
    if (before >= 0) this.draw(before);
    if (block >= 0) this.draw(block);
    this.say(block < 0 ? "" : this.describe(block));
  }

  pick(block) {
    if (block < 0) return;
    const [state, owner] = this.look(block);
    this.choose(state === "owned" ? owner : -1);
  }

  key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across }[event.key];
    if (move !== undefined) this.point(Math.min(Math.max(this.pointed + move, 0), this.pool.numBlocks - 1));
    else if (event.key === "Enter") this.pick(this.pointed);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
