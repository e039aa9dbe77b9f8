// ---- what is shown, and how it is changed ----

/** The frame; what is chosen: a request (index) or a block ({map, block}). */
const view = { frame: 0, request: -1, block: undefined };

const world = {
  id: (request) => requests[request].id,
  marks: (map) => {
    // Of a request that holds nothing now, nothing stands out.
    const holds = view.request >= 0 && (pool.held[view.request] > 0 || (hostPool && hostPool.held[view.request] > 0));
    const taken = view.frame > 0 ? map.pool.changesOf(view.frame).filter(({ kind }) => kind === Change.take) : [];
    return {
      request: holds ? view.request : -1,
      block: view.block && view.block.map === map ? view.block.block : -1,
      fresh: taken.map(({ block }) => block),
    };
  },
  say: showPointed,
  choose: (map, block) => choose({ block: { map, block } }),
};
const map = new BlockMap(document.getElementById("map"), pool, hostPool ? "Device block" : "Block", world);
const hostMap = hostPool
  ? new BlockMap(document.getElementById("host-map"), hostPool, "Host block", world, map) : undefined;

/** By kind: the frames in which there is one, ascending. */
const eventFrames = (() => {
  const kinds = new Map([["any", []], ["preemption", []], ["wait for blocks", []], ["arrival", []], ["admission", []],
    ["prefix hit", []], ["eviction", []], ["copy", []], ["end", []]]);
  const byDecision = {
    [Decision.preempt]: "preemption", [Decision.admit]: "admission", [Decision.hit]: "prefix hit",
    [Decision.copy]: "copy", [Decision.finish]: "end",
  };
  for (let frame = 0; frame < numSteps; ++frame) {
    const found = new Set();
    for (const event of events[frame]) {
      if (byDecision[event.kind]) found.add(byDecision[event.kind]);
      if (event.kind === Decision.skip && event.a === Wait.blocks) found.add("wait for blocks");
    }
    if (arrivals.has(frame)) found.add("arrival");
    for (let i = frame === 0 ? 0 : pool.ends[frame - 1]; i < pool.ends[frame]; ++i) {
      if (pool.kinds[i] === Change.evict) found.add("eviction");
    }
    for (const kind of found) kinds.get(kind).push(frame);
    if (found.size > 0) kinds.get("any").push(frame);
  }
  return kinds;
})();

function goTo(frame) {
  const next = clampFrame(frame);
  if (next === view.frame) return;
  view.frame = next;
  show();
}

function choose({ request = -1, block }) {
  const same = request >= 0 && request === view.request;
  view.request = request;
  view.block = block;
  show();
  if (request >= 0) scrollToRow(request);
  const side = document.querySelector(".side");
  if (same || getComputedStyle(side).position !== "sticky") return;
  // To where its story has got; in a narrow window the page stays where it is.
  const now = document.querySelector("#story li.now");
  const below = now && now.offsetTop + now.offsetHeight > side.clientHeight;
  side.scrollTop = below ? now.offsetTop - side.clientHeight / 2 : 0;
}

function showPointed(text) {
  document.getElementById("map-info").textContent = text;
}

function showWhen() {
  const when = document.getElementById("when");
  const frame = view.frame;
  const slider = document.getElementById("slider");
  slider.value = frame;
  if (frame === numSteps) {
    when.replaceChildren(run.last === run.run.last_step ? "the end" : `after step ${count(run.last)}`);
    slider.setAttribute("aria-valuetext", "the end");
    return;
  }
  const took = columns.took_us[frame];
  when.replaceChildren(`step ${count(stepOf(frame))} `,
    element("small", {}, `of ${count(run.last)} · at ${duration(columns.began_us[frame] - firstBegan)}`,
      element("span", { class: "took" }, took > 0 ? ` · ${duration(took)}` : "")));
  slider.setAttribute("aria-valuetext", `step ${count(stepOf(frame))} of ${count(run.last)}`);
}

