// TeX between $..$, $$..$$, \(..\) and \[..\], as MathML: KaTeX' HTML has style attributes, which the page's policy forbids.

const forms = [
  // On lines of its own: at the end of a line of text it is inline, since more of the text may follow.
  { name: "mathBlock", level: "block", start: /(?<=\n) {0,3}(?:\$\$|\\\[)/, rule: /^ {0,3}(?:\$\$([^$]+?)\$\$|\\\[([^]+?)\\\])[ \t]*(?:\n|$)/, display: true },
  { name: "mathDisplay", level: "inline", start: /\$\$|\\\[/, rule: /^(?:\$\$([^$]+?)\$\$|\\\[([^]+?)\\\])/, display: true },
  // "$5 and $6" is money: no space inside the marks, and no digit behind the second.
  { name: "mathInline", level: "inline", start: /\$|\\\(/, rule: /^(?:\$(?![\s$])((?:\\[^]|[^$\\\n])+?)(?<!\s)\$(?!\d)|\\\(([^]+?)\\\))/, display: false },
];
const longestTex = 4000;

export function mathExtensions(escapeHtml) {
  return forms.map(({ name, level, start, rule, display }) => ({
    name,
    level,
    start: (source) => {
      const at = source.search(start);
      return at < 0 ? undefined : at;
    },
    tokenizer: (source) => {
      const found = rule.exec(source);
      return found ? { type: name, raw: found[0], tex: (found[1] ?? found[2]).trim() } : undefined;
    },
    renderer: ({ tex, raw }) => {
      if (tex.length > longestTex) return escapeHtml(raw);
      const tag = level === "block" ? "p" : "span";
      return `<${tag} class="math" data-display="${display ? 1 : 0}" data-tex="${escapeHtml(tex)}">${escapeHtml(raw.trim())}</${tag}>`;
    },
  }));
}

// After DOMPurify, because it drops parts of MathML; KaTeX builds elements and, untrusted, no links.
export function fillMath(block) {
  const { katex } = globalThis;
  if (!katex) return;
  for (const place of block.querySelectorAll("[data-tex]")) {
    const tex = place.getAttribute("data-tex");
    const displayMode = place.getAttribute("data-display") === "1";
    const source = place.textContent;
    try {
      katex.render(tex, place, { displayMode, output: "mathml", throwOnError: true, trust: false, strict: "ignore", maxExpand: 200, maxSize: 20 });
      place.dir = "ltr";
      if (displayMode) place.classList.add("display");
    } catch {
      place.textContent = source;  // KaTeX empties its place first
      place.classList.add("bad-math");
    }
  }
}
