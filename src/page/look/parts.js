// The elements of the live view, and what each of them is, in a sentence.
import { element } from "../draw/30_draw.js";
import { Charts } from "./charts.js";
import { GroupChoice } from "./groups.js";
import { RunList } from "./runs.js";

export const WORDS = { tight: "Make it tight" };

const SEEN = [
  ["Block", "the keys and values (K/V) of some tokens, 16 if nothing else is chosen: the unit in which requests get memory " +
    "(docs/control-plane.md)."],
  ["Colour", "names the request that holds a block; eight colours repeat, the number counts."],
  ["Shared", "several requests hold the block, because their prompts begin alike; it is stored once."],
  ["Cached", "nobody holds the block, and a request whose prompt begins like it will find it, until it is evicted."],
  ["K/V group", "the layers that keep the same tokens: all of them, or those of a sliding window. Most models have one. Of several, " +
    "each block serves one at a time, and the buttons below the blocks show one alone, with how many blocks it has."],
  ["Waiting", "requests that are not computed now, and why; the sentences are those of quire explain (docs/control-plane.md)."],
  ["Running", "requests that are in the batch: each step computes a part of a prompt or one new token of each."],
  ["Preempted", "a request gave its blocks to others and went back to the queue; its tokens are kept."],
  ["Host pool", "where the K/V of a preempted request goes if it is swapped out, and from where it comes back."],
  ["This step", "the tokens of prompts and the new ones that it computes; the budget is the most, so that steps stay short."],
  ["The last minutes", "up to five, in which each column is a second; press or drag in a chart to go back to its steps."],
  ["Room for", "how many tokens the free and the cached blocks can still hold; and how many requests, if they are as long as " +
    "those that ended while this page was open."],
  ["Prefix hits", "of the tokens that were looked up in the prefix cache, the part that was there."],
  ["Not yours", "with API keys you see your own requests alone; what others do is not told to this page (docs/live.md)."],
];

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
      element("dl", { class: "seen" }, ...SEEN.flatMap(([what, text]) => [element("dt", {}, what), element("dd", {}, text)])),
      element("p", { class: "quiet" }, "Keys: ← → a step, with Shift ten; Home: the oldest step kept; End: live; " +
        "Space: pause; Esc forgets the choice; in the blocks, arrows move and Enter chooses.")),
    element("p", { class: "tight" }, button("tight", WORDS.tight, undefined),
      element("span", { class: "quiet" }, " asks for 24 answers at a time from this page, so that blocks run short if the pool is small. "),
      named("tightState", element("span", { role: "status" }))));
  return parts;
}

function canvas(label) {
  return element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "block map", "aria-label": label });
}

/** Fills a list, each line a list of texts and elements; what had the focus has it again. `plain`: the lines are no items. */
export function fillList(list, lines, none, plain = false) {
  const made = plain ? lines.flat() : lines.map((line) => element("li", {}, ...line));
  if (made.length === 0) made.push(element("li", { class: "quiet" }, none));
  if (made.length === list.children.length && made.every((one, i) => one.isEqualNode(list.children[i]))) return;
  const inside = list.contains(document.activeElement);
  const focused = inside ? document.activeElement.dataset.ref : undefined;
  list.replaceChildren(...made);
  if (inside) (list.querySelector(`[data-ref="${focused}"]`) ?? list).focus({ preventScroll: true });
}
