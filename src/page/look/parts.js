// The elements of the live view, and what each of them is, in a sentence.
import { element } from "../draw/30_draw.js";
import { Charts } from "./charts.js";
import { GroupChoice } from "./groups.js";
import { RunList } from "./runs.js";

export const WORDS = { tight: "Make it tight" };

const CONTROL = "control-plane";  // documents that the server has with it
const LIVE = "live";

/** What there is to see, what it is, and where more is said. */
const SEEN = [
  ["Block", "the keys and values (K/V) of some tokens, 16 if nothing else is chosen: the unit in which requests get memory", CONTROL],
  ["Colour", "names the request that holds a block; eight colours repeat, the number counts", LIVE],
  ["Shared", "several requests hold the block, because their prompts begin alike; it is stored once", CONTROL],
  ["Cached", "nobody holds the block, and a request whose prompt begins like it will find it, until it is evicted", CONTROL],
  ["Evicted", "a cached block was given to another request because none was free, and what it held is lost", CONTROL],
  ["K/V group", "the layers that keep the same tokens: most models have one group; of several, each block serves one at a time, and " +
    "the buttons below the blocks show one alone, with how many blocks it has", CONTROL],
  ["Waiting", "requests that are not computed now, and why, in the sentences of quire explain", CONTROL],
  ["Running", "requests that are in the batch: each step computes a part of a prompt or one new token of each", CONTROL],
  ["Preempted", "a request gave its blocks to others and went back to the queue; its tokens are kept", CONTROL],
  ["Host pool", "where the K/V of a preempted request goes if it is swapped out, and from where it comes back", CONTROL],
  ["This step", "the tokens of prompts and the new ones that it computes", CONTROL],
  ["Step time", "how long the newest step took from its plan to its results", LIVE],
  ["Budget", "the most tokens that a step may compute, so that steps stay short", CONTROL],
  ["Room for", "how many tokens the free and the cached blocks can still hold, and how many requests, if they are as long as " +
    "those that ended while this page was open", LIVE],
  ["Prefix hits", "of the tokens that were looked up in the prefix cache, the part that was there", CONTROL],
  ["The last minutes", "up to five, in which each column is a second; press or drag in a chart to go back to its steps", LIVE],
  ["Not yours", "with API keys you see your own requests alone; what others do is not told to this page", LIVE],
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

/** Fills `root`; the elements that change, by name. `onGroup()`: another K/V group was chosen; `seek`, `changed`: see Charts. */
export function layout(root, { onGroup, seek, changed }) {
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
    named("numbers", element("dl", { class: "numbers" })),
    section("Blocks",
      element("figure", {}, named("map", canvas("Blocks of the pool"))),
      named("hostFigure", element("figure", { hidden: "" }, element("figcaption", {}, "Host pool (swapped out)"),
        named("hostMap", canvas("Blocks of the host pool")))),
      named("info", element("p", { class: "info", "aria-live": "polite" })),
      named("legend", element("ul", { class: "legend" })),
      named("groups", element("p", { class: "info" })),
      named("choice", new GroupChoice(onGroup)).box),
    section("The last minutes", named("charts", new Charts(seek, changed)).box),
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
        "Space: pause; Esc forgets the choice; in the blocks, arrows move and Enter chooses.")),
    named("tightBox", element("p", { class: "tight", hidden: "" }, button("tight", WORDS.tight, undefined),
      element("span", { class: "quiet" }, " asks for 24 answers at a time from this page, so that blocks run short if the pool is small. "),
      named("tightState", element("span", { role: "status" })))));
  return parts;
}

function canvas(label) {
  return element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "block map", "aria-label": label });
}
