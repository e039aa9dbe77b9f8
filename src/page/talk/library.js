// The conversations that the browser keeps: opening, saving, renaming, deleting, export and import.
import { announce, byId, download } from "./dom.js";
import { ask } from "./dialogs.js";
import { notice } from "./notices.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";
import { exported, imported } from "./transfer.js";
import { Conversation } from "./tree.js";

export class Library {
  constructor(talk) {
    this.talk = talk;
    this.metas = new Map();
    this.store = new Store((text) => notice("store", text));
    this.sidebar = new Sidebar({ store: this.store, onopen: (id) => this.open(id) });
    this.cache = new Map();
  }

  async start() {
    byId("new-conversation").onclick = () => this.begin();
    byId("rename").onclick = () => this.#rename();
    byId("delete").onclick = () => this.#delete();
    byId("export").onclick = () => this.#export([this.talk.conversation]);
    byId("export-all").onclick = () => this.#exportAll();
    byId("import").onclick = () => byId("import-file").click();
    byId("import-file").onchange = () => this.#import();
    await this.store.open();
    for (const meta of await this.store.list()) this.metas.set(meta.id, meta);
    this.lastSettings = [...this.metas.values()][0]?.settings;
    this.talk.drawList();
  }

  draw(current, busy) {
    this.sidebar.draw([...this.metas.values()].sort((a, b) => b.updated - a.updated), current, busy);
  }

  save(conversation, messages = []) {
    if (this.gone?.has(conversation.id)) return Promise.resolve(false);
    this.metas.set(conversation.id, conversation.meta);
    this.cache.set(conversation.id, conversation);
    return this.store.save(conversation.meta, messages);
  }

  saveSoon(conversation) {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.save(conversation), 400);
  }

  begin() {
    this.sidebar.hide();
    // What was set once is likely wanted again, but not a role or a schema.
    const { system, schema, tools, tool_choice, ...kept } = this.lastSettings ?? {};
    this.talk.show(Conversation.begin({ system: "", ...kept }));
    byId("entry").focus();
  }

  // From the cache while an answer runs in it: the messages of a copy would not grow.
  async #load(id) {
    const running = this.talk.runs.get(id)?.conversation ?? (this.store.database ? undefined : this.cache.get(id));
    if (running) return running;
    const messages = await this.store.messages(id);
    for (const message of messages) if (message.state === "streaming") message.state = "cut";
    return new Conversation(this.metas.get(id), messages);
  }

  async open(id) {
    this.sidebar.hide();
    if (id === this.talk.conversation.id) return;
    try {
      this.opening = id;
      const conversation = await this.#load(id);
      if (this.opening !== id) return;
      this.talk.show(conversation);
      byId("entry").focus();
    } catch (error) {
      notice("store", `The conversation could not be read from the browser's memory (${error.message}). Reload the page and try again.`);
    }
  }

  async #rename() {
    const { conversation } = this.talk;
    const title = await ask({ title: "Rename the conversation", label: "Title", input: conversation.meta.title, ok: "Rename" });
    if (!title?.trim()) return;
    conversation.meta.title = title.trim().slice(0, 200);
    await this.save(conversation);
    this.talk.drawList();
  }

  async #delete() {
    const { conversation } = this.talk;
    if (!(await this.talk.confirmDelete(conversation.meta.title))) return;
    (this.gone ??= new Set()).add(conversation.id);
    this.talk.runs.get(conversation.id)?.stop();
    this.metas.delete(conversation.id);
    this.cache.delete(conversation.id);
    await this.store.remove(conversation.id);
    this.begin();
    announce("The conversation was deleted.");
  }

  #export(conversations) {
    const name = conversations.length === 1 ? "quire-conversation.json" : "quire-conversations.json";
    download(name, exported(conversations));
  }

  async #exportAll() {
    const all = [];
    for (const id of this.metas.keys()) all.push(id === this.talk.conversation.id ? this.talk.conversation : await this.#load(id));
    if (all.length === 0) notice("transfer", "There are no conversations to export.");
    else this.#export(all);
  }

  async #import() {
    const box = byId("import-file");
    const [file] = box.files;
    box.value = "";
    if (!file) return;
    try {
      const all = imported(await file.text());
      for (const one of all) await this.save(one, [...one.nodes.values()]);
      this.talk.show(all[0]);
      notice("transfer", all.length === 1 ? "1 conversation was imported." : `${all.length} conversations were imported.`);
    } catch (error) {
      notice("transfer", error.message);
    }
  }
}
