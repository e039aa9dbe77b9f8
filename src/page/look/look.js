// The live view: what the scheduler of this server does, while it does it.
import { Change, count, duration, plural } from "../draw/05_words.js";
import { drawBlock, element, fillLegend, ownerColour, readTheme, theme } from "../draw/30_draw.js";
import { groupOf, groupsText } from "./groups.js";
import { House } from "./house.js";
import { fillList } from "./lists.js";
import { Load, tightens } from "./load.js";
import { LiveMap } from "./map.js";
import { numbersOf } from "./numbers.js";
import { WORDS, layout } from "./parts.js";
import { blockStory, requestStory } from "./stories.js";
import { LiveStream } from "./stream.js";
import { Teller } from "./teller.js";

const DRAW_EVERY = 100;   // ms
const FRAME = 20;         // ms, about what passes before a frame is drawn
const LIST_EVERY = 100;   // ms, one after the other: no update should do all the work

class Look {
  constructor(root, key) {
    this.root = root;
    this.parts = layout(root, {
      onGroup: () => this.refresh(),
      seek: (us) => this.goTo(this.house?.indexOfTime(us)),
      resized: () => this.house?.frame && this.showCharts(),
    });
    root.classList.add("nothing-yet");
    this.live = true;  // shows the newest step
    this.forget();
    this.lastDraw = 0;
    this.lastList = 0;
    this.lists = [this.showState, this.showNews, this.showCharts, this.showStory];
    this.stale = new Set(this.lists);  // those that do not show the newest step, the one that waits longest first
    const world = {
      id: (i) => this.house.requests[i]?.id ?? "?",
      marks: (map) => this.marks(map),
      group: (map, block) => (map === this.hostMap ? undefined : groupOf(this.house, block)),
      say: (text) => { this.parts.info.textContent = text; },
      choose: (map, block) => this.choose({ block, host: map === this.hostMap }),
    };
    this.map = new LiveMap(this.parts.map, "Block", world);
    this.hostMap = new LiveMap(this.parts.hostMap, "Host block", world, this.map);
    this.stream = new LiveStream(key, (message) => this.take(message), (text) => this.say(text));
    this.load = new Load(key, (done) => { this.parts.tightState.textContent = `${plural(done, "answer")} so far`; });
    this.listen();
    this.onTheme();
    this.stream.run();
  }

  listen() {
    const { pause, back, forward, slider, tight, forget } = this.parts;
    this.ends = new AbortController();
    const on = (target, what, act) => target.addEventListener(what, act, { signal: this.ends.signal });
    on(pause, "click", () => this.goLive(!this.live));
    on(back, "click", () => this.goTo(this.house?.at - 1));
    on(forward, "click", () => this.goTo(this.house?.at + 1));
    on(slider, "input", () => this.goTo(Number(slider.value)));
    on(tight, "click", () => this.toggleLoad());
    on(forget, "click", () => this.choose({}));
    on(this.root, "keydown", (event) => this.key(event));
    // A button that is replaced between press and release is never clicked.
    on(this.root, "pointerdown", () => { this.pressed = true; });
    for (const what of ["pointerup", "pointercancel"]) on(window, what, () => { this.pressed = false; });
    on(window.matchMedia("(prefers-color-scheme: dark)"), "change", () => this.onTheme());
    on(document, "visibilitychange", () => this.plan());
    this.resize = new ResizeObserver(() => this.house?.frame && this.drawMaps());
    this.resize.observe(this.root);
  }

  stop() {
    this.stream.stop();
    this.load.stop();
    this.ends.abort();
    this.resize.disconnect();
    this.parts.charts.stop();
    cancelAnimationFrame(this.request);
    clearTimeout(this.soon);
    clearTimeout(this.later);
    this.stopped = true;
  }

  say(text) {
    this.parts.state.textContent = text;
    this.parts.state.hidden = text === "";
  }

  forget() {
    this.chosen = { request: -1, block: -1, host: false };
  }

  take(message) {
    if (message.start) {
      this.house = new House(message.start);
      this.teller = new Teller(this.house, (what) => this.choose(what), (n) => this.goTo(this.house.indexOf(n)));
      this.forget();
      this.live = true;
      this.showPause();
      this.parts.hostFigure.hidden = this.house.host === undefined;
      this.parts.groups.textContent = groupsText(this.house);
      this.parts.groups.hidden = this.house.groups < 2;
      this.parts.tightBox.hidden = !tightens(this.house);
      this.parts.choice.begin(this.house);
      this.parts.charts.begin(this.house);
      this.showLegend();
    } else if (this.house) {
      const shown = this.house.frame;
      this.house.append(message, this.live);
      if (!this.live && this.house.frame === shown) return this.showSlider();
    }
    for (const list of this.lists) if (list !== this.showStory || !this.parts.story.hidden) this.stale.add(list);
    this.plan();
    return undefined;
  }

  planList(list) {
    this.stale.add(list);
    this.plan();
  }

  /** Draws soon, at most ten times a second, and nothing that nobody sees. */
  plan() {
    if (this.planned || this.stopped) return;
    this.planned = true;
    this.soon = setTimeout(() => {
      this.request = requestAnimationFrame((now) => {
        this.planned = false;
        if (!document.hidden && !this.root.hidden && this.house?.frame) this.draw(now);
      });
    }, Math.max(0, this.lastDraw + DRAW_EVERY - performance.now() - FRAME));
  }

  draw(now) {
    const { house } = this;
    this.lastDraw = now;
    const first = this.root.classList.contains("nothing-yet");
    this.root.classList.remove("nothing-yet");
    this.drawMaps();
    this.showSlider();
    if (first) this.drawLists();
    else if (!this.pressed && now - this.lastList >= LIST_EVERY) this.drawNextList(now);
    clearTimeout(this.later);
    if (this.stale.size > 0) this.later = setTimeout(() => this.plan(), LIST_EVERY);
  }

