"""What all trials share: the program under test, a seed, a folder that goes away, and how much of everything."""
import asyncio
import dataclasses
import random
import resource
import tempfile

from pathlib import Path

import served

GOOD_KEY, STRANGER_KEY = "good-key-of-the-storm", "key-of-a-stranger"


@dataclasses.dataclass
class Amounts:
    """How much a trial does; `quick` is what fits into a minute."""
    hostile: int = 10_000
    flood_bytes: int = 256 << 20
    held_bodies: int = 60
    held_answers: int = 16
    aborts: int = 10_000
    connections: int = 10_000
    idle_seconds: float = 10
    cgroup_rounds: int = 8
    kills: int = 100
    terms: int = 10
    soak_seconds: float = 600


QUICK = Amounts(hostile=800, flood_bytes=32 << 20, held_bodies=8, held_answers=12, aborts=500, connections=2_600, idle_seconds=1, cgroup_rounds=1,
                kills=4, terms=1, soak_seconds=20)


class Context:
    def __init__(self, quire, quick, seed, soak_seconds=None):
        self.quire, self.quick, self.seed = str(Path(quire).resolve()), quick, seed
        self.amounts = QUICK if quick else Amounts()
        if soak_seconds is not None:
            self.amounts = dataclasses.replace(self.amounts, soak_seconds=soak_seconds)
        self._held = tempfile.TemporaryDirectory(prefix="quire-storm-")
        self.folder = Path(self._held.name)
        self._help = served.help_of(self.quire)

    def close(self):
        self._held.cleanup()

    def knows(self, flag):
        return f"{flag} " in self._help or f"{flag}\n" in self._help

    def rng(self, *parts):
        return random.Random("/".join(map(str, (self.seed, *parts))))

    def keys(self):
        """The flags of two tenants, those who ask good things and a stranger with a key."""
        if self.knows("--api-key-file"):
            path = self.folder / "keys"
            path.write_text(f"good:{GOOD_KEY}\nstranger:{STRANGER_KEY}\n")
            path.chmod(0o600)
            return ["--api-key-file", path]
        return ["--api-key", GOOD_KEY, STRANGER_KEY]


def raise_file_limit():
    """Sockets are files: as many as may be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def in_parallel(jobs, at_once, total_seconds):
    """Runs the coroutines that an iterator makes, so many at a time, for no longer than that; how many were begun."""
    begun = 0
    jobs = iter(jobs)

    async def work():
        nonlocal begun
        for job in jobs:
            begun += 1
            await job

    workers = [asyncio.create_task(work()) for _ in range(at_once)]
    try:
        async with asyncio.timeout(total_seconds):
            await asyncio.gather(*workers)
    except TimeoutError:
        pass
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return begun
