"""A served run, its decision log, and what `quire explain` makes of it.

The log and the page's data are both read here anew, by their descriptions in src/record/run_record.h and
run_timeline.h, and must agree.
"""
import base64
import collections
import concurrent.futures
import json
import re
import signal
import struct
import subprocess
import time
import urllib.request
import zlib

import pytest

from server import MODEL_NAME, QUIRE, ROOT, QuireServer

NUM_BLOCKS = 24
NUM_REQUESTS = 24
ADD, ADMIT, HIT, SKIP, CHUNK, ALLOCATE, SHARE, RELEASE, EVICT, COPY, PREEMPT, SWAP_OUT, SWAP_IN, FINISH = range(14)
TAKE, DROP, DROP_TO_CACHE, EVICTED, IS_CACHED = range(5)


def ask(server, i):
    body = {"model": MODEL_NAME, "temperature": 0.8, "seed": i, "ignore_eos": True, "max_tokens": 30 + i % 3,
            "messages": [{"role": "user", "content": f"Tell me a story about fox number {i}."}]}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def explain(*args):
    done = subprocess.run([QUIRE, "explain", *map(str, args)], capture_output=True, timeout=120, cwd=ROOT)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Numbers:
    """LEB128, one after the other."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def more(self):
        return self.at < len(self.data)

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def next(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self):
        value = self.next()
        return value >> 1 if value % 2 == 0 else -(value + 1 >> 1)


HEAD = struct.Struct("<4sIQIIIII")


def read_blocks(path):
    """The first line with its end, and the records of all blocks; their checksums are compared."""
    data = path.read_bytes()
    line = data[:data.index(b"\n") + 1]
    seed, at, number, records = zlib.crc32(line), len(line), 0, b""
    while at < len(data):
        head = data[at:at + HEAD.size]
        mark, its_number, _, index_bytes, record_bytes, index_check, record_check, head_check = HEAD.unpack(head)
        assert (mark, its_number, zlib.crc32(head[:-4], seed)) == (b"QBLK", number, head_check)
        at += HEAD.size
        assert zlib.crc32(data[at:at + index_bytes], seed) == index_check
        at += index_bytes
        assert zlib.crc32(data[at:at + record_bytes], seed) == record_check
        records += data[at:at + record_bytes]
        at += record_bytes
        number += 1
    return line, records


def one_block(line, records, index=b""):
    """A log with these records, its checksums right."""
    seed = zlib.crc32(line)
    head = HEAD.pack(b"QBLK", 0, 0, len(index), len(records), zlib.crc32(index, seed), zlib.crc32(records, seed), 0)[:-4]
    return line + head + struct.pack("<I", zlib.crc32(head, seed)) + index + records


def read_log(path):
    """The records: (kind, ...); decisions as ("decision", kind, seq, a, b)."""
    header, data = read_blocks(path)
    assert json.loads(header)["quire_run"] == 4
    numbers = Numbers(data)
    while numbers.more():
        kind = numbers.byte()
        if kind == ord("a"):
            seq = numbers.next()
            prompt = [numbers.next() for _ in range(numbers.next())]
            max_tokens = numbers.next()
            for _ in range(numbers.next()):
                numbers.next()
            for _ in range(7):  # salt, fork, arrival, deadline, priority, tenant, expected tokens: none is wanted here
                numbers.next()
            name = bytes(numbers.byte() for _ in range(numbers.next()))
            yield "add", seq, len(prompt), max_tokens, name.decode()
        elif kind in (ord("x"), ord("s")):
            yield "abort", numbers.next()
        elif kind == ord("p"):
            yield "plan", numbers.next(), numbers.signed()
        elif kind == ord("f"):
            numbers.next()
            yield "refused", bytes(numbers.byte() for _ in range(numbers.next()))
        elif kind >= 0x20 and kind < 0x27:
            fields = (numbers.next() for _ in range({0: 3, 1: 3, 2: 4, 3: 4, 4: 3, 5: 1, 6: 2}[kind - 0x20]))
            yield "cause", kind - 0x20, tuple(fields)
        elif kind == ord("c"):
            numbers.next()
            now = numbers.signed()
            yield "commit", now, [numbers.next() for _ in range(numbers.next())]
        elif kind == ord("b"):
            yield "budget", numbers.next()
        elif kind == ord("r"):
            yield ("reset",)
        elif kind == ord("e"):
            yield "end", numbers.next()
        else:
            assert 0 < kind < 0x20, f"a record of kind {kind}"
            yield "decision", kind - 1, numbers.next(), numbers.next(), numbers.next()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    log = tmp_path_factory.mktemp("explain") / "run.log"
    with QuireServer("--num-blocks", NUM_BLOCKS, "--preemption-mode", "swap", "--decision-log", log) as server:
        with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as pool:
            answers = list(pool.map(lambda i: ask(server, i), range(NUM_REQUESTS)))
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
    return log, answers


@pytest.fixture(scope="module")
def page(served, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "run.html"
    status, said, error = explain(served[0], "--html", out)
    assert status == 0, error
    assert str(out) in said
    html = out.read_text()
    data = re.search(r'<script type="application/json" id="run">(.*?)</script>', html, re.S)[1]
    return html, json.loads(data)


def column(data, name):
    numbers = Numbers(base64.b64decode(data["columns"][name]))
    values = []
    while numbers.more():
        values.append((values[-1] if values else 0) + numbers.signed())
    return values


def changes(data, stream, steps):
    """For each step and the end: the changes [(kind, block, request)]."""
    numbers = Numbers(base64.b64decode(data[stream]))
    for _ in range(steps + 1):
        block = request = 0
        out = []
        for _ in range(numbers.next()):
            kind = numbers.next()
            block += numbers.signed()
            if kind <= DROP_TO_CACHE:
                request += numbers.signed()
            out.append((kind, block, request if kind <= DROP_TO_CACHE else None))
        yield out
    assert not numbers.more()


def test_the_run_is_worth_explaining(served):
    kinds = collections.Counter(record[1] for record in read_log(served[0]) if record[0] == "decision")
    assert kinds[PREEMPT] > 3 and kinds[SWAP_OUT] > 0 and kinds[EVICT] > 3 and kinds[HIT] > 3 and kinds[SKIP] > 10


def test_replay_decides_the_same(served):
    status, said, _ = explain(served[0], "--replay")
    assert status == 0 and "Checked: replaying the log gives the same " in said


def test_the_table_and_the_stories(served):
    log, answers = served
    status, said, _ = explain(log)
    assert status == 0
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+) .* max_tokens reached", said, re.M)
    assert len(rows) == NUM_REQUESTS
    assert f"{NUM_REQUESTS} requests: {NUM_REQUESTS} finished, 0 refused, 0 aborted" in said
    assert re.search(r"^pool +too small in \d+ of \d+ steps", said, re.M)
    assert re.search(r"^waiting +[\d,]+ steps of all requests together \(.*\): ", said, re.M)
    assert re.search(r"^preempted +#\d+ at step \d+ for ", said, re.M)
    assert re.search(r"\d+ blocks? to the host, \d+ back", said) and re.search(r"^checked +the checksum of each log block; --replay", said, re.M)
    assert max(map(len, said.splitlines())) <= 110 and re.search(r"^load +(not )?overloaded: ", said, re.M)
    preempted = False
    for answer in answers:
        status, said, _ = explain(log, "--request", answer["id"])
        assert status == 0
        assert f"({answer['id']})" in said
        assert f"ends after {answer['usage']['completion_tokens']} generated tokens" in said
        if "is preempted" in said:
            preempted = True
            assert re.search(r"no\s+block\s+was\s+left\s+for", said) and "runs again (slot" in said
            assert re.search(r"waits\s+\d+\s+step", said)
    assert preempted
    status, _, error = explain(log, "--request", "chatcmpl-none")
    assert status != 0 and "--request: no request chatcmpl-none in this log (" in error


def test_the_page_is_one_file(page):
    html, _ = page
    assert not re.search(r"https?:|\bsrc=|@import|url\(", html)
    assert html.count("<script") == 2 and "default-src 'none'" in html


def test_the_page_names_the_requests(served, page):
    log, answers = served
    _, data = page
    added = [record for record in read_log(log) if record[0] == "add"]
    assert [(int(r["id"]), r["prompt"], r["max"], r["name"]) for r in data["requests"]] == [r[1:] for r in added]
    by_name = {request["name"]: request for request in data["requests"]}
    for answer in answers:
        request = by_name[answer["id"]]
        assert request["tokens"] == answer["usage"]["completion_tokens"]
        assert request["end"] == "length"
        assert request["hit"] == answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert 0 < request["ttft_us"] < request["total_us"]


def test_the_page_has_the_blocks_of_the_log(served, page):
    """Holders of every block at every step, from the log's decisions and from the page's changes."""
    log, _ = served
    _, data = page
    ids = [int(request["id"]) for request in data["requests"]]
    steps = data["last"]
    assert data["first"] == 1 and data["check"]["same"] and data["run"]["ended_well"]
    frames = changes(data, "blocks", steps)
    held, cached = column(data, "held"), column(data, "cached")
    shown = collections.defaultdict(set)
    in_cache = set()

    def show():
        for kind, block, request in next(frames):
            if kind == TAKE:
                shown[block].add(ids[request])
                in_cache.discard(block)
            elif kind in (DROP, DROP_TO_CACHE):
                shown[block].remove(ids[request])
                if kind == DROP_TO_CACHE:
                    assert not shown[block]
                    in_cache.add(block)
            elif kind == EVICTED:
                in_cache.remove(block)
            else:
                raise AssertionError(f"change {kind} in the first step")

    logged = collections.defaultdict(set)
    records = [record for record in read_log(log) if record[0] != "cause"]
    step = 0
    for i, record in enumerate(records):
        if record[0] == "plan":
            step += 1
        elif record[0] == "decision":
            _, kind, seq, block, _ = record
            if kind in (ALLOCATE, SHARE):
                assert seq not in logged[block]
                logged[block].add(seq)
            elif kind == RELEASE:
                logged[block].remove(seq)
        is_last = step > 0 and record[0] in ("plan", "decision") and records[i + 1][0] == "commit"
        if not is_last:
            continue
        show()
        assert {block: owners for block, owners in shown.items() if owners} == \
               {block: owners for block, owners in logged.items() if owners}
        assert held[step - 1] == sum(1 for owners in logged.values() if owners) <= NUM_BLOCKS
        assert cached[step - 1] == len(in_cache) and held[step - 1] + len(in_cache) <= NUM_BLOCKS
    assert step == steps == len(held)
    show()  # what came after the last plan
    assert not any(shown.values()) and not any(logged.values())
    assert in_cache


def test_the_page_has_the_decisions_of_the_log(served, page):
    log, _ = served
    _, data = page
    ids = [int(request["id"]) for request in data["requests"]]
    numbers = Numbers(base64.b64decode(data["events"]))
    shown = []
    for step in range(1, data["last"] + 1):
        for _ in range(numbers.next()):
            kind, request, a, b, cause = (numbers.next() for _ in range(5))
            shown.append((step, kind, ids[request - 1], a, b))
            assert (kind == PREEMPT) == (cause > 0) and cause <= len(data["causes"])
    assert not numbers.more()
    step = 0
    logged = []
    for record in read_log(log):
        step += record[0] == "plan"
        if record[0] == "decision" and record[1] not in (ADD, ALLOCATE, SHARE, RELEASE, EVICT):
            logged.append((step, *record[1:]))
    # One-token decodes are in the requests' phases instead; a chunk of one token may be either.
    assert [d for d in shown if d[1] != CHUNK] == [d for d in logged if d[1] != CHUNK]
    assert set(shown) <= set(logged)
    assert {d for d in logged if d[1] == CHUNK and d[4] > 1} <= set(shown)


def test_the_phases_are_those_of_the_log(served, page):
    """Who runs and waits in each step, as the log's admissions, preemptions and ends have it."""
    log, _ = served
    _, data = page
    running, waiting = column(data, "running"), column(data, "waiting")
    counts = [[0, 0] for _ in running]
    for request in data["requests"]:
        numbers = Numbers(base64.b64decode(request["segments"]))
        step = numbers.next()
        waited = 0
        while numbers.more():
            phase, _, _, steps = numbers.next() % 8, numbers.next(), numbers.next(), numbers.next()
            waits = phase in (0, 4, 5)
            waited += steps * waits
            for at in range(step, step + steps):
                counts[at - 1][waits] += 1
            step += steps
        assert waited == sum(steps for _, steps in request["waited"])
        assert step - 1 == request["ended"]
    assert counts == [list(pair) for pair in zip(running, waiting)]
    now = {"running": set(), "waiting": set()}
    step = 0
    records = [record for record in read_log(log) if record[0] != "cause"]
    for i, record in enumerate(records):
        step += record[0] == "plan"
        if record[0] == "decision":
            _, kind, seq, _, _ = record
            if kind in (ADD, PREEMPT):
                now["running"].discard(seq)
                now["waiting"].add(seq)
            elif kind == ADMIT:
                now["waiting"].remove(seq)
                now["running"].add(seq)
            elif kind == FINISH:
                now["running"].discard(seq)
                now["waiting"].discard(seq)
        if records[min(i + 1, len(records) - 1)][0] == "commit":
            assert (len(now["running"]), len(now["waiting"])) == (running[step - 1], waiting[step - 1])