function showCounts() {
  const frame = view.frame;
  let held = 0;
  let shared = 0;
  let cached = 0;
  for (let block = 0; block < pool.numBlocks; ++block) {
    held += pool.holders[block] > 0 ? 1 : 0;
    shared += pool.holders[block] > 1 ? 1 : 0;
    cached += pool.cached[block];
  }
  const total = run.config.num_blocks;
  const bold = (number) => element("b", {}, count(number));
  const parts = [bold(held), ` of ${count(total)} held`, shared > 0 ? [" (", bold(shared), " by several)"] : [], ", ",
    bold(cached), " cached, ", bold(total - held - cached), " free"];
  if (hostPool) {
    let host = 0;
    for (let block = 0; block < hostPool.numBlocks; ++block) host += hostPool.holders[block];
    parts.push("; ", bold(host), ` of ${count(run.config.num_host_blocks)} of the host pool`);
  }
  if (pool.numBlocks < total) parts.push(`. Not drawn: ${count(total - pool.numBlocks)} that were never used`);
  if (map.perCell > 1) parts.push(`. A square is ${count(map.perCell)} blocks`);
  document.getElementById("pool-counts").replaceChildren(...parts.flat(), ".");
}

function show() {
  pool.seek(view.frame);
  if (hostPool) hostPool.seek(view.frame);
  showWhen();
  showCounts();
  map.draw();
  if (hostMap) hostMap.draw();
  showStory();
  showStep(view.frame);
  drawTime();
}

// ---- playing, jumping ----

let timer;
let nextTick = 0;

function play(on) {
  cancelAnimationFrame(timer);
  timer = undefined;
  document.getElementById("play").textContent = on ? "Stop" : "Play";
  if (!on) return;
  if (view.frame === numSteps) goTo(0);
  nextTick = performance.now();
  const tick = (now) => {
    const each = 1000 / Number(document.getElementById("speed").value);
    const steps = Math.floor((now - nextTick) / each);
    if (steps > 0) {
      nextTick += steps * each;
      goTo(view.frame + Math.min(steps, 20));
    }
    if (view.frame === numSteps) play(false); else timer = requestAnimationFrame(tick);
  };
  timer = requestAnimationFrame(tick);
}

function jump(direction) {
  const frames = eventFrames.get(document.getElementById("kind").value);
  const next = direction > 0 ? frames.find((frame) => frame > view.frame)
    : frames.findLast((frame) => frame < view.frame);
  if (next !== undefined) goTo(next);
}

function onKey(event) {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("select, table, input[type=checkbox]") || (target.id === "slider" && event.key !== " ")) return;
  const far = event.shiftKey ? 10 : 1;
  const actions = {
    ArrowLeft: () => goTo(view.frame - far),
    ArrowRight: () => goTo(view.frame + far),
    Home: () => goTo(0),
    End: () => goTo(numSteps),
    n: () => jump(1),
    p: () => jump(-1),
    Escape: () => choose({}),
  };
  if (event.key === " " && !target.closest("button, summary")) actions[" "] = () => play(timer === undefined);
  const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

// ---- the frame around it ----

const VERDICT_LINES = 6;  // of the summary, what is seen at once

function showHeader() {
  document.title = `${run.log}: quire, a run explained`;
  const all = run.run;
  document.getElementById("summary").replaceChildren(element("bdi", {}, run.log),
    `, over ${plural(run.config.num_blocks, "block")} of ${run.config.block_size} tokens. ` + checkText());
  const rest = all.summary.slice(VERDICT_LINES).map(([what, text]) => [what, withRefs(text)]);
  document.getElementById("verdict").replaceChildren(
    facts(all.summary.slice(0, VERDICT_LINES).map(([what, text]) => [what, withRefs(text)])),
    element("details", {}, element("summary", {}, "The run in numbers"), facts(rest)));
  const notices = [];
  if (run.last - run.first + 1 < all.steps) {
    notices.push(`Steps ${count(run.first)} to ${count(run.last)} of ${count(all.steps)} are shown` +
      (run.limited ? ", as many as a page takes" : "") + ". quire explain --html FILE --steps FROM-TO chooses others.");
  }
  if (all.late_begin !== "") notices.push(all.late_begin);
  if (all.early_end !== "") notices.push(all.early_end);
  if (run.check !== null && !run.check.same) {
    notices.push(run.check.error !== undefined ? `The run could not be repeated from the log: ${run.check.error}.`
      : run.check.difference !== undefined
        ? `Replaying the log, ${run.check.difference}: another quire wrote this log, or it is damaged.`
        : "Replaying the log gives another digest: it is damaged.");
  }
  const notice = document.getElementById("notice");
  notice.hidden = notices.length === 0;
  notice.textContent = notices.join(" ");
}

