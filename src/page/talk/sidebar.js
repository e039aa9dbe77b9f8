// The list of conversations, with its search.
import { byId, el } from "./dom.js";

export class Sidebar {
  constructor({ store, onopen }) {
    Object.assign(this, { store, onopen });
    this.metas = [];
    this.term = "";
    this.found = undefined;
    byId("search").addEventListener("input", () => this.#search(byId("search").value.trim()));
    byId("open-side").onclick = () => this.show(!document.body.classList.contains("side-open"));
    byId("close-side").onclick = () => this.show(false);
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

  draw(metas, current, busy) {
    Object.assign(this, { metas, current, busy });
    const term = this.term.toLowerCase();
    const shown = metas.filter((meta) => !term || meta.title.toLowerCase().includes(term) || this.found?.has(meta.id));
    byId("conversations").replaceChildren(...shown.slice(0, 500).map((meta) => this.#row(meta)));
    const count = shown.length === 1 ? "1 conversation" : `${shown.length} conversations`;
    byId("search-state").textContent = term ? (this.searching ? "Searching…" : count) : metas.length === 0 ? "No conversations yet." : "";
  }

  #row(meta) {
    const open = el("button", { type: "button", class: "conversation", "aria-current": meta.id === this.current ? "true" : undefined,
      onclick: () => this.onopen(meta.id) },
    el("bdi", { text: meta.title || "New conversation" }),
    el("small", { text: this.busy.has(meta.id) ? "answering…" : new Date(meta.updated).toLocaleDateString() }));
    return el("li", {}, open);
  }

  async #search(term) {
    this.term = term;
    this.found = undefined;
    this.searching = term !== "";
    this.draw(this.metas, this.current, this.busy);
    if (!term) return;
    const found = await this.store.find(term, () => this.term === term);
    if (this.term !== term) return;
    this.found = found;
    this.searching = false;
    this.draw(this.metas, this.current, this.busy);
  }
}
