#!/usr/bin/env python3
"""Tests and measures quire's CUDA backend on this machine's first GPU, within 8 minutes and without a network: ptx.h, the kernels
against the CPU's reference, whole forward passes, the executor, compute-sanitizer where it is, then times, of kernels and of the
engine over a model of a known shape (2.5 GB here while it runs), with what of it meets the aims. Writes result.md here.

run [FOLDER]   FOLDER: where libcublasLt.so.13 or .12 lies, if not in a usual place (a CUDA toolkit, PyTorch's packages).

Exit status: 0 all passed, 1 something did not, 2 nothing can run here.
"""
import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import gpu_aims

HERE = pathlib.Path(__file__).resolve().parent
TEST = HERE / "bin/device_test"
BENCH = HERE / "bin/gpu_bench"
QUIRE = HERE / "bin/quire"
EAGER = HERE / "gpu_eager.py"
DEMO = "models/llama-quire-stories-5m"
ON_DEVICE = ["--device", "cuda"]
LIBRARIES = ["libcublasLt.so.13", "libcublasLt.so.12"]
KERNELS = "*Kernels.*:*FewRows.*:Experts.*:*Int8*.*:*Int4*.*:*DecodeAttention*:*PagedAttention*:*TilesOfBothSizes*:Sample*.*:DeviceSampler.*"
# A sanitizer makes kernels a hundred times as slow.
FEW_KERNELS = "*Kernels.*/bf16:*DecodeAttention.*bf16_dim64_kv1_group4*:*PagedAttention.*bf16_dim64_kv1_group4*:Sample.TokensThatAreLateCount"
# Together less than 8 minutes.
STAGES = [  # name, filter of the tests, seconds
    ("ptx.h", "Ptx.*", 10),
    ("kernels", KERNELS, 30),
    ("forward pass", "*Families.*:ForwardPass.*", 25),
    ("executor", "*DeviceBits*:DeviceText.*:*GoldenText*:DeviceTokens.*:DeviceStories.*:BlockCopier.*:BlockMover.*:PassGraphs.*:DeviceBackend.*", 30),
]
SANITIZER_STAGES = [("memcheck", 25), ("racecheck", 25)]
# Parts of gpu_bench.
MEASUREMENTS = [("attention", 15), ("small moving sampling swap", 15), ("gemms experts", 25), ("steps", 20), ("executor", 20)]
# The engine over a model of Llama-3.2-1B's shape with random weights: at once, and for clients over HTTP.
SHAPE = "llama-3.2-1b"
SHORT = ["--max-model-len", "1024"]
DEMO_LIMIT = 15
MAKING = ("a model of that shape", 25)
LOADS = [  # sequences at once, options, requests, seconds
    (1, [], 4, 20),
    (64, [], 128, 20),
    (64, ["--fast-gemm"], 128, 15),  # what equal bits in every batch cost
    (256, [], 512, 20),
    (1, ["--quantization", "int8"], 4, 15),
    (1, ["--quantization", "int4"], 4, 15),
]
SERVING = [(1, "1 client over HTTP"), (64, gpu_aims.HTTP)]
SERVING_LIMIT = 45
PROMPT, OUTPUT = 256, 128  # tokens of a client's request
EAGER_LIMIT = 40
MISSING = 77  # the exit status of a stage for which something is not here
KEPT_LINES = 60  # of the output of a stage that fails


def find_library(given):
    """The folder of cuBLASLt, or None."""
    places = [given, f"{given}/lib64", f"{given}/lib"] if given else []
    home = os.environ.get("CUDA_HOME")
    places += [f"{home}/lib64"] if home else []
    patterns = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
    packages = [path for path in sys.path if path] + ["/opt/conda/lib/python3*/site-packages", "/usr/lib/python3*/site-packages",
                "/usr/local/lib/python3*/*-packages", os.path.expanduser("~/.local/lib/python3*/site-packages")]
    patterns += [f"{folder}/{rest}" for folder in packages for rest in ("nvidia/*/lib", "torch/lib")]
    for pattern in patterns:
        places += sorted(glob.glob(pattern))
    for name in LIBRARIES:
        for place in places:
            if os.path.exists(f"{place}/{name}"):
                return place
    return None


