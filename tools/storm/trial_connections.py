"""Trial: thousands of connections at once, idle ones and streams."""
import asyncio
import collections
import json
import pathlib
import sys
import time

from report import Trial, times
from served import Served
import wire

BOUND = 20.0  # seconds for /health and /metrics; what a slow machine needs is far below, a withheld answer far above
TOKENS = 12
GOOD, REFUSED, SILENT, CUT, LATE, UNREACHED = (
    "good", "refused properly", "closed without a byte", "cut or wrong", "not answered in time", "not reached")
STREAM_TIME = 100
SLOW_ASKED = 20
# What a computed token costs on the simulated device; a few thousand tokens a second.
SIM = ["--device", "sim", "--cost-step-us", 200, "--cost-decode-us", 50, "--cost-decode-more-us", 5, "--cost-prefill-tokens-per-ms", 100]


class Prober:
    """Asks /health and /metrics all the time, from another process: see prober.py."""

    def __init__(self, server):
        self.server = server
        self.times, self.failed = [], []

    async def __aenter__(self):
        command = [sys.executable, str(pathlib.Path(__file__).with_name("prober.py")), str(self.server.port), str(BOUND)]
        self.process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        return self

    async def __aexit__(self, *unused):
        told, _ = await self.process.communicate(b"")  # its standard input ends
        found = json.loads(told)
        self.times, self.failed = found["times"], found["failed"]

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
        # What was asked meanwhile may have kept a place: some more take that one.
        await asyncio.gather(*(open_idle(server, number + i, writers, counts) for i in range(50)))
        async with Prober(server) as late:
            await asyncio.sleep(seconds)
            outcome = await stream(server, number, collections.Counter())
    finally:
        for writer in writers:
            wire.reset(writer)
    trial.figure("idle connections", dict(counts))
    trial.check(counts["opened"] > 0, f"{counts['opened']:,} idle connections opened at once, {counts['not opened']:,} not")
    early.verdict(trial, "while idle ones come")
    late.verdict(trial, "beside idle ones")
    trial.check(outcome in (GOOD, REFUSED), f"a stream beside idle ones: {outcome}")


async def open_slow(server, i, writers):
    """A connection with a part of a small body."""
    try:
        _, writer = await wire.connect(server.port, address(i))
        writers.append(writer)
        writer.write(request().partition(b"\r\n\r\n")[0] + b"\r\n\r\n{")
    except (OSError, TimeoutError):
        pass


async def slow_bodies(server, number, trial):
    """As many as there are places and more; good requests must get places all the same."""
    writers, whys, outcomes = [], collections.Counter(), collections.Counter()
    try:
        await asyncio.gather(*(open_slow(server, i, writers) for i in range(number)))
        await asyncio.sleep(1)
        async with Prober(server) as prober:
            for i in range(SLOW_ASKED):
                outcomes[await stream(server, number + i, whys)] += 1
    finally:
        for writer in writers:
            wire.reset(writer)
    trial.figure("streams beside slow bodies", dict(outcomes))
    trial.check(outcomes[GOOD] == SLOW_ASKED, f"{SLOW_ASKED} streams beside {number:,} bodies of which nothing more comes: " +
                ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common()))
    prober.verdict(trial, "beside slow bodies")


def request():
    return wire.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": TOKENS, "ignore_eos": True, "stream": True,
                                         "stream_options": {"include_usage": True}}, "Connection: close")


def judge(answer, whys):
    # 408: where the kernel's queue overflows, what a client sent at once comes seconds after its connection.
    if answer.status in (408, 429, 503):
        proper = "error" in json.loads(answer.body)
    elif answer.status == 200:
        events, done = wire.events(answer.body)
        usage = events[-1].get("usage") if events else None
        if done and usage and usage["completion_tokens"] == TOKENS:
            return GOOD
        proper = False
    else:
        proper = False
    if proper:
        return REFUSED
    whys[f"{answer.status} {answer.body[-120:].decode(errors='replace')}"] += 1
    return CUT


async def stream(server, i, whys):
    """One stream on a connection of its own; what became of it. `whys` counts what is wrong with those that are cut."""
    writer = None
    try:
        async with asyncio.timeout(STREAM_TIME):
            reader, writer = await wire.connect(server.port, address(i), first=request())
            return judge(await wire.read_answer(reader), whys)
    except wire.Broken as broken:
        whys[str(broken)] += bool(broken.got)
        return CUT if broken.got else SILENT
    except TimeoutError:
        return LATE if writer else UNREACHED
    except ConnectionError:
        # Reset: without an answer, in any case.
        return SILENT if writer else UNREACHED
    except ValueError as failed:
        whys[repr(failed)[:120]] += 1
        return CUT
    finally:
        if writer:
            writer.transport.abort()


async def streams(server, number, trial, when):
    begun, whys = time.monotonic(), collections.Counter()
    async with Prober(server) as prober:
        outcomes = collections.Counter(await asyncio.gather(*(stream(server, i, whys) for i in range(number))))
    seconds = time.monotonic() - begun
    trial.figure(f"streams {when}", dict(outcomes))
    said = ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common())
    all_well = outcomes[GOOD] > 0 and outcomes[GOOD] + outcomes[REFUSED] == number
    trial.check(all_well, f"{number:,} streams at once {when}: {said}; in {seconds:.0f} s" +
                (f" (cut: {max(whys, key=whys.get)})" if outcomes[CUT] else ""))
    prober.verdict(trial, f"beside streams {when}")


async def run(context):
    trial = Trial("connections", "connections at once, idle ones and streams")
    number = context.amounts.connections
    async with Served(context, *SIM, name="connections") as server:
        await idle(server, number, context.amounts.idle_seconds, trial)
        await slow_bodies(server, number, trial)
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