def test_a_torn_log_is_told_as_far_as_it_goes(tmp_path):
    log = tmp_path / "whole.log"
    subprocess.run([QUIRE, "simulate", "--requests", "300", "--rate", "50", "--decision-log", log], check=True,
                   capture_output=True, cwd=ROOT)
    assert log.read_bytes().count(b"QBLK") > 2
    torn = tmp_path / "torn.log"
    torn.write_bytes(log.read_bytes()[:-1000])
    status, said, _ = explain(torn)
    assert status == 0 and said.startswith("The log ends before the run did")
    status, _, error = explain(torn, "--html", tmp_path / "torn.html")
    assert status == 0, error
    torn.write_bytes(log.read_bytes()[:100])
    status, _, error = explain(torn)
    assert status != 0 and "ends within its first line" in error and error.count("\n") == 1


def test_rows_are_chosen(served):
    log, _ = served
    rows = {}
    for by in ("waited", "preempted", "again", "cached", "id"):
        status, said, error = explain(log, "--sort", by, "--top", 5)
        assert status == 0, error
        rows[by] = re.findall(r"^ +(\d+) +\d+ +(\d+) .* max_tokens reached", said, re.M)
        assert len(rows[by]) == 5 and f"the 5 of {NUM_REQUESTS} requests" in said
    assert [int(i) for i, _ in rows["id"]] == sorted(int(i) for i, _ in rows["id"])
    cached = [int(tokens) for _, tokens in rows["cached"]]
    assert cached == sorted(cached, reverse=True) and cached[0] > 0
    for flags in (("--sort", "x"), ("--top", "0"), ("--request", ""), ("--request", "#")):
        status, _, error = explain(log, *flags)
        assert status != 0 and error.strip()


