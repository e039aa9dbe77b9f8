// The elements of the live view, and what each of them is, in a sentence.
import { element } from "../draw/30_draw.js";

export const WORDS = { tight: "Make it tight" };

const SEEN = [
  ["Block", "the keys and values (K/V) of 16 or so tokens, the unit in which memory is given to requests (docs/control-plane.md)."],
  ["Colour", "names the request that holds a block; eight colours repeat."],
  ["Shared", "several requests hold the block, because their prompts begin alike; it is stored once."],
  ["Cached", "nobody holds the block, and a request whose prompt begins like it will find it, until it is evicted."],
  ["Waiting", "requests that are not computed yet, and why; the sentences are those of quire explain."],
  ["Running", "requests that are in the batch: each step computes a part of a prompt or one new token of each."],
  ["Preempted", "a request gave its blocks to others and went back to the queue; its tokens are kept."],
  ["Budget", "the most tokens that one step may compute, so that steps stay short."],
  ["Room for", "how many tokens free and cached blocks can still hold."],
];

function stylesheet() {
  if (document.querySelector("link[data-look]")) return;
  document.head.append(element("link", { rel: "stylesheet", href: "/page/look/look.css", "data-look": "" }));
}

/** Fills `root`; the elements that change, by name. */
export function layout(root) {
  stylesheet();
  const parts = {};
  const named = (name, made) => (parts[name] = made);
  const button = (name, text, label) => named(name, element("button", { type: "button", "aria-label": label }, text));
  const section = (title, ...inside) => element("section", {}, element("h3", {}, title), ...inside);
  root.replaceChildren(
    element("div", { class: "look-top" },
      element("h2", {}, "The live house"),
      named("when", element("output", { class: "when" }, "Waiting for the first step")),
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
      named("legend", element("ul", { class: "legend" }))),
    named("story", element("section", { hidden: "" },
      element("div", { class: "row" }, named("storyTitle", element("h3", {})), button("forget", "Close", "Close the life of this request")),
      named("storyBody", element("div", {})))),
    element("div", { class: "look-lists" },
      section("Waiting, and why", named("waits", element("ul", { class: "lines" }))),
      section("Running", named("runs", element("ul", { class: "lines runs" }))),
      section("What just happened", named("news", element("ul", { class: "lines" })))),
    element("details", {}, element("summary", {}, "What am I seeing?"),
      element("dl", { class: "seen" }, ...SEEN.flatMap(([what, text]) => [element("dt", {}, what), element("dd", {}, text)])),
      element("p", { class: "quiet" }, "Keys: ← → a step, with Shift ten; End: live; Esc forgets the choice; in the blocks, arrows move and Enter chooses.")),
    element("p", { class: "tight" }, button("tight", WORDS.tight, undefined),
      element("span", { class: "quiet" }, " asks for 24 answers at a time from this page, so that blocks run short if the pool is small. "),
      named("tightState", element("span", { role: "status" }))));
  return parts;
}

function canvas(label) {
  return element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "block map", "aria-label": label });
}
