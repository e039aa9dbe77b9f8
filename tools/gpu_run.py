#!/usr/bin/env python3
"""Tests and measures quire's CUDA backend on this machine's first GPU, within 8 minutes and without a network: ptx.h, the kernels
against the CPU's reference, whole forward passes, the executor, compute-sanitizer where it is, then times, of kernels and of the
engine over a model of a known shape (2.5 GB here while it runs). Writes result.md here.

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
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TEST = HERE / "bin/device_test"
BENCH = HERE / "bin/gpu_bench"
QUIRE = HERE / "bin/quire"
DEMO = "models/llama-quire-stories-5m"
ON_DEVICE = ["--device", "cuda", "--max-model-len", "1024"]
LIBRARIES = ["libcublasLt.so.13", "libcublasLt.so.12"]
KERNELS = "*Kernels.*:*DecodeAttention*:*PagedAttention*:*TilesOfBothSizes*:Sample.*"
# A sanitizer makes kernels a hundred times as slow.
FEW_KERNELS = "*Kernels.*/bf16:*DecodeAttention.*bf16_dim64_kv1_group4*:*PagedAttention.*bf16_dim64_kv1_group4*:Sample.TokensThatAreLateCount"
# Together less than 8 minutes.
STAGES = [  # name, filter of the tests, seconds
    ("ptx.h", "Ptx.*", 15),
    ("kernels", KERNELS, 45),
    ("forward pass", "*Families.*:ForwardPass.*", 25),
    ("executor", "*DeviceBits*:DeviceText.*:DeviceTokens.*:DeviceStories.*:BlockMover.*:DeviceBackend.*", 40),
]
SANITIZER_STAGES = [("memcheck", 35), ("racecheck", 35)]
MEASUREMENTS = [("attention", 25), ("small", 10), ("gemms", 20), ("steps", 25)]
# The engine over a model of Llama-3.2-1B's shape with random weights: at once, and for clients over HTTP.
SHAPE = "llama-3.2-1b"
DEMO_LIMIT = 20
MAKING = ("a model of that shape", 30)
LOADS = [(1, 4, 30), (64, 128, 30), (256, 512, 35)]  # sequences at once, requests, seconds
CLIENTS = 64
SERVING = (f"{CLIENTS} clients over HTTP", 40)
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
    out = dict(os.environ, QUIRE_DATA=str(HERE / "data"), LD_LIBRARY_PATH=":".join(libraries))
    out.pop("QUIRE_CUBLASLT", None)
    if library:
        out["QUIRE_CUBLASLT"] = library
    return out


def driver():
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown (no nvidia-smi)"


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

    def wait(self, running, limit):
        try:
            output, _ = running.communicate(timeout=limit)
            self.status = running.returncode
            self.verdict = "passed" if self.status == 0 else f"**failed** (exit status {self.status})"
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
        return f"| {self.name} | {self.verdict} | {tests} | {self.seconds:.0f} |"

    def failures(self):
        """The names of the tests that failed, once each."""
        named = re.findall(r"^\[  FAILED  \] ([\w/.]+)", self.output, re.M)
        return [name for name in dict.fromkeys(named) if not name.isdigit()]


def say(stage):
    plain = stage.verdict.replace("*", "")
    print(f"{stage.name}: {plain}, {stage.seconds:.0f} s", flush=True)
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
    for part, limit in MEASUREMENTS:
        add(measured, f"times: {part}", [BENCH, part], limit)
    return tests, measured + run_engine(env)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(model, env):
    """A server over the model, once it answers: the load of its clients as a stage."""
    port = free_port()
    name, limit = SERVING
    begin = time.monotonic()
    with open(HERE / "server.log", "wb") as log:
        server = subprocess.Popen([QUIRE, "serve", model, *ON_DEVICE, "--port", str(port)], stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL, cwd=HERE, env=env, start_new_session=True)
    try:
        while server.poll() is None and time.monotonic() - begin < limit / 2:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        load = [QUIRE, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--concurrency", CLIENTS, "--requests", 4 * CLIENTS,
                "--prompt-len", 256, "--output-len", 128]
        stage = Stage(name, load, limit - (time.monotonic() - begin), env)
        if stage.status != 0:
            stage.output += "\nThe server:\n" + (HERE / "server.log").read_text(errors="replace")
        return stage
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def run_engine(env):
    """Stages of the whole program: the demo model's text, then a model of a known shape under load."""
    stages = []

    def add(stage):
        stages.append(stage)
        say(stage)
        return stage.status == 0
    text = [QUIRE, "bench", "throughput", DEMO, *ON_DEVICE, "--requests", 64, "--prompt-len", 64, "--output-len", 64]
    add(Stage("engine: the demo model", text, DEMO_LIMIT, env))
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        model = f"{folder}/{SHAPE}"
        if not add(Stage(MAKING[0], [QUIRE, "make-model", SHAPE, model], MAKING[1], env)):
            return stages
        for sequences, requests, limit in LOADS:
            load = [QUIRE, "bench", "throughput", model, *ON_DEVICE, "--max-num-seqs", sequences, "--requests", requests,
                    "--prompt-len", 384, "--output-len", 128]
            add(Stage(f"engine: {sequences} sequences of 384 + 128 tokens", load, limit, env))
        add(serve(model, env))
    return stages


def write_result(facts, library, tests, measured):
    commit = (HERE / "commit").read_text().strip() if (HERE / "commit").exists() else "unknown"
    sanitized = any("sanitizer" in stage.name for stage in tests)
    lines = [f"# quire on {facts.split(',')[0]}", "",
             f"Written by `run` of `./dev gpu pack`, commit {commit}, on {time.strftime('%Y-%m-%d')}.", "",
             f"- Device: {facts}", f"- Driver: {driver()}",
             f"- cuBLASLt: {os.path.basename(os.path.realpath(glob.glob(library + '/libcublasLt.so.1[23]')[-1])) if library else 'not found'}",
             f"- compute-sanitizer: {'yes' if sanitized else 'not on this machine'}", "",
             "| stage | result | tests | seconds |", "|---|---|---|--:|", *[stage.row() for stage in tests + measured], ""]
    for stage in tests + measured:
        if stage.status != 0:
            kept = "\n".join(stage.output.splitlines()[-KEPT_LINES:])
            lines += [f"## What failed: {stage.name}", "", *[f"- {name}" for name in stage.failures()], "", "```", kept, "```", ""]
    lines += ["## Times", ""]
    for stage in measured:
        if stage.status != 0:
            continue
        is_engine = not stage.name.startswith("times: ")
        lines += [f"### {stage.name}", "", "```", stage.output.rstrip(), "```", ""] if is_engine else [stage.output]
    (HERE / "result.md").write_text("\n".join(lines))


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    library = find_library(sys.argv[1] if len(sys.argv) == 2 else None)
    env = environment(library)
    facts = Stage("the device", [BENCH, "--facts"], 60, env)
    if facts.status != 0:
        print(f"run: {(facts.output.strip().splitlines() or [facts.verdict])[0]}", file=sys.stderr)
        return 2
    print(facts.output.strip(), flush=True)
    if library is None:
        print("libcublasLt.so.13 or .12 is not in a usual place, and what multiplies matrices will fail: run FOLDER says where it is",
              flush=True)
    tests, measured = run_stages(env)
    write_result(facts.output.strip(), library, tests, measured)
    failed = [stage.name for stage in tests + measured if stage.status != 0]
    print(f"result.md is written; {'failed: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