def test_a_changed_log_is_found(served, tmp_path):
    """A block number of a decision is another, and the checksums are right: the table cannot tell, the replay does and
    says where."""
    log, _ = served
    line, records = read_blocks(log)
    for at in range(len(records) // 2, len(records)):
        changed = records[:at] + bytes([records[at] ^ 1]) + records[at + 1:]
        (tmp_path / "changed.log").write_bytes(one_block(line, changed))
        status, said, _ = explain(tmp_path / "changed.log", "--replay")
        found = None
        if status == 0:
            continue  # an input on which no decision hangs: a name, the time of a commit; or a cause
        assert status == 1
        found = re.match(r'decision [\d,]+, in step [\d,]+, differs: the log has "[^"]+"( of request \S+)?, and replaying it gives "', said)
        if found:
            break
    assert found


def test_every_damage_is_reported(served, tmp_path):
    log, _ = served
    data = log.read_bytes()
    for at in range(0, len(data), len(data) // 40):
        (tmp_path / "damaged.log").write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1:])
        for flags in ([], ["--replay"], ["--request", "1"]):
            status, _, error = explain(tmp_path / "damaged.log", *flags)
            assert status == 1 and error.count("\n") == 1 and "damaged.log" in error, (at, flags)


def test_a_live_log_and_one_after_a_kill(tmp_path):
    """A server's log has what happened up to the last second, while it runs and after it was killed."""
    log = tmp_path / "live.log"
    with QuireServer("--device", "sim", "--decision-log", log) as server:
        answer = ask(server, 1)
        for _ in range(100):
            status, said, _ = explain(log, "--request", answer["id"])
            if status == 0 and "ends after" in said:
                break
            time.sleep(0.1)
        assert status == 0 and said.startswith("The log ends before the run did"), said
        assert f"ends after {answer['usage']['completion_tokens']} generated tokens" in said
        answer = ask(server, 2)
        time.sleep(3)
        server.process.kill()
        server.process.wait(30)
    status, said, _ = explain(log, "--request", answer["id"])
    assert status == 0 and f"ends after {answer['usage']['completion_tokens']} generated tokens" in said
    status, said, _ = explain(log, "--replay")
    assert status == 0 and "as far as it goes" in said


