// The live view: what the scheduler of this server does, while it does it.
import { count, duration, plural } from "../draw/05_words.js";
import { drawBlock, element, fillLegend, readTheme } from "../draw/30_draw.js";
import { House } from "./house.js";
import { Teller, lifeList } from "./lists.js";
import { Load } from "./load.js";
import { LiveMap } from "./map.js";
import { LiveStream } from "./stream.js";
import { WORDS, layout } from "./parts.js";

const DRAW_EVERY = 100;   // ms
const LISTS_EVERY = 300;  // ms; they are read, not watched

class Look {
  constructor(root, key) {
    this.root = root;
    this.parts = layout(root);
    this.live = true;  // shows the newest step
    this.chosen = -1;
    this.lastDraw = 0;
    this.lastLists = 0;
    const say = (text) => { this.parts.info.textContent = text; };
    this.map = new LiveMap(this.parts.map, "Block", say, (i) => this.choose(i));
    this.hostMap = new LiveMap(this.parts.hostMap, "Host block", say, (i) => this.choose(i));
    this.stream = new LiveStream(key, (message) => this.take(message), (text) => this.say(text));
    this.load = new Load(key, (done) => { this.parts.tightState.textContent = `${plural(done, "answer")} so far`; });
    this.listen();
    this.onTheme();
    this.stream.run();
  }

  listen() {
    const { pause, back, forward, slider, tight } = this.parts;
    this.ends = new AbortController();
    const on = (target, what, act) => target.addEventListener(what, act, { signal: this.ends.signal });
    on(pause, "click", () => this.goLive(!this.live));
    on(back, "click", () => this.goTo(this.house?.at - 1));
    on(forward, "click", () => this.goTo(this.house?.at + 1));
    on(slider, "input", () => this.goTo(Number(slider.value)));
    on(tight, "click", () => this.toggleLoad());
    on(this.parts.forget, "click", () => this.choose(-1));
    on(this.root, "keydown", (event) => this.key(event));
    on(window.matchMedia("(prefers-color-scheme: dark)"), "change", () => this.onTheme());
    on(document, "visibilitychange", () => this.plan());
    this.resize = new ResizeObserver(() => this.plan());
    this.resize.observe(this.root);
  }

  stop() {
    this.stream.stop();
    this.load.stop();
    this.ends.abort();
    this.resize.disconnect();
    cancelAnimationFrame(this.request);
    this.stopped = true;
  }

  say(text) {
    this.parts.state.textContent = text;
    this.parts.state.hidden = text === "";
  }

  take(message) {
    if (message.start) {
      this.house = new House(message.start);
      this.teller = new Teller(this.house, (i) => this.choose(i));
      this.chosen = -1;
      this.live = true;
      this.parts.hostFigure.hidden = this.house.host === undefined;
      this.showLegend();
    } else if (this.house) {
      this.house.append(message, this.live);
    }
    this.plan();
  }

  /** Draws soon, at most ten times a second, and nothing that nobody sees. */
  plan() {
    if (this.request !== undefined || this.stopped) return;
    this.request = requestAnimationFrame((now) => {
      this.request = undefined;
      if (document.hidden || this.root.hidden || !this.house?.frame) return;
      if (now - this.lastDraw < DRAW_EVERY) return this.plan();
      this.lastDraw = now;
      this.draw(now);
    });
  }

