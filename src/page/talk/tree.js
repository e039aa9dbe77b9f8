// A conversation is a tree of messages: an edit or another answer is a sibling, and one path through the tree is shown.

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const emptySettings = () => ({ system: "" });

export class Conversation {
  constructor(meta, messages = []) {
    this.meta = meta;
    this.nodes = new Map();
    this.children = new Map();
    for (const message of messages.sort((a, b) => a.order - b.order)) this.#link(message);
  }

  static begin(settings = emptySettings()) {
    const now = Date.now();
    return new Conversation({ id: newId(), title: "", created: now, updated: now, settings: { ...settings }, chosen: {} });
  }

  get id() {
    return this.meta.id;
  }

  #link(message) {
    this.nodes.set(message.id, message);
    const parent = message.parent ?? "";
    if (!this.children.has(parent)) this.children.set(parent, []);
    this.children.get(parent).push(message.id);
  }

  add(parent, fields) {
    const message = { id: newId(), conversation: this.id, parent: parent ?? "", order: this.nodes.size, created: Date.now(), content: "", state: "done", ...fields };
    this.#link(message);
    this.meta.chosen[message.parent] = message.id;
    this.meta.updated = Date.now();
    if (!this.meta.title && message.role === "user") this.meta.title = titleOf(message.content);
    return message;
  }

  get(id) {
    return this.nodes.get(id);
  }

  siblings(id) {
    return this.children.get(this.nodes.get(id).parent) ?? [];
  }

  choose(id) {
    this.meta.chosen[this.nodes.get(id).parent] = id;
  }

  // The ids that are shown, from the first message to the last.
  path() {
    const ids = [];
    let at = "";
    for (;;) {
      const options = this.children.get(at);
      if (!options) return ids;
      const wanted = this.meta.chosen[at];
      at = options.includes(wanted) ? wanted : options[options.length - 1];
      ids.push(at);
    }
  }

  // The messages from the first up to this one.
  upTo(id) {
    const messages = [];
    for (let at = id; at; at = this.nodes.get(at)?.parent) {
      if (this.nodes.has(at)) messages.push(this.nodes.get(at));
    }
    return messages.reverse();
  }

  // Calls of an answer that no message behind it on the path has answered.
  openCalls(message) {
    const calls = message.calls ?? [];
    if (calls.length === 0) return [];
    const answered = new Set();
    let at = message.id;
    for (;;) {
      const options = this.children.get(at) ?? [];
      const next = this.nodes.get(options.includes(this.meta.chosen[at]) ? this.meta.chosen[at] : options[options.length - 1]);
      if (next?.role !== "tool") break;
      answered.add(next.callId);
      at = next.id;
    }
    return calls.filter((one) => !answered.has(one.id));
  }
}

export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
