// The messages of /debug/live (docs/live.md). An EventSource would send no key.

export class LiveStream {
  /** `take(message)` for each; `say(text)`: in words what is wrong, "" if nothing is. */
  constructor(key, take, say) {
    this.key = key;
    this.take = take;
    this.say = say;
    this.control = new AbortController();
  }

  async run() {
    for (let pause = 500; !this.control.signal.aborted; pause = Math.min(2 * pause, 8000)) {
      try {
        if (!await this.read(() => { pause = 500; })) return;
        this.say("The server ended the live view. Trying again …");
      } catch (error) {
        if (this.control.signal.aborted) return;
        this.say(`The server cannot be reached (${error.message}). Trying again …`);
      }
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  stop() {
    this.control.abort();
  }

  /** Until the stream ends; false if trying again would be no use. */
  async read(onData) {
    const headers = this.key ? { Authorization: `Bearer ${this.key}` } : {};
    const answer = await fetch("/debug/live", { headers, signal: this.control.signal, cache: "no-store" });
    if (!answer.ok) {
      const body = await answer.json().catch(() => undefined);
      const why = body?.error?.message ?? `status ${answer.status}`;
      this.say(answer.status === 401 ? "The live view needs an API key: send a message first, and the page asks for it."
        : `The live view is not shown: ${why}.`);
      return answer.status >= 500;
    }
    this.say("");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return true;
      onData();
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data: ")) this.take(JSON.parse(line.slice(6)));
      }
    }
  }
}
