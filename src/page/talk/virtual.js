// A list of which only the items near the visible part are in the document.

const margin = 800;
const nearEnd = 48;
const aMove = 2;  // pixels; less is what the browser rounds

export class VirtualList {
  // `render(id)` gives an element, `estimate(id, width)` a height for one that was never laid out.
  constructor(scroller, items, { render, estimate, onscroll }) {
    Object.assign(this, { scroller, items, render, estimate, onscroll });
    this.ids = [];
    this.heights = new Map();
    this.mounted = new Map();
    this.offsets = new Float64Array(1);
    this.atEnd = true;
    this.top = document.createElement("div");
    this.bottom = document.createElement("div");
    items.replaceChildren(this.top, this.bottom);
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.sizes = new ResizeObserver((entries) => this.#resized(entries));
    this.sizes.observe(scroller);
  }

  setItems(ids) {
    this.ids = ids;
    this.index = new Map(ids.map((id, at) => [id, at]));
    for (const [id, element] of this.mounted) {
      if (!this.index.has(id)) this.#unmount(id, element);
    }
    this.layout();
  }

  clear() {
    for (const [id, element] of this.mounted) this.#unmount(id, element);
    this.heights.clear();
    this.anchor = undefined;
    this.#ownMove(true);
  }

  toEnd() {
    this.#ownMove(true);
    this.layout();
  }

  toItem(id) {
    if (!this.index?.has(id)) return undefined;
    this.anchor = { id, delta: -8 };
    this.#measureAll();
    this.scroller.scrollTop = this.offsets[this.index.get(id)] - 8;
    this.#ownMove(false);
    this.layout();
    if (this.#below() < aMove) {
      this.atEnd = true;
      this.onscroll?.(true, this.scroller);
    }
    return this.mounted.get(id);
  }

  layout() {
    const { scroller } = this;
    this.#noteMove();
    // Measuring what came into view can bring more into view: a few rounds settle it.
    for (let round = 0; round < 4; round += 1) {
      this.#measureAll();
      this.#keepPlace();
      const changed = this.#mountWindow();
      this.#measureAll();
      this.#keepPlace();
      if (!changed) break;
    }
    this.#remember();
    this.onscroll?.(this.atEnd, scroller);
  }

  #measureAll() {
    const { ids, heights, mounted } = this;
    const width = this.items.clientWidth;
    for (const [id, element] of mounted) heights.set(id, element.getBoundingClientRect().height);
    const offsets = this.offsets.length === ids.length + 1 ? this.offsets : new Float64Array(ids.length + 1);
    for (let i = 0; i < ids.length; i += 1) {
      let height = heights.get(ids[i]);
      if (height === undefined) heights.set(ids[i], (height = this.estimate(ids[i], width)));
      offsets[i + 1] = offsets[i] + height;
    }
    this.offsets = offsets;
    this.#space();
  }

  #space() {
    const [first, last] = this.range ?? [0, 0];
    const total = this.offsets[this.ids.length];
    this.top.style.height = `${this.offsets[Math.min(first, this.ids.length)]}px`;
    this.bottom.style.height = `${Math.max(0, total - this.offsets[Math.min(last, this.ids.length)])}px`;
  }

  #keepPlace() {
    const { scroller, anchor } = this;
    if (this.atEnd) {
      scroller.scrollTop = scroller.scrollHeight;
      return;
    }
    const at = anchor && this.index.get(anchor.id);
    if (at === undefined) return;
    const wanted = this.offsets[at] + anchor.delta;
    if (Math.abs(scroller.scrollTop - wanted) > 1) scroller.scrollTop = wanted;
  }

  #mountWindow() {
    const { scroller, ids, offsets, mounted } = this;
    const top = Math.max(0, this.#at(scroller.scrollTop - margin));
    const end = Math.min(ids.length, this.#at(scroller.scrollTop + scroller.clientHeight + margin) + 1);
    const wanted = new Set(ids.slice(top, end));
    let changed = false;
    for (const [id, element] of mounted) {
      if (wanted.has(id)) continue;
      this.#unmount(id, element);
      changed = true;
    }
    let next = this.bottom;
    for (let i = end - 1; i >= top; i -= 1) {
      let element = mounted.get(ids[i]);
      if (!element) {
        element = this.render(ids[i]);
        mounted.set(ids[i], element);
        this.sizes.observe(element);
        changed = true;
      }
      if (element.nextSibling !== next) this.items.insertBefore(element, next);
      next = element;
    }
    this.range = [top, end];
    this.offsets = offsets;
    this.#space();
    return changed;
  }

  #unmount(id, element) {
    // The focus would fall to the body, from where keys no longer scroll.
    if (element.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
    this.sizes.unobserve(element);
    element.remove();
    this.mounted.delete(id);
  }

  // The item at a height, by halving.
  #at(height) {
    let low = 0;
    let high = this.ids.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #remember() {
    const { scroller } = this;
    const at = Math.min(this.ids.length - 1, this.#at(scroller.scrollTop));
    this.anchor = at < 0 ? undefined : { id: this.ids[at], delta: scroller.scrollTop - this.offsets[at] };
    this.seen = scroller.scrollTop;
  }

  // The page has moved it, not the reader.
  #ownMove(atEnd) {
    this.atEnd = atEnd;
    this.seen = undefined;
  }

  // Asks where it is, since a layout may come before the browser tells that the reader has moved it. Who moves it up, be it by
  // little, does not follow the end any longer.
  #noteMove() {
    const { scrollTop } = this.scroller;
    const moved = scrollTop - (this.seen ?? scrollTop);
    if (Math.abs(moved) < aMove) return;
    this.atEnd = this.#below() < (moved < 0 ? aMove : nearEnd);
    this.#remember();
  }

  // The pixels of the list below what is seen.
  #below() {
    const { scroller } = this;
    return scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop;
  }

  #scrolled() {
    const { scroller } = this;
    this.#noteMove();
    const [first, last] = this.range ?? [0, 0];
    const covered = this.offsets[first] <= Math.max(0, scroller.scrollTop - margin / 2)
      && this.offsets[last] >= Math.min(this.offsets[this.ids.length], scroller.scrollTop + scroller.clientHeight + margin / 2);
    this.#remember();
    if (covered) this.onscroll?.(this.atEnd, scroller);
    else this.layout();
  }

  #resized(entries) {
    const width = this.items.clientWidth;
    if (entries.some((entry) => entry.target === this.scroller) && this.width !== width) {
      this.width = width;
      for (const id of this.heights.keys()) if (!this.mounted.has(id)) this.heights.delete(id);
    }
    this.layout();
  }
}