  /** When the size changes, also at once: until then the browser shows the old picture stretched. */
  drawMaps() {
    this.map.update(this.house.pool);
    if (this.house.host) this.hostMap.update(this.house.host);
  }

  /** The state every other time, between the others in turn. */
  drawNextList(now) {
    const others = [...this.stale].filter((list) => list !== this.showState);
    const next = this.stale.has(this.showState) && (this.justDrawn !== this.showState || others.length === 0) ? this.showState : others[0];
    if (next === undefined) return;
    this.lastList = now;
    this.justDrawn = next;
    this.stale.delete(next);
    next.call(this);
  }

  drawLists() {
    this.stale.clear();
    for (const list of this.lists) list.call(this);
  }

  /** Together, since who reads that two wait looks for both of them. */
  showState() {
    const { waits, runs } = this.house.census();
    this.showNumbers();
    this.parts.choice.update();
    fillList(this.parts.waits, this.teller.waiting(waits), "Nobody waits.");
    this.parts.runs.show(runs, this.teller, this.house.isNewest);
  }

  showNews() {
    fillList(this.parts.news, this.teller.news(), "Nothing yet.");
  }

  showCharts() {
    this.parts.charts.draw(this.live ? undefined : this.house.frame.began_us);
  }

  /** What stands out in a map. Blocks just taken do where time stands still. */
  marks(map) {
    const { house, chosen } = this;
    const host = map === this.hostMap;
    const holds = house.pool.blocksOf(chosen.request).size > 0 || house.host?.blocksOf(chosen.request).size > 0;
    const changes = this.live ? [] : host ? house.frame.host_blocks : house.frame.blocks;
    const fresh = [];
    for (let k = 0; k < changes.length; k += 3) if (changes[k] === Change.take) fresh.push(changes[k + 1]);
    return { request: holds ? chosen.request : -1, block: chosen.host === host ? chosen.block : -1, fresh, group: host ? undefined : this.parts.choice.chosen };
  }

  showSlider() {
    const { house, parts } = this;
    if (!house.frame) return;
    parts.slider.max = house.frames.length - 1;
    parts.slider.value = house.at;
    const { frame } = house;
    const ago = house.frames.at(-1).began_us - frame.began_us;
    parts.ago.textContent = this.live || ago <= 0 ? "" : `${duration(ago)} before the newest`;
    const text = frame.after ? "Nothing runs" : `Step ${count(frame.n)}`;
    if (parts.when.textContent === text) return;
    parts.when.textContent = text;
    parts.slider.setAttribute("aria-valuetext", text);
  }

  showNumbers() {
    const pairs = numbersOf(this.house);
    const values = this.parts.numbers.querySelectorAll("dd");
    const names = pairs.map(([name]) => name).join();
    if (names === this.numbers) {
      pairs.forEach(([, text], i) => { if (values[i].textContent !== text) values[i].textContent = text; });
      return;
    }
    this.numbers = names;
    this.parts.numbers.replaceChildren(...pairs.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  }

  showStory() {
    const { parts, chosen } = this;
    const request = this.house.requests[chosen.request];
    parts.story.hidden = request === undefined && chosen.block < 0;
    if (parts.story.hidden) return;
    const [title, body] = request ? requestStory(this.teller, request, this.house.isNewest)
      : blockStory(this.teller, chosen.block, chosen.host);
    if (parts.storyTitle.textContent !== title) parts.storyTitle.textContent = title;
    const top = parts.storyBody.querySelector("ol")?.scrollTop ?? 0;
    fillList(parts.storyBody, body.map((one) => [one]), "", true);
    if (parts.storyBody.querySelector("ol")) parts.storyBody.querySelector("ol").scrollTop = top;
  }

  choose({ request = -1, block = -1, host = false }) {
    this.chosen = { request, block, host };
    this.refresh();
  }

  refresh() {
    this.pressed = false;
    if (!this.house?.frame) return;
    this.draw(performance.now());
    this.drawLists();
  }

  goTo(at) {
    if (!this.house?.frame || Number.isNaN(at)) return;
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
    this.parts.pause.setAttribute("aria-label", this.live ? "Pause the view" : "Live: go back to the newest step");
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    const far = event.shiftKey ? 10 : 1;
    const act = {
      ArrowLeft: () => this.goTo(this.house?.at - far), ArrowRight: () => this.goTo(this.house?.at + far),
      Home: () => this.goTo(0), End: () => this.goLive(true), Escape: () => this.choose({}),
      " ": event.target.closest("button, summary") ? undefined : () => this.goLive(!this.live),
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
    if (this.house) this.parts.charts.showLegends();
    this.planList(this.showCharts);
  }

  showLegend() {
    const block = (state) => (context) => drawBlock(context, state, 0, 0, 0, 18);
    const colours = (context) => [0, 1, 2].forEach((owner) => {
      context.fillStyle = ownerColour(owner);
      context.fillRect(owner * 6, 0, 6, 18);
    });
    const taken = (context) => {
      drawBlock(context, "owned", 0, 0, 0, 18);
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      context.strokeRect(1, 1, 16, 16);
    };
    const own = [[colours, "yours: the colour and number of a request"], [block("shared"), "shared by several of yours"],
      [block("other"), "not yours (others', cached or free: not shown)"]];
    const all = [[colours, "held by one request: its colour, its number"], [block("shared"), "shared, ×holders"],
      [block("cached"), "cached, held by no request"], [block("free"), "free"]];
    fillLegend(this.parts.legend, [...this.house?.own ? own : all, [taken, "just taken, while paused"]], 18, 18);
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
