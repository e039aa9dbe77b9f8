// The conversations that the browser keeps: opening, saving, renaming, deleting, export and import.
import { announce, byId, download } from "./dom.js";
import { ask } from "./dialogs.js";
import { Keeper } from "./keeper.js";
import { notice } from "./notices.js";
import { withoutBad } from "./request.js";
import { Sidebar } from "./sidebar.js";
import { exported, imported } from "./transfer.js";
import { Conversation } from "./tree.js";

const unreadable = (error) =>
  `The browser did not read the conversation that it keeps (${error?.message || error?.name}). Reload the page and try again.`;

export class Library {
  constructor(talk) {
    this.talk = talk;
    this.metas = new Map();
    this.keeper = new Keeper({ onchange: () => this.talk.drawList(), exportAll: () => this.#exportAll() });
    this.sidebar = new Sidebar({ find: (term, current) => this.keeper.find(term, current), onopen: (id) => this.open(id) });
  }

  async start() {
    byId("new-conversation").onclick = () => this.begin();
    byId("rename").onclick = () => this.#rename();
    byId("delete").onclick = () => this.#delete();
    byId("export").onclick = () => this.#export([this.talk.conversation]);
    byId("export-all").onclick = () => this.#exportAll();
    byId("import").onclick = () => byId("import-file").click();
    byId("import-file").onchange = () => this.#import();
    const metas = await this.keeper.open();
    for (const meta of metas.sort((a, b) => b.updated - a.updated)) this.metas.set(meta.id, meta);
    this.lastSettings = metas[0]?.settings;
    this.talk.drawList();
  }

  // `busy`: the ids of those in which an answer runs.
  draw(current, busy) {
    const states = new Map([...this.keeper.unsaved.keys()].map((id) => [id, "not saved"]));
    for (const id of busy) states.set(id, "answering…");
    this.sidebar.draw([...this.metas.values()].sort((a, b) => b.updated - a.updated), current, states);
  }

  async save(conversation, messages = []) {
    if (conversation.deleted) return;
    this.metas.set(conversation.id, conversation.meta);
    await this.keeper.save(conversation, messages);
  }

  saveSoon(conversation) {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.save(conversation), 400);
  }

  begin() {
    this.sidebar.hide();
    // What was set once is likely wanted again, but not a role or a schema.
    const { system, schema, tools, tool_choice, ...kept } = this.lastSettings ?? {};
    this.talk.show(Conversation.begin({ system: "", ...withoutBad(kept) }));
    byId("entry").focus();
  }

  // Itself while an answer runs in it: the messages of a copy would not grow.
  async #load(id) {
    return this.talk.runs.get(id)?.conversation ?? this.keeper.load(this.metas.get(id));
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
      notice("read", unreadable(error));
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
    this.talk.runs.get(conversation.id)?.stop();
    this.metas.delete(conversation.id);
    await this.keeper.remove(conversation);
    this.begin();
    announce("The conversation was deleted.");
  }

  #export(conversations) {
    const name = conversations.length === 1 ? "quire-conversation.json" : "quire-conversations.json";
    download(name, exported(conversations));
  }

  async #exportAll() {
    const { conversation } = this.talk;
    const all = [];
    try {
      for (const id of this.metas.keys()) all.push(id === conversation.id ? conversation : await this.#load(id));
    } catch (error) {
      notice("read", unreadable(error));
      return;
    }
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