def sizes(log):
    return {path.name: path.stat().st_size for path in log.parent.iterdir() if path.name.startswith(log.name)}


def test_a_log_with_a_limit_keeps_its_end(tmp_path):
    """Of a server that is killed: the parts need no more than the limit, and what is kept is told and made again."""
    log, limit = tmp_path / "run.log", 64 << 10
    (tmp_path / "run.log.9").write_bytes(b"")  # of a former log
    with QuireServer("--device", "sim", "--sim-speed", 1000, "--num-blocks", NUM_BLOCKS, "--decision-log", log,
                     "--decision-log-max", "64KiB") as server:
        assert sizes(log).keys() == {"run.log"}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for burst in range(30):
                answers = list(pool.map(lambda i: ask(server, i), range(8 * burst, 8 * burst + 8)))
        time.sleep(1.5)
        live = sizes(log)
        assert len(live) > 2 and sum(live.values()) <= limit and "run.log.1" not in live, live
        status, said, _ = explain(log)
        assert status == 0 and said.startswith("The log begins after step ")
        server.process.kill()
        server.process.wait(30)
    status, said, error = explain(log, "--replay")
    assert status == 0, error
    assert said.startswith("Not replayed: the log begins after step ") and "\nChecked: the checksums" in said
    status, said, _ = explain(log)
    assert re.search(r"earlier\s+parts\s+were\s+deleted\s+\(--decision-log-max\)", said), said
    assert "The log ends before the run did" in said
    status, said, _ = explain(log, "--request", answers[-1]["id"])
    assert status == 0 and f"ends after {answers[-1]['usage']['completion_tokens']} generated tokens" in said
    status, _, error = explain(log, "--html", tmp_path / "tail.html")
    assert status == 0, error
    data = json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>',
                                (tmp_path / "tail.html").read_text(), re.S)[1])
    assert data["first"] > 1 and data["check"] is None and "parts were deleted" in data["run"]["late_begin"]
    first = next(changes(data, "blocks", data["last"] - data["first"] + 1))
    assert [kind for kind, _, _ in first].count(IS_CACHED) > 3
    single = min(path for path in tmp_path.glob("run.log.*"))
    status, said, _ = explain(single)
    assert status == 0 and said.startswith(f"This is part {single.suffix[1:]} of a log")
    status, said, _ = explain(single, "--replay")
    assert status == 0 and said.startswith("Not replayed")
    damaged = bytearray(single.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    single.write_bytes(damaged)
    status, _, error = explain(log, "--replay")
    assert status == 1 and str(single) in error
    status, _, error = explain(log, "--html", single)
    assert status != 0 and "this is the log itself" in error


def test_a_log_in_parts_with_its_beginning_is_replayed(tmp_path):
    """Whether a run is written in parts changes nothing of it."""
    flags = ["simulate", "--requests", "1500", "--rate", "2", "--num-blocks", "300", "--preemption-mode", "swap",
             "--swap-space", "0.1", "--eviction-policy", "s3fifo", "--steps-in-flight", "2", "--shared-prefix-len", "32"]
    digests = set()
    for name, limit in (("whole.log", []), ("parts.log", ["--decision-log-max", "8MiB"])):
        log = tmp_path / name
        subprocess.run([QUIRE, *flags, "--decision-log", log, *limit], check=True, capture_output=True, cwd=ROOT)
        status, said, error = explain(log, "--replay")
        assert status == 0 and said.startswith("Checked: replaying the log gives the same"), said + error
        digests.add(re.search(r"digest ([0-9a-f]{16})", said)[1])
    assert len(digests) == 1
    assert (tmp_path / "parts.log.1").exists()


@pytest.mark.parametrize("flags,why", [
    (["--decision-log-max", "1MiB"], "--decision-log"),
    (["--decision-log", "LOG", "--decision-log-max", "1KiB"], "--decision-log-max: 1KiB is less than 64.0 KiB"),
    (["--decision-log", "LOG", "--decision-log-max", "much"], "--decision-log-max"),
    (["--decision-log", "/dev/null", "--decision-log-max", "1MiB"], "/dev/null: is not a regular file"),
    (["--decision-log", "TAKEN", "--decision-log-max", "1MiB"], "taken.2: is not a part of a decision log"),
])
def test_limits_that_cannot_be_kept_are_refused(tmp_path, flags, why):
    (tmp_path / "taken.2").write_text("mine")
    names = {"LOG": tmp_path / "run.log", "TAKEN": tmp_path / "taken"}
    done = subprocess.run([QUIRE, "simulate", "--requests", "3", *(str(names.get(flag, flag)) for flag in flags)],
                          capture_output=True, cwd=ROOT)
    message = done.stderr.decode()
    assert done.returncode != 0 and why in message and message.count("\n") == 1, message
    assert (tmp_path / "taken.2").read_text() == "mine"


def test_a_part_of_the_run(served, tmp_path):
    out = tmp_path / "part.html"
    status, said, _ = explain(served[0], "--html", out, "--steps", "5-14")
    assert status == 0 and "it shows steps 5 to 14 of" in said
    for steps in ("x", "9-3", "900000-", "-", "0-5", ""):
        status, _, error = explain(served[0], "--html", out, "--steps", steps)
        assert status != 0 and error.count("\n") == 1
        assert "18446744073709551615" not in error


def test_a_run_that_began_with_a_restored_cache(tmp_path):
    kept, log, out = tmp_path / "prefix.cache", tmp_path / "warm.log", tmp_path / "warm.html"
    for flags in ((), ("--decision-log", log)):
        with QuireServer("--num-blocks", NUM_BLOCKS, "--prefix-cache-file", kept, *flags) as server:
            ask(server, 1)
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(30) == 0
    status, said, error = explain(log, "--html", out)
    assert status == 0, error
    data = json.loads(re.search(r'<script type="application/json" id="run">(.*?)</script>', out.read_text(), re.S)[1])
    restored = data["run"]["restored"]
    assert restored > 1 and data["check"]["same"] and data["requests"][0]["hit"] > 0
    first = next(changes(data, "blocks", data["last"]))
    assert [kind for kind, _, _ in first].count(IS_CACHED) == restored
    status, said, _ = explain(log)
    assert status == 0 and f"began with {restored} blocks of the prefix cache" in said
    assert "at most 24 of 24" not in said
