// ---- the story of what was chosen: a request or a block ----

const HISTORY_SHOWN = 300;

/** Our own sentences, their "#7" made into buttons. */
function withRefs(text) {
  return text.split(/(#\d+)/).map((part) => {
    const index = part.startsWith("#") ? indexOfId.get(part.slice(1)) : undefined;
    return index === undefined ? part : ref(index);
  });
}

const indexOfId = new Map(requests.map((request, index) => [request.id, index]));

function phaseText(request, index, frame) {
  const segment = segmentAt(request, frame);
  const held = pool.held[index] > 0 ? `, holds ${plural(pool.held[index], "block")}` : "";
  const host = hostPool && hostPool.held[index] > 0 ? `, has ${count(hostPool.held[index])} in the host pool` : "";
  if (segment !== undefined) return PHASES[segment.phase] + held + host;
  if (request.refused !== "") return "refused";
  return request.arrived >= stepOf(frame) ? "not yet arrived" : "ended";
}

function requestStory(index) {
  const request = requests[index];
  const frame = view.frame;
  const waited = request.waited.reduce((sum, [, steps]) => sum + steps, 0);
  const body = [facts([
    ["Name", request.name === "" ? undefined : element("bdi", {}, request.name)],
    ["Fork of", request.fork_of === undefined ? undefined : withRefs(`#${request.fork_of}`)],
    ["In this step", phaseText(request, index, frame)],
    ["Prompt", `${plural(request.prompt, "token")}, ${count(request.hit)} of them ${
      request.fork_of === undefined ? "" : "shared with its parent or "}found in the prefix cache`],
    ["Generated", `${count(request.tokens)} of at most ${plural(request.max, "token")}`],
    ["Tenant", run.run.tenants ? request.tenant : undefined],
    ["Priority", run.run.priorities ? String(request.priority) : undefined],
    ["Deadline", run.run.deadlines ? `first token within ${duration(request.deadline_us)}` : undefined],
    ["Waited", waited === 0 ? "not at all" : `${plural(waited, "step")} (${duration(request.waited_us)})`],
    ["First token", request.ttft_us === null ? undefined : `after ${duration(request.ttft_us)}`],
    ["Ended", request.total_us === null ? request.end_text : `after ${duration(request.total_us)}: ${request.end_text}`],
    ["Preempted", request.preempted === 0 ? undefined
      : `${request.preempted === 1 ? "once" : `${count(request.preempted)} times`}, waited ` +
        `${plural(waited - request.queued, "step")} (${duration(request.waited_us - request.queued_us)}) to come back; of ${plural(request.lost, "token")} of K/V, ` +
        `${count(request.found)} found in the cache, ${count(request.returned)} back from the host, ` +
        `${count(request.again)} computed again`],
  ])];
  if (request.refused !== "") body.push(element("p", { class: "lead" }, `Refused: ${request.refused}.`));
  const step = stepOf(frame);
  body.push(element("ol", { class: "lines" }, ...request.lines.map(([from, to, text]) => {
    const when = to === 0 ? "at the start" : spanText(from, to);
    const inside = to >= run.first && from <= run.last;
    const now = from <= step && step <= to;
    return element("li", now ? { class: "now", "aria-current": "step" } : {},
      inside && to > 0 ? stepRef(Math.max(from, run.first), when) : element("span", { class: "quiet" }, when),
      element("span", {}, ...withRefs(text)));
  })));
  return [`Request ${request.id}`, body];
}

function blockStory({ map, block }) {
  const history = map.pool.history(block);
  const shown = history.slice(0, HISTORY_SHOWN);
  const near = history.findIndex(({ to }) => view.frame < to);
  if (near >= HISTORY_SHOWN) shown.splice(0, shown.length, ...history.slice(near - HISTORY_SHOWN / 2, near + HISTORY_SHOWN / 2));
  const lines = shown.map(({ from, to, state, holders }) => {
    const last = stepOf(to) - 1;
    const ends = to >= numSteps;
    const when = ends ? `from step ${count(stepOf(from))}`
      : spanText(stepOf(from), last);
    const now = from <= view.frame && view.frame < to;
    return element("li", now ? { class: "now", "aria-current": "step" } : {},
      from === numSteps ? element("span", { class: "quiet" }, "at the end") : stepRef(stepOf(from), when),
      element("span", {}, ...blockWords(state, holders, refs)));
  });
  const owners = new Set(history.flatMap(({ holders }) => holders)).size;
  const body = [element("p", { class: "lead" },
    `It has room for the K/V of ${count(run.config.block_size)} tokens. ${plural(owners, "request")} held it in the steps shown.`),
  element("ol", { class: "lines" }, ...lines)];
  if (shown.length < history.length) {
    body.push(element("p", { class: "quiet" }, `${count(shown.length)} of ${count(history.length)} changes are listed.`));
  }
  return [`${map.name} ${count(block)}`, body];
}

function showStory() {
  const section = document.getElementById("story");
  section.hidden = view.request < 0 && view.block === undefined;
  if (section.hidden) return;
  const [title, body] = view.block ? blockStory(view.block) : requestStory(view.request);
  const heading = document.getElementById("story-title");
  if (heading.textContent !== title) heading.textContent = title;
  document.getElementById("story-body").replaceChildren(...body);
}
