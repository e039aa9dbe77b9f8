// The list of conversations, with its search.
import { byId, closeBehindFocus, el, keepFocus } from "./dom.js";
import { notice } from "./notices.js";

export class Sidebar {
  // `find(term, current)` gives the ids of conversations with a text, or throws; `onopen(id)`.
  constructor({ find, onopen }) {
    Object.assign(this, { find, onopen });
    this.metas = [];
    this.term = "";
    this.found = undefined;
    byId("search").addEventListener("input", () => this.#search(byId("search").value.trim()));
    byId("open-side").onclick = () => this.show(!document.body.classList.contains("side-open"));
    byId("close-side").onclick = () => this.show(false);
    closeBehindFocus(byId("side"), () => this.hide());
  }

  show(open) {
    document.body.classList.toggle("side-open", open);
    byId("open-side").setAttribute("aria-expanded", String(open));
    (open ? byId("new-conversation") : byId("open-side")).focus();
  }

  hide() {
    document.body.classList.remove("side-open");
    byId("open-side").setAttribute("aria-expanded", "false");
  }

  // `states`: by id, what is said in place of the date.
  draw(metas, current, states) {
    Object.assign(this, { metas, current, states });
    const term = this.term.toLowerCase();
    const shown = metas.filter((meta) => !term || meta.title.toLowerCase().includes(term) || this.found?.has(meta.id));
    const list = byId("conversations");
    keepFocus(list, () => list.replaceChildren(...shown.slice(0, 500).map((meta) => this.#row(meta))), byId("search"));
    const count = shown.length === 1 ? "1 conversation" : `${shown.length} conversations`;
    byId("search-state").textContent = term ? (this.searching ? "Searching…" : count) : metas.length === 0 ? "No conversations yet." : "";
  }

  #row(meta) {
    const open = el("button", { type: "button", class: "conversation", "data-key": meta.id, "aria-current": meta.id === this.current ? "true" : undefined,
      onclick: () => this.onopen(meta.id) },
    el("bdi", { text: meta.title || "New conversation" }),
    el("small", { text: this.states.get(meta.id) ?? new Date(meta.updated).toLocaleDateString() }));
    return el("li", {}, open);
  }

  async #search(term) {
    this.term = term;
    this.found = undefined;
    this.searching = term !== "";
    this.draw(this.metas, this.current, this.states);
    if (!term) return;
    let found;
    try {
      found = await this.find(term, () => this.term === term);
    } catch (error) {
      notice("read", `The texts could not be searched (${error?.message || error?.name}): only titles are. Reload the page and try again.`);
    }
    if (this.term !== term) return;
    this.found = found;
    this.searching = false;
    this.draw(this.metas, this.current, this.states);
  }
}
