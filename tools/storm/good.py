"""Good requests, whose answers must be the same bytes in the storm as alone."""
import asyncio
import contextlib
import json
import time

import wire

STORY = "Once upon a time there was a little fox who lived in a big forest. Every day the fox went to the river"
CHAT = [{"role": "user", "content": "Tell me a story about a little owl named Olga."}]
COMPLETE, TALK = "/v1/completions", "/v1/chat/completions"

REQUESTS = [
    (COMPLETE, {"prompt": STORY, "max_tokens": 24, "temperature": 0}),
    (COMPLETE, {"prompt": "The boat", "max_tokens": 16, "seed": 7, "temperature": 1.0, "logprobs": 3}),
    (COMPLETE, {"prompt": ["A dog", "A cat", "A bird"], "max_tokens": 8, "temperature": 0, "n": 1}),
    (COMPLETE, {"prompt": STORY, "max_tokens": 20, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}),
    (TALK, {"messages": CHAT, "max_tokens": 24, "temperature": 0}),
    (TALK, {"messages": CHAT, "max_tokens": 20, "seed": 11, "temperature": 0.8, "top_p": 0.9, "n": 2}),
    (TALK, {"messages": CHAT, "max_tokens": 24, "seed": 3, "temperature": 0.7, "stream": True}),
    (COMPLETE, {"prompt": "One day, Tim", "max_tokens": 12, "use_beam_search": True, "n": 2}),
]


def gather(events):
    """The text and the ends of a stream's choices, however it was cut into chunks."""
    texts, ends, usage = {}, {}, None
    for event in events:
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            index = choice["index"]
            piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            texts[index] = texts.get(index, "") + piece
            ends[index] = choice.get("finish_reason") or ends.get(index)
    return {"texts": texts, "ends": ends, "usage": usage}


def essence(answer):
    """What must not change: all but names, times and what the prefix cache had."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        events, done = wire.events(answer.body)
        body = {"done": done, **gather(events)}
    else:
        body = answer.json()
        for name in ("id", "created"):
            body.pop(name, None)
    if body.get("usage"):
        body["usage"].pop("prompt_tokens_details", None)
    return json.dumps(body, sort_keys=True)


class Good:
    """Asks good requests in turn and compares."""

    def __init__(self, server, key=None):
        self.server, self.key = server, key
        self.alone = []
        self.asked = 0
        self.touched = []  # what was wrong, of each that was touched
        self.times = []

    def request(self, number):
        path, body = REQUESTS[number]
        return wire.post(path, body, "Connection: close", key=self.key)

    async def learn(self):
        """The answers that they get alone."""
        self.alone = []
        for number in range(len(REQUESTS)):
            answer = await wire.ask(self.server.port, self.request(number))
            if answer.status != 200:
                raise wire.Broken(f"a good request alone was answered {answer.status}: {answer.body[:200]!r}")
            self.alone.append(essence(answer))
        return self

    async def ask(self):
        number = self.asked % len(REQUESTS)
        self.asked += 1
        begun = time.monotonic()
        try:
            answer = await wire.ask(self.server.port, self.request(number))
            if answer.status != 200:
                self.touched.append(f"request {number}: {answer.status} {answer.body[:120].decode(errors='replace')}")
            elif essence(answer) != self.alone[number]:
                self.touched.append(f"request {number}: another answer")
            self.times.append(time.monotonic() - begun)
        except (OSError, wire.Broken, ValueError, KeyError) as failed:
            self.touched.append(f"request {number}: {failed!r}")

    @contextlib.asynccontextmanager
    async def asking(self, pause, at_once=1):
        """Asks again and again while the block runs; what it has begun, it ends."""
        over = asyncio.Event()

        async def keep_asking():
            while not over.is_set():
                await self.ask()
                await asyncio.sleep(pause)

        tasks = [asyncio.create_task(keep_asking()) for _ in range(at_once)]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*tasks)

    async def ask_all(self):
        for _ in REQUESTS:
            await self.ask()

    def verdict(self, trial, where):
        trial.figure(f"good answers {where}", self.asked)
        trial.figure(f"good answers touched {where}", len(self.touched))
        sentence = f"{self.asked:,} good requests {where}: {len(self.touched)} touched"
        if self.touched:
            sentence += f" (the first: {self.touched[0]})"
        trial.check(self.asked > 0 and not self.touched, sentence)
