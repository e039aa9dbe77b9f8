"""The limits of a container: the K/V pool fits into a memory cgroup and lives there, whatever its page cache holds."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from server import MODEL, MODEL_NAME, QUIRE, QuireServer
from test_cli import quire

MIB = 1 << 20
LIMIT = 400 * MIB
LONG = 32768  # tokens: by default 64 such sequences take 6 GiB of K/V


def own_group(controllers):
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controllers in names.split(","):
            return path.lstrip("/")
    return None


class MemoryGroup:
    """A memory cgroup of this test's own, v1 or v2; removed at the end."""

    def __init__(self, limit):
        if os.geteuid() != 0:
            pytest.skip("SKIPPED, only root may make a memory cgroup")
        self.v1 = own_group("memory") is not None
        if self.v1:
            parent = pathlib.Path("/sys/fs/cgroup/memory") / own_group("memory")
        else:
            parent = pathlib.Path("/sys/fs/cgroup")
        self.dir = parent / f"quire-test-{os.getpid()}"
        try:
            self.dir.mkdir()
            (self.dir / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(limit))
        except OSError as error:
            if self.dir.exists():
                self.dir.rmdir()
            pytest.skip(f"SKIPPED, no memory cgroup can be made here: {error}")

    def enter(self):
        (self.dir / "cgroup.procs").write_text(str(os.getpid()))

    def number(self, key):
        for line in (self.dir / "memory.stat").read_text().splitlines():
            if line.startswith(key + " "):
                return int(line.split()[1])
        raise KeyError(key)

    def cached(self):
        prefix = "total_" if self.v1 else ""
        return self.number(prefix + "inactive_file") + self.number(prefix + "active_file")

    def peak(self):
        file = self.dir / ("memory.max_usage_in_bytes" if self.v1 else "memory.peak")
        return int(file.read_text()) if file.exists() else 0

    def close(self):
        self.dir.rmdir()


@pytest.fixture
def group():
    made = MemoryGroup(LIMIT)
    yield made
    made.close()


@pytest.fixture
def long_model(tmp_path):
    path = shutil.copytree(MODEL, tmp_path / MODEL_NAME)
    config = json.loads((path / "config.json").read_text())
    config["max_position_embeddings"] = LONG
    (path / "config.json").write_text(json.dumps(config))
    return path


def blocks_of(server):
    return int(re.search(r"K/V: ([\d,]+) blocks", server.output())[1].replace(",", ""))


def drop_from_cache(*files):
    os.sync()
    for file in files:
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_inside(group, *files):
    """Their pages are the group's from then on."""
    code = "import sys\nfor name in sys.argv[1:]:\n  file = open(name, 'rb')\n  while file.read(1 << 20): pass"
    subprocess.run([sys.executable, "-c", code, *map(str, files)], preexec_fn=group.enter, check=True, timeout=120)


def test_the_pool_is_the_same_with_a_cold_and_a_warm_page_cache(group, long_model, tmp_path):
    weights = long_model / "model.safetensors"
    ballast = tmp_path / "ballast"
    ballast.write_bytes(os.urandom(MIB) * 450)
    drop_from_cache(weights, ballast)
    with QuireServer(model=long_model, preexec_fn=group.enter) as server:
        cold = blocks_of(server)
    drop_from_cache(weights, ballast)
    read_inside(group, weights, ballast)
    assert group.cached() > LIMIT / 2
    with QuireServer(model=long_model, preexec_fn=group.enter) as server:
        warm = blocks_of(server)
    print(f"blocks: cold {cold}, warm {warm}")
    block = 16 * 3072
    assert 0.3 * LIMIT < cold * block < 0.5 * LIMIT
    assert abs(cold - warm) * block < 2 * MIB  # the system's own bookkeeping


def test_a_kept_file_of_weights_is_not_taken_for_free_memory(group, tmp_path):
    model = shutil.copytree(MODEL, tmp_path / MODEL_NAME)
    config = json.loads((model / "config.json").read_text())
    config["max_position_embeddings"] = LONG
    (model / "config.json").write_text(json.dumps(config))
    with QuireServer("--pack-cache", "--dtype", "f32", model=model, preexec_fn=group.enter) as server:
        packed = blocks_of(server)
    with QuireServer("--pack-cache", "--dtype", "f32", model=model, preexec_fn=group.enter) as server:
        assert "the packed weights are those of" in server.output()
        mapped = blocks_of(server)
    assert abs(packed - mapped) * 16 * 6144 < 4 * MIB


