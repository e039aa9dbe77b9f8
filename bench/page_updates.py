#!/usr/bin/env python3
"""Measures what an update of the live view costs the page's main thread, in a headless Chromium of 1400x900.

  build/venv/bin/python bench/page_updates.py [--seconds 30]

It serves the page's files from src/, and as /debug/live (docs/live.md) a run made at random: a pool of 10,000 blocks, nearly all
held, 64 clients that ask again as soon as they are answered, 100 steps a second, told in 10 messages a second. After 10 seconds it
traces Chromium, and prints the time of the main thread from one message to the next: all of its tasks, by the clock and as
processor time, and what they did. It needs selenium (./dev setup), chromium and chromium-driver, and a machine that does nothing
else.
"""
import argparse
import collections
import http.server
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import threading
import time
import urllib.request

import websocket
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCKS, BLOCK_SIZE, CLIENTS = 10_000, 16, 64
STEP_US, STEPS_A_MESSAGE = 10_000, 10
BUDGET = 2048  # tokens of a step
WARM_UP = 10   # seconds
WINDOW = "1400,900"

# The numbers of docs/live.md.
TAKE, TO_CACHE, EVICT = 0, 2, 3
QUEUED, PREFILL, DECODE, PREEMPTED, GONE = 0, 1, 2, 4, 255
FOR_BLOCKS, IN_ORDER = 3, 4
ADMIT, HIT, SKIP, CHUNK, PREEMPT, FINISH = 1, 2, 3, 4, 10, 13


class Request:
    def __init__(self, number, client, chance):
        self.number, self.client = number, client
        self.prompt = chance.randint(1600, 3200)
        self.most = chance.randint(300, 1200)
        self.total, self.computed, self.blocks, self.look = self.prompt, 0, [], None

    def describe(self, step, clock):
        return {"i": self.number, "id": str(self.number), "name": f"cmpl-{self.number:016x}", "prompt": self.prompt,
                "max": self.most, "tenant": "", "priority": 0, "arrived": step, "arrived_us": clock}


