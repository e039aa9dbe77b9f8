// ---- what a step decided, in sentences: lists of texts and elements that go behind the name of a request ----

import { Decision, count, plural } from "./05_words.js";

/** The event at `at` of a step's list is an admission; `forked`: its request shares the K/V of a parent. */
export function admissionSentence(list, at, forked) {
  const event = list[at];
  const before = list.slice(0, at).filter((other) => other.request === event.request);
  const hit = before.find((other) => other.kind === Decision.hit);
  const moved = before.find((other) => other.kind === Decision.swapIn);
  const chunk = list.slice(at).find((other) => other.kind === Decision.chunk && other.request === event.request);
  const cached = hit ? hit.a : 0;
  const parts = [`starts running (slot ${event.a})`];
  if (hit) parts.push(`${cached} of its ${hit.b} tokens ${forked ? "shared, or found," : "found"} in the prefix cache`);
  if (moved) parts.push(`${plural(moved.a, "block")} back from the host (${plural(event.b - cached, "token")})`);
  if (chunk) parts.push(`computes ${plural(chunk.b, "token")} from position ${count(chunk.a)} on`);
  return [" ", parts.join("; ")];
}

/** Of the event at `at`, a preemption; `why(cause)`: the sentence of a cause. */
export function preemptionSentence(list, at, why) {
  const event = list[at];
  const next = list[at + 1];
  const swapped = next && next.kind === Decision.swapOut && next.request === event.request;
  return [" is preempted: ", ...(event.cause < 0 ? ["no block was left"] : why(event.cause)), ". ",
    swapped ? `Its K/V (${plural(event.a, "token")}, ${plural(next.a, "block")}) moves to the host.`
      : `The K/V of ${plural(event.a, "token")} is given up.`];
}

export const copySentence = (event) =>
  `writes to block ${count(event.a)}, which others hold too: to a copy of it, block ${count(event.b)}.`;

/** `named`: which blocks, a list of texts and elements. */
export const evictionSentence = (policy, evicted, named) =>
  [`No block was free, so ${policy} chose ${plural(evicted, "cached block")} to evict: `, ...named, "."];

/** What a block of a state is; `refs(holders)`: how these are shown. */
export function blockWords(state, holders, refs) {
  if (state === "free") return ["free"];
  if (state === "cached") return ["cached: no request holds it"];
  return state === "owned" ? ["held by ", ...refs(holders)] : ["shared by ", ...refs(holders, 8)];
}

export const spanText = (from, to) => (from === to ? `step ${count(from)}` : `steps ${count(from)}–${count(to)}`);
