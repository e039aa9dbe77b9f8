// Conversations in IndexedDB: one record for each conversation and one for each message, so a long one saves quickly.

const wholePrefix = (id) => IDBKeyRange.bound([id], [id, []]);

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const finished = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  transaction.onabort = () => reject(transaction.error);
  transaction.onerror = () => reject(transaction.error);
});

function inWords(error) {
  if (error?.name === "QuotaExceededError") {
    return "The browser has no room left for this page. Export what you want to keep, then delete old conversations. What is shown is not saved.";
  }
  return `The browser does not keep this conversation (${error?.message || error?.name || "unknown error"}). Export it if you want to keep it.`;
}

export class Store {
  // `complain(text)` is called when something could not be saved.
  constructor(complain) {
    this.complain = complain;
    this.database = undefined;
  }

  async open() {
    try {
      const request = indexedDB.open("quire", 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("conversations", { keyPath: "id" });
        request.result.createObjectStore("messages", { keyPath: ["conversation", "id"] });
      };
      this.database = await done(request);
      this.database.onversionchange = () => this.database.close();
    } catch (error) {
      this.complain(inWords(error));
    }
  }

  async #write(stores, work) {
    if (!this.database) return false;
    try {
      const transaction = this.database.transaction(stores, "readwrite");
      const end = finished(transaction);
      work(transaction);
      await end;
      return true;
    } catch (error) {
      this.complain(inWords(error));
      return false;
    }
  }

  save(meta, messages = []) {
    return this.#write(["conversations", "messages"], (transaction) => {
      transaction.objectStore("conversations").put(meta);
      const store = transaction.objectStore("messages");
      for (const message of messages) store.put(message);
    });
  }

  remove(id) {
    return this.#write(["conversations", "messages"], (transaction) => {
      transaction.objectStore("conversations").delete(id);
      transaction.objectStore("messages").delete(wholePrefix(id));
    });
  }

  async list() {
    if (!this.database) return [];
    const all = await done(this.database.transaction("conversations").objectStore("conversations").getAll());
    return all.sort((a, b) => b.updated - a.updated);
  }

  async messages(id) {
    if (!this.database) return [];
    return done(this.database.transaction("messages").objectStore("messages").getAll(wholePrefix(id)));
  }

  // The ids of the conversations with a message that has `term`. `current()` false ends the search early.
  async find(term, current) {
    const found = new Set();
    if (!this.database) return found;
    const wanted = term.toLowerCase();
    const store = this.database.transaction("messages").objectStore("messages");
    await new Promise((resolve, reject) => {
      const request = store.openCursor();
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor || !current()) return resolve();
        const { conversation, content } = cursor.value;
        if (!content.toLowerCase().includes(wanted)) return cursor.continue();
        found.add(conversation);
        return cursor.continue([conversation, []]);
      };
    });
    return found;
  }
}
