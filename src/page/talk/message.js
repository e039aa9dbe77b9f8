// One message as an element that keeps up with its message.
import { button, copyText, el, grow, keepFocus } from "./dom.js";
import { renderMarkdown, settled } from "./markdown.js";
import { renderProbabilities } from "./probabilities.js";
import { longText, renderPlain, visible } from "./text.js";
import { calls } from "./calls.js";

export const speaker = (message) => ({ user: "You", assistant: message.model || "Model", tool: `Result of ${message.toolName || "a tool"}` })[message.role];

const ends = {
  length: "ended at the limit of tokens", tool_calls: "calls tools", content_filter: "ended by a filter", abort: "ended by the server",
};

const counted = (tokens) => `${tokens.toLocaleString()} ${tokens === 1 ? "token" : "tokens"}`;

export function statistics(message) {
  const parts = [];
  if (message.promptTokens !== undefined) parts.push(`${counted(message.promptTokens)} in`);
  if (message.tokens > 0 || (message.tokens === 0 && !message.estimated)) parts.push(`${message.estimated ? "about " : ""}${counted(message.tokens)} out`);
  if (message.timed > 1 && message.took > 0) parts.push(`${((message.timed - 1) * 1000 / message.took).toFixed(1)} tokens/s`);
  if (message.ttft !== undefined) parts.push(`TTFT ${message.ttft < 1000 ? `${message.ttft.toFixed(0)} ms` : `${(message.ttft / 1000).toFixed(2)} s`}`);
  if (ends[message.finish]) parts.push(ends[message.finish]);
  if (message.state === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

export class MessageView {
  // `host`: what the buttons do, and what is known around the message.
  constructor(message, host) {
    this.message = message;
    this.host = host;
    this.drafts = {};
    this.body = el("div", { class: "body", dir: "auto" });
    this.thoughtBody = el("div", { class: "thought-body", dir: "auto" });
    this.thoughtName = el("summary", { text: "Reasoning" });
    this.thought = el("details", { class: "thought", hidden: true }, this.thoughtName, this.thoughtBody);
    this.thought.addEventListener("toggle", () => this.#drawThought());
    this.name = el("bdi");
    this.calls = el("div", { class: "calls" });
    this.problem = el("div", { class: "problem", hidden: true });
    this.foot = el("div", { class: "foot" });
    this.element = el("article", { class: `message ${message.role}`, tabindex: -1, "data-id": message.id },
      el("div", { class: "card" }, el("div", { class: "who" }, this.name), this.thought, this.body, this.calls, this.problem, this.foot));
    this.update();
  }

  place(index, count) {
    const { element } = this;
    element.setAttribute("aria-posinset", index + 1);
    element.setAttribute("aria-setsize", count);
    element.setAttribute("aria-label", `${speaker(this.message)}, message ${index + 1} of ${count}`);
  }

  // After the text alone has grown.
  grow() {
    this.#drawThought();
    this.#drawBody();
    if (this.message.calls) this.#drawCalls();
  }

  update() {
    keepFocus(this.element, () => {
      this.name.textContent = visible(speaker(this.message));
      this.grow();
      this.#drawCalls();
      this.#drawProblem();
      this.#drawFoot();
    }, this.element);
  }

  #drawThought() {
    const text = this.message.reasoning ?? "";
    this.thought.hidden = text === "";
    const thinking = this.message.state === "streaming" && this.message.content === "";
    this.thoughtName.textContent = thinking ? "Reasoning…" : "Reasoning";
    if (this.thought.open) renderPlain(this.thoughtBody, text);
  }

  #drawBody() {
    const { message, body } = this;
    if (this.editing) return;
    if (this.shaded && message.logprobs && message.state !== "streaming") {
      renderProbabilities(body, message.logprobs);
      return;
    }
    const streams = message.state === "streaming";
    const plain = message.role !== "assistant" || message.content.length > longText;
    const text = streams && !plain ? settled(message.content) : message.content;
    body.classList.toggle("waiting", streams && !text && !message.reasoning && !message.calls);
    if (plain !== this.wasPlain) {
      body.replaceChildren();
      body.blocks = body.plain = undefined;
      this.wasPlain = plain;
    }
    body.classList.toggle("plain", plain);
    if (plain) renderPlain(body, text);
    else renderMarkdown(body, text);
    if (!streams) body.style.minHeight = "";
  }

  // While it grows an answer gets no shorter, as a table would whose columns have found their widths.
  keepHeight() {
    const { width, height } = this.body.getBoundingClientRect();
    this.body.style.minHeight = width === this.keptWidth ? `${height}px` : "";
    this.keptWidth = width;
  }

  #drawCalls() {
    const { message, host } = this;
    const open = message.state === "streaming" ? [] : host.openCalls(message);
    const key = JSON.stringify([message.calls, open]);
    if (key === this.callsKey) return;
    this.callsKey = key;
    this.calls.replaceChildren(...calls(message, open, this.drafts, (results) => host.answerCalls(message, results)));
  }

  #drawProblem() {
    const { message, host } = this;
    this.problem.hidden = !["cut", "error"].includes(message.state);
    if (this.problem.hidden) {
      this.problem.replaceChildren();
      return;
    }
    const text = message.problem ?? "This answer was cut off: the page or the server ended before it was complete.";
    const actions = [button(message.content ? "Regenerate" : "Try again", () => host.regenerate(message), { disabled: host.busy() })];
    if (message.content && !message.calls) actions.unshift(button("Continue", () => host.goOn(message), { disabled: host.busy() }));
    const name = message.state === "cut" ? "Cut off" : "Error";
    this.problem.replaceChildren(el("p", { dir: "auto" }, el("strong", { text: `${name}. ` }), visible(text)), el("div", { class: "row" }, ...actions));
  }

  #drawFoot() {
    const { message, host } = this;
    const busy = host.busy();
    this.foot.replaceChildren();
    if (message.state === "streaming" || this.editing) return;
    this.foot.append(...this.#branches(busy));
    const copy = button("Copy", () => copyText(message.content, copy));
    const buttons = [message.content && copy, button("Edit", () => this.edit(), { disabled: busy })].filter(Boolean);
    if (message.role === "assistant" && this.problem.hidden) {
      buttons.push(button("Regenerate", () => host.regenerate(message), { disabled: busy, title: "Ask for another answer, as a branch" }));
      const goesOn = (message.state === "stopped" || message.finish === "length") && message.content && !message.calls;
      if (goesOn) buttons.push(button("Continue", () => host.goOn(message), { disabled: busy }));
    }
    if (message.logprobs) buttons.push(this.#shadeButton());
    this.foot.append(el("div", { class: "row tools" }, ...buttons));
    const said = message.role === "assistant" ? statistics(message) : "";
    if (said) this.foot.append(el("p", { class: "quiet stats", text: said }));
  }

  #shadeButton() {
    return button("Probabilities", () => {
      this.shaded = !this.shaded;
      this.body.replaceChildren();
      this.body.blocks = this.body.plain = undefined;
      this.update();
      this.foot.querySelector("[aria-pressed]")?.focus();
    }, { "aria-pressed": String(Boolean(this.shaded)) });
  }

  #branches(busy) {
    const all = this.host.siblings(this.message);
    if (all.length < 2) return [];
    const at = all.indexOf(this.message.id);
    const to = (step, name, sign) => button(sign, () => this.host.choose(all[at + step], step), {
      "aria-label": name, "data-step": step, disabled: busy || !all[at + step] });
    return [el("div", { class: "row branches", role: "group", "aria-label": "Branches" },
      to(-1, "Previous branch", "‹"), el("span", { text: `${at + 1} / ${all.length}` }), to(1, "Next branch", "›"))];
  }

  edit() {
    const { message, host } = this;
    this.editing = true;
    const box = el("textarea", { "aria-label": `Edit message of ${speaker(message)}`, dir: "auto", value: message.content, class: "edit" });
    const leave = () => {
      this.editing = false;
      this.body.replaceChildren();
      this.body.blocks = this.body.plain = undefined;
      this.update();
      this.element.focus();
    };
    const save = () => {
      if (host.busy()) return;
      leave();
      host.edit(message, box.value);
    };
    box.addEventListener("input", () => grow(box));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.body.classList.remove("plain");
    this.body.replaceChildren(box, el("div", { class: "row" },
      button(message.role === "assistant" ? "Save as branch" : "Send as branch", save), button("Cancel", leave)));
    this.#drawFoot();
    grow(box);
    box.focus();
  }
}