  draw(now) {
    const { house, parts } = this;
    this.map.show(house, house.pool, this.chosen);
    if (house.host) this.hostMap.show(house, house.host, this.chosen);
    parts.slider.max = house.frames.length - 1;
    parts.slider.value = house.at;
    this.showNumbers();
    if (this.live && now - this.lastLists < LISTS_EVERY) {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.plan(), LISTS_EVERY);
      return;
    }
    this.lastLists = now;
    if (!this.root.contains(document.activeElement?.closest?.(".ref") ?? null)) this.showLists();
  }

  showNumbers() {
    const { house, parts } = this;
    const frame = house.frame;
    const took = frame.took > 0 ? `, ${duration(frame.took)}` : "";
    parts.when.textContent = frame.after ? "Nothing runs." : `Step ${count(frame.n)}${took}`;
    parts.slider.setAttribute("aria-valuetext", parts.when.textContent);
    const total = house.config.num_blocks;
    const pairs = [["Running", count(frame.running)], ["Waiting", count(frame.waiting)],
      ["This step", `${count(frame.prefill)} prompt + ${count(frame.decode)} new tokens`]];
    if (!house.own) {
      const free = total - frame.held;
      pairs.push(["Budget", plural(frame.budget, "token")],
        ["Blocks held", `${count(frame.held)} of ${count(total)}${frame.shared > 0 ? `, ${count(frame.shared)} shared` : ""}`],
        ["Cached", count(frame.cached)], ["Free", count(total - frame.held - frame.cached)],
        ["Room for", `${plural(free * house.config.block_size, "token")}`]);
      if (house.host) pairs.push(["Host blocks", `${count(frame.host)} of ${count(house.config.num_host_blocks)}`]);
    }
    const [found, asked] = house.hits;
    if (asked > 0) pairs.push(["Prefix hits", `${Math.round(100 * found / asked)} % of looked-up tokens`]);
    pairs.push(["Preemptions seen", count(house.preemptions)]);
    if (!house.own) pairs.push(["Evictions seen", plural(house.evictions, "block")]);
    const text = pairs.flat().join("\n");
    if (text === this.numbers) return;
    this.numbers = text;
    parts.numbers.replaceChildren(...pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  }

  showLists() {
    const { house, parts, teller } = this;
    const { runs, waits } = house.census();
    const fill = (list, lines, none) => list.replaceChildren(
      ...(lines.length === 0 ? [element("li", { class: "quiet" }, none)] : lines.map((line) => element("li", {}, ...line))));
    fill(parts.waits, teller.waiting(waits), "Nobody waits.");
    fill(parts.runs, runs.map((request) => teller.running(request, this.live)), "Nobody runs.");
    fill(parts.news, teller.latest(house.frames, house.at), "Nothing yet.");
    const request = house.requests[this.chosen];
    parts.story.hidden = request === undefined;
    if (request === undefined) return;
    parts.storyTitle.textContent = `The life of #${request.id}`;
    parts.storyBody.replaceChildren(
      element("p", { class: "quiet" }, element("bdi", {}, request.name),
        ` · prompt of ${plural(request.prompt, "token")}, at most ${plural(request.max, "token")}${house.own ? "" : ` · tenant ${request.tenant}`}`),
      lifeList(teller, request));
  }

  choose(i) {
    this.chosen = i;
    this.refresh();
  }

  refresh() {
    this.lastDraw = this.lastLists = 0;
    if (!this.house?.frame) return;
    document.activeElement?.closest?.(".ref")?.blur();
    this.draw(performance.now());
  }

  goTo(at) {
    if (!(at >= 0) || !this.house) return;
    this.live = false;
    this.house.seek(at);
    this.showPause();
    this.refresh();
  }

  goLive(on) {
    this.live = on;
    if (on && this.house) this.house.seek(this.house.frames.length - 1);
    this.showPause();
    this.refresh();
  }

  showPause() {
    this.parts.pause.textContent = this.live ? "Pause" : "Live";
    this.parts.pause.setAttribute("aria-label", this.live ? "Pause the view" : "Go back to the newest step");
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    const far = event.shiftKey ? 10 : 1;
    const act = {
      ArrowLeft: () => this.goTo(Math.max(0, this.house?.at - far)), ArrowRight: () => this.goTo(this.house?.at + far),
      End: () => this.goLive(true), Escape: () => this.choose(-1),
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  toggleLoad() {
    if (this.load.runs) this.load.stop(); else this.load.start();
    this.parts.tight.textContent = this.load.runs ? "Stop the load" : WORDS.tight;
    if (!this.load.runs) this.parts.tightState.textContent = "";
  }

  onTheme() {
    readTheme();
    this.map.stale = this.hostMap.stale = true;
    this.showLegend();
    this.plan();
  }

  showLegend() {
    const block = (state) => (context) => drawBlock(context, state, 0, 0, 0, 18);
    const own = [[block("owned"), "yours, in the colour of a request"], [block("shared"), "shared by several of yours"],
      [block("other"), "not yours: others', cached or free, which is not shown"]];
    const all = [[block("owned"), "held by one request, in its colour"], [block("shared"), "shared"],
      [block("cached"), "cached, held by no request"], [block("free"), "free"]];
    fillLegend(this.parts.legend, this.house?.own ? own : all, 18, 18);
  }
}

let shown;

/** Shows the view in an element; `key`: the API key, if there is one. */
export async function start(root, { key } = {}) {
  stop();
  shown = new Look(root, key);
}

export function stop() {
  shown?.stop();
  shown = undefined;
}
