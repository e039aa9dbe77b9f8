"""Trial: thousands of connections at once, idle ones and streams."""
import asyncio
import collections
import json
import threading
import time

from report import Trial, times
from served import Served
import wire

BOUND = 20.0  # seconds for /health and /metrics; what a slow machine needs is far below, a withheld answer far above
TOKENS = 12
GOOD, REFUSED, SILENT, CUT, LATE, UNREACHED = (
    "good", "refused properly", "closed without a byte", "cut or wrong", "not answered in time", "not reached")
STREAM_TIME = 100
# What a computed token costs on the simulated device; a few thousand tokens a second.
SIM = ["--device", "sim", "--cost-step-us", 200, "--cost-decode-us", 50, "--cost-decode-more-us", 5, "--cost-prefill-tokens-per-ms", 100]


class Prober:
    """Asks /health and /metrics again and again, each over a connection of its own.

    On a thread of its own: beside thousands of clients in one loop it would send its request seconds after it has
    connected, and be taken for one that says nothing.
    """

    def __init__(self, server):
        self.server = server
        self.times = []
        self.failed = []
        self.over = False

    async def probe(self, path):
        begun = time.monotonic()
        try:
            answer = await wire.get(self.server.port, path, patience=BOUND)
            if answer.status != 200:
                self.failed.append(f"{path}: {answer.status}")
        except (OSError, wire.Broken) as failed:
            self.failed.append(f"{path}: {failed}")
        self.times.append(time.monotonic() - begun)

    async def keep_probing(self):
        while not self.over:
            await self.probe("/health")
            await self.probe("/metrics")
            await asyncio.sleep(0.1)
        await self.probe("/health")
        await self.probe("/metrics")

    async def __aenter__(self):
        self.thread = threading.Thread(target=lambda: asyncio.run(self.keep_probing()))
        self.thread.start()
        return self

    async def __aexit__(self, *unused):
        self.over = True
        await asyncio.to_thread(self.thread.join)

    def verdict(self, trial, when):
        trial.figure(f"probe seconds {when}", times(self.times))
        sentence = f"{len(self.times):,} of /health and /metrics {when}: {len(self.failed)} not answered, {times(self.times)}"
        if self.failed:
            sentence += f" (the first: {self.failed[0]})"
        trial.check(not self.failed and max(self.times) < BOUND, sentence)


def address(i):
    return f"127.{1 + i % 200}.{i // 200 % 250}.{2 + i % 50}"


async def open_idle(server, i, writers, counts):
    """A connection that says nothing, or the beginning of something."""
    try:
        _, writer = await wire.connect(server.port, address(i))
        writers.append(writer)
        if i % 3 == 1:
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        elif i % 3 == 2:
            writer.write(b"POST /v1/completions HTTP/1.1\r\n")
        counts["opened"] += 1
    except (OSError, TimeoutError):
        counts["not opened"] += 1


async def idle(server, number, seconds, trial):
    writers, counts = [], collections.Counter()
    try:
        async with Prober(server) as early:
            await asyncio.gather(*(open_idle(server, i, writers, counts) for i in range(number)))
        # What was asked meanwhile may have kept a place: some more take that.
        await asyncio.gather(*(open_idle(server, number + i, writers, counts) for i in range(50)))
        async with Prober(server) as late:
            await asyncio.sleep(seconds)
            outcome = await stream(server, number)
    finally:
        for writer in writers:
            wire.reset(writer)
    trial.figure("idle connections", dict(counts))
    trial.check(counts["opened"] > 0, f"{counts['opened']:,} idle connections opened at once, {counts['not opened']:,} not")
    early.verdict(trial, "while idle ones come")
    late.verdict(trial, "beside idle ones")
    trial.check(outcome in (GOOD, REFUSED), f"a stream beside idle ones: {outcome}")


def request():
    return wire.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": TOKENS, "ignore_eos": True, "stream": True,
                                         "stream_options": {"include_usage": True}}, "Connection: close")


def judge(answer):
    if answer.status in (429, 503):
        return REFUSED if "error" in json.loads(answer.body) else CUT
    events, done = wire.events(answer.body)
    usage = events[-1].get("usage") if events else None
    whole = answer.status == 200 and done and usage and usage["completion_tokens"] == TOKENS
    return GOOD if whole else CUT


async def stream(server, i):
    """One stream on a connection of its own; what became of it."""
    writer = None
    try:
        async with asyncio.timeout(STREAM_TIME):
            reader, writer = await wire.connect(server.port, address(i))
            writer.write(request())
            return judge(await wire.read_answer(reader))
    except wire.Broken as broken:
        return CUT if broken.got else SILENT
    except TimeoutError:
        return LATE if writer else UNREACHED
    except ConnectionError:
        # Reset: without an answer, in any case.
        return SILENT if writer else UNREACHED
    except ValueError:
        return CUT
    finally:
        if writer:
            writer.transport.abort()


async def streams(server, number, trial, when):
    begun = time.monotonic()
    async with Prober(server) as prober:
        outcomes = collections.Counter(await asyncio.gather(*(stream(server, i) for i in range(number))))
    seconds = time.monotonic() - begun
    trial.figure(f"streams {when}", dict(outcomes))
    said = ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common())
    all_well = outcomes[GOOD] > 0 and outcomes[GOOD] + outcomes[REFUSED] == number
    trial.check(all_well, f"{number:,} streams at once {when}: {said}; in {seconds:.0f} s")
    prober.verdict(trial, f"beside streams {when}")


async def run(context):
    trial = Trial("connections", "connections at once, idle ones and streams")
    number = context.amounts.connections
    async with Served(context, *SIM, name="connections") as server:
        await idle(server, number, context.amounts.idle_seconds, trial)
        await streams(server, number, trial, "as started")
        left = await server.comes_to_rest()
        trial.check(server.lives and not left, "everything is back" if not left else f"left over: {left}")
    if context.knows("--max-connections"):
        flags = ["--max-connections", number + 1000, "--max-waiting", number + 1000]
        async with Served(context, *SIM, *flags, name="connections-raised") as server:
            await streams(server, number, trial, "with --max-connections raised")
            left = await server.comes_to_rest()
            trial.check(server.lives and not left, "everything is back" if not left else f"left over: {left}")
    trial.end()
    return trial
