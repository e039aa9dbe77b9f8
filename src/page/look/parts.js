// The elements of the live view, and what each of them is, in a sentence.
import { element } from "../draw/30_draw.js";
import { Charts } from "./charts.js";
import { GroupChoice } from "./groups.js";
import { RunList } from "./runs.js";

export const WORDS = { tight: "Make it tight" };

const CONTROL = "control-plane";  // documents that the server has with it
const LIVE = "live";

/** What there is to see, a sentence about it, and where more is said. */
const SEEN = [
  ["Blocks", "Each square is a block, the keys and values (K/V) of some tokens, 16 if nothing else is chosen: the unit in which requests get memory", CONTROL],
  ["Colour", "It names the request that holds a block; eight colours repeat, the number counts", LIVE],
  ["Blocks held", "The number of blocks that at least one request uses, of all that there are", CONTROL],
  ["Shared", "Several requests hold the block, because their prompts begin alike; it is stored once", CONTROL],
  ["Cached", "Nobody holds the block, and a request whose prompt begins like it will find it, until it is evicted", CONTROL],
  ["Free", "Nobody holds the block, and nothing in it could be found again", CONTROL],
  ["Just taken", "The frame marks blocks that a request got in this step; it is drawn while the view is paused", LIVE],
  ["Evictions", "The number of cached blocks that were given to other requests because none was free; what they held is lost", CONTROL],
  ["Host pool, host blocks", "The K/V of a preempted request goes there if it is swapped out, and comes back from there", CONTROL],
  ["K/V group", "Its layers keep the same tokens: most models have one group; of several, each block serves one at a time, and " +
    "the buttons below the blocks show one alone, with how many blocks it has", CONTROL],
  ["Waiting, and why", "These requests are not computed now, and the sentences, those of quire explain, say what each waits for", CONTROL],
  ["Running", "These requests are in the batch: each step computes a part of a prompt or one new token of each", CONTROL],
  ["Preemptions", "The number of times that a request gave its blocks to others and went back to the queue; its tokens are kept", CONTROL],
  ["What just happened", "Admissions, preemptions, moves to the host and back, copies, evictions and ends are told, the latest first", CONTROL],
  ["This step", "The tokens of prompts and the new ones that it computes", CONTROL],
  ["Step time", "The time that a step took from its plan to its results", LIVE],
  ["New tokens", "The tokens that were generated in a second, for all requests together", LIVE],
  ["Budget", "The most tokens that a step may compute, so that steps stay short; the chart shows how much of it is used", CONTROL],
  ["Room for", "The number of tokens that the free and the cached blocks can still hold", LIVE],
  ["Or for requests", "The same in requests, if they are as long as those that ended while this page was open", LIVE],
  ["Prefix hits", "The part that was there of the tokens that were looked up in the prefix cache", CONTROL],
  ["The last minutes", "In the charts, of up to five minutes, each column is a second; press or drag in one to go back to its steps", LIVE],
  ["Pause, ◀, ▶, slider", "These stop the view, not the server, and show the steps of the last minutes one by one", LIVE],
  ["Request, block", "Press a number to read the life of a request, or a square for the history of a block", LIVE],
  ["Not yours", "With API keys you see your own requests alone; what others do is not told to this page", LIVE],
];

const DOCUMENTS = { [CONTROL]: "/page/docs/control-plane.txt", [LIVE]: "/page/docs/live.txt" };

function seen([what, text, where]) {
  const link = element("a", { href: DOCUMENTS[where], target: "_blank", rel: "noopener", "aria-label": `docs/${where}.md, on: ${what}` }, `docs/${where}.md`);
  return [element("dt", {}, what), element("dd", {}, `${text} (`, link, ").")];
}

function stylesheet() {
  if (document.querySelector("link[data-look]")) return;
  document.head.append(element("link", { rel: "stylesheet", href: "/page/look/look.css", "data-look": "" }));
}

/** Fills `root`; the elements that change, by name. `onGroup()`: another K/V group was chosen; `seek`, `resized`: see Charts. */
export function layout(root, { onGroup, seek, resized }) {
  stylesheet();
  const parts = {};
  const named = (name, made) => (parts[name] = made);
  const button = (name, text, label) => named(name, element("button", { type: "button", "aria-label": label }, text));
  const section = (title, ...inside) => element("section", {}, element("h3", {}, title), ...inside);
  root.replaceChildren(
    element("div", { class: "look-top" },
      element("h2", {}, "The live house"),
      named("when", element("output", { class: "when" }, "Waiting for the first step")),
      named("ago", element("span", { class: "quiet" })),
      element("div", { class: "look-time", role: "group", "aria-label": "Time" },
        button("back", "◀", "One step back"), button("pause", "Pause", "Pause the view"), button("forward", "▶", "One step forward"),
        named("slider", element("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step" })))),
    named("state", element("p", { class: "notice", role: "status", hidden: "" })),
    element("p", { class: "quiet hint" }, "As soon as somebody asks the server for an answer, its blocks, its queue and its steps are drawn here."),
    named("tightBox", element("p", { class: "tight", hidden: "" }, button("tight", WORDS.tight, undefined),
      element("span", { class: "quiet" }, " asks for 24 answers at a time from this page, more than there are blocks for. "),
      named("tightState", element("span", { role: "status" })))),
    named("numbers", element("dl", { class: "numbers" })),
    section("Blocks",
      element("figure", {}, named("map", canvas("Blocks of the pool"))),
      named("hostFigure", element("figure", { hidden: "" }, element("figcaption", {}, "Host pool (swapped out)"),
        named("hostMap", canvas("Blocks of the host pool")))),
      named("info", element("p", { class: "info", "aria-live": "polite" })),
      named("legend", element("ul", { class: "legend" })),
      named("groups", element("p", { class: "info" })),
      named("choice", new GroupChoice(onGroup)).box),
    section("The last minutes", named("charts", new Charts(seek, resized)).box),
    named("story", element("section", { hidden: "" },
      element("div", { class: "row" }, named("storyTitle", element("h3", { "aria-live": "polite" })),
        button("forget", "×", "Clear the selection")),
      named("storyBody", element("div", {})))),
    element("div", { class: "look-lists" },
      section("Waiting, and why", named("waits", element("ul", { class: "lines", tabindex: 0, "aria-label": "Waiting, and why" }))),
      section("Running", named("runs", new RunList()).list),
      section("What just happened", named("news", element("ul", { class: "lines", tabindex: 0, "aria-label": "What just happened" })))),
    element("details", {}, element("summary", {}, "What am I seeing?"),
      element("dl", { class: "seen" }, ...SEEN.flatMap(seen)),
      element("p", { class: "quiet" }, "Keys: ← → a step, with Shift ten; Home: the oldest step kept; End: live; " +
        "Space: pause; Esc forgets the choice; in the blocks, arrows move and Enter chooses.")));
  return parts;
}

function canvas(label) {
  return element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "block map", "aria-label": label });
}