class House:
    """A scheduler, about: first come, first served; whoever came last gives way; the block cached longest is evicted."""

    def __init__(self):
        self.chance = random.Random(1)
        self.free = list(range(BLOCKS))
        self.cached = collections.OrderedDict()
        self.holders = [0] * BLOCKS
        self.system = [self.free.pop() for _ in range(20)]  # the first blocks of every prompt
        for block in self.system:
            self.cached[block] = True
        self.running, self.queue, self.count, self.n = [], [], 0, 0
        self.causes, self.message = 0, collections.defaultdict(list)

    def start(self):
        config = {"num_blocks": BLOCKS, "block_size": BLOCK_SIZE, "kv_windows": [0], "max_num_seqs": CLIENTS,
                  "max_num_batched_tokens": BUDGET, "watermark_bp": 100, "eviction": "lru", "num_host_blocks": 0}
        return {"start": {"config": config, "first": 1, "own": False, "groups": 1}}

    def take(self, request, block=None):
        if block is None:
            if self.free:
                block = self.free.pop()
            else:
                block, _ = self.cached.popitem(last=False)
                self.step["blocks"] += [EVICT, block, -1]
        self.cached.pop(block, None)
        self.holders[block] += 1
        request.blocks.append(block)
        self.step["blocks"] += [TAKE, block, request.number]

    def give(self, request):
        for block in reversed(request.blocks):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.cached[block] = True
            self.step["blocks"] += [TO_CACHE if self.holders[block] == 0 else 1, block, request.number]
        request.blocks = []

    def available(self):
        return len(self.free) + len(self.cached)

    def event(self, kind, request, a, b=0, cause=0):
        self.step["events"] += [kind, request.number, a, b, cause]

    def look(self, request, phase, reason=0, behind=-1):
        look = [phase + 8 * reason if phase != GONE else GONE, behind, 0]
        if look != request.look:
            request.look = look
            self.step["looks"] += [request.number, *look]

    def arrive(self, client):
        request = Request(self.count, client, self.chance)
        self.count += 1
        self.queue.append(request)
        self.message["requests"].append(request.describe(self.n, self.n * STEP_US))

    def preempt(self):
        victim = self.running.pop()
        self.causes += 1
        self.message["causes"].append(f"#{victim.number} was admitted last")
        self.event(PREEMPT, victim, victim.computed, 1, self.causes)
        self.give(victim)
        victim.computed = 0
        self.queue.insert(0, victim)

    def admit(self):
        while self.queue:
            first = self.queue[0]
            needs = -(-first.total // BLOCK_SIZE) - len(self.system)
            if self.available() < needs + BLOCKS // 100:
                if first.look is None or first.look[0] // 8 != FOR_BLOCKS:
                    self.event(SKIP, first, FOR_BLOCKS, needs)
                break
            self.running.append(self.queue.pop(0))
            for block in self.system:
                self.take(first, block)
            first.computed = len(self.system) * BLOCK_SIZE
            self.event(HIT, first, first.computed, first.total)
            self.event(ADMIT, first, len(self.running) - 1, first.computed)

    def compute(self):
        left = BUDGET
        for request in list(self.running):
            if request not in self.running:
                continue
            tokens = min(left, request.total - request.computed)
            while len(request.blocks) * BLOCK_SIZE < request.computed + tokens and request in self.running:
                if self.available() > 0:
                    self.take(request)
                else:
                    self.preempt()
            if request not in self.running:
                continue
            left -= tokens
            decodes = request.computed >= request.prompt
            if not decodes and tokens > 0:
                self.event(CHUNK, request, request.computed, tokens)
            self.step["decode" if decodes else "prefill"] += tokens
            request.computed += tokens
            self.look(request, DECODE if decodes else PREFILL)

    def finish(self):
        self.after = []
        for request in list(self.running):
            request.total += request.computed == request.total
            if request.total < request.prompt + request.most:
                continue
            self.running.remove(request)
            self.event(FINISH, request, 1)
            self.after.append(request)
            self.message["ended"].append({"i": request.number, "tokens": request.most, "text": "max_tokens reached"})

    def plan(self):
        """What is released after a step is told with the next one."""
        ended, self.n = getattr(self, "after", range(CLIENTS)), self.n + 1
        self.step = {"n": self.n, "began_us": self.n * STEP_US, "prefill": 0, "decode": 0, "blocks": [], "looks": [], "events": []}
        for one in ended:
            if self.n > 1:
                self.give(one)
                self.look(one, GONE)
            self.arrive(one.client if self.n > 1 else one)
        self.admit()
        self.compute()
        for place, request in enumerate(self.queue):
            phase = PREEMPTED if request.total > request.prompt else QUEUED
            self.look(request, phase, IN_ORDER if place else FOR_BLOCKS, self.queue[0].number if place else -1)
        held = BLOCKS - self.available()
        self.step |= {"running": len(self.running), "waiting": len(self.queue), "held": held, "cached": len(self.cached),
                      "shared": len(self.system) if len(self.running) > 1 else 0, "host": 0, "budget": BUDGET}
        self.finish()
        self.message["steps"].append(self.step)
        self.message["took"] += [self.n, STEP_US - 500 + self.chance.randint(-300, 300)]

    def next_message(self):
        for _ in range(STEPS_A_MESSAGE):
            self.plan()
        progress = [number for one in self.running for number in (one.number, one.computed, one.total)]
        message = {"clock_us": (self.n + 1) * STEP_US, **self.message, "progress": progress}
        self.message = collections.defaultdict(list)
        return message


class Handler(http.server.BaseHTTPRequestHandler):
    """The page's files, and the messages at their times."""

    def do_GET(self):
        if self.path == "/debug/live":
            return self.live()
        if self.path == "/v1/models":
            return self.say("application/json", json.dumps({"data": [{"id": "synthetic", "object": "model"}]}).encode())
        name = "/page/index.html" if self.path == "/" else self.path
        room = "src/record" + name.replace("/page/draw/", "/page/") if name.startswith("/page/draw/") else "src" + name
        file = (ROOT / room).resolve()
        kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
        if not file.is_file() or ROOT / "src" not in file.parents or file.suffix not in kinds:
            return self.send_error(404)
        return self.say(kinds[file.suffix], file.read_bytes())

    def say(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def live(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        begin = time.monotonic()
        try:
            for number, text in enumerate(self.server.messages):
                time.sleep(max(0, begin + number * STEPS_A_MESSAGE * STEP_US / 1e6 - time.monotonic()))
                self.server.sent.append(time.monotonic_ns() // 1000)
                self.wfile.write(text)
        except OSError:
            pass  # the browser has left

    def log_message(self, *_):
        pass


class Browser:
    """Chromium, and a second connection to it, for the trace."""

    def __init__(self, url):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ["--headless=new", f"--window-size={WINDOW}", "--disable-dev-shm-usage"]:
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        address = self.driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
        with urllib.request.urlopen(f"http://{address}/json/version") as answer:
            self.socket = websocket.create_connection(json.load(answer)["webSocketDebuggerUrl"], suppress_origin=True)
        self.calls = 0
        self.driver.get(url)
        self.driver.find_element("css selector", "[data-view=look]").click()

    def call(self, method, **parameters):
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        return self.wait(lambda told: told.get("id") == self.calls)["result"]

    def wait(self, wanted):
        while True:
            told = json.loads(self.socket.recv())
            if wanted(told):
                return told

    def trace(self, seconds):
        categories = ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel", "v8"]
        self.call("Tracing.start", transferMode="ReturnAsStream", traceConfig={"includedCategories": categories})
        time.sleep(seconds)
        self.call("Tracing.end")
        stream = self.wait(lambda told: told.get("method") == "Tracing.tracingComplete")["params"]["stream"]
        text, part = "", {"eof": False}
        while not part["eof"]:
            part = self.call("IO.read", handle=stream)
            text += part["data"]
        return json.loads(text)["traceEvents"]

    def close(self):
        self.socket.close()
        self.driver.quit()


KINDS = {
    "script": {"FunctionCall", "EvaluateScript", "RunMicrotasks", "FireAnimationFrame", "TimerFire", "EventDispatch", "v8.callFunction",
               "V8.GC_MC_INCREMENTAL", "MinorGC", "MajorGC", "V8.GCScavenger", "V8.GCFinalizeMC", "FunctionCall"},
    "style": {"UpdateLayoutTree", "ParseAuthorStyleSheet"},
    "layout": {"Layout", "HitTest"},
    "paint": {"PrePaint", "Paint", "Layerize", "Commit", "UpdateLayer", "CompositeLayers"},
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def main_thread(events):
    """The whole events of the page's main thread: of all that are called so, the one that has most."""
    names = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"}
    threads = collections.defaultdict(list)
    for one in events:
        if one["ph"] == "X" and (one["pid"], one["tid"]) in names:
            threads[one["pid"], one["tid"]].append(one)
    return max(threads.values(), key=len)


def add_up(events, starts):
    """By interval between `starts`: microseconds of the outermost events, of their processor time, and of each kind."""
    out = [collections.Counter() for _ in starts]
    at = 0
    stack = []  # [end, kind], the outermost first
    for one in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        while at + 1 < len(starts) and one["ts"] >= starts[at + 1]:
            at += 1
        while stack and stack[-1][0] <= one["ts"]:
            stack.pop()
        if one["ts"] >= starts[0]:
            if not stack:
                out[at]["wall"] += one["dur"]
                out[at]["processor"] += one.get("tdur", 0)
            # An event of a kind counts from where it begins, and no longer for the kind that it is in.
            kind = KIND_OF.get(one["name"], stack[-1][1] if stack else "other")
            out[at][kind] += one["dur"]
            if stack:
                out[at][stack[-1][1]] -= one["dur"]
            stack.append([one["ts"] + one["dur"], kind])
    return out[:-1]


def report(intervals):
    print(f"{len(intervals)} updates; milliseconds of the main thread an update")
    print(f"{'':12}{'median':>8}{'p90':>8}{'mean':>8}")
    for kind in ["wall", "processor", "script", "style", "layout", "paint", "other"]:
        values = sorted(one[kind] / 1000 for one in intervals)
        print(f"{kind:12}{statistics.median(values):8.2f}{values[int(0.9 * len(values))]:8.2f}{statistics.mean(values):8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="of the trace")
    options = parser.parse_args()
    house = House()
    messages = [house.start(), *(house.next_message() for _ in range((WARM_UP + options.seconds + 10) * 10))]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.messages = [f"data: {json.dumps(one, separators=(',', ':'))}\n\n".encode() for one in messages]
    server.sent = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser(f"http://127.0.0.1:{server.server_port}/")
    try:
        time.sleep(WARM_UP)
        begin = time.monotonic_ns() // 1000
        events = browser.trace(options.seconds)
    finally:
        browser.close()
    changed = statistics.mean(len(step["blocks"]) / 3 for one in messages[1:] for step in one["steps"])
    print(f"{BLOCKS:,} blocks, {changed * STEPS_A_MESSAGE:.0f} of them changed an update; "
          f"{statistics.mean(map(len, server.messages)) / 1000:.1f} kB an update; {house.count} requests")
    starts = [sent for sent in server.sent if begin + 500_000 <= sent <= begin + options.seconds * 1_000_000]
    report(add_up(main_thread(events), starts))


if __name__ == "__main__":
    sys.exit(main())
