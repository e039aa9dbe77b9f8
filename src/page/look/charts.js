// The last minutes as charts, in the drawing of explain's page.
import { count, duration } from "../draw/05_words.js";
import { element, fillLegend, prepare } from "../draw/30_draw.js";
import { BELOW, GUTTER, drawAxis, drawColumns, drawCursor, drawLine, fillingIcon, lineIcon, niceTop, plotWidth, preemptionMark, scaleOf, scrubOn } from "../draw/35_chart.js";

const SPANS = [[60, 15], [120, 30], [180, 60], [240, 60], [300, 60]];  // seconds from left to right, and from tick to tick
const HEIGHT = 92;
const MARKS = 14;  // icons of a legend, in pixels

const mean = (sum, number) => (number === 0 ? 0 : sum / number);

/** `fills` and `line`: [look, word, value of a second], each fill over those before it. `most`: the axis ends there at most. */
const CHARTS = [
  { title: "Step time", fills: [["held", "longest", (one) => one.mostTook]], line: ["run", "mean", (one) => mean(one.took, one.timed)],
    words: duration },
  { title: "Budget used", fills: [["held", "most", (one) => one.mostUsed]], line: ["run", "mean", (one) => mean(one.used, one.steps)],
    words: (value) => `${count(value)} %`, most: () => 100, ofAll: true },
  { title: "K/V blocks", fills: [["cached", "cached", (one) => one.held + one.cached], ["held", "held", (one) => one.held],
    ["shared", "shared", (one) => one.shared]], marks: (one) => one.preemptions > 0, words: count,
    most: ({ config }) => config.num_blocks, ofAll: true },
  { title: "New tokens", fills: [["held", "in each second", (one) => one.tokens]], words: count },
];

export class Charts {
  /** `seek(us)`: a moment was chosen. `resized()`: they must be drawn again, at once. */
  constructor(seek, resized) {
    this.box = element("div", { class: "charts" });
    this.all = CHARTS.map((chart) => {
      const canvas = element("canvas", { role: "img", "aria-label": `${chart.title} in the last minutes` });
      const legend = element("ul", { class: "legend" });
      const figure = element("figure", {}, element("figcaption", {}, chart.title, " ", legend), canvas);
      scrubOn(canvas, (x) => seek(this.timeAt(x)));
      return { chart, canvas, legend, figure };
    });
    this.box.append(...this.all.map(({ figure }) => figure));
    // Reading it while something is changed would cost a layout.
    this.resize = new ResizeObserver(() => {
      this.width = this.all[0].canvas.clientWidth;
      resized();
    });
    this.resize.observe(this.box);
  }

  stop() {
    this.resize.disconnect();
  }

  begin(house) {
    this.house = house;
    for (const { chart, figure } of this.all) figure.hidden = house.own && chart.ofAll === true;
    this.showLegends();
  }

  showLegends() {
    for (const { chart, legend } of this.all) {
      const marks = chart.marks ? [[(context) => preemptionMark(context, MARKS / 2, 4), "preemption"]] : [];
      const line = chart.line ? [[lineIcon(chart.line[0]), chart.line[1]]] : [];
      fillLegend(legend, [...chart.fills.map(([look, word]) => [fillingIcon(look), word]), ...line, ...marks], MARKS, MARKS);
    }
  }

  /** As many seconds as there are, up to whole minutes. */
  get span() {
    return SPANS.find(([seconds]) => this.house.history.seconds.length <= seconds) ?? SPANS.at(-1);
  }

  /** Of a moment, in microseconds, and back. */
  xOf(us) {
    const [seconds] = this.span;
    return GUTTER + (us / 1e6 - this.house.history.end + seconds) / seconds * plotWidth(this.width);
  }
  timeAt(x) {
    const [seconds] = this.span;
    return ((x - GUTTER) / plotWidth(this.width) * seconds + this.house.history.end - seconds) * 1e6;
  }

  ticks() {
    const [seconds, every] = this.span;
    const out = [];
    for (let ago = seconds - every; ago > 0; ago -= every) {
      out.push([this.xOf((this.house.history.end - ago) * 1e6), ago % 60 === 0 ? `−${ago / 60} min` : `−${ago} s`]);
    }
    return out;
  }

  /** `cursor`: the moment shown; undefined if that is now. */
  draw(cursor) {
    if (!this.width || !this.house) return;
    for (const one of this.all) if (!one.figure.hidden) this.drawOne(one, cursor);
  }

  drawOne({ chart, canvas }, cursor) {
    const { house, width } = this;
    const { seconds, first } = house.history;
    const context = prepare(canvas, width, HEIGHT);
    const columns = (value) => seconds.map((one, i) => [this.xOf((first + i) * 1e6), this.xOf((first + i + 1) * 1e6), value(one)]);
    const largest = seconds.reduce((most, one) => Math.max(most, chart.fills[0][2](one)), 1);
    const end = chart.most?.(house) ?? Infinity;
    // What never fills half would be a line at the bottom.
    const top = Math.min(largest * 2 < end ? niceTop(largest) : Infinity, Math.max(end, 1));
    const scale = scaleOf(HEIGHT, top);
    for (const [look, , value] of chart.fills) drawColumns(context, look, columns(value), HEIGHT - BELOW, scale);
    if (chart.line) drawLine(context, chart.line[0], columns(chart.line[2]), HEIGHT - BELOW, scale);
    drawAxis(context, width, HEIGHT, top, this.ticks(), "", chart.words);
    if (chart.marks) for (const [from, to, marked] of columns(chart.marks)) if (marked) preemptionMark(context, (from + to) / 2, 0);
    if (cursor !== undefined) drawCursor(context, this.xOf(cursor), this.xOf(cursor) + 1, HEIGHT - BELOW);
  }
}
