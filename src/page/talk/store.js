// Conversations in IndexedDB: one record for each conversation and one for each message, so a long one saves quickly.

const wholePrefix = (id) => IDBKeyRange.bound([id], [id, []]);

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const finished = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  // Not onerror: then the transaction does not have its error yet.
  transaction.onabort = () => reject(transaction.error);
});

// Each method throws what the browser says against it.
export class Store {
  async open() {
    const request = indexedDB.open("quire", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: ["conversation", "id"] });
    };
    this.database = await done(request);
    this.database.onversionchange = () => this.database.close();
  }

  async #write(work) {
    const transaction = this.database.transaction(["conversations", "messages"], "readwrite");
    const end = finished(transaction);
    try {
      work(transaction.objectStore("conversations"), transaction.objectStore("messages"));
    } catch (error) {
      // What was asked before it is taken back too.
      end.catch(() => undefined);
      transaction.abort();
      throw error;
    }
    await end;
  }

  save(meta, messages) {
    return this.#write((conversations, store) => {
      conversations.put(meta);
      for (const message of messages) store.put(message);
    });
  }

  remove(id) {
    return this.#write((conversations, messages) => {
      conversations.delete(id);
      messages.delete(wholePrefix(id));
    });
  }

  list() {
    return done(this.database.transaction("conversations").objectStore("conversations").getAll());
  }

  messages(id) {
    return done(this.database.transaction("messages").objectStore("messages").getAll(wholePrefix(id)));
  }

  // The ids of the conversations with a message that `matches`. `current()` false ends the search early.
  find(matches, current) {
    const found = new Set();
    const store = this.database.transaction("messages").objectStore("messages");
    return new Promise((resolve, reject) => {
      const request = store.openCursor();
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor || !current()) return resolve(found);
        if (!matches(cursor.value)) return cursor.continue();
        found.add(cursor.value.conversation);
        return cursor.continue([cursor.value.conversation, []]);
      };
    });
  }
}
