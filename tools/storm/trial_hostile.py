"""Trial: hostile requests with good ones between them."""
import asyncio
import collections

from context import GOOD_KEY, STRANGER_KEY, in_parallel
from good import Good
from hostile import KINDS, Env
from report import Trial, mib, times
from served import MIB, Served
import hostile_bodies  # noqa: F401  they add their kinds
import hostile_clients  # noqa: F401
import hostile_http
import wire

AT_ONCE = 32
TIME_LIMIT = 1800
FLAT = 48 * MIB  # what memory may differ by between two moments of rest: what an allocator keeps
PEAK = 768 * MIB  # more than before: bodies in flight (256 MiB at most) and what they are while they are parsed
HELD_PEAK = 384 * MIB  # more than before: bodies in flight alone
ANSWERS_GROWTH = 384 * MIB  # bodies that wait for their turn, a quarter of what answers may take, one answer, its work's rest
FLOOD_PEAK = 64 * MIB  # above rest: one connection


def plan(rng, number):
    """Every kind once, to warm up with, and then by weight."""
    first = rng.sample(KINDS, min(number, len(KINDS)))
    return first, rng.choices(KINDS, [kind.weight for kind in KINDS], k=number - len(first))


class Storm:
    def __init__(self, server):
        self.server = server
        self.outcomes = {kind.name: collections.Counter() for kind in KINDS}
        self.wrong = []

    async def one(self, kind, rng):
        outcome = await kind.attack(Env(self.server.port, rng, STRANGER_KEY))
        self.outcomes[kind.name][str(outcome)] += 1
        if not kind.bears(outcome):
            self.wrong.append(f"{kind.name}: {outcome}")

    def total(self):
        return sum(self.outcomes.values(), collections.Counter())


async def memory_at_rest(server):
    """After what is under way has ended and been given back; 0 of one that has ended."""
    await server.comes_to_rest()
    await asyncio.sleep(3)  # lingering connections
    return server.memory()[0] if server.lives else 0


async def fill_pool(server, rng):
    """Every block is touched once: pages of K/V that are new must not look like a leak."""
    def ask():
        prompt = [rng.randint(3, 4000) for _ in range(480)]
        return wire.ask(server.port, wire.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}, key=GOOD_KEY))
    await in_parallel((ask() for _ in range(100)), 16, TIME_LIMIT)


