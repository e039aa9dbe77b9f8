// ---- the numbers of phases, reasons, decisions and changes; amounts in words ----

export const Phase = { queued: 0, prefill: 1, decode: 2, stalled: 3, preempted: 4, swapped: 5 };
export const PHASES = ["queued", "prefill", "decode", "stalled", "preempted", "swapped out"];
export const isWaiting = (phase) => phase === Phase.queued || phase === Phase.preempted || phase === Phase.swapped;
export const Wait = { none: 0, slots: 1, budget: 2, blocks: 3, order: 4, parent: 5, preempt: 6, batch: 7, token: 8, prefix: 9 };
export const Decision = {
  add: 0, admit: 1, hit: 2, skip: 3, chunk: 4, allocate: 5, share: 6, release: 7, evict: 8, copy: 9, preempt: 10,
  swapOut: 11, swapIn: 12, finish: 13,
};

export const Change = { take: 0, drop: 1, dropToCache: 2, evict: 3, isCached: 4 };

const counted = new Intl.NumberFormat("en");
export const count = (number) => counted.format(number);
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function duration(micros) {
  const fixed = (value, unit) => `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${unit}`;
  if (micros < 1000) return `${micros.toFixed(0)} µs`;
  return micros < 1e6 ? fixed(micros / 1e3, "ms") : fixed(micros / 1e6, "s");
}
