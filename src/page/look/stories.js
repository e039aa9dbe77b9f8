// What was chosen: the life of a request, the history of a block.
import { Change, PHASES, Phase, Wait, count, duration, plural } from "../draw/05_words.js";
import { element, facts } from "../draw/30_draw.js";
import { waitSentence } from "../draw/45_waits.js";
import { blockWords, spanText } from "../draw/46_events.js";
import { groupOf, spread } from "./groups.js";

const MOST_LIFE = 200;
const MOST_HISTORY = 300;

/** [title, elements] of a request. */
export function requestStory(teller, request, now) {
  const { house } = teller;
  const blocks = house.pool.blocksOf(request.i).size;
  const host = house.host?.blocksOf(request.i).size ?? 0;
  const state = request.look === undefined ? (request.life[0]?.n > house.frame.n ? "not yet arrived" : "ended")
    : `${PHASES[request.look.phase]}, holds ${plural(blocks, "block")}${spread(house, request.i)}${host > 0 ? `, has ${count(host)} in the host pool` : ""}`;
  return [`Request ${request.id}`, [facts([
    ["Name", request.name === "" ? undefined : element("bdi", {}, request.name)],
    ["Fork of", request.fork_of === undefined ? undefined : [teller.ref(request.fork_of)]],
    ["In this step", state],
    ["Prompt", plural(request.prompt, "token")],
    ["Generated", request.tokens === undefined && !now ? undefined
      : `${count(request.tokens ?? Math.max(0, request.total - request.prompt))} of at most ${plural(request.max, "token")}`],
    ["Tenant", house.own || !request.tenant ? undefined : request.tenant],
    ["Priority", request.priority ? String(request.priority) : undefined],
    ["Came after step", request.arrived === undefined ? undefined : count(request.arrived)],
  ]), lines(teller, life(teller, request))]];
}

/** [{from, to (undefined: until now), words}]: its states, one after the other. */
function life(teller, request) {
  const all = request.life;
  const first = Math.max(0, all.length - MOST_LIFE);
  return all.slice(first).map(({ n, us, look }, i) => {
    if (look === undefined) return { from: n, to: n, words: [`ended${request.end ? `: ${request.end}` : ""}`] };
    const end = all[first + i + 1];
    const took = end ? ` (${duration(end.us - us)})` : "";
    return { from: n, to: end && Math.max(n, end.n - 1), words: [...lookWords(teller, request, look), took] };
  });
}

function lookWords(teller, request, look) {
  const runs = look.phase === Phase.prefill || look.phase === Phase.decode || look.phase === Phase.stalled;
  if (runs || look.reason === Wait.none) return [PHASES[look.phase]];
  const group = { ...look, who: [request.i] };
  // How many blocks were free then is not remembered.
  const world = { ...teller.world(group, []), free: undefined, refs: () => [`${PHASES[look.phase]}:`] };
  return waitSentence(group, world);
}

/** [title, elements] of a block of the pool or, with `host`, the host pool. */
export function blockStory(teller, block, host) {
  const { house } = teller;
  const all = history(house, block, host);
  const refs = (holders, most) => teller.refs(holders, most);
  const shown = all.slice(-MOST_HISTORY).map(({ from, to, state, holders }) => ({
    from, to, words: state === "other" ? ["not yours: not shown"] : blockWords(state, holders, refs),
  }));
  const owners = new Set(all.flatMap(({ holders }) => holders)).size;
  const group = host ? undefined : groupOf(house, block);
  const room = `It has room for the K/V of ${count(house.config.block_size)} tokens. ${group === undefined ? "" : `${group} `}`;
  return [`${host ? "Host block" : "Block"} ${count(block)}`, [
    element("p", {}, `${room}${plural(owners, "request")} held it in the steps kept, up to this one.`), lines(teller, shown)]];
}

/** The states of a block up to the frame shown: [{from (undefined: before all that is kept), to, state, holders}]. */
function history(house, block, host) {
  const pool = host ? house.host : house.pool;
  const holders = new Set(pool.holdersOf(block));
  let cached = pool.cached[block];
  const unheld = () => (house.own ? "other" : cached ? "cached" : "free");
  const word = () => (holders.size > 1 ? "shared" : holders.size === 1 ? "owned" : unheld());
  const out = [];
  let state = { to: undefined, state: word(), holders: [...holders].sort((a, b) => a - b) };
  for (let at = house.at; at >= 0 && out.length < MOST_HISTORY; --at) {
    const frame = house.frames[at];
    const changes = host ? frame.host_blocks : frame.blocks;
    const before = host ? frame.hostBefore : frame.blocksBefore;
    let changed = false;
    for (let k = changes.length - 3; k >= 0; k -= 3) {
      if (changes[k + 1] !== block) continue;
      changed = true;
      if (changes[k] === Change.take) holders.delete(changes[k + 2]);
      else if (changes[k] <= Change.dropToCache) holders.add(changes[k + 2]);
      cached = before[k / 3];
    }
    if (!changed || frame.n === 0) continue;
    out.push({ from: frame.n, ...state });
    state = { to: Math.max(0, frame.n - 1), state: word(), holders: [...holders].sort((a, b) => a - b) };
  }
  if (out.length < MOST_HISTORY) out.push({ from: undefined, ...state });
  return out.reverse();
}

function lines(teller, all) {
  const step = teller.house.frame.n;
  return element("ol", { class: "lines life" }, ...all.map(({ from, to, words }) => {
    const when = from === undefined ? (to === undefined ? "all the time" : `up to step ${count(to)}`)
      : to === undefined ? `from step ${count(from)}` : spanText(from, Math.max(from, to));
    const now = (from ?? 0) <= step && step <= (to ?? Infinity);
    return element("li", now ? { class: "now", "aria-current": "step" } : {},
      from === undefined ? element("span", { class: "quiet" }, when) : teller.stepRef(from, when), element("span", {}, ...words));
  }));
}
