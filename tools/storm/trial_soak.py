"""Trial: mixed traffic for a long time."""
import asyncio
import collections
import time

from context import GOOD_KEY, STRANGER_KEY, in_parallel
from good import Good
from hostile import HEAVY, KINDS, Env
from report import Trial, mib, percentile, times
from served import MIB, Served
from trial_aborts import Cutter
from trial_hostile import PEAK, fill_pool
import hostile_bodies  # noqa: F401  they add their kinds
import hostile_clients  # noqa: F401
import hostile_http  # noqa: F401
import wire

FLAT = 48 * MIB
CLIENTS = 6
WORDS = "fox owl boat tree king river stone cloud lamp drum girl bear moon door song bread".split()


class Mixed:
    """Right requests of many kinds; how long they took and what was wrong."""

    def __init__(self, server):
        self.server = server
        self.times = {"chat": [], "completion": [], "stream": [], "tokenize": []}
        self.failed = []

    def request(self, rng):
        text = "Tell me of " + " and ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 60)))
        shape, tokens = rng.choice(list(self.times)), rng.choice([1, 8, 30, 60])
        if shape == "tokenize":
            return shape, wire.post("/tokenize", {"prompt": text}, key=GOOD_KEY)
        if shape == "chat":
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "seed": rng.randint(0, 9)}
            return shape, wire.post("/v1/chat/completions", body, key=GOOD_KEY)
        body = {"prompt": text, "max_tokens": tokens, "stream": shape == "stream"}
        return shape, wire.post("/v1/completions", body, key=GOOD_KEY)

    async def one(self, rng):
        shape, request = self.request(rng)
        begun = time.monotonic()
        try:
            answer = await wire.ask(self.server.port, request)
            if answer.status != 200 or shape == "stream" and not wire.events(answer.body)[1]:
                self.failed.append(f"{shape}: {answer.status} {answer.body[:100]!r}")
        except (OSError, wire.Broken, ValueError) as failed:
            self.failed.append(f"{shape}: {failed!r}")
        self.times[shape].append(time.monotonic() - begun)


class Villains:
    def __init__(self, server):
        self.server, self.cutter = server, Cutter(server)
        self.outcomes, self.wrong = collections.Counter(), []
        self.kinds = [kind for kind in KINDS if kind.weight > HEAVY]

    async def one(self, rng):
        if rng.random() < 0.3:
            self.outcomes["cut off"] += 1
            return await self.cutter.one(rng)
        kind = rng.choice(self.kinds)
        outcome = await kind.attack(Env(self.server.port, rng, STRANGER_KEY))
        self.outcomes["hostile"] += 1
        if not kind.bears(outcome):
            self.wrong.append(f"{kind.name}: {outcome}")
        await asyncio.sleep(rng.expovariate(20))


async def watch_memory(server, over, samples):
    """(seconds since the start, resident bytes)."""
    begun = time.monotonic()
    while not over.is_set() and server.lives:
        samples.append((time.monotonic() - begun, server.memory()[0]))
        await asyncio.sleep(0.2)


def flat(samples, seconds):
    """The medians of memory behind the warm-up and at the end. The warm-up has 10 s where it can: by then each worker has had
    hostile work, and keeps some of the memory."""
    warm_up = max(0.3 * seconds, min(10, 0.5 * seconds))
    part = (seconds - warm_up) / 4
    behind = [size for at, size in samples if warm_up <= at < warm_up + part]
    last = [size for at, size in samples if at >= seconds - part]
    return percentile(behind, 0.5), percentile(last, 0.5)


async def run(context):
    seconds = context.amounts.soak_seconds
    trial = Trial("soak", f"mixed traffic for {seconds:.0f} s")
    async with Served(context, *context.keys(), "--num-blocks", 2048, ("--max-waiting-per-tenant", 512), name="soak") as server:
        await fill_pool(server, context.rng("pool"))
        good = await Good(server, GOOD_KEY).learn()
        mixed, villains, samples, over = Mixed(server), Villains(server), [], asyncio.Event()
        watching = asyncio.create_task(watch_memory(server, over, samples))
        async with good.asking(0.05):
            await asyncio.gather(
                in_parallel((mixed.one(context.rng("mixed", i)) for i in range(10**7)), CLIENTS, seconds),
                in_parallel((villains.one(context.rng("villain", i)) for i in range(10**7)), CLIENTS, seconds))
        over.set()
        await watching
        tell(trial, mixed, villains, good)
        before, after = flat(samples, seconds)
        peak = max(size for _, size in samples)
        trial.figure("MiB behind the warm-up, at the end, at most", [before // MIB, after // MIB, peak // MIB])
        trial.check(server.lives and after - before < FLAT, f"memory flat: {mib(before)} behind the warm-up, {mib(after)} at the end, "
                    f"at most {mib(peak)} (may grow by {mib(FLAT)})")
        trial.check(peak - before < PEAK, f"memory never more than {mib(PEAK)} above that")
        left = await server.comes_to_rest()
        trial.check(server.lives and not left, "everything is back" if not left else f"left over: {left}")
        status = await server.stop()
        trial.check(status == 0, f"SIGTERM ended it with status {status}")
    trial.end()
    return trial


def tell(trial, mixed, villains, good):
    asked = sum(map(len, mixed.times.values()))
    why = f" (the first: {mixed.failed[0]})" if mixed.failed else ""
    trial.check(asked > 0 and not mixed.failed, f"{asked:,} right requests: {len(mixed.failed)} failed{why}")
    for shape, values in mixed.times.items():
        trial.figure(f"{shape}: seconds", times(values))
        trial.say(f"{shape}: {len(values):,}, {times(values)}")
    bad = ", ".join(f"{count:,} {what}" for what, count in villains.outcomes.items())
    why = f": {'; '.join(sorted(set(villains.wrong))[:5])}" if villains.wrong else ""
    trial.figure("villains", dict(villains.outcomes))
    trial.check(not villains.wrong, f"beside them {bad}: {len(villains.wrong)} answered as they must not be{why}")
    good.verdict(trial, "beside them")
