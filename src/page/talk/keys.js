// Keys that work everywhere on the page.
import { byId } from "./dom.js";
import { openHelp } from "./dialogs.js";
import { hideAlternatives } from "./probabilities.js";

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");

export function listen({ stop, list }) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      hideAlternatives();
      if (document.body.classList.contains("side-open")) byId("close-side").click();
      else stop();
    } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      step(list, event.key === "ArrowUp" ? -1 : 1);
    } else if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "?") {
      event.preventDefault();
      openHelp();
    } else if (event.key === "/") {
      event.preventDefault();
      byId("entry").focus();
    }
  });
}

// From the message that has the focus, or from the end.
function step(list, by) {
  const id = document.activeElement?.closest?.(".message")?.dataset.id;
  const from = id === undefined ? list.ids.length : list.index.get(id);
  const to = list.ids[Math.max(0, Math.min(list.ids.length - 1, from + by))];
  if (to !== undefined) list.toItem(to)?.focus({ preventScroll: true });
}
