// The box in which a message is written.
import { byId, grow } from "./dom.js";

export class Composer {
  // `onsend(text)` is true if the text was taken; `onstop()`; `oneditlast()`.
  constructor({ onsend, onstop, oneditlast }) {
    this.entry = byId("entry");
    this.drafts = new Map();
    const send = () => {
      if (this.running || this.entry.value.trim() === "") return;
      if (onsend(this.entry.value)) this.#fill("");
    };
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      send();
    });
    byId("stop").onclick = () => {
      onstop();
      this.entry.focus();
    };
    this.entry.addEventListener("input", () => grow(this.entry));
    // Its own size would change while it is looked at. The desk has another one also when it is shown again.
    new ResizeObserver(() => grow(this.entry)).observe(byId("desk"));
    this.entry.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        send();
      } else if (event.key === "ArrowUp" && this.entry.value === "" && !event.altKey) {
        event.preventDefault();
        oneditlast();
      }
    });
  }

  #fill(text) {
    this.entry.value = text;
    grow(this.entry);
  }

  // What was typed and not sent stays with its conversation.
  change(from, to) {
    if (from) this.drafts.set(from, this.entry.value);
    this.#fill(this.drafts.get(to) ?? "");
  }

  busy(running) {
    this.running = running;
    const stop = byId("stop");
    const focused = document.activeElement;
    stop.hidden = !running;
    byId("send").hidden = running;
    if (focused === stop || focused === byId("send")) this.entry.focus();
  }
}
