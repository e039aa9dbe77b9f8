#!/usr/bin/env python3
"""The main job, watched: 64 clients at once against the demo model, then the same requests one at a time.

usage: tools/demo.py QUIRE MODEL_DIR      (./dev demo calls it; the standard library is enough)
"""
import asyncio
import json
import re
import socket
import subprocess
import sys
import time

CLIENTS = 64
MAX_TOKENS = 128

NARRATOR = (
    "You are the narrator of a children's radio show. The listeners are between four and eight years old. Speak clearly, "
    "in short sentences, and let the characters talk to each other. Nobody gets badly hurt, and every story ends with a "
    "small lesson that the characters find by themselves. Do not explain the lesson to the listeners. When a listener asks "
    "you to go on, go on exactly where the story stopped."
)
HEROES = [
    "a little owl named Olga", "a brave mouse named Max", "a lonely lighthouse", "a snowman named Sam", "two kites",
    "a baker named Bella", "a small green train", "a turtle named Tim", "a girl named Mia and her red boots", "a sleepy bear",
    "a paper boat", "a dragon named Dot", "a boy named Ben and a lost key", "an old apple tree", "a duck named Daisy",
    "a cloud named Clara",
]
WISHES = [
    "Tell me a story about {}.", "Can you tell me a story about {}?", "Please tell me a bedtime story about {}.",
    "Tell me a short story about {}.",
]
GO_ON = ["Please go on.", "What happened next?"]


def conversations():
    """64 first turns; every fourth client asks for more when its story has stopped."""
    for client in range(CLIENTS):
        wish = WISHES[client // len(HEROES) % len(WISHES)].format(HEROES[client % len(HEROES)])
        turns = [wish] + ([GO_ON[client // 4 % len(GO_ON)]] if client % 4 == 3 else [])
        yield turns


class Reply:
    def __init__(self):
        self.text, self.arrivals, self.tokens, self.prompt, self.cached = "", [], 0, 0, 0


async def ask(port, messages, seed, on_text=None):
    """One streaming chat request over a connection of its own."""
    body = json.dumps({
        "messages": messages, "max_tokens": MAX_TOKENS, "seed": seed, "temperature": 0.7, "top_p": 0.9, "stream": True,
        "stream_options": {"include_usage": True},
    }).encode()
    reply, start = Reply(), time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"the server answered {status.decode().strip()}: {(await reader.read()).decode()[-500:]}")
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            reply.tokens = event["usage"]["completion_tokens"]
            reply.prompt = event["usage"]["prompt_tokens"]
            reply.cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        for choice in event["choices"]:
            piece = choice["delta"].get("content")
            if piece:
                reply.arrivals.append(time.perf_counter() - start)
                reply.text += piece
                if on_text:
                    on_text(piece)
    writer.close()
    if reply.tokens == 0:
        raise RuntimeError("a stream ended without its usage")
    return reply


async def converse(port, client, turns, on_text=None):
    messages, replies = [{"role": "system", "content": NARRATOR}], []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        replies.append(await ask(port, messages, seed=client, on_text=on_text))
        messages.append({"role": "assistant", "content": replies[-1].text})
    return replies


async def metrics(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return {name: float(value) for name, value in re.findall(r"^(vllm:\w+)\{[^}]*\} (\S+)$", text, re.M)}


def percentiles(values, scale=1e3):
    ordered = sorted(values)
    return ordered[len(ordered) // 2] * scale, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * scale


def report(title, replies, seconds):
    tokens = sum(reply.tokens for reply in replies)
    ttft = percentiles([reply.arrivals[0] for reply in replies if reply.arrivals])
    tpot = percentiles([(r.arrivals[-1] - r.arrivals[0]) / (r.tokens - 1) for r in replies if len(r.arrivals) > 1 and r.tokens > 1])
    print(f"{title:<22} {tokens:>7} {seconds:>8.2f} {tokens / seconds:>9.0f}   {ttft[0]:>7.1f} {ttft[1]:>7.1f}   {tpot[0]:>7.2f} {tpot[1]:>7.2f}")
    return tokens / seconds


async def watch_pool(port, seen):
    while True:
        now = await metrics(port)
        seen["peak"] = max(seen.get("peak", 0), now["vllm:kv_cache_usage_perc"])
        await asyncio.sleep(0.05)


async def run(port, num_blocks):
    print("One story as it streams:\n")
    await converse(port, 7, ["Tell me a story about a little owl named Olga."], on_text=lambda piece: print(piece, end="", flush=True))
    print("\n")

    before = await metrics(port)
    pool, turns = {}, list(conversations())
    watcher = asyncio.create_task(watch_pool(port, pool))
    start = time.perf_counter()
    together = await asyncio.gather(*(converse(port, client, each) for client, each in enumerate(turns)))
    seconds_together = time.perf_counter() - start
    watcher.cancel()
    after = await metrics(port)

    start = time.perf_counter()
    alone = [await converse(port, client, each) for client, each in enumerate(turns)]
    seconds_alone = time.perf_counter() - start

    print(f"{'':<22} {'tokens':>7} {'seconds':>8} {'tokens/s':>9}   {'TTFT ms p50, p99':>15}   {'TPOT ms p50, p99':>15}")
    flat = lambda groups: [reply for group in groups for reply in group]
    fast = report(f"{CLIENTS} clients at once", flat(together), seconds_together)
    slow = report("one at a time", flat(alone), seconds_alone)
    gained = lambda name: after[name] - before[name]
    hits, queried = gained("vllm:prefix_cache_hits_total"), gained("vllm:prefix_cache_queries_total")
    print(f"\n{fast / slow:.1f} times the tokens per second.  At its fullest the pool held {pool['peak'] * num_blocks:.0f} of {num_blocks} blocks.")
    print(f"Prefix cache: {hits:.0f} of {queried:.0f} prompt tokens were already there ({hits / queried:.0%}).  "
          f"Preemptions: {gained('vllm:num_preemptions_total'):.0f}.")
    same = sum(a.text == b.text for a, b in zip(flat(together), flat(alone)))
    print(f"{same} of {len(flat(alone))} answers are the same, byte for byte, alone and among {CLIENTS}.")
    return 0 if same == len(flat(alone)) else 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def ready(port, server):
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}")
        try:
            await metrics(port)
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise RuntimeError("the server did not come up within a minute")


def main():
    quire, model = sys.argv[1:3]
    port, num_blocks = free_port(), 1024
    command = [quire, "serve", model, "--port", str(port), "--max-num-seqs", str(CLIENTS), "--num-blocks", str(num_blocks)]
    print("$", " ".join(command), "\n")
    server = subprocess.Popen(command + sys.argv[3:])

    async def everything():
        await ready(port, server)
        return await run(port, num_blocks)

    try:
        return asyncio.run(everything())
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
