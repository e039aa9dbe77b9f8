// The conversation that is shown, and the answers that are under way.
import { announce, byId, button, grow } from "./dom.js";
import { healthy, models } from "./api.js";
import { ask } from "./dialogs.js";
import { Composer } from "./composer.js";
import { listen } from "./keys.js";
import { Library } from "./library.js";
import { MessageView, speaker } from "./message.js";
import { dismiss, notice } from "./notices.js";
import { BadSetting, bodyOf } from "./request.js";
import { Run } from "./run.js";
import { Settings } from "./settings.js";
import { isolated, longText } from "./text.js";
import { Conversation } from "./tree.js";
import { VirtualList } from "./virtual.js";

const drawEvery = 60;
const saveEvery = 500;
const mostViews = 300;

export class Talk {
  constructor() {
    this.runs = new Map();
    this.views = new Map();
    this.library = new Library(this);
    this.settings = new Settings((settings) => this.#keepSettings(settings));
    this.composer = new Composer({
      onsend: (text) => this.#send(text), onstop: () => this.stop(), oneditlast: () => this.#editLast(),
    });
    this.list = new VirtualList(byId("scroller"), byId("items"), {
      render: (id) => this.#view(id).element,
      estimate: (id, width) => this.#estimate(id, width),
      onscroll: (atEnd) => { byId("to-end").hidden = atEnd || this.list.ids.length === 0; },
    });
    byId("to-end").onclick = () => {
      this.list.toEnd();
      byId("entry").focus();
    };
    listen({ stop: () => this.stop(), list: this.list });
  }

  async start() {
    grow(byId("entry"));
    this.show(Conversation.begin());
    await this.library.start();
    byId("entry").focus();
    window.addEventListener("pagehide", () => {
      for (const run of this.runs.values()) this.library.save(run.conversation, [run.message]);
    });
    await this.#loadModels();
  }

  async #loadModels() {
    const select = byId("model");
    try {
      const names = await models();
      select.replaceChildren(...names.map((name) => new Option(name, name)));
      select.disabled = names.length === 0;
      dismiss("models");
    } catch (error) {
      select.replaceChildren(new Option("no model", ""));
      const said = error.status ? error.message : "The server does not answer.";
      notice("models", `The models could not be listed. ${said}`, button("Try again", () => this.#loadModels()));
    }
  }

  // Shows a conversation.
  show(conversation) {
    this.composer.change(this.conversation?.id, conversation.id);
    this.conversation = conversation;
    this.views.clear();
    this.list.clear();
    this.settings.set(conversation.meta.settings);
    this.refresh();
    this.list.toEnd();
    this.drawList();
  }

  drawList() {
    const { meta } = this.conversation;
    byId("title").textContent = meta.title || "New conversation";
    document.title = meta.title ? `${meta.title} – quire` : "quire";
    for (const id of ["rename", "delete", "export"]) byId(id).disabled = this.conversation.nodes.size === 0;
    this.library.draw(meta.id, new Set(this.runs.keys()));
  }

  // After the path or what surrounds its messages has changed.
  refresh() {
    const ids = this.conversation.path();
    this.list.ids = ids;
    this.list.index = new Map(ids.map((id, at) => [id, at]));
    for (const id of this.list.mounted.keys()) if (this.list.index.has(id)) this.#view(id).update();
    this.list.setItems(ids);
    byId("nothing").hidden = ids.length > 0;
    const running = this.runs.has(this.conversation.id);
    this.composer.busy(running);
    byId("scroller").setAttribute("aria-busy", String(running));
  }

  #view(id) {
    let view = this.views.get(id);
    if (!view) {
      view = new MessageView(this.conversation.get(id), this.#host());
      this.views.set(id, view);
      this.#forgetViews();
    } else if (!this.list.mounted.has(id)) {
      view.update();
    }
    view.place(this.list.index.get(id), this.list.ids.length);
    return view;
  }

  // Views with an unsaved edit stay.
  #forgetViews() {
    if (this.views.size <= mostViews) return;
    for (const [id, view] of this.views) {
      if (this.views.size <= mostViews / 2) return;
      if (!this.list.mounted.has(id) && !view.editing && Object.keys(view.drafts).length === 0) this.views.delete(id);
    }
  }

  #host() {
    const { conversation } = this;
    return {
      busy: () => this.runs.has(conversation.id),
      siblings: (message) => conversation.siblings(message.id),
      openCalls: (message) => conversation.openCalls(message),
      choose: (id, step) => this.#choose(id, step),
      edit: (message, text) => this.#edit(message, text),
      regenerate: (message) => this.#answer(message.parent),
      goOn: (message) => this.#answer(message.parent, message),
      answerCalls: (message, results) => this.#answerCalls(message, results),
    };
  }

