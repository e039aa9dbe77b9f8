// The numbers of the frame shown.
import { count, duration, plural } from "../draw/05_words.js";

const SPEED_OVER = 2e6;  // µs

/** [[name, text]...] */
export function numbersOf(house) {
  const { frame, config } = house;
  const total = config.num_blocks;
  const pairs = [["Running", count(frame.running)], ["Waiting", count(frame.waiting)],
    ["This step", `${count(frame.prefill)} prompt + ${count(frame.decode)} new`],
    ["Step time", frame.took > 0 ? duration(frame.took) : "–"], ["New tokens", `${count(speed(house))}/s`]];
  if (!house.own) {
    pairs.push(["Blocks held", `${count(frame.held)} of ${count(total)}`], ["Of them shared", count(frame.shared)],
      ["Cached", count(frame.cached)], ["Free", count(total - frame.held - frame.cached)],
      ["Budget", plural(frame.budget, "token")], ...room(house));
    if (house.host) pairs.push(["Host blocks", `${count(frame.host)} of ${count(config.num_host_blocks)}`]);
  }
  const [found, asked] = house.hits;
  if (asked > 0) pairs.push(["Prefix hits", `${Math.round(100 * found / asked)} % of tokens`]);
  pairs.push(["Preemptions seen", count(house.preemptions)]);
  if (!house.own) pairs.push(["Evictions seen", plural(house.evictions, "block")]);
  return pairs;
}

/** Each decode of a step is a new token. */
function speed({ frames, at, frame }) {
  let tokens = 0;
  let i = at;
  while (i > 0 && frame.began_us - frames[i - 1].began_us < SPEED_OVER) tokens += frames[--i].decode;
  const micros = frame.began_us - frames[i].began_us;
  return frame.after || micros <= 0 ? 0 : Math.round(tokens * 1e6 / micros);
}

/** With K/V groups a token takes room in a block of each. */
function room({ config, frame, groups, ended }) {
  const available = config.num_blocks - frame.held;
  const each = Math.max(1, groups);
  const out = [["Room for", plural(Math.floor(available / each) * config.block_size, "token")]];
  if (ended.requests === 0) return out;
  const mean = Math.max(1, Math.round(ended.tokens / ended.requests));
  const more = Math.floor(available / (each * Math.ceil(mean / config.block_size)));
  return [...out, ["Or for requests", `${count(more)} of ${plural(mean, "token")}`]];
}
