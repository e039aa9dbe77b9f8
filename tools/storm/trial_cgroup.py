"""Trial: a container with little memory, many clients, and bodies that grow when they are parsed."""
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
HEAVY = 4  # bodies at once that are many times as large when they are parsed
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


def largest_body(server):
    """What the server says it takes; without a word the limit that it has on a machine with much memory."""
    said = re.search(r"a request body may have ([\d.]+) ([KMG]iB)", server.said())
    unit = {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
    return int(float(said[1]) * unit[said[2]] * 0.95) if said else 16_000_000


def repeated(size, begin, unit, end):
    """JSON of almost so many bytes."""
    return begin + b",".join([unit] * ((size - len(begin) - len(end)) // (len(unit) + 1))) + end


async def heavy(server, path, body, counts):
    try:
        status = str((await wire.ask(server.port, wire.post(path, body), patience=300)).status)
    except (OSError, wire.Broken):
        status = "no answer"  # what is too large may be refused, and the connection reset, while it is sent
    counts[status] = counts.get(status, 0) + 1


async def weigh(context, trial, cache, server, group):
    """Bodies that are many times as large when they are parsed or tokenized, four at a time: none may kill the server."""
    rng, counts = context.rng("heavy", cache), {}
    for size in (16_000_000, largest_body(server)):
        text = b'{"prompt":"' + rng.randbytes(size // 2 - 20).hex().encode() + b'"}'
        for path, body in [("/v1/completions", repeated(size, b'{"prompt":[', b'{"":0}', b"]}")),
                           ("/v1/completions", repeated(size, b'{"prompt":[', b"7", b"]}")),
                           ("/v1/chat/completions", repeated(size, b'{"messages":[{"role":"user","content":"a"}],"documents":[', b'{"":0}', b"]}")),
                           ("/tokenize", text)]:
            await asyncio.gather(*(heavy(server, path, body, counts) for _ in range(HEAVY)))
            if not server.lives:
                break
    answers = ", ".join(f"{count} x {what}" for what, count in sorted(counts.items()))
    trial.figure(f"heavy bodies, {cache} page cache", {"answers": counts, "largest": largest_body(server)})
    peak = group.peak()
    trial.check(server.lives and not any(what.startswith("5") and what != "503" for what in counts),
                f"{cache} page cache: bodies that grow when they are parsed, of 16 MB and of the largest that is taken "
                f"({largest_body(server) / MIB:.1f} MiB): {answers}; the server {'lives' if server.lives else 'was killed'}; "
                f"peak {mib(peak) if peak else 'unknown'}")


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
    await weigh(context, trial, cache, server, group)
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