  #estimate(id, width) {
    const { content } = this.conversation.get(id);
    const perLine = Math.max(20, Math.min(width, 760) / 7.5);
    let lines = 1;
    for (let at = content.indexOf("\n"); at >= 0 && lines < 2000; at = content.indexOf("\n", at + 1)) lines += 1;
    return 96 + 24 * Math.max(lines, content.length / perLine);
  }

  #keepSettings(settings) {
    this.conversation.meta.settings = settings;
    this.library.lastSettings = settings;
    if (this.conversation.nodes.size > 0) this.library.saveSoon(this.conversation);
  }

  // Says at the field what cannot be sent; false then.
  #sendable() {
    try {
      bodyOf(this.conversation.meta.settings, []);
      return true;
    } catch (error) {
      if (!(error instanceof BadSetting)) throw error;
      this.settings.point(error);
      announce(error.message);
      return false;
    }
  }

  #send(text) {
    const { conversation } = this;
    if (this.runs.has(conversation.id) || !this.#sendable()) return false;
    const message = conversation.add(conversation.path().at(-1), { role: "user", content: text });
    this.library.save(conversation, [message]);
    this.#answer(message.id);
    return true;
  }

  #edit(message, text) {
    const { conversation } = this;
    const { role, callId, toolName, model, calls } = message;
    if (role !== "assistant" && !this.#sendable()) return;
    const copy = conversation.add(message.parent, { role, callId, toolName, model, calls, content: text });
    this.library.save(conversation, [copy]);
    if (role === "assistant") {
      this.refresh();
      this.drawList();
    } else {
      this.#answer(copy.id);
    }
  }

  #editLast() {
    const id = this.list.ids.findLast((one) => this.conversation.get(one).role === "user");
    if (!id || this.runs.has(this.conversation.id)) return;
    this.list.toItem(id);
    this.#view(id).edit();
  }

  #choose(id, step) {
    this.conversation.choose(id);
    this.refresh();
    this.library.save(this.conversation);
    const controls = this.list.toItem(id)?.querySelectorAll(".branches button");
    const wanted = controls?.[step < 0 ? 0 : 1];
    (wanted?.disabled ? controls[step < 0 ? 1 : 0] : wanted)?.focus({ preventScroll: true });
  }

  #answerCalls(message, results) {
    const { conversation } = this;
    if (this.runs.has(conversation.id) || !this.#sendable()) return;
    let parent = conversation.path().at(-1);
    if (conversation.get(parent).role !== "tool") parent = message.id;
    const added = results.map(({ call, content }) => {
      const one = conversation.add(parent, { role: "tool", callId: call.id, toolName: call.name, content });
      parent = one.id;
      return one;
    });
    this.library.save(conversation, added);
    this.#answer(parent);
  }

  // An answer to the message `parent`, or more of the answer `going`.
  #answer(parent, going) {
    const { conversation } = this;
    if (this.runs.has(conversation.id) || !this.#sendable()) return;
    if (!this.waiting) dismiss("lost");
    const inMessages = byId("items").contains(document.activeElement);
    const body = bodyOf(conversation.meta.settings, conversation.upTo(going?.id ?? parent), byId("model").value, going);
    // A failure without a word of answer leaves nothing to keep as a branch.
    const empty = (conversation.children.get(parent) ?? []).map((id) => conversation.get(id)).find((one) => one.role === "assistant" && one.state === "error" && !one.content);
    const message = going ?? empty ?? conversation.add(parent, { role: "assistant" });
    if (!going) Object.assign(message, { reasoning: undefined, logprobs: undefined, model: byId("model").value });
    if (going) message.logprobs = undefined;
    conversation.choose(message.id);
    const run = new Run(message, body, {
      onchange: () => this.#grown(run), onend: () => this.#ended(run),
    });
    Object.assign(run, { conversation, drawn: 0, cost: 0 });
    this.runs.set(conversation.id, run);
    run.start();
    this.library.save(conversation, [message]);
    this.refresh();
    this.list.toEnd();
    this.drawList();
    // The button that was pressed is gone.
    if (inMessages) this.views.get(message.id)?.element.focus({ preventScroll: true });
  }

  #grown(run) {
    const now = performance.now();
    // By a timer, so that the last words before a stall are saved too. Saving copies the whole text.
    run.saver ??= setTimeout(() => {
      run.saver = undefined;
      this.library.save(run.conversation, [run.message]);
    }, run.message.content.length > longText ? 5 * saveEvery : saveEvery);
    if (run.timer) return;
    // An answer that is slow to draw is drawn less often, so that typing stays quick.
    const wait = Math.max(0, run.drawn + Math.max(drawEvery, 4 * run.cost) - now);
    run.timer = setTimeout(() => {
      run.timer = undefined;
      this.#draw(run);
    }, wait);
  }

  #draw(run) {
    const begin = performance.now();
    if (this.conversation === run.conversation && this.list.mounted.has(run.message.id) && this.runs.has(run.conversation.id)) {
      const view = this.views.get(run.message.id);
      view?.grow();
      this.list.layout();
      view?.keepHeight();
    }
    run.drawn = performance.now();
    run.cost = run.drawn - begin;
  }

  #ended(run) {
    const { message, conversation } = run;
    clearTimeout(run.timer);
    clearTimeout(run.saver);
    this.runs.delete(conversation.id);
    conversation.meta.updated = Date.now();
    this.library.save(conversation, [message]);
    if (this.conversation === conversation) this.refresh();
    this.drawList();
    const said = { done: "has answered", stopped: "was stopped", cut: "was cut off", error: "could not answer" }[message.state];
    announce(`${speaker(message)} ${said}.${message.problem ? ` ${message.problem}` : ""}${message.finish === "tool_calls" ? " It calls tools." : ""}`);
    if (run.lost) this.#waitForServer();
  }

  async #waitForServer() {
    if (this.waiting) return;
    this.waiting = true;
    notice("lost", "The connection to the server was lost. The text so far is kept. The page looks for the server until it is back.");
    for (let wait = 500; !(await healthy()); wait = Math.min(10000, wait * 1.6)) await new Promise((next) => setTimeout(next, wait));
    this.waiting = false;
    notice("lost", "The server is back. Continue or regenerate the answer that was cut off.");
    await this.#loadModels();
  }

  stop() {
    this.runs.get(this.conversation.id)?.stop();
  }

  async confirmDelete(title) {
    return (await ask({ title: "Delete the conversation?", text: `“${isolated(title)}” and all its branches are removed from this browser.`, ok: "Delete" })) !== undefined;
  }
}
