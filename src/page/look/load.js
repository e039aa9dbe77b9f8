// "Make it tight": ordinary requests from this page, so many that a small pool is short of blocks.

const CLIENTS = 4;  // a browser opens six connections to a server, and the page needs the others
const ANSWERS = 6;  // to each prompt
const BEGINNING = "Once upon a time, in a little house at the edge of the wood, there lived a girl who liked to listen. " +
  "Every evening her grandmother sat down by the fire and began to tell of animals, of rivers and of the old days. ";
const ABOUT = ["a fox", "a bear", "a boat", "the moon", "a red hat", "two mice", "a green stone", "the north wind"];

const tokens = (client) => 120 + 20 * client;  // at most, of each of its answers

/** Whether a house has less room than the answers alone would take. */
export function tightens({ config, groups }) {
  let wanted = 0;
  for (let client = 0; client < CLIENTS; ++client) wanted += ANSWERS * tokens(client);
  return config.num_blocks * config.block_size < wanted * Math.max(1, groups);
}

export class Load {
  constructor(key, say) {
    this.key = key;
    this.say = say;
  }

  start() {
    this.control = new AbortController();
    this.done = 0;
    for (let client = 0; client < CLIENTS; ++client) this.client(client, this.control.signal);
  }
  stop() {
    this.control?.abort();
    this.control = undefined;
  }
  get runs() {
    return this.control !== undefined;
  }

  async client(number, signal) {
    for (let turn = 0; !signal.aborted; ++turn) {
      const prompt = `${BEGINNING}This evening it was about ${ABOUT[(number + turn) % ABOUT.length]}.`;
      try {
        const answer = await fetch("/v1/completions", {
          method: "POST", signal,
          headers: { "Content-Type": "application/json", ...this.key ? { Authorization: `Bearer ${this.key}` } : {} },
          body: JSON.stringify({ prompt, n: ANSWERS, max_tokens: tokens(number), temperature: 1, seed: number * 1000 + turn }),
        });
        await answer.text();
        if (!answer.ok) await new Promise((next) => setTimeout(next, 1000));
        else this.say(this.done += ANSWERS);
      } catch {
        if (!signal.aborted) await new Promise((next) => setTimeout(next, 2000));
      }
    }
  }
}
