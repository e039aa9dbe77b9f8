"""Trial: connections that are cut at random moments."""
import asyncio
import collections

from context import GOOD_KEY, STRANGER_KEY, in_parallel
from good import Good
from report import Trial
from served import Served
import wire

AT_ONCE = 48
TIME_LIMIT = 1800
BEFORE, PREFILL, STREAM, DONE = "before the request was whole", "before the first byte", "amid the answer", "after the answer"


def request(rng):
    """From one token to many, short prompts and long ones, streamed or not."""
    what = {"max_tokens": rng.choice([1, 4, 30, 100]), "ignore_eos": True, "temperature": rng.choice([0, 1])}
    what["prompt"] = rng.choice([
        "Once upon a time", [rng.randint(3, 4000) for _ in range(rng.randint(1, 200))], ["A dog", "A cat", "A bird"], "a fox and " * 60])
    if isinstance(what["prompt"], list) and isinstance(what["prompt"][0], int) or len(what["prompt"]) > 100:
        what["max_tokens"] = min(what["max_tokens"], 30)
    shape = rng.random()
    if shape < 0.6:
        what["stream"] = True
    elif shape < 0.7:
        what.update(n=2, best_of=4)
    elif shape < 0.75:
        what.update(use_beam_search=True, n=3)
        what["max_tokens"] = min(what["max_tokens"], 20)
    elif shape < 0.8:
        what.update(n=16, logprobs=5)
    return wire.post("/v1/completions", what, "Connection: close", key=STRANGER_KEY)


class Cutter:
    def __init__(self, server):
        self.server = server
        self.moments = collections.Counter()

    async def one(self, rng):
        moment, writer = BEFORE, None
        try:
            async with asyncio.timeout(wire.PATIENCE):
                reader, writer = await wire.connect(self.server.port, wire.loopback(rng))
                moment = await self.until_cut(rng, reader, writer)
        except (OSError, TimeoutError, wire.Broken):
            pass
        finally:
            self.moments[moment] += 1
            if writer is not None:
                wire.reset(writer) if rng.random() < 0.5 else writer.transport.abort()

    async def until_cut(self, rng, reader, writer):
        whole = request(rng)
        if rng.random() < 0.2:
            writer.write(whole[:rng.randrange(len(whole))])
            await asyncio.sleep(rng.choice([0, 0, rng.expovariate(50)]))
            return BEFORE
        writer.write(whole)
        if rng.random() < 0.5:
            # A time, so that what is cut may wait, be in a worker's hands, in prefill or in decode.
            try:
                async with asyncio.timeout(min(rng.expovariate(30), 1)):
                    await reader.readexactly(1)
            except TimeoutError:
                return PREFILL
            except asyncio.IncompleteReadError:
                return DONE
            return STREAM
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            if not await reader.read(rng.choice([50, 500])):
                return DONE
        return STREAM


async def run(context):
    trial = Trial("aborts", "connections cut at random moments")
    amount = context.amounts.aborts
    # Few blocks, so that requests are preempted and wait, too.
    async with Served(context, *context.keys(), "--num-blocks", 512, ("--max-waiting-per-tenant", 512), name="aborts") as server:
        good = await Good(server, GOOD_KEY).learn()
        cutter = Cutter(server)
        async with good.asking(0.2):
            begun = await in_parallel((cutter.one(context.rng("abort", i)) for i in range(amount)), AT_ONCE, TIME_LIMIT)
        left = await server.comes_to_rest()
        now = await server.metrics()
        await good.ask_all()
        aborted = int(now.get("vllm:request_success_total:abort", 0))
        trial.figure("cut", dict(cutter.moments))
        trial.figure("aborted in the engine", aborted)
        trial.figure("preemptions", int(now.get("vllm:num_preemptions_total", 0)))
        where = ", ".join(f"{moment} {count:,}" for moment, count in cutter.moments.most_common())
        trial.check(begun == amount and aborted > 0, f"{begun:,} connections cut: {where}; {aborted:,} sequences aborted in the engine")
        trial.check(not left, "nothing runs, nothing waits, all blocks are back" if not left else f"left over: {left}")
        trial.check(server.lives and server.num_files() < 100, f"{server.num_files()} files are open in the end")
        good.verdict(trial, "beside and after them")
        left = await server.comes_to_rest()
        trial.check(not left, "everything is back" if not left else f"left over: {left}")
    trial.end()
    return trial
