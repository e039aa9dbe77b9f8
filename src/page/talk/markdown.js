// Markdown through marked, then DOMPurify: the only way by which HTML enters the page.
import { button, copyText, el } from "./dom.js";
import { nameBidi, renderPlain, visible } from "./text.js";
import { fillMath, mathExtensions } from "./math.js";

const harmlessTags = /^<\/?(?:br|sub|sup|kbd|b|i|em|strong|u|s|mark)\s*\/?>$/i;
const linkTargets = /^(?:https?:\/\/|mailto:)/i;
const purifyRules = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "i", "kbd", "li", "mark",
    "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul"],
  ALLOWED_ATTR: ["align", "class", "data-display", "data-tex", "href", "start", "title"],
  ALLOW_DATA_ATTR: false,
  // Without this their values would have to look like link targets.
  ADD_URI_SAFE_ATTR: ["align", "data-display", "data-tex", "start"],
  ALLOWED_URI_REGEXP: linkTargets,
  RETURN_DOM_FRAGMENT: true,
};

const escapeHtml = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

let ready;

// A broken library must not take the chat with it, and must not let anything through.
function purifies(library) {
  try {
    const fragment = library.sanitize("<p>a<img></p>", purifyRules);
    return fragment.childNodes.length === 1 && !fragment.querySelector("img");
  } catch {
    return false;
  }
}

function prepare() {
  if (ready !== undefined) return ready;
  const { marked, DOMPurify } = globalThis;
  ready = Boolean(marked?.use && DOMPurify?.sanitize && purifies(DOMPurify));
  if (!ready) return ready;
  marked.use({ gfm: true, mangle: false, headerIds: false, extensions: mathExtensions(escapeHtml), renderer });
  return ready;
}

const renderer = {
  html: (html) => (harmlessTags.test(html.trim()) ? html : escapeHtml(html)),
  heading: (text, level) => {
    const tag = `h${Math.min(6, level + 2)}`;
    return `<${tag}>${text}</${tag}>\n`;
  },
  codespan: (code) => `<code>${nameBidi(code)}</code>`,
  image: (href, title, text) => {
    const words = escapeHtml(text || "image");
    return linkTargets.test(href ?? "") ? `<a href="${escapeHtml(href)}">${words}</a>` : words;
  },
  link: (href, title, text) => (linkTargets.test(href ?? "") ? `<a href="${escapeHtml(href)}">${text}</a>` : text),
  checkbox: (checked) => (checked ? "☑ " : "☐ "),
};