def complete(url, client):
    body = {"model": MODEL_NAME, "prompt": f"{client} " * 40 + "Once upon a time", "max_tokens": 400, "ignore_eos": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def test_64_clients_are_served_in_400_mib(group, long_model):
    with QuireServer(model=long_model, preexec_fn=group.enter) as server:
        pool = blocks_of(server)
        with concurrent.futures.ThreadPoolExecutor(64) as clients:
            for first in range(0, 384, 64):  # their K/V is more than the group has
                done = list(clients.map(lambda each: complete(server.url, each), range(first, first + 64)))
                assert done == [400] * 64
        assert server.process.poll() is None
        server.wait_until_idle()
        print(f"pool {pool} blocks, peak {group.peak() / MIB:.0f} MiB")
        assert server.stop() == 0


def ask_for_objects(url, size):
    """The status of a body that is many times as large when it is parsed; None if there was no answer."""
    unit, begin, end = b'{"":0}', b'{"prompt":[', b"]}"
    body = begin + b",".join([unit] * ((size - len(begin) - len(end)) // (len(unit) + 1))) + end
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, http.client.HTTPException):
        return None


def test_bodies_that_grow_when_they_are_parsed_fit_too(group, long_model):
    with QuireServer(model=long_model, preexec_fn=group.enter) as server:
        print([line for line in server.output().splitlines() if "bodies" in line])
        # The largest that is taken; a server without such a limit of its own takes 16 MB.
        said = re.search(r"a request body may have ([\d.]+) ([KM]iB)", server.output())
        largest = int(float(said[1]) * {"KiB": 1 << 10, "MiB": MIB}[said[2]] * 0.95) if said else 16_000_000
        for size in (16_000_000, largest):
            with concurrent.futures.ThreadPoolExecutor(4) as clients:
                statuses = list(clients.map(lambda _, size=size: ask_for_objects(server.url, size), range(4)))
            print(f"4 bodies of {size / MIB:.1f} MiB: {statuses}, peak {group.peak() / MIB:.0f} MiB")
            assert server.process.poll() is None, "it was killed"
            assert set(statuses) <= {400, 413, 503, None}
        assert [complete(server.url, client) for client in range(4)] == [400] * 4
        assert server.stop() == 0


def test_what_is_given_beyond_the_limit_warns(group, long_model):
    cases = [(["--kv-cache-memory", "1.5GiB"], "--kv-cache-memory: K/V takes 1.5 GiB"),
             (["--num-blocks", "20000"], "--num-blocks: K/V takes 937.5 MiB")]
    for flags, said in cases:
        with QuireServer(*flags, model=long_model, preexec_fn=group.enter) as server:
            output = server.output()
            assert said in output and str(group.dir) in output, output
    with QuireServer("--preemption-mode", "swap", "--swap-space", "1GiB", model=long_model, preexec_fn=group.enter) as server:
        assert "--swap-space: K/V takes 1.2 GiB" in server.output(), server.output()
    with QuireServer("--kv-cache-memory", "100MiB", model=long_model, preexec_fn=group.enter) as server:
        assert "K/V takes" not in server.output()


def test_threads_are_those_that_may_run():
    one = [min(os.sched_getaffinity(0))]
    said = quire("run", MODEL, "-p", "Once", "--max-tokens", 2, "-v", preexec_fn=lambda: os.sched_setaffinity(0, one))
    assert "on 1 threads" in said.stderr.decode()
    said = quire("run", MODEL, "-p", "Once", "--max-tokens", 2, "--threads", 3, "-v",
                 preexec_fn=lambda: os.sched_setaffinity(0, one))
    assert "--threads: 3 threads share 1 CPUs (the CPU affinity)" in said.stderr.decode()
    assert "on 3 threads" in said.stderr.decode()


@pytest.mark.parametrize("flags", [["--num-blocks", "2000000000"], ["--kv-cache-memory", "9TiB"],
                                   ["--device", "sim", "--num-blocks", "120000000"]])
def test_memory_that_is_not_there_is_told_in_a_line(flags):
    def little_memory():
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    done = subprocess.run([QUIRE, "serve", str(MODEL), "--port", "0", *flags], preexec_fn=little_memory,
                          capture_output=True, timeout=120)
    said = done.stderr.decode()
    assert done.returncode == 1, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("quire: ") and "out of memory" in last and "bad_alloc" not in said, said
