// Sentences about a house, in the words of quire explain: who waits and why, who runs, what just happened.
import { Decision, Phase, Wait, count, plural } from "../draw/05_words.js";
import { OWNERS, element } from "../draw/30_draw.js";
import { waitGroups, waitSentence } from "../draw/45_waits.js";
import { admissionSentence, copySentence, evictionSentence, preemptionSentence, spanText } from "../draw/46_events.js";

const MOST_LINES = 40;
const MOST_NEWS = 30;
const MOST_FRAMES = 500;  // in which news are looked for
const MOST_BLOCKS = 6;    // that are named in a line

export class Teller {
  /** What the buttons in the sentences do: `choose({request} or {block})`, `goTo(step)`. */
  constructor(house, choose, goTo) {
    this.house = house;
    this.choose = choose;
    this.goTo = goTo;
  }

  ref(i, extra = "") {
    const request = this.house.requests[i];
    if (request === undefined) return "an earlier request";
    const button = element("button", { type: "button", class: "ref", "data-ref": i, onclick: () => this.choose({ request: i }) },
      `#${request.id}${extra}`);
    button.style.setProperty("--own", `var(--owner-${i % OWNERS})`);
    return button;
  }

  /** Some of them, with commas; the rest as a number. */
  refs(list, most = 14, extra = () => "") {
    const out = list.slice(0, most).flatMap((i, at) => (at > 0 ? [", ", this.ref(i, extra(i))] : [this.ref(i, extra(i))]));
    if (list.length > most) out.push(` and ${plural(list.length - most, "other")}`);
    return out;
  }

  stepRef(n, text = `step ${count(n)}`) {
    return element("button", { type: "button", class: "ref plain", "data-ref": `step ${n}`, onclick: () => this.goTo(n) }, text);
  }

  blockRefs(blocks) {
    const button = (block) =>
      element("button", { type: "button", class: "ref plain", "data-ref": `block ${block}`, onclick: () => this.choose({ block }) }, count(block));
    const out = blocks.slice(0, MOST_BLOCKS).flatMap((block, at) => (at > 0 ? [", ", button(block)] : [button(block)]));
    if (blocks.length > MOST_BLOCKS) out.push(` and ${count(blocks.length - MOST_BLOCKS)} more`);
    return out;
  }

  /** A sentence of the server; its "#7" become buttons. */
  linked(text) {
    return text.split(/(#\d+)/).map((part) => {
      const i = part.startsWith("#") ? this.house.byId.get(part.slice(1)) : undefined;
      return i === undefined ? part : this.ref(i);
    });
  }

  holders(most) {
    const { of } = this.house.pool;
    const held = [...of.keys()].sort((a, b) => of.get(b).size - of.get(a).size || a - b);
    return this.refs(held, most, (i) => `: ${count(of.get(i).size)}`);
  }

  /** Of those that run, the one with the fewest tokens left. */
  nextToEnd() {
    const left = (request) => request.prompt + request.max - request.total;
    const next = this.house.census().runs.reduce((best, one) => (best === undefined || left(one) < left(best) ? one : best), undefined);
    return next === undefined ? [] : ["; ", this.ref(next.i), ` has the fewest tokens left, at most ${count(Math.max(1, left(next)))}`];
  }

  /** One sentence for all that wait for the same. */
  waiting(waits) {
    const sorted = waitGroups(waits.map(({ i, look }) => ({ index: i, look })));
    return sorted.slice(0, MOST_LINES).map((group) => waitSentence(group, this.world(group, sorted)));
  }

  world(group, all) {
    const { config, frame, own, causes, requests } = this.house;
    const total = config.num_blocks;
    const first = requests[group.who[0]];
    return {
      ref: (i) => this.ref(i),
      refs: (list) => this.refs(list),
      why: (cause) => causes[cause],
      slots: config.max_num_seqs,
      keepsSlots: all.some((other) => other.reason === Wait.prefix),
      needed: this.house.neededBy(first),
      free: own ? undefined : total - frame.held,
      reserve: Math.min(Math.ceil(total * config.watermark_bp / 10000), total),
      holders: group.reason === Wait.blocks && !own ? this.holders(4) : [],
      next: group.reason === Wait.slots && this.house.isNewest ? this.nextToEnd() : [],
      others: own ? "another client's" : undefined,
    };
  }

  /**
   * [part done or undefined, text] of one that runs. `now`: whether the frame shown is the newest, of which alone the progress
   * is known.
   */
  running(request, now) {
    const { phase } = request.look;
    const blocks = plural(this.house.pool.blocksOf(request.i).size, "block");
    const stalled = phase === Phase.stalled ? "stalled: no block for its next token · " : "";
    if (!now) return [undefined, `${stalled}${phase === Phase.prefill ? "computes its prompt" : "generates"} · ${blocks}`];
    const generated = Math.max(0, request.total - request.prompt);
    const part = phase === Phase.prefill ? request.computed / request.prompt : generated / request.max;
    const what = phase === Phase.prefill ? `prompt ${count(Math.min(request.computed, request.prompt))} of ${count(request.prompt)}`
      : `${count(generated)} of at most ${count(request.max)}`;
    const { speed } = request;
    const fast = speed && phase === Phase.decode ? ` · ${speed.toFixed(speed < 10 ? 1 : 0)} tokens/s` : "";
    return [Math.min(Math.max(part, 0), 1), `${stalled}${what}${fast} · ${blocks}`];
  }

  /** What happened up to the frame shown, the latest first. Evictions of steps in a row are one line. */
  news() {
    const { frames, at, config } = this.house;
    const out = [];
    let evicted;
    const flush = () => {
      if (evicted === undefined) return;
      const { from, to, blocks } = evicted;
      out.push([this.stepRef(to, spanText(from, to)), " ", ...evictionSentence(config.eviction, blocks.length, this.blockRefs(blocks))]);
      evicted = undefined;
    };
    for (let i = at; i >= 0 && i > at - MOST_FRAMES && out.length < MOST_NEWS; --i) {
      const frame = frames[i];
      const lines = this.newsOf(frame);
      if (lines.length > 0) flush();
      out.push(...lines.reverse());
      if (frame.evicted.length === 0) continue;
      evicted ??= { to: frame.n, blocks: [] };
      evicted.from = frame.n;
      evicted.blocks.push(...frame.evicted);
    }
    flush();
    return out.slice(0, MOST_NEWS);
  }

  newsOf(frame) {
    const out = [];
    frame.events.forEach((event, at) => {
      if (event.request < 0) return;
      const line = this.eventSentence(frame.events, at);
      if (line) out.push([this.stepRef(frame.n), " ", this.ref(event.request), ...line]);
    });
    return out;
  }

  eventSentence(list, at) {
    const event = list[at];
    const request = this.house.requests[event.request];
    if (event.kind === Decision.admit) return [...admissionSentence(list, at, request?.fork_of !== undefined), "."];
    if (event.kind === Decision.preempt) return preemptionSentence(list, at, (cause) => this.linked(this.house.causes[cause]));
    if (event.kind === Decision.copy) return [" ", copySentence(event)];
    if (event.kind === Decision.finish) {
      return [request?.end === undefined ? " ends." : ` ends after ${plural(request.tokens, "token")}: ${request.end}.`];
    }
    return undefined;
  }
}