def find_sanitizer():
    places = [os.environ.get("PATH", ""), *sorted(glob.glob("/usr/local/cuda*/bin"), reverse=True)]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def environment(library):
    # The libraries that are packed beside the programs; quire does not look there by itself.
    libraries = [str(HERE / "bin"), *filter(None, [os.environ.get("LD_LIBRARY_PATH"), library])]
    # CUDA's first device is then nvidia-smi's.
    out = dict(os.environ, QUIRE_DATA=str(HERE / "data"), LD_LIBRARY_PATH=":".join(libraries), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    out.pop("QUIRE_CUBLASLT", None)
    if library:
        out["QUIRE_CUBLASLT"] = library
    return out


def ask_driver(what):
    """Of the first device, or None."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    try:
        asked = ["nvidia-smi", "-i", first, f"--query-gpu={what}", "--format=csv,noheader,nounits"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
        return said.split("\n")[0].strip()
    except (OSError, subprocess.SubprocessError):
        return None


class PeakMemory:
    """The most MiB of the device that were taken while it was open, by anyone; None without nvidia-smi."""

    def __enter__(self):
        self.most = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while True:
            used = ask_driver("memory.used")
            if used is None or not used.isdigit():
                return
            self.most = max(self.most or 0, int(used))
            if self.ended.wait(0.3):  # seldom enough to leave the load alone
                return

    def __exit__(self, *unused):
        self.ended.set()
        self.thread.join()


class Stage:
    """A command that ran, or did not."""

    def __init__(self, name, command, limit, env):
        self.name = name
        begin = time.monotonic()
        try:
            # A session of its own, so that what a sanitizer has started ends with it.
            running = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, cwd=HERE, env=env, start_new_session=True)
            self.wait(running, limit)
        except OSError as error:
            self.output, self.status, self.verdict = str(error), -1, "**failed**: does not start"
        self.seconds = time.monotonic() - begin
        # A filter that no longer fits any test must not look like success.
        if self.status == 0 and "--gtest_filter" in str(command) and not self.counts()[0]:
            self.status, self.verdict = -1, "**failed**: ran no test"
        # All that tests read is packed.
        if self.status == 0 and self.counts()[1]:
            self.status, self.verdict = -1, "**failed**: skipped tests"

    def wait(self, running, limit):
        try:
            output, _ = running.communicate(timeout=limit)
            self.status = running.returncode
            self.verdict = {0: "passed", MISSING: "skipped"}.get(self.status, f"**failed** (exit status {self.status})")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            output, _ = running.communicate()
            self.status, self.verdict = -1, f"**failed**: not done within {limit} s"
        self.output = output.decode(errors="replace")

    def counts(self):
        """Tests that passed, were skipped, failed."""
        def number(pattern):
            found = re.search(pattern, self.output, re.M)
            return int(found[1]) if found else 0
        return number(r"^\[  PASSED  \] (\d+) test"), number(r"^\[  SKIPPED \] (\d+) test"), number(r"^\[  FAILED  \] (\d+) test")

    def row(self):
        passed, skipped, failed = self.counts()
        tests = f"{passed} passed, {failed} failed, {skipped} skipped" if passed + skipped + failed else ""
        return f"| {self.name} | {self.verdict} | {tests} | {self.seconds:.1f} |"

    def failed(self):
        return self.status not in (0, MISSING)

    def failures(self):
        """The names of the tests that failed or were skipped, once each."""
        named = re.findall(r"^\[  (?:FAILED |SKIPPED) \] ([\w/.]+)", self.output, re.M)
        return [name for name in dict.fromkeys(named) if not name.isdigit()]


def say(stage):
    plain = stage.verdict.replace("*", "")
    print(f"{stage.name}: {plain}, {stage.seconds:.1f} s", flush=True)
    for name in stage.failures():
        print(f"  {name}", flush=True)


def run_stages(env):
    """(the stages that test, those that measure)"""
    tests = []
    measured = []

    def add(stages, *arguments):
        stages.append(Stage(*arguments, env))
        say(stages[-1])
    for name, tested, limit in STAGES:
        add(tests, name, [TEST, f"--gtest_filter={tested}"], limit)
    sanitizer = find_sanitizer()
    for tool, limit in SANITIZER_STAGES if sanitizer else []:
        add(tests, f"kernels under compute-sanitizer {tool}",
            [sanitizer, "--tool", tool, "--error-exitcode", "3", TEST, f"--gtest_filter={FEW_KERNELS}"], limit)
    if not sanitizer:
        print("compute-sanitizer is not here: the kernels are not run under it", flush=True)
    for parts, limit in MEASUREMENTS:
        add(measured, f"times: {parts}", [BENCH, *parts.split()], limit)
    for stage in run_engine(env):
        measured.append(stage)
        say(stage)
    return tests, measured


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(model, env):
    """A server over the model, once it answers: the loads of its clients as stages, as they are done."""
    port = free_port()
    end = time.monotonic() + SERVING_LIMIT
    with open(HERE / "server.log", "wb") as log:
        server = subprocess.Popen([QUIRE, "serve", model, *ON_DEVICE, *SHORT, "--port", str(port)], stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL, cwd=HERE, env=env, start_new_session=True)
    try:
        while server.poll() is None and time.monotonic() < end - SERVING_LIMIT / 2:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        peaks = {}
        for clients, name in SERVING:
            load = [QUIRE, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--concurrency", clients, "--requests", 4 * clients,
                    "--prompt-len", PROMPT, "--output-len", OUTPUT]
            with PeakMemory() as memory:
                stage = Stage(name, load, max(1, end - time.monotonic()), env)
            if stage.failed():
                stage.output += "\nThe server:\n" + (HERE / "server.log").read_text(errors="replace")
            elif memory.most is not None:
                peaks[clients] = memory.most
                stage.output = f"{stage.output.rstrip()}\n{gpu_aims.memory_line(peaks)}\n"
            yield stage
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def load_engine(model, folder, env):
    """Stages of the engine in its own process, as they are done."""
    for sequences, options, requests, limit in LOADS:
        log = pathlib.Path(folder) / f"steps-{sequences}{''.join(options)}.log"
        load = [QUIRE, "bench", "throughput", model, *ON_DEVICE, *SHORT, *options, "--max-num-seqs", sequences, "--requests", requests,
                "--prompt-len", 384, "--output-len", 128, "--step-log", log]
        name = ", ".join([gpu_aims.engine(sequences), *[" ".join(options)] * bool(options)])
        stage = Stage(name, load, limit, env)
        if not stage.failed() and log.exists():
            stage.output = f"{stage.output.rstrip()}\n{gpu_aims.full_steps(log.read_text(), sequences)}\n"
        yield stage


def run_engine(env):
    """Stages of the whole program: the demo model's text, then a model of a known shape under load, as they are done."""
    text = [QUIRE, "bench", "throughput", DEMO, *ON_DEVICE, "--requests", 64, "--prompt-len", 64, "--output-len", 64]
    yield Stage("engine: the demo model", text, DEMO_LIMIT, env)
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        model = f"{folder}/{SHAPE}"
        made = Stage(MAKING[0], [QUIRE, "make-model", SHAPE, model], MAKING[1], env)
        yield made
        if made.failed():
            return
        made.output = ""  # a place that is gone by then
        yield from load_engine(model, folder, env)
        yield from serve(model, env)
        # Without our folders: PyTorch has libraries of its own.
        yield Stage(gpu_aims.EAGER, [sys.executable, EAGER, model, PROMPT, OUTPUT], EAGER_LIMIT, dict(os.environ))


def write_result(facts, library, tests, measured, seconds):
    commit = (HERE / "commit").read_text().strip() if (HERE / "commit").exists() else "unknown"
    sanitized = any("sanitizer" in stage.name for stage in tests)
    lines = [f"# quire on {facts.split(',')[0]}", "",
             f"Written by `run` of `./dev gpu pack`, commit {commit}, on {time.strftime('%Y-%m-%d')}.", "",
             f"- Device: {facts}", f"- Driver: {ask_driver('driver_version') or 'unknown (no nvidia-smi)'}",
             f"- cuBLASLt: {os.path.basename(os.path.realpath(glob.glob(library + '/libcublasLt.so.1[23]')[-1])) if library else 'not found'}",
             f"- compute-sanitizer: {'yes' if sanitized else 'not on this machine'}", "",
             "| stage | result | tests | seconds |", "|---|---|---|--:|", *[stage.row() for stage in tests + measured], "",
             f"All of it took {seconds:.0f} s.", ""]
    for stage in tests + measured:
        if stage.failed():
            kept = "\n".join(stage.output.splitlines()[-KEPT_LINES:])
            lines += [f"## What failed: {stage.name}", "", *[f"- {name}" for name in stage.failures()], "", "```", kept, "```", ""]
    passed = {stage.name: stage.output for stage in measured if stage.status == 0}
    lines += ["## Aims", "", *gpu_aims.table(passed), "", "## Times", ""]
    for stage in measured:
        if stage.failed() or not stage.output.strip():
            continue
        is_engine = not stage.name.startswith("times: ")
        lines += [f"### {stage.name}", "", "```", stage.output.rstrip(), "```", ""] if is_engine else [stage.output]
    (HERE / "result.md").write_text("\n".join(lines))


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    begin = time.monotonic()
    library = find_library(sys.argv[1] if len(sys.argv) == 2 else None)
    env = environment(library)
    facts = Stage("the device", [BENCH, "--facts"], 5, env)
    if facts.status != 0:
        print(f"run: {(facts.output.strip().splitlines() or [facts.verdict])[0]}", file=sys.stderr)
        return 2
    print(facts.output.strip(), flush=True)
    if library is None:
        print("libcublasLt.so.13 or .12 is not in a usual place, and what multiplies matrices will fail: run FOLDER says where it is",
              flush=True)
    tests, measured = run_stages(env)
    write_result(facts.output.strip(), library, tests, measured, time.monotonic() - begin)
    failed = [stage.name for stage in tests + measured if stage.failed()]
    print(f"result.md is written; {'failed: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
