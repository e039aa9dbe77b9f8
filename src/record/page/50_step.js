// ---- what a step decided, in sentences ----

/** A request's number, to choose it. */
function ref(index, extra = "") {
  const button = element("button", {
    type: "button", class: `ref${index === view.request ? " chosen" : ""}`, onclick: () => choose({ request: index }),
  }, `#${requests[index].id}${extra}`);
  button.style.setProperty("--own", `var(--owner-${index % OWNERS})`);
  return button;
}

/** Some of them, with commas; the rest behind a number. */
function refs(indices, most = 14) {
  const out = [];
  const shown = indices.slice(0, most);
  shown.forEach((index, i) => out.push(...withComma(ref(index), i + 1 < shown.length)));
  if (indices.length > most) out.push(` and ${plural(indices.length - most, "other")}`);
  return out;
}

/** A line may end after the comma, not before it. */
function withComma(button, comma) {
  return comma ? [element("span", { class: "nowrap" }, button, ","), " "] : [button];
}

function stepRef(step, text) {
  return element("button", { type: "button", class: "ref plain", onclick: () => goTo(frameOf(step)) }, text);
}

function group(title, lines, kind = "") {
  if (lines.length === 0) return "";
  return element("div", { class: `group ${kind}` }, element("h3", {}, title),
    element("ul", {}, ...lines.map((line) => element("li", {}, ...line))));
}

/** In a frame: requests by what they do. */
function census(frame) {
  const out = { prefill: [], decode: [], stalled: [], waits: [] };
  requests.forEach((request, index) => {
    const segment = segmentAt(request, frame);
    if (segment === undefined) return;
    if (segment.phase === Phase.prefill) out.prefill.push(index);
    if (segment.phase === Phase.decode) out.decode.push(index);
    if (segment.phase === Phase.stalled) out.stalled.push(index);
    if (isWaiting(segment.phase)) out.waits.push({ index, segment });
  });
  return out;
}

/** Those that hold most blocks of the pool. */
function largestHolders(most) {
  const held = [];
  pool.held.forEach((blocks, index) => {
    if (blocks > 0) held.push(index);
  });
  held.sort((a, b) => pool.held[b] - pool.held[a] || a - b);
  const out = [];
  const shown = held.slice(0, most);
  shown.forEach((index, i) => out.push(...withComma(ref(index, `: ${pool.held[index]}`), i + 1 < shown.length)));
  if (held.length > most) out.push(` and ${plural(held.length - most, "other")}`);
  return out;
}

/** So many blocks were said to be needed when a request became first in line. */
const needs = (() => {
  const skips = new Map();
  events.forEach((list, frame) => {
    for (const event of list) {
      if (event.kind !== Decision.skip || event.a !== Wait.blocks) continue;
      if (!skips.has(event.request)) skips.set(event.request, []);
      skips.get(event.request).push([frame, event.b]);
    }
  });
  return (index, frame) => {
    const own = (skips.get(index) || []).filter(([from]) => from <= frame);
    return own.length === 0 ? undefined : own[own.length - 1][1];
  };
})();

function headline(frame, now) {
  const prefill = columns.prefill[frame];
  const decode = columns.decode[frame];
  const parts = [];
  if (decode > 0) parts.push(`a token each for ${plural(now.decode.length, "request")} that generate${now.decode.length === 1 ? "s" : ""}`);
  if (prefill > 0) parts.push(`${plural(prefill, "token")} of prompts`);
  return parts.length === 0 ? "Computes nothing." : `Computes ${parts.join(" and ")}.`;
}

function admissions(list) {
  const lines = [];
  list.forEach((event, at) => {
    if (event.kind !== Decision.admit) return;
    const forked = requests[event.request]?.fork_of !== undefined;
    lines.push([ref(event.request), ...admissionSentence(list, at, forked)]);
  });
  return lines;
}

function preemptions(list) {
  const lines = [];
  list.forEach((event, at) => {
    if (event.kind !== Decision.preempt) return;
    lines.push([ref(event.request), ...preemptionSentence(list, at, (cause) => withRefs(run.causes[cause]))]);
  });
  return lines;
}

function waiting(now, frame) {
  const free = run.config.num_blocks - columns.held[frame];
  const reserve = Math.min(Math.ceil(run.config.num_blocks * run.config.watermark_bp / 10000), run.config.num_blocks);
  const sorted = waitGroups(now.waits.map(({ index, segment }) => ({ index, look: segment })));
  return sorted.map((group) => waitSentence(group, {
    ref, refs, reserve, free,
    slots: run.config.max_num_seqs,
    keepsSlots: sorted.some((other) => other.reason === Wait.prefix),
    needed: needs(group.who[0], frame),
    holders: group.reason === Wait.blocks ? largestHolders(4) : [],
    why: (cause) => run.causes[cause],
  }));
}

function finishes(list) {
  return list.filter((event) => event.kind === Decision.finish && event.request >= 0).map((event) => {
    const request = requests[event.request];
    return [ref(event.request), ` after ${plural(request.tokens, "token")}: ${request.end_text}.`];
  });
}

function blockNews(frame, list) {
  const changes = pool.changesOf(frame);
  const of = (kind) => changes.filter((change) => change.kind === kind);
  const evicted = of(Change.evict).map((change) => change.block);
  const released = of(Change.drop).length + of(Change.dropToCache).length;
  const lines = [];
  const taken = of(Change.take).length;
  if (frame > 0 && taken + released > 0) {
    lines.push([`Since the step before: ${count(taken)} taken, ${count(released)} released`,
      of(Change.dropToCache).length > 0 ? `, of which ${count(of(Change.dropToCache).length)} stay cached.` : "."]);
  }
  if (evicted.length > 0) {
    const named = evicted.slice(0, 12).map((block) => count(block)).join(", ");
    lines.push(evictionSentence(run.config.eviction, evicted.length,
      [named, evicted.length > 12 ? ` and ${count(evicted.length - 12)} more` : ""]));
  }
  for (const event of list) {
    if (event.kind !== Decision.copy) continue;
    lines.push([...(event.request < 0 ? [] : [ref(event.request), " "]), copySentence(event)]);
  }
  return lines;
}

function showStep(frame) {
  const title = document.getElementById("step-title");
  const body = document.getElementById("step-body");
  if (frame === numSteps) {
    const end = run.last === run.run.last_step ? "After the last step" : "After the last step shown";
    title.textContent = end;
    body.replaceChildren(element("p", { class: "lead" }, "What is held now, and what stays cached."),
      group("Blocks", blockNews(frame, [])));
    return;
  }
  const now = census(frame);
  const list = events[frame];
  const continues = list.filter((event) => event.kind === Decision.chunk &&
    !list.some((other) => other.kind === Decision.admit && other.request === event.request));
  title.textContent = `Step ${count(stepOf(frame))}`;
  body.replaceChildren(
    element("p", { class: "lead" }, headline(frame, now)),
    group("Arrived before it", (arrivals.get(frame) || []).length === 0 ? [] : [refs(arrivals.get(frame))]),
    group("Is preempted", preemptions(list), "alarm"),
    group("Is admitted", admissions(list)),
    group("Continues its prompt", continues.map((event) =>
      [ref(event.request), ` computes ${plural(event.b, "token")} from position ${count(event.a)} on.`])),
    group("Generates", now.decode.length === 0 ? [] : [refs(now.decode)]),
    group("Is stalled", now.stalled.map((index) => [ref(index), " has its slot, and no block for its next token."])),
    group("Waits", waiting(now, frame)),
    group("Blocks", blockNews(frame, list)),
    group("Ends with its results", finishes(list)));
}
