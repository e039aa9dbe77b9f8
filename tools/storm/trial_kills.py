"""Trial: kills at random moments, and starts after them."""
import asyncio
import collections
import pathlib
import shutil
import signal
import subprocess
import time

from context import in_parallel
from good import COMPLETE, Good
from report import Trial, percentile
from served import Served, StartFailed
import wire

LOAD = 8
LONGEST_RUN = 0.8  # seconds of serving before a kill


class Life:
    """What is kept from one server to the next."""

    def __init__(self, context):
        self.context = context
        self.kept = context.folder / "kept"
        self.kept.mkdir()
        self.packed = self.kept / "packed"
        self.packed.mkdir()
        self.log, self.prefixes = self.kept / "decisions.log", self.kept / "prefixes"
        self.alone = None
        self.starts, self.wrong, self.failed, self.most_files = [], [], [], 0
        self.explained = collections.Counter()
        self.mute = []

    def serve(self, i):
        return Served(self.context, "--num-blocks", 256, "--prefix-cache-file", self.prefixes, "--pack-cache", self.packed,
                      "--decision-log", self.log, "--drain-timeout", 1, name=f"kills-{i}")

    def files(self):
        return sorted(str(path.relative_to(self.kept)) for path in self.kept.rglob("*") if path.is_file())

    async def start(self, i):
        begun = time.monotonic()
        server = self.serve(i)
        try:
            await server.ready()
        except BaseException as failed:
            await server.stop(signal.SIGKILL)
            if not isinstance(failed, (StartFailed, OSError, wire.Broken)):
                raise
            self.failed.append(f"start {i}: {failed}")
            return None
        self.starts.append(time.monotonic() - begun)
        return server

    async def right(self, server, i):
        """The answers are those of the first server."""
        good = Good(server)
        if self.alone is None:
            self.alone = (await good.learn()).alone
        good.alone, good.asked = self.alone, i
        for _ in range(3):
            await good.ask()
        self.wrong += good.touched

    def explain(self):
        """Of a log that ends anywhere, `quire explain` tells, or says in one line why not."""
        copy = self.context.folder / "killed.log"
        if not self.log.exists():
            self.explained["no log yet"] += 1
            return
        shutil.copy(self.log, copy)
        done = subprocess.run([self.context.quire, "explain", str(copy)], capture_output=True, timeout=120)
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if done.returncode == 0:
            self.explained["explained"] += 1
        elif done.returncode in (1, 2) and len(said) == 1:
            self.explained["said why not"] += 1
        else:
            self.explained["neither"] += 1
            self.mute.append(f"{done.returncode}: {' '.join(said)[:200]}")


async def load(server, rng, seconds):
    """Streams and short requests, for so long, whatever becomes of them."""
    async def one():
        prompt = " ".join(rng.choice(["fox", "owl", "boat", "tree", "king"]) for _ in range(rng.randint(1, 80)))
        body = {"prompt": prompt, "max_tokens": rng.choice([4, 60]), "stream": rng.random() < 0.5}
        try:
            await wire.ask(server.port, wire.post(COMPLETE, body))
        except (OSError, wire.Broken):
            await asyncio.sleep(0.01)
    await in_parallel((one() for _ in range(100_000)), LOAD, seconds)


async def kill_once(life, i, rng):
    """Starts, asks, and kills: while it serves, while it starts, or while it saves."""
    when = rng.random()
    if when < 0.15:
        server = life.serve(i)
        await asyncio.sleep(rng.uniform(0, 0.5))
        await server.stop(signal.SIGKILL)
        return "while it starts"
    server = await life.start(i)
    if server is None:
        return "did not start"
    await life.right(server, i)
    await load(server, rng, rng.uniform(0, LONGEST_RUN))
    if when < 0.3:
        server.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(rng.uniform(0, 0.3))
    await server.stop(signal.SIGKILL)
    life.explain()
    return "while it ends" if when < 0.3 else "while it serves"


async def end_once(life, i, rng):
    """SIGTERM: it must end by itself and keep its prefix cache."""
    server = await life.start(i)
    if server is None:
        return False
    await life.right(server, i)
    await load(server, rng, rng.uniform(0, LONGEST_RUN))
    before = life.prefixes.stat().st_mtime_ns if life.prefixes.exists() else 0
    status = await server.stop(signal.SIGTERM)
    return status in (0, 1) and life.prefixes.exists() and life.prefixes.stat().st_mtime_ns > before


async def run(context):
    trial = Trial("kills", "kills at random moments, and starts after them")
    amount, terms = context.amounts.kills, context.amounts.terms
    life, rng = Life(context), context.rng("kills")
    moments, saved = collections.Counter(), 0
    await end_once(life, 0, rng)  # so that there is something to begin with
    first = len(life.files())
    every = max(1, amount // max(1, terms))
    for i in range(amount):
        moments[await kill_once(life, i + 1, context.rng("kill", i))] += 1
        life.most_files = max(life.most_files, len(life.files()))
        if i % every == every - 1:
            saved += await end_once(life, i + 1, context.rng("term", i))
    terms = amount // every
    saved_last = await end_once(life, amount + 1, rng)
    last = life.files()
    killed = ", ".join(f"{moment} {count}" for moment, count in moments.most_common())
    trial.figure("kills", dict(moments))
    trial.figure("start seconds p50, max", [percentile(life.starts, 0.5), max(life.starts, default=0)])
    trial.figure("files in the end", last)
    trial.figure("explain", dict(life.explained))
    trial.check(sum(moments.values()) == amount, f"{amount} kills: {killed}")
    why = f" (the first: {life.failed[0]})" if life.failed else ""
    trial.check(not life.failed and life.starts, f"{len(life.starts) + len(life.failed)} starts, {len(life.failed)} failed; "
                f"ready after {percentile(life.starts, 0.5):.2f} s, at most {max(life.starts, default=0):.2f} s{why}")
    why = f" (the first: {life.wrong[0]})" if life.wrong else ""
    trial.check(not life.wrong and life.alone, f"right answers after each start: {len(life.wrong)} wrong{why}")
    trial.check(saved == terms and saved_last, f"{saved + saved_last} of {terms + 1} SIGTERMs kept the prefix cache")
    trial.check(len(last) <= first and life.most_files <= first + 2,
                f"{len(last)} files are kept in the end ({first} at first, never more than {life.most_files}): {', '.join(map(fname, last))}")
    why = f" ({life.mute[0]})" if life.mute else ""
    trial.check(not life.mute, "quire explain of the killed ones' logs: " +
                ", ".join(f"{what} {count}" for what, count in life.explained.items()) + why)
    trial.end()
    return trial


def fname(path):
    return pathlib.Path(path).name
