"""Trial: a container with little memory, and many clients."""
import asyncio
import os
import re

import cgroup
from good import Good
from report import Trial, mib
from served import MIB, MODEL, Served, StartFailed
import wire

LIMIT = 400 * MIB
CLIENTS = 64
BLOCK_BYTES = 6 * 2 * 2 * 64 * 2 * 16  # layers, keys and values, heads, their width, bf16, tokens
# The pool that so many sequences could use is far more than the container has.
FLAGS = ["--max-num-seqs", 1024]


def forget_pages():
    """Takes the model out of the page cache."""
    for path in MODEL.iterdir():
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def warm_pages():
    for path in MODEL.iterdir():
        path.read_bytes()


def pool_of(server):
    said = re.search(r"K/V: ([\d,]+) blocks", server.said())
    return int(said[1].replace(",", "")) if said else 0


async def client(server, rng, rounds, counts):
    """Prompts that nobody had, so that every block comes to be used."""
    for _ in range(rounds):
        prompt = [rng.randint(3, 4000) for _ in range(440)]
        request = wire.post("/v1/completions", {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "temperature": 0})
        try:
            answer = await wire.ask(server.port, request, wire.loopback(rng), patience=600)
            whole = answer.status == 200 and answer.json()["usage"]["completion_tokens"] == 40
            counts["good" if whole else str(answer.status)] = counts.get("good" if whole else str(answer.status), 0) + 1
        except (OSError, wire.Broken, ValueError):
            counts["not answered"] = counts.get("not answered", 0) + 1
            if not server.lives:
                return


async def serve(context, trial, cache, rounds):
    """One server in a container of its own; the blocks of its pool."""
    group = cgroup.make(f"quire-storm-{os.getpid()}-{cache}", LIMIT)
    try:
        (warm_pages if cache == "warm" else forget_pages)()
        try:
            async with Served(context, *FLAGS, name=f"cgroup-{cache}", cgroup=group.folder) as server:
                return await ask_it(context, trial, cache, rounds, server, group)
        except StartFailed as failed:
            trial.check(False, f"{cache} page cache: it did not start: {failed}")
            return 0
    finally:
        group.remove()


async def ask_it(context, trial, cache, rounds, server, group):
    pool = pool_of(server)
    good = await Good(server).learn()
    counts = {}
    await asyncio.gather(*(client(server, context.rng("cgroup", cache, i), rounds, counts) for i in range(CLIENTS)))
    if server.lives:
        await good.ask_all()
    peak = group.peak()
    trial.figure(f"{cache} page cache", {"blocks": pool, "answers": counts, "peak MiB": peak and peak // MIB, "killed": group.kills()})
    held = pool * BLOCK_BYTES
    trial.check(0 < held < LIMIT, f"{cache} page cache: a pool of {pool:,} blocks, {mib(held)}, in {mib(LIMIT)}")
    all_good = server.lives and counts == {"good": CLIENTS * rounds}
    answers = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    trial.check(all_good, f"{cache} page cache: {CLIENTS} clients, {CLIENTS * rounds:,} requests: {answers}; the server "
                f"{'lives' if server.lives else 'was killed'}; peak {mib(peak) if peak else 'unknown'} of {mib(LIMIT)}")
    if server.lives:
        good.verdict(trial, f"in it ({cache} page cache)")
    return pool


async def run(context):
    trial = Trial("cgroup", f"{CLIENTS} clients in a container of {mib(LIMIT)}")
    try:
        cgroup.make(f"quire-storm-{os.getpid()}-try", LIMIT).remove()
    except OSError as why:
        trial.skip(f"no memory cgroup can be made here: {why}")
        trial.end()
        return trial
    rounds = context.amounts.cgroup_rounds
    cold = await serve(context, trial, "cold", rounds)
    warm = await serve(context, trial, "warm", 1)
    # The kernel's own memory for a process differs by some pages from start to start.
    trial.check(cold > 0 and abs(cold - warm) <= max(cold, warm) // 50, f"the same pool: {cold:,} blocks cold, {warm:,} warm (within 2 %)")
    trial.end()
    return trial
