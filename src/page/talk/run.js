// One answer: sends the request, reads the stream into the message, and says how it ended.
import { call, HttpError, problem } from "./api.js";
import { readEvents } from "./sse.js";
import { newId } from "./tree.js";

class Refused extends Error {}

export class Run {
  // `onchange()` after each event, `onend(message)` once.
  constructor(message, body, { onchange, onend }) {
    this.message = message;
    this.body = body;
    this.onchange = onchange;
    this.onend = onend;
    this.abort = new AbortController();
    this.stopped = false;
    this.heard = 0;
    this.before = message.tokens ?? 0;
  }

  stop() {
    this.stopped = true;
    this.abort.abort();
  }

  async start() {
    const { message } = this;
    message.state = "streaming";
    message.problem = undefined;
    message.finish = undefined;
    this.begin = performance.now();
    this.first = undefined;
    try {
      const ended = await this.#read();
      message.state = message.finish || ended ? "done" : "cut";
      if (message.state === "cut") message.problem = "The server ended the answer before it was complete.";
    } catch (error) {
      this.#failed(error);
    }
    this.#count();
    this.onend(message, this);
  }

  async #read() {
    const response = await call("/v1/chat/completions", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(this.body), signal: this.abort.signal,
    });
    if (!response.ok) throw await problem(response);
    return readEvents(response.body, (data) => this.#take(data));
  }

  #failed(error) {
    const { message } = this;
    if (this.stopped) {
      message.state = "stopped";
    } else if (error instanceof HttpError || error instanceof Refused) {
      message.state = "error";
      message.problem = error.message;
    } else {
      message.state = "cut";
      message.problem = `The connection to the server was lost.${message.content ? " The text so far is kept." : ""}`;
      this.lost = true;
    }
  }

  #take(data) {
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      throw new Refused("The server sent something that is not JSON. The text so far is kept; try again.");
    }
    if (event.error) throw new Refused(`The server ended the answer: ${event.error.message ?? "without a reason"} The text so far is kept.`);
    const choice = event.choices?.[0];
    if (choice) this.#choice(choice);
    if (event.usage) this.#usage(event.usage);
    if (typeof event.model === "string") this.message.model = event.model;
    this.onchange();
  }

  #choice(choice) {
    const { message } = this;
    const delta = choice.delta ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought || delta.content || delta.tool_calls) {
      this.heard += 1;
      this.first ??= performance.now();
    }
    if (typeof thought === "string") message.reasoning = (message.reasoning ?? "") + thought;
    if (typeof delta.content === "string") message.content += delta.content;
    for (const part of delta.tool_calls ?? []) this.#call(part);
    for (const token of choice.logprobs?.content ?? []) this.#token(token);
    if (choice.finish_reason) message.finish = choice.finish_reason;
  }

  #call(part) {
    const calls = (this.message.calls ??= []);
    const index = Number.isInteger(part.index) && part.index >= 0 && part.index <= calls.length ? part.index : calls.length;
    const one = (calls[index] ??= { id: "", name: "", arguments: "" });
    if (part.id) one.id = String(part.id);
    if (part.function?.name) one.name += String(part.function.name);
    if (part.function?.arguments) one.arguments += String(part.function.arguments);
    one.id ||= `call_${newId()}`;
  }

  #token({ token, logprob, top_logprobs: top }) {
    const others = (top ?? []).map((one) => [String(one.token), Number(one.logprob)]);
    (this.message.logprobs ??= []).push([String(token), Number(logprob), others]);
  }

  #usage({ prompt_tokens: prompt, completion_tokens: tokens }) {
    this.message.promptTokens = prompt;
    this.counted = tokens;
  }

  #count() {
    const { message } = this;
    const now = performance.now();
    // Without the server's count (the answer was stopped or cut off), each event was a token.
    message.tokens = this.before + (this.counted ?? this.heard);
    message.estimated = this.counted === undefined || undefined;
    if (this.first === undefined) return;
    message.ttft = this.first - this.begin;
    message.took = now - this.first;
    message.timed = this.counted ?? this.heard;
  }
}
