// Lists whose lines come and go. Lines that stay are not touched, which keeps the focus in them and saves their layout.
import { element } from "../draw/30_draw.js";

/** Makes `items` the children of an element; if one that goes had the focus, `focus(reference)` finds another. */
export function place(list, items, focus = () => list) {
  const had = list.contains(document.activeElement);
  const reference = document.activeElement?.dataset?.ref;
  const wanted = new Set(items);
  for (const child of [...list.children]) if (!wanted.has(child)) child.remove();
  items.forEach((item, i) => {
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
  });
  if (had && !list.contains(document.activeElement)) focus(reference).focus({ preventScroll: true });
}

/** Fills a list, each line a list of texts and elements; `none` if there is none. `plain`: the lines are no items. */
export function fillList(list, lines, none, plain = false) {
  const made = plain ? lines.flat() : lines.map((line) => element("li", {}, ...line));
  if (made.length === 0) made.push(element("li", { class: "quiet" }, none));
  const old = new Map([...list.children].map((child) => [child.textContent, child]));
  const items = made.map((one) => {
    const same = old.get(one.textContent);
    if (same === undefined || !same.isEqualNode(one)) return one;
    old.delete(one.textContent);  // each is in one place
    return same;
  });
  place(list, items, (reference) => list.querySelector(`[data-ref="${reference}"]`) ?? list);
}
