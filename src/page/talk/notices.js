// Messages about the page as a whole, above the conversation.
import { announce, button, byId, el } from "./dom.js";

// `key` names what it is about: a new notice with the same key takes the place of the old one.
export function notice(key, text, ...actions) {
  dismiss(key);
  const close = button("Dismiss", () => dismiss(key));
  const box = el("div", { class: "notice", role: "group", "aria-label": "Notice", "data-key": key }, el("p", { text }), ...actions, close);
  byId("notices").append(box);
  announce(text);
}

export function dismiss(key) {
  for (const box of [...byId("notices").children]) {
    if (box.dataset.key === key) box.remove();
  }
}
