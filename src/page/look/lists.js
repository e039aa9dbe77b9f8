// Who waits and why, who runs, what just happened, and the life of one request, in the sentences of quire explain.
import { Decision, PHASES, Phase, Wait, count, duration, plural } from "../draw/05_words.js";
import { OWNERS, element } from "../draw/30_draw.js";
import { preemptionSentence, waitSentence } from "../draw/45_waits.js";

const MOST_LINES = 40;
const MOST_NEWS = 30;
const MOST_LIFE = 200;

/** Sentences about a house; `choose(request number)` is called for the buttons in them. */
export class Teller {
  constructor(house, choose) {
    this.house = house;
    this.choose = choose;
  }

  ref(i, extra = "") {
    const request = this.house.requests[i];
    const button = element("button", { type: "button", class: "ref", "data-i": i, onclick: () => this.choose(i) },
      `#${request.id}${extra}`);
    button.style.setProperty("--own", `var(--owner-${i % OWNERS})`);
    return button;
  }

  refs(list, most = 14) {
    const out = list.slice(0, most).flatMap((i, at) => (at > 0 ? [", ", this.ref(i)] : [this.ref(i)]));
    if (list.length > most) out.push(` and ${plural(list.length - most, "other")}`);
    return out;
  }

  /** A sentence of the server; its "#7" become buttons. */
  linked(text) {
    this.byId ??= new Map();
    for (let i = this.byId.size; i < this.house.requests.length; ++i) this.byId.set(this.house.requests[i].id, i);
    return text.split(/(#\d+)/).map((part) => {
      const i = part.startsWith("#") ? this.byId.get(part.slice(1)) : undefined;
      return i === undefined ? part : this.ref(i);
    });
  }

  holders(most) {
    const held = this.house.requests.filter((request) => request?.held > 0).sort((a, b) => b.held - a.held || a.i - b.i);
    const out = held.slice(0, most).flatMap((one, at) => [...(at > 0 ? [", "] : []), this.ref(one.i, `: ${count(one.held)}`)]);
    if (held.length > most) out.push(` and ${plural(held.length - most, "other")}`);
    return out;
  }

  /** One sentence for all that wait for the same. */
  waiting(waits) {
    const groups = new Map();
    for (const { i, look } of waits) {
      const key = `${look.reason}/${look.behind}/${look.cause}`;
      if (!groups.has(key)) groups.set(key, { ...look, cause: look.cause - 1, who: [] });
      groups.get(key).who.push(i);
    }
    const first = (group) => (group.reason === Wait.blocks ? 0 : 1);
    const sorted = [...groups.values()].sort((a, b) => first(a) - first(b));
    return sorted.slice(0, MOST_LINES).map((group) => waitSentence(group, this.world(group, sorted)));
  }

  world(group, all) {
    const { config, frame, own, causes, requests } = this.house;
    const total = config.num_blocks;
    return {
      ref: (i) => this.ref(i),
      refs: (list) => this.refs(list),
      why: (cause) => causes[cause],
      slots: config.max_num_seqs,
      keepsSlots: all.some((other) => other.reason === Wait.prefix),
      needed: requests[group.who[0]].needs,
      free: own ? undefined : total - frame.held,
      reserve: Math.min(Math.ceil(total * config.watermark_bp / 10000), total),
      holders: group.reason === Wait.blocks && !own ? this.holders(4) : [],
    };
  }

  running(request, live) {
    const what = request.look.phase === Phase.prefill
      ? `prompt ${count(Math.min(request.computed, request.prompt))} of ${count(request.prompt)}`
      : `${count(Math.max(0, request.total - request.prompt))} of at most ${plural(request.max, "token")}`;
    const speed = live && request.speed && request.look.phase === Phase.decode ? ` · ${request.speed.toFixed(1)} tokens/s` : "";
    const stalled = request.look.phase === Phase.stalled ? " · stalled: no block for its next token" : "";
    const part = request.look.phase === Phase.prefill ? request.computed / request.prompt : (request.total - request.prompt) / request.max;
    const bar = element("progress", { max: 1, value: Math.min(Math.max(part, 0), 1), "aria-label": `Progress of #${request.id}` });
    return [this.ref(request.i), bar, element("span", {}, `${what}${speed} · ${plural(request.held, "block")}${stalled}`)];
  }

  /** What a frame decided that is worth a line, the latest last. */
  news(frame) {
    const out = [];
    frame.events.forEach((event, at) => {
      const line = event.i < 0 ? undefined : this.newsOf(event, frame.events[at + 1]);
      if (line) out.push([element("span", { class: "quiet" }, `step ${count(frame.n)} `), ...line]);
    });
    let evicted = 0;
    for (let k = 0; k < frame.blocks.length; k += 3) evicted += frame.blocks[k] === 3 ? 1 : 0;
    if (evicted > 0) {
      out.push([element("span", { class: "quiet" }, `step ${count(frame.n)} `),
        `No block was free, so ${this.house.config.eviction} chose ${plural(evicted, "cached block")} to evict.`]);
    }
    return out;
  }

  newsOf(event, next) {
    const name = this.ref(event.i);
    if (event.kind === Decision.admit) return [name, event.b > 0 ? ` starts running with ${plural(event.b, "token")} of K/V that are there.` : " starts running."];
    if (event.kind === Decision.preempt) {
      const swapped = next && next.kind === Decision.swapOut && next.i === event.i ? next.a : undefined;
      const why = event.cause > 0 ? this.linked(this.house.causes[event.cause - 1]) : ["no block was left"];
      return [name, ...preemptionSentence(why, event.a, swapped)];
    }
    if (event.kind === Decision.swapIn) return [name, `: ${plural(event.a, "block")} back from the host.`];
    if (event.kind === Decision.copy) return [name, ` writes to block ${count(event.a)}, which others hold too: to a copy of it, block ${count(event.b)}.`];
    if (event.kind === Decision.finish) return [name, ` ends: ${this.house.requests[event.i].end ?? "its results are in"}.`];
    return undefined;
  }

  latest(frames, at) {
    const out = [];
    for (let i = at; i >= 0 && i > at - 500 && out.length < MOST_NEWS; --i) out.push(...this.news(frames[i]).reverse());
    return out.slice(0, MOST_NEWS);
  }

  /** [from step, to step or 0, sentence]: what it did, one line for each state. */
  life(request) {
    const all = request.life;
    const lines = all.map(({ n, us, look }, at) => {
      if (look === undefined) return [n, n, [`ended: ${request.end ?? ""}`], 0];
      const end = all[at + 1];
      const who = { ...look, cause: look.cause - 1, who: [request.i] };
      const told = look.reason === Wait.none || look.phase < Phase.preempted && look.phase !== Phase.queued
        ? [PHASES[look.phase]]
        : waitSentence(who, { ...this.world({ ...who, reason: Wait.none }, []), free: undefined, refs: () => [PHASES[look.phase], ":"] });
      return [n, end ? end.n - 1 : 0, told, end ? end.us - us : 0];
    });
    return lines.slice(-MOST_LIFE);
  }
}

export function lifeList(teller, request) {
  return element("ol", { class: "life" }, ...teller.life(request).map(([from, to, told, took]) => element("li", {},
    element("span", { class: "quiet" }, to === 0 ? `from step ${count(from)} on` : to <= from ? `step ${count(from)}` : `steps ${count(from)}–${count(to)}`),
    " ", ...told, took > 0 ? ` (${duration(took)})` : "")));
}
