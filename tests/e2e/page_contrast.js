// What is hard to see on the page as it stands: WCAG 2.2, 1.4.3 (text: 4.5:1, large text 3:1) and 1.4.11 (controls: 3:1).
// A function body for execute_script; the argument is an element's selector to be measured for its outline alone, or nothing.
// Returns {texts, controls: how many were measured, bad: sentences}.

const colour = (text) => {
  const numbers = text.match(/[\d.]+(?:e-?\d+)?%?/g).map((one) => (one.endsWith("%") ? Number(one.slice(0, -1)) / 100 : Number(one)));
  if (text.startsWith("color(srgb")) return [...numbers.slice(0, 3).map((one) => 255 * one), numbers[3] ?? 1];
  if (text.startsWith("rgb")) return [...numbers.slice(0, 3), numbers[3] ?? 1];
  throw new Error(`not read: ${text}`);
};
const over = ([r, g, b, a], below) => [r, g, b].map((one, i) => one * a + below[i] * (1 - a));
const luminance = (rgb) => rgb.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
  .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};

const chain = (element) => {
  const all = [];
  for (let at = element; at; at = at.parentElement) all.push(at);
  return all;
};
// From the element down to what is painted below it: what lies there, or where that is cut off, its ancestors.
const below = (element, x, y) => {
  const all = document.elementsFromPoint(x, y);
  const at = all.indexOf(element);
  return at >= 0 ? all.slice(at) : chain(element);
};
const backdrop = (elements) => {
  const painted = [];
  for (const one of elements) {
    const back = colour(getComputedStyle(one).backgroundColor);
    painted.push(back);
    if (back[3] === 1) return painted.reverse().reduce((under, layer) => over(layer, under), [0, 0, 0]);
  }
  throw new Error("nothing is opaque below " + elements[0].outerHTML.slice(0, 80));
};
const opacity = (element) => chain(element).reduce((all, one) => all * Number(getComputedStyle(one).opacity), 1);
const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
  && !element.closest(".visually-hidden, :disabled");
const named = (element) => `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""}${[...element.classList].map((one) => `.${one}`).join("")}`;
const shown = (rgb) => `#${rgb.map((one) => Math.round(one).toString(16).padStart(2, "0")).join("")}`;

const bad = [];
const check = (what, front, back, wanted) => {
  const ratio = contrast(front, back);
  if (ratio < wanted) bad.push(`${what}: ${ratio.toFixed(2)} of ${wanted}, ${shown(front)} on ${shown(back)}`);
};

const checkText = (element, box, text, ink) => {
  const style = getComputedStyle(element);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const back = backdrop(below(element, (box.left + box.right) / 2, (box.top + box.bottom) / 2));
  const front = colour(ink);
  front[3] *= opacity(element);
  check(`"${text.trim().slice(0, 40)}" in ${named(element)}`, over(front, back), back, large ? 3 : 4.5);
};

const checkOutline = (element) => {
  const style = getComputedStyle(element);
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) {
    bad.push(`${named(element)} has the focus and no outline of 2 pixels`);
    return;
  }
  const inside = parseFloat(style.outlineOffset) < 0;
  const box = element.getBoundingClientRect();
  const back = inside ? backdrop(below(element, box.left + 1, box.top + box.height / 2)) : backdrop(chain(element.parentElement));
  check(`the outline of ${named(element)}`, over(colour(style.outlineColor), back), back, 3);
};

if (arguments[0]) {
  checkOutline(document.querySelector(arguments[0]));
  return { bad };
}

const root = document.querySelector("dialog[open]") ?? document.body;
let texts = 0;
const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const { currentNode: node } = walker;
  const element = node.parentElement;
  if (!node.data.trim() || !seen(element) || element.closest("option, noscript")) continue;
  element.scrollIntoView({ block: "nearest", inline: "nearest" });
  const range = document.createRange();
  range.selectNodeContents(node);
  const [box] = range.getClientRects();
  if (!box) continue;
  texts += 1;
  checkText(element, box, node.data, getComputedStyle(element).color);
}

let controls = 0;
for (const element of root.querySelectorAll("button, input, select, textarea, summary")) {
  if (!seen(element) || element.hidden) continue;
  element.scrollIntoView({ block: "nearest", inline: "nearest" });
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  controls += 1;
  const outside = backdrop(chain(element.parentElement));
  if (["checkbox", "range"].includes(element.type)) {
    // The browser draws them: what is not of the accent colour keeps to 3:1 by itself.
    check(`the accent of ${named(element)}`, over(colour(style.accentColor), outside), outside, 3);
    continue;
  }
  if (element.matches("input, textarea")) {
    checkText(element, box, element.value || "what is typed", style.color);
    if (element.placeholder) checkText(element, box, element.placeholder, getComputedStyle(element, "::placeholder").color);
  } else if (element.matches("select")) {
    checkText(element, box, "what is chosen", style.color);
  }
  const edge = colour(style.borderTopColor);
  const fill = colour(style.backgroundColor);
  const bordered = parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== "none" && edge[3] > 0;
  const boxed = bordered || fill[3] > 0;
  if (!boxed && element.matches("button, summary")) continue;  // its text alone shows it
  const differs = (one) => contrast(over(one, outside), outside);
  const best = Math.max(bordered ? differs(edge) : 1, differs(fill));
  if (best < 3) bad.push(`the edge of ${named(element)}: ${best.toFixed(2)} of 3, ${shown(over(edge, outside))} on ${shown(outside)}`);
}
for (const element of root.querySelectorAll("progress")) {
  if (!seen(element)) continue;
  const outside = backdrop(chain(element.parentElement));
  check(`the accent of ${named(element)}`, over(colour(getComputedStyle(element).accentColor), outside), outside, 3);
}
return { texts, controls, bad: [...new Set(bad)] };