// A last line of these alone may still become a heading, a list, a fence, a rule or a part of a table or of math.
const marks = /^[\s>]*(?:[-=*_+#`~|:$\\[\]]+|\d{1,9}[.)]?)?[\s|:-]*$/;
const row = /^\s*\|/;
const mathLine = /^ {0,3}(?:\$\$|\\\[)/;
const openLink = /!?\[([^\]\n]*)\]\([^)\n]*$/;

// Where display math begins that is on lines of its own and not complete; the end of the text if there is none.
function beforeOpenMath(text) {
  const begin = text.lastIndexOf("\n\n") + 1;
  const part = text.slice(begin);
  const inDollars = part.split("$$").length % 2 === 0;
  const open = inDollars ? part.lastIndexOf("$$") : part.lastIndexOf("\\[");
  if (open < 0 || (!inDollars && part.lastIndexOf("\\]") > open)) return text.length;
  return /(?:^|\n) {0,3}$/.test(part.slice(0, open)) ? begin + open : text.length;
}

function beforeOpenLine(text) {
  const begin = text.lastIndexOf("\n") + 1;
  const last = text.slice(begin);
  const [before = "", twoBefore = ""] = text.slice(0, Math.max(0, begin - 1)).split("\n").slice(-2).reverse();
  if (marks.test(last)) return row.test(before) && !row.test(twoBefore) ? begin - 1 - before.length : begin;
  return mathLine.test(last) || (row.test(last) && !row.test(before)) ? begin : text.length;
}

// What of a growing answer can be shown without becoming something else with its next words: a title of a table waits for the line
// below it, math for its end, and a link shows its text alone until its target is complete.
export function settled(text) {
  const lines = text.slice(0, beforeOpenLine(text));
  return lines.slice(0, beforeOpenMath(lines)).replace(openLink, "$1");
}

// Blocks whose source has not changed keep their elements, so a selection above the growing end stays.
export function renderMarkdown(container, text) {
  if (!prepare() || container.failed) return renderPlain(container, text);
  try {
    return renderBlocks(container, text);
  } catch (error) {
    console.warn("Markdown is shown as plain text:", error);
    Object.assign(container, { failed: true, blocks: undefined, plain: undefined });
    return renderPlain(container, text);
  }
}

function renderBlocks(container, text) {
  container.plain = undefined;
  // Code without its end is code to marked only if its last line is whole.
  const tokens = globalThis.marked.lexer(`${visible(text)}\n`).filter((token) => token.type !== "space" && token.type !== "def");
  const old = container.blocks ?? [];
  if (old.length === 0) container.replaceChildren();
  container.blocks = tokens.map((token, index) => {
    const before = old[index];
    if (before?.raw === token.raw) return before;
    const node = renderBlock(token);
    if (before && renew(before.node, node)) return { raw: token.raw, node: before.node };
    if (before) before.node.replaceWith(node);
    else container.append(node);
    return { raw: token.raw, node };
  });
  for (const extra of old.slice(tokens.length)) extra.node.remove();
  return undefined;
}

// Code and a table that have grown keep their boxes, which may be scrolled and whose button may be about to be pressed.
function renew(old, now) {
  const [box, next] = [old, now].map((block) => (block.children.length === 1 ? block.firstElementChild : undefined));
  if (!box || !next || box.className !== next.className) return false;
  if (box.matches(".wide-box")) {
    box.replaceChildren(...next.childNodes);
  } else if (box.matches(".code-box")) {
    for (const part of [".code-head span", "code"]) box.querySelector(part).replaceChildren(...next.querySelector(part).childNodes);
    box.source = next.source;
    box.querySelector("pre").setAttribute("aria-label", next.querySelector("pre").getAttribute("aria-label"));
  } else {
    return false;
  }
  return true;
}

function renderBlock(token) {
  const block = el("div", { class: "block", dir: "auto" });
  const html = globalThis.marked.parser([token]);
  block.append(globalThis.DOMPurify.sanitize(html, purifyRules));
  for (const link of block.querySelectorAll("a")) finishLink(link);
  for (const table of block.querySelectorAll("table")) wrapTable(table);
  for (const code of block.querySelectorAll("pre > code")) finishCode(code);
  fillMath(block);
  return block;
}

function finishLink(link) {
  const target = link.getAttribute("href");
  if (!target || !linkTargets.test(target)) {
    link.replaceWith(...link.childNodes);
    return;
  }
  link.rel = "noopener noreferrer";
  link.target = "_blank";
  link.title = target;
}

function wrapTable(table) {
  const box = el("div", { class: "wide-box", tabindex: 0, role: "group", "aria-label": "Table" });
  table.replaceWith(box);
  box.append(table);
}

const mostHighlighted = 50000;

function finishCode(code) {
  const source = code.textContent.replace(/\n$/, "");
  const language = /language-([\w+#.-]+)/.exec(code.className)?.[1] ?? "";
  const pre = code.parentElement;
  const shown = nameBidi(source);
  const colored = highlight(shown, language);
  if (colored) code.replaceChildren(colored);
  else code.textContent = shown;
  code.className = "hljs";
  pre.setAttribute("tabindex", "0");
  pre.setAttribute("role", "group");
  pre.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
  pre.dir = "ltr";
  const copy = button("Copy code", () => copyText(box.source, copy));
  const box = el("div", { class: "code-box", dir: "ltr" }, el("div", { class: "code-head" }, el("span", { text: language }), copy));
  box.source = source;
  pre.replaceWith(box);
  box.append(pre);
}

function highlight(source, language) {
  const { hljs, DOMPurify } = globalThis;
  if (!hljs || !language || source.length > mostHighlighted || !hljs.getLanguage(language)) return undefined;
  const old = Number.parseInt(hljs.versionString ?? "9", 10) < 11;
  const result = old ? hljs.highlight(language, source, true) : hljs.highlight(source, { language, ignoreIllegals: true });
  return DOMPurify.sanitize(result.value, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true });
}
