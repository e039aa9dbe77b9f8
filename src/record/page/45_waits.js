// ---- why a request waits, in a sentence ----

import { Wait, count } from "./05_words.js";

/** Those that wait, [{index, look}], by why they do: [{reason, behind, cause, who}]; the one that waits for blocks first. */
export function waitGroups(waits) {
  const groups = new Map();
  for (const { index, look: { reason, behind, cause } } of waits) {
    const key = `${reason}/${behind}/${cause}`;
    if (!groups.has(key)) groups.set(key, { reason, behind, cause, who: [] });
    groups.get(key).who.push(index);
  }
  return [...groups.values()].sort((a, b) => (a.reason === Wait.blocks ? -1 : b.reason === Wait.blocks ? 1 : 0));
}

/**
 * Why those of a group wait; a list of texts and elements. `world` has how requests are shown (`ref`, `refs`), `why(cause)`,
 * the sentence of a cause, and `slots`. With reason `blocks` also: how many blocks are `needed`, how many are `free`, how
 * many must stay free (`reserve`), and `holders`, what is shown of those that hold most. With reason `slots`, where it is known,
 * the `next` that ends, a list of texts and elements. A reader to whom the pool is not shown has no `free`, and its `others` are
 * the words for those that are not shown: "another client's".
 */
export function waitSentence({ reason, behind, cause, who }, world) {
  const many = who.length > 1;
  const verb = many ? " wait " : " waits ";
  const before = behind < 0 ? [world.others ?? "another"] : [world.ref(behind)];
  if (reason === Wait.blocks) return [...world.refs(who), verb, ...forBlocks(world)];
  if (reason === Wait.order) {
    const why = cause < 0 ? undefined : world.why(cause);
    if (behind < 0 || why === undefined) return [...world.refs(who), verb, `behind ${world.others ?? "others"}.`];
    // The sentence is about one that waits ("its own is 5"), and applies to each of them.
    return [...world.refs(who), many ? " each wait " : verb, "behind ", world.ref(behind), `, ${why}.`];
  }
  if (reason === Wait.parent) return [...world.refs(who), verb, "for ", ...before, " to compute the tokens that they share."];
  if (reason === Wait.prefix) return [...world.refs(who), verb, "for ", ...before, " to compute the next block that they share."];
  if (reason === Wait.slots) {
    const kept = world.keepsSlots ? ", or kept for requests that wait for a prefix" : "";
    return [...world.refs(who), verb, `because all ${count(world.slots)} slots are taken${kept}`, ...world.next ?? [], "."];
  }
  const why = {
    [Wait.budget]: "because other requests used up the token budget of this step.",
    [Wait.preempt]: "because admission pauses in a step that preempts.",
    [Wait.token]: "because the first in line waits for a token of an open step.",
    [Wait.batch]: "because a static batch must end before the next begins.",
  }[reason] || "for the next step.";
  return [...world.refs(who), verb, why];
}

function forBlocks({ needed, free, reserve, holders }) {
  const needs = needed === undefined ? ""
    : `it needs ${count(needed)}${reserve > 0 ? `, and ${count(reserve)} must stay free` : ""}; `;
  if (free === undefined) return ["first in line, for blocks", needed === undefined ? "." : `: it needs ${count(needed)}.`];
  const missing = (needed ?? 0) + reserve - free;
  const more = needed === undefined || missing <= 0 ? "" : `, so ${count(missing)} more must be released`;
  return ["first in line, for blocks: ", needs, `${count(free)} ${free === 1 ? "is" : "are"} available${more}. Held by `, ...holders, "."];
}
