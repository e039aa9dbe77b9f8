// The last minutes of a house, second by second.
const SECONDS = 300;  // kept

export class History {
  constructor() {
    this.first = 0;  // number of the first second
    this.seconds = [];
  }

  /** The second in which a moment lies, with all before it; undefined if it is too long ago. */
  at(us) {
    const number = Math.floor(us / 1e6);
    if (this.seconds.length === 0 || number - this.end > SECONDS) {
      this.first = number;
      this.seconds = [second()];
    }
    while (this.end <= number) this.seconds.push(second(this.seconds.at(-1)));
    const old = Math.max(0, this.seconds.length - SECONDS);
    this.first += old;
    this.seconds.splice(0, old);
    return this.seconds[number - this.first];
  }
  get end() {
    return this.first + this.seconds.length;
  }

  addStep(frame) {
    const now = this.at(frame.began_us);
    if (now === undefined) return;
    Object.assign(now, { held: frame.held, shared: frame.shared, cached: frame.cached });
    if (frame.after) return;
    const used = frame.budget > 0 ? 100 * (frame.prefill + frame.decode) / frame.budget : 0;
    now.steps += 1;
    now.used += used;
    now.mostUsed = Math.max(now.mostUsed, used);
    now.tokens += frame.decode;
  }

  addPreemption(frame) {
    const now = this.at(frame.began_us);
    if (now) now.preemptions += 1;
  }

  /** Of a step whose time is known. */
  addTime(frame) {
    const now = this.at(frame.began_us);
    if (now === undefined) return;
    now.timed += 1;
    now.took += frame.took;
    now.mostTook = Math.max(now.mostTook, frame.took);
  }
}

/** Sums and largest values over its steps; of the pool, what was last said. */
function second({ held = 0, shared = 0, cached = 0 } = {}) {
  return { held, shared, cached, steps: 0, used: 0, mostUsed: 0, tokens: 0, preemptions: 0, timed: 0, took: 0, mostTook: 0 };
}