async def flood(server, context, trial):
    """What a parser must not keep: one connection without a key, some hundred megabytes."""
    at_rest = server.memory()[0]
    for name, before, unit, _ in hostile_http.BOUNDLESS:
        server.forget_peak()
        sent = 0
        try:
            async with asyncio.timeout(wire.PATIENCE):
                reader, writer = await wire.connect(server.port, wire.loopback(context.rng(name)))
                try:
                    writer.write(wire.head("POST", "/tokenize", f"Authorization: Bearer {STRANGER_KEY}",
                                           "Content-Type: application/json", "Transfer-Encoding: chunked") + before)
                    piece = unit * (MIB // len(unit))
                    while sent < context.amounts.flood_bytes:
                        writer.write(piece)
                        await writer.drain()
                        sent += len(piece)
                finally:
                    wire.reset(writer)
        except (OSError, TimeoutError):
            pass
        grown = server.memory()[1] - at_rest
        trial.figure(f"flood with {name}: MiB taken, grown", [sent // MIB, grown // MIB])
        trial.check(server.lives and grown < FLOOD_PEAK, f"chunked body, {name} without end: {mib(sent)} taken, memory grew by {mib(grown)}")


async def send_and_hold(server, writers, address, data, receive=None):
    """Keeps the connection; with a small buffer to receive, it reads nothing."""
    try:
        async with asyncio.timeout(20):
            _, writer = await wire.connect(server.port, address, *([receive] if receive else []))
            writers.append(writer)
            if receive:
                writer.transport.pause_reading()
            writer.write(data)
            await writer.drain()
    except (OSError, TimeoutError):
        pass


async def hold_bodies(server, context, trial):
    """Bodies that lack their last byte."""
    number, size = context.amounts.held_bodies, 15 * MIB
    at_rest = server.memory()[0]
    server.forget_peak()
    writers = []
    data = wire.head("POST", "/tokenize", f"Authorization: Bearer {STRANGER_KEY}", "Content-Type: application/json",
                     f"Content-Length: {size + 1}") + b"a" * size
    good = await Good(server, GOOD_KEY).learn()

    async with good.asking(0.05):
        await asyncio.gather(*(send_and_hold(server, writers, f"127.20.{i // 200}.{i % 200 + 1}", data) for i in range(number)))
    await good.ask_all()
    grown = server.memory()[1] - at_rest
    for writer in writers:
        wire.reset(writer)
    trial.figure("held bodies: MiB sent, grown", [number * size // MIB, grown // MIB])
    trial.check(grown < HELD_PEAK, f"{number} bodies of {mib(size)} held: memory grew by {mib(grown)} (bound {mib(HELD_PEAK)})")
    good.verdict(trial, "beside held bodies")


async def hold_answers(server, context, trial):
    """Large answers that nobody reads."""
    number = context.amounts.held_answers
    at_rest = await memory_at_rest(server)
    writers = []
    text = context.rng("answers").randbytes(4 * MIB).hex()
    data = wire.post("/tokenize", {"prompt": text, "return_token_strs": True}, key=STRANGER_KEY)
    good = await Good(server, GOOD_KEY).learn()

    async with good.asking(0.05):
        await asyncio.gather(*(send_and_hold(server, writers, f"127.21.0.{i + 1}", data, receive=4096) for i in range(number)))
        grown, steady = 0, 0
        while steady < 10 and server.lives:  # until nothing more is worked out
            await asyncio.sleep(1)
            now = server.memory()[0] - at_rest
            steady = steady + 1 if abs(now - grown) < MIB else 0
            grown = now
    await good.ask_all()
    for writer in writers:
        wire.reset(writer)
    trial.figure("unread answers: MiB of bodies, grown", [number * len(data) // MIB, grown // MIB])
    trial.check(grown < ANSWERS_GROWTH, f"{number} answers to {mib(len(data))} that nobody reads: memory grew by {mib(grown)} "
                f"(bound {mib(ANSWERS_GROWTH)})")
    good.verdict(trial, "beside unread answers")


# The demo model's own template reads no tools.
TEMPLATE = """{% if tools %}{{ tools | length }} tools <tool_call>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""


async def run(context):
    trial = Trial("hostile", "hostile requests, good ones between them")
    amount = context.amounts.hostile
    rng = context.rng("hostile")
    template = context.folder / "tools.jinja"
    template.write_text(TEMPLATE)
    async with Served(context, *context.keys(), "--num-blocks", 2048, ("--max-waiting-per-tenant", 512), "--chat-template", template,
                      name="hostile") as server:
        await fill_pool(server, rng)
        good = await Good(server, GOOD_KEY).learn()
        storm = Storm(server)
        first, rest = plan(rng, amount)
        at_first = server.memory()[0]
        server.forget_peak()
        async with good.asking(0.01, 2):
            await in_parallel((storm.one(kind, context.rng("warm", i)) for i, kind in enumerate(first)), AT_ONCE, TIME_LIMIT)
        before = await memory_at_rest(server)
        async with good.asking(0.01, 2):
            await in_parallel((storm.one(kind, context.rng("attack", i)) for i, kind in enumerate(rest)), AT_ONCE, TIME_LIMIT)
        await good.ask_all()
        if not trial.check(server.lives, "the server lives" if server.lives else f"the server ended: {' '.join(server.said().split())[-200:]}"):
            trial.end()
            return trial
        after, peak = await memory_at_rest(server), server.memory()[1]
        tell(trial, storm, good, amount)
        trial.figure("MiB at first, warm, after, peak", [size // MIB for size in (at_first, before, after, peak)])
        trial.check(after - before < FLAT, f"memory flat: {mib(before)} after one of each kind, {mib(after)} after all (may differ by {mib(FLAT)})")
        trial.check(peak - at_first < PEAK, f"peak {mib(peak)}, {mib(peak - at_first)} more than before all (bound {mib(PEAK)})")
        await flood(server, context, trial)
        await hold_bodies(server, context, trial)
        await hold_answers(server, context, trial)
        left = await server.comes_to_rest()
        trial.check(not left, "everything is back" if not left else f"left over: {left}")
    trial.end()
    return trial


def tell(trial, storm, good, amount):
    total = storm.total()
    done = sum(total.values())
    trial.figure("hostile requests", done)
    trial.figure("kinds", len(KINDS))
    trial.figure("outcomes", dict(total))
    trial.figure("outcomes by kind", {name: dict(counts) for name, counts in storm.outcomes.items() if counts})
    trial.figure("good answer seconds", times(good.times))
    answers = ", ".join(f"{outcome} {count:,}" for outcome, count in total.most_common(8))
    trial.check(done == amount, f"{done:,} hostile requests of {len(KINDS)} kinds: {answers}")
    sentence = f"{len(storm.wrong)} answered as they must not be" + (f": {'; '.join(sorted(set(storm.wrong))[:8])}" if storm.wrong else "")
    trial.check(not storm.wrong, sentence)
    good.verdict(trial, "between them")