function checkText() {
  if (run.check === null) return "Its checksums are right; quire explain --replay repeats the run.";
  return run.check.same ? `Checked: replaying the log gives the same ${count(run.check.decisions)} decisions.` : "";
}

function showLegends() {
  const block = (state, owner) => (context) => drawBlock(context, state, owner, 0, 0, 18);
  fillLegend(document.getElementById("legend"), [
    [(context) => {
      context.font = "9px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      [0, 1, 2].forEach((owner) => {
        context.fillStyle = ownerColour(owner);
        context.fillRect(owner * 6, 0, 6, 18);
      });
    }, "held by one request: its colour, its number"],
    [block("shared", 0), "shared, ×holders"],
    [block("cached", 0), "cached, held by no request"],
    [block("free", 0), "free"],
    [(context) => {
      drawBlock(context, "owned", 0, 0, 0, 18);
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      context.strokeRect(1, 1, 16, 16);
    }, "taken since the step before"],
  ], 18, 18);
  const bar = (phase) => (context) => drawPhase(context, phase, 0, 0, 1, 34, 14);
  fillLegend(document.getElementById("phases"), [
    [bar(Phase.prefill), "computes its prompt"],
    [bar(Phase.decode), "generates"],
    [bar(Phase.stalled), "stalled"],
    [bar(Phase.queued), "waits"],
    [bar(Phase.preempted), "preempted, K/V given up"],
    ...(hostPool ? [[bar(Phase.swapped), "swapped out"]] : []),
  ], 34, 16);
}

function onTheme() {
  readTheme();
  showLegends();
  show();
}

function start() {
  const on = (id, what, listener) => document.getElementById(id).addEventListener(what, listener);
  const slider = document.getElementById("slider");
  slider.max = numSteps;
  on("slider", "input", () => goTo(Number(slider.value)));
  on("back", "click", () => goTo(view.frame - 1));
  on("forward", "click", () => goTo(view.frame + 1));
  on("play", "click", () => play(timer === undefined));
  on("previous", "click", () => jump(-1));
  on("next", "click", () => jump(1));
  on("forget", "click", () => choose({}));
  on("table", "toggle", (event) => event.target.open && showTable());
  on("settings", "toggle", (event) => event.target.open && showSettings());
  document.getElementById("kind").append(...[...eventFrames].filter(([, frames]) => frames.length > 0)
    .map(([kind, frames]) => element("option", { value: kind }, `${kind} (${plural(frames.length, "step")})`)));
  const hostFigure = document.getElementById("host-figure");
  hostFigure.hidden = hostMap === undefined;
  if (hostPool) {
    const share = hostPool.numBlocks / (hostPool.numBlocks + pool.numBlocks);
    hostFigure.style.setProperty("--host-share", `${Math.round(100 * Math.min(Math.max(share, 0.22), 0.48))}%`);
  }
  document.getElementById("only-now").checked = requests.length > 200;
  document.addEventListener("keydown", onKey);
  listenToTime();
  showHeader();
  if (run.selected !== undefined) {
    view.request = run.selected;
    const segments = requests[run.selected].segments;
    if (segments.length > 0) view.frame = clampFrame(segments[0].from);
  }
  readTheme();
  showLegends();
  show();
  if (view.request >= 0) scrollToRow(view.request);
  let width = 0;  // heights change with every step
  new ResizeObserver(([entry]) => {
    if (entry.contentRect.width === width) return;
    width = entry.contentRect.width;
    show();
  }).observe(document.querySelector("main"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onTheme);
}

start();
