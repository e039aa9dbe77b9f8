// ---- the table of all requests, and the settings ----

const ROWS_SHOWN = 1000;
const NO_LIMIT = 2 ** 32 - 1;

const waitedSteps = (request) => request.waited.reduce((sum, [, steps]) => sum + steps, 0);

const TABLE = [
  ["Request", (request, index) => index, (request, index) => ref(index)],
  ["Prompt", (request) => request.prompt],
  ["Cached", (request) => request.hit],
  ["Generated", (request) => request.tokens],
  ["Came after step", (request) => request.arrived],
  ["Ended in step", (request) => request.ended],
  ["Waited before start", (request) => request.queued],
  ["Waited in all", waitedSteps],
  ["That took", (request) => request.waited_us, (request) => duration(request.waited_us)],
  ["First token", (request) => request.ttft_us, (request) => (request.ttft_us === null ? "–" : duration(request.ttft_us))],
  ["Total", (request) => request.total_us, (request) => (request.total_us === null ? "–" : duration(request.total_us))],
  ["Preempted", (request) => request.preempted],
  ["Again", (request) => request.again],
  ...(run.run.tenants ? [["Tenant", (request) => request.tenant, (request) => request.tenant, "text"]] : []),
  ...(run.run.priorities ? [["Priority", (request) => request.priority, (request) => String(request.priority)]] : []),
  ...(run.run.deadlines ? [["Deadline", (request) => request.deadline_us, (request) => duration(request.deadline_us)]] : []),
  ["Ended by", (request) => request.end_text, (request) => request.end_text, "text"],
  ["Waited most for", (request) => request.waited_for, (request) => request.waited_for, "text"],
  ["Name", (request) => request.name, (request) => element("bdi", {}, request.name), "text"],
];
const sorting = { by: 0, down: false };

function showTable() {
  const named = requests.some((request) => request.name !== "");
  const columnsShown = named ? TABLE : TABLE.slice(0, -1);
  const [, value] = TABLE[sorting.by];
  const order = requests.map((request, index) => index);
  const compare = (a, b) => {
    const [x, y] = [value(requests[a], a), value(requests[b], b)];
    if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
    const sign = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (sorting.down ? -sign : sign) || a - b;
  };
  order.sort(compare);
  const head = columnsShown.map(([name, , , kind], i) => element("th", {
    class: kind, scope: "col", "aria-sort": sorting.by === i ? (sorting.down ? "descending" : "ascending") : undefined,
  }, element("button", {
    type: "button",
    onclick: () => {
      sorting.down = sorting.by === i ? !sorting.down : i > 0;
      sorting.by = i;
      showTable();
    },
  }, name + (sorting.by === i ? (sorting.down ? " ↓" : " ↑") : ""))));
  const lines = order.slice(0, ROWS_SHOWN).map((index) => element("tr", {},
    ...columnsShown.map(([, plain, shown, kind]) => {
      const cell = shown ? shown(requests[index], index) : plain(requests[index], index);
      return element("td", { class: kind }, typeof cell === "number" ? count(cell) : cell === null ? "–" : cell);
    })));
  document.getElementById("table-body").replaceChildren(
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All requests" },
      element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines))),
    requests.length > ROWS_SHOWN
      ? element("p", { class: "quiet" }, `The first ${count(ROWS_SHOWN)} of ${count(requests.length)} in this order.`) : "",
    element("p", { class: "quiet" }, "Waits are in steps: before it started running, and in all, after preemptions too. " +
      "Again: tokens computed again after a preemption."));
}

/** A setting as the command line has it; times and parts with their units. */
function setting(name, value) {
  if (["priority_aging", "prefill_token", "decode_token", "swap_block"].includes(name)) return duration(value / 1000);
  if (name === "watermark_bp") return `${value / 100} %`;
  if (name === "kv_windows") return value.map((window) => (window === 0 ? "everything" : plural(window, "token"))).join(", ");
  if (name === "max_waiting" && value >= NO_LIMIT) return "no limit";
  return typeof value === "number" ? count(value) : String(value);
}

function showSettings() {
  document.getElementById("settings-body").replaceChildren(
    facts(Object.entries(run.config).map(([name, value]) => [name, setting(name, value)])));
}
