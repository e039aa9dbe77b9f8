// Calls of tools in an answer, with a box for the result of each.
import { button, el, grow } from "./dom.js";
import { nameBidi, visible } from "./text.js";

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

// `drafts` keeps what was typed, by the id of the call; `send` gets [{ call, content }].
export function calls(message, open, drafts, send) {
  const shown = (message.calls ?? []).map((one) => el("div", { class: "call" },
    el("p", {}, "Call of ", el("code", { text: visible(one.name) })),
    el("pre", { dir: "ltr", tabindex: 0, role: "group", "aria-label": `Arguments of ${one.name}`, text: nameBidi(visible(pretty(one.arguments))) }),
    open.includes(one) ? resultBox(one, message, drafts, () => sendAll()) : undefined));
  const sendAll = () => send(open.map((one) => ({ call: one, content: drafts[one.id] ?? "" })));
  if (open.length > 0) shown.push(el("div", { class: "row" }, button(open.length === 1 ? "Send the result" : "Send the results", sendAll)));
  return shown;
}

function resultBox(one, message, drafts, sendAll) {
  const id = `result-${message.id}-${message.calls.indexOf(one)}`;
  const box = el("textarea", { id, rows: 2, dir: "auto", value: drafts[one.id] ?? "", placeholder: "What the tool answers" });
  box.addEventListener("input", () => {
    drafts[one.id] = box.value;
    grow(box);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    sendAll();
  });
  return el("label", { for: id, class: "wide" }, `Result of ${visible(one.name)}`, box);
}
