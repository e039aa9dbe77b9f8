// Keeps conversations in the browser, and those in memory that the browser does not take, until it does.
import { button } from "./dom.js";
import { dismiss, notice } from "./notices.js";
import { Store } from "./store.js";
import { Conversation } from "./tree.js";

const retryEvery = 5000;
const untilClosed = "What is not saved is lost when this tab is closed.";

function inWords(error) {
  if (error?.name === "QuotaExceededError") {
    return `The browser has no room left for this page. ${untilClosed} Export what you want to keep, then delete old conversations.`;
  }
  return `The browser does not save this conversation (${error?.message || error?.name || "it gives no reason"}). ${untilClosed} Export what you want to keep.`;
}

export class Keeper {
  // `onchange()` after a conversation began or ended to be kept in memory alone; `exportAll()` for the notice.
  constructor({ onchange, exportAll }) {
    Object.assign(this, { onchange, exportAll });
    this.store = new Store();
    this.unsaved = new Map();  // by the conversation's id: it, and its messages that are not saved
    window.addEventListener("beforeunload", (event) => {
      if (this.unsaved.size > 0) event.preventDefault();
    });
  }

  // The metas of all conversations.
  async open() {
    try {
      await this.store.open();
      return await this.store.list();
    } catch (error) {
      this.store.database = undefined;
      this.refused = error;
      this.#say(`This browser does not let the page keep anything: the window is private, or a setting forbids it (${error?.message || error?.name}). `
        + "You can talk all the same. What you write is lost when this tab is closed; export what you want to keep.");
      return [];
    }
  }

  // Saves its meta and these messages, and what was not saved of it before.
  async save(conversation, messages) {
    const { id } = conversation;
    const before = this.unsaved.get(id);
    const all = new Set([...before?.messages ?? [], ...messages]);
    // What fails is not tried again for each token of an answer.
    if (before && performance.now() < this.retryAt) {
      before.messages = all;
      return;
    }
    try {
      if (!this.store.database) throw this.refused;
      await this.store.save(conversation.meta, [...all]);
    } catch (error) {
      this.#failed(conversation, all, error);
      return;
    }
    this.#saved(id, all);
  }

  #failed(conversation, messages, error) {
    if (!conversation.deleted) {
      const known = this.unsaved.get(conversation.id)?.messages ?? [];
      this.unsaved.set(conversation.id, { conversation, messages: new Set([...known, ...messages]) });
    }
    // Without a database there is nothing to try again, and it was said when the page opened.
    this.retryAt = this.store.database ? performance.now() + retryEvery : Infinity;
    if (this.store.database) {
      this.timer ??= setTimeout(() => this.retry(), retryEvery);
      this.#say(inWords(error));
    }
    this.onchange();
  }

  #saved(id, messages) {
    const left = this.unsaved.get(id);
    if (!left) return;
    for (const message of messages) left.messages.delete(message);
    if (left.messages.size > 0) return;
    this.unsaved.delete(id);
    this.onchange();
    if (this.unsaved.size > 0 || !this.said) return;
    this.said = undefined;
    notice("store", "Everything is saved again.");
  }

  async retry() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.retryAt = 0;
    for (const { conversation } of [...this.unsaved.values()]) await this.save(conversation, []);
  }

  // Once for each reason: who has dismissed it knows, and the list of conversations goes on saying so.
  #say(text) {
    if (this.said === text) return;
    this.said = text;
    notice("store", text, button("Export all", this.exportAll));
  }

  async remove(conversation) {
    conversation.deleted = true;
    this.unsaved.delete(conversation.id);
    if (!this.store.database) return;
    try {
      await this.store.remove(conversation.id);
    } catch (error) {
      notice("remove", `The browser did not delete the conversation (${error?.message || error?.name}): it comes back when the page is loaded again. Delete it then.`);
      return;
    }
    dismiss("remove");
    // There may be room now for others.
    if (this.unsaved.size > 0) await this.retry();
  }

  // What is in memory alone is the newest. Throws if it cannot be read.
  async load(meta) {
    const kept = this.unsaved.get(meta.id)?.conversation;
    if (kept) return kept;
    const messages = await this.store.messages(meta.id);
    for (const message of messages) if (message.state === "streaming") message.state = "cut";
    return new Conversation(meta, messages);
  }

  // The ids of the conversations with a message that has `term`.
  async find(term, current) {
    const matches = ({ content }) => content.toLowerCase().includes(term.toLowerCase());
    const found = this.store.database ? await this.store.find(matches, current) : new Set();
    for (const [id, { conversation }] of this.unsaved) {
      if ([...conversation.nodes.values()].some(matches)) found.add(id);
    }
    return found;
  }
}
