"""tools/gpu_run.py, which ./dev gpu pack makes `run`, over programs that only play the real ones: no device is needed."""
import fnmatch
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = "NVIDIA Toy, compute capability 9.0, 1 GiB of 2 GiB free"
BENCH = """#!/bin/sh
[ "$1" = --facts ] && echo "%s" && exit 0
echo "### Times of $*"
""" % DEVICE
# Notes what it is asked for.
TESTS = """#!/bin/sh
echo "$1 in $PWD with $QUIRE_DATA and $QUIRE_CUBLASLT" >> asked
echo "[  PASSED  ] 3 tests."
"""
# What the engine's steps were: 64 sequences, first their prompts.
STEPS = [{"columns": ["decoding", "chunks", "whole"]}, [64, 1, 90_000_000], *[[64, 0, ms * 1_000_000] for ms in (1, 2, 9)]]
# Makes a model, is loaded, or serves until it is killed.
QUIRE = """#!/bin/sh
echo "$*" >> quire_asked
case "$1" in
  make-model) mkdir "$3" ;;
  serve) : > health; exec python3 -m http.server --bind 127.0.0.1 "${8}" ;;
  bench) echo "64 requests, 1000 output tokens/s"
    while [ $# -gt 1 ]; do [ "$1" = --step-log ] && cp steps "$2"; shift; done ;;
esac
"""
# Each time it is asked there is 1 MiB more.
SMI = """#!/bin/sh
case "$*" in
  *memory.used*) echo >> smi_asked; wc -l < smi_asked ;;
  *) echo 580.1 ;;
esac
"""
EAGER = """import sys
print("eagerly", sys.argv[2:], "20.0 output tokens/s")
"""
SANITIZER = """#!/bin/sh
echo "$2" >> sanitized
shift 4
exec "$@"
"""


@pytest.fixture
def pack(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "run").write_text((ROOT / "tools/gpu_run.py").read_text())
    (tmp_path / "gpu_aims.py").write_text((ROOT / "tools/gpu_aims.py").read_text())
    (tmp_path / "commit").write_text("abc123\n")
    (tmp_path / "steps").write_text("".join(json.dumps(line) + "\n" for line in STEPS))

    def run(*arguments, bench=BENCH, tests=TESTS, quire=QUIRE, eager=EAGER):
        (tmp_path / "gpu_eager.py").write_text(eager)
        tools = {"bin/gpu_bench": bench, "bin/device_test": tests, "bin/quire": quire, "tools/nvidia-smi": SMI,
                 "tools/compute-sanitizer": SANITIZER}
        (tmp_path / "tools").mkdir(exist_ok=True)
        for name, script in tools.items():
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
        done = subprocess.run([sys.executable, tmp_path / "run", *arguments], capture_output=True, text=True, cwd=tmp_path,
                              env={"PATH": f"{tmp_path / 'tools'}:/usr/bin:/bin"})
        result = tmp_path / "result.md"
        return done, result.read_text() if result.exists() else None
    return run


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


@pytest.fixture
def module(tool):
    return tool("gpu_run")


def test_all_pass(pack, tmp_path):
    library = tmp_path / "elsewhere/lib64"
    library.mkdir(parents=True)
    (library / "libcublasLt.so.13").write_text("")
    done, result = pack(str(tmp_path / "elsewhere"))
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == f"--gtest_filter=Ptx.* in {tmp_path} with {tmp_path}/data and {library}"
    assert len(asked) == 6 and (tmp_path / "sanitized").read_text().split() == ["memcheck", "racecheck"]
    assert result.startswith("# quire on NVIDIA Toy\n") and "abc123" in result and "580.1" in result
    assert re.search(r"^\| kernels \| passed \| 3 passed, 0 failed, 0 skipped \| \d\.\d \|$", result, re.M)
    assert re.search(r"^All of it took \d+ s\.$", result, re.M)
    for part in ("attention", "small moving sampling swap", "gemms experts", "steps", "executor"):
        assert f"### Times of {part}" in result
    assert "What failed" not in result


def test_a_failure_is_named_and_stops_nothing(pack, tmp_path):
    failing = TESTS + """[ "$1" = "--gtest_filter=Ptx.*" ] || exit 0
echo "[  FAILED  ] 1 test, listed below:"
echo "[  FAILED  ] Ptx.Exp2"
exit 1
"""
    done, result = pack(tests=failing, bench=BENCH + '[ "$1" != small ]\n')
    assert done.returncode == 1
    assert re.search(r"^ptx.h: failed \(exit status 1\), \d\.\d s\n  Ptx.Exp2\n", done.stdout, re.M)
    assert "failed: ptx.h, times: small moving sampling swap" in done.stdout
    assert len((tmp_path / "asked").read_text().splitlines()) == 6
    assert "| ptx.h | **failed** (exit status 1) | 3 passed, 1 failed, 0 skipped | " in result
    assert "## What failed: ptx.h\n\n- Ptx.Exp2\n" in result
    assert "### Times of steps" in result


def test_a_filter_that_fits_no_test_is_a_failure(pack):
    done, result = pack(tests="#!/bin/sh\necho '[  PASSED  ] 0 tests.'\n")
    assert done.returncode == 1 and "| kernels | **failed**: ran no test |" in result


def test_a_skipped_test_is_a_failure(pack):
    done, result = pack(tests=TESTS + """[ "$1" = "--gtest_filter=Ptx.*" ] || exit 0
echo "[  SKIPPED ] 1 test, listed below:"
echo "[  SKIPPED ] Ptx.Exp2"
""")
    assert done.returncode == 1 and "failed: ptx.h\n" in done.stdout
    assert "| ptx.h | **failed**: skipped tests | 3 passed, 0 failed, 1 skipped |" in result
    assert "## What failed: ptx.h\n\n- Ptx.Exp2\n" in result


def test_without_a_device_one_line_says_what_is_missing(pack):
    done, result = pack(bench="#!/bin/sh\necho 'gpu_bench: no CUDA device: this machine has no NVIDIA driver' >&2\nexit 2\n")
    assert (done.returncode, done.stdout, result) == (2, "", None)
    assert done.stderr == "run: gpu_bench: no CUDA device: this machine has no NVIDIA driver\n"


def test_a_program_that_does_not_start(pack):
    done, result = pack(bench="#!/nowhere/sh\n")
    assert done.returncode == 2 and result is None
    assert done.stderr.startswith("run: ") and "No such file" in done.stderr and done.stderr.count("\n") == 1


def test_help_and_wrong_flags(pack):
    done, _ = pack("--help")
    assert done.returncode == 0 and "libcublasLt" in done.stdout
    done, _ = pack("--fast")
    assert done.returncode == 2


def test_a_stage_that_hangs_ends_with_all_it_started(module):
    begin = time.monotonic()
    stage = module.Stage("kernels", ["sh", "-c", "echo begun; sleep 30 & echo $!; wait"], 0.5, dict(os.environ))
    assert time.monotonic() - begin < 10
    assert stage.status != 0 and "not done within 0.5 s" in stage.row()
    begun, child = stage.output.split()
    assert begun == "begun"
    for _ in range(50):  # until whoever adopts it has seen its end
        state = subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True, text=True).stdout.strip()
        if state == "" or state.startswith("Z"):
            return
        time.sleep(0.1)
    pytest.fail(f"process {child} goes on: {state}")


def test_the_limits_are_less_than_eight_minutes(module):
    limits = [stage[-1] for stage in [*module.STAGES, *module.SANITIZER_STAGES, *module.MEASUREMENTS, module.MAKING, *module.LOADS]]
    assert sum(limits) + module.DEMO_LIMIT + module.SERVING_LIMIT + module.EAGER_LIMIT < 480


def test_the_engine_is_loaded_and_served(pack, tmp_path):
    done, result = pack()
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "quire_asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["bench", "make-model", *["bench"] * 6, "serve", "bench", "bench"]
    assert all("--device cuda" in line for line in asked if "throughput" in line or line.startswith("serve"))
    assert "--max-model-len" not in asked[0], "the demo model has 512 positions"
    assert ["--fast-gemm" in line for line in asked[2:8]] == [False, False, True, False, False, False]
    assert ["--quantization" in line for line in asked[2:8]] == [False] * 4 + [True] * 2
    assert "### engine: 64 sequences of 384 + 128 tokens\n\n```\n64 requests" in result
    assert "### engine: 64 sequences of 384 + 128 tokens, --fast-gemm\n" in result
    for name in ("int8", "int4"):
        assert f"### engine: 1 sequence of 384 + 128 tokens, --quantization {name}\n" in result
    assert "| 1 client over HTTP | passed |" in result and "| 64 clients over HTTP | passed |" in result
    assert "while all decode: 2.000 ms a step (median of 3), 32000.0 tokens/s" in result
    assert "eagerly ['256', '128'] 20.0 output tokens/s" in result
    assert not list(tmp_path.glob("tmp*")), "the model that was made is gone"


def test_what_was_measured_is_beside_the_aims(pack):
    done, result = pack(bench=BENCH + """[ "$1" = steps ] && echo "| and logits on the host, 1 x 8,192 tokens, x | 1 | 2 | 3 % | 4 | 45.0 % |"
[ "$1" != attention ] || echo "| paged_attention 64 x 4,096, 32/8 heads of 64 | 1 | 2 | 84.9 % | 4 |  |"
""")
    assert done.returncode == 0, done.stdout + done.stderr
    aims = result[result.index("## Aims"):result.index("## Times")]
    assert "| paged_attention 64 x 4,096, 32/8 heads of 64: of the copy bandwidth | 84.9 % | 85 % | **not met** |" in aims
    assert "| a prompt of 8,192 tokens, with logits: of the matrix rate | 45.0 % | 45 % | met |" in aims
    assert "contexts up to 512: all of it, prompts too | 1,000 tok/s | 30,000 tok/s | **not met** |" in aims
    assert "contexts up to 512: while all decode | 32,000 tok/s | 30,000 tok/s | met |" in aims
    assert "contexts up to 512: while all decode | not measured | 60,000 tok/s | |" in aims
    assert "against eager PyTorch one by one | 50.0 x | 40 x | met |" in aims
    peaks = re.search(r"at most: (\d+) MiB with 1, (\d+) MiB with 64", result)
    more = 100 * (int(peaks[2]) / int(peaks[1]) - 1)
    assert f"of that with 1 | {more:+.1f} % | within 2 % | {'met' if more <= 2 else '**not met**'} |" in aims


def test_a_decode_is_held_to_the_bytes_of_the_weights(tool):
    aims = tool("gpu_aims")
    outputs = {aims.engine(1): "1,000,000,000 parameters\nwhile all decode: 1.000 ms a step (median of 9), 1000.0 tokens/s",
               "times: steps": "reads and writes 4000 GB/s\n| layers, 1 x 1 tokens | 1.0 | 2 | 3 % | 4 | 5 % |\n"
                               "| and logits, 1 x 1 tokens | 700.0 | 2 | 3 % | 4 | 5 % |\n| and logits, 11 x 1 tokens | 7.0 | 2 | 3 % | 4 | |",
               "times: executor": "| two in flight, 1 x 1 tokens | 5000.0 | 2 | 3 % | 4 | 5 % |"}
    found = [line for line in aims.table(outputs) if line.startswith("| decode")]
    assert len(found) == 3
    assert "the engine" in found[0] and "| 50.0 % | 70 % | **not met** |" in found[0]
    assert "and logits, 1 x 1" in found[1] and "| 71.4 % | 70 % | met |" in found[1]
    assert "two in flight, 1 x 1" in found[2] and "| 10.0 % | 70 % | **not met** |" in found[2]


def test_memory_may_differ_by_two_per_cent(tool):
    aims = tool("gpu_aims")
    for with_64, verdict in ((1020, "met"), (1021, "**not met**"), (980, "met"), (979, "**not met**")):
        row = aims.table({aims.HTTP: aims.memory_line({1: 1000, 64: with_64})})[-1]
        assert row.endswith(f"| within 2 % | {verdict} |")


def test_without_pytorch_it_is_not_compared(pack):
    done, result = pack(eager="print('PyTorch is not here'); raise SystemExit(77)\n")
    assert done.returncode == 0 and "eager PyTorch: skipped" in done.stdout
    assert "| eager PyTorch | skipped |" in result and "```\nPyTorch is not here\n```" in result
    assert "against eager PyTorch one by one | not measured | 40 x | |" in result


def test_all_that_tests_read_is_packed(tool, tmp_path):
    pack = tool("gpu_pack")
    fixtures, missing = pack.named_models(pack.packed_tests(), tmp_path)
    assert {"granite-one-kv", "gemma3-one-kv", "olmo2-one-kv"} <= set(fixtures)
    assert {"stories260k", "golden-models/qwen3", "golden-models/smollm3"} <= set(missing)
    (tmp_path / "golden-models/qwen3").mkdir(parents=True)
    assert set(missing) - set(pack.named_models(pack.packed_tests(), tmp_path)[1]) == {"golden-models/qwen3"}


def test_each_packed_test_is_in_a_stage(tool, module):
    filters = ":".join(stage[1] for stage in module.STAGES).split(":")
    tests = re.findall(r"^TEST(_P)?\((\w+),\s*(\w+)\)", tool("gpu_pack").packed_tests(), re.M)
    assert len(tests) > 40
    for is_many, suite, name in tests:
        full = f"Any/{suite}.{name}/any" if is_many else f"{suite}.{name}"
        assert any(fnmatch.fnmatchcase(full, one) for one in filters), full


def test_a_server_that_does_not_start_is_a_failure(pack):
    done, result = pack(quire=QUIRE.replace('exec python3 -m http.server --bind 127.0.0.1 "${8}"', "echo no memory; exit 1")
                        .replace("bench) echo", 'bench) [ "$2" = serve ] && exit 1; echo'))
    assert done.returncode == 1
    assert "| 1 client over HTTP | **failed** (exit status 1) |" in result
    assert "| 64 clients over HTTP | **failed** (exit status 1) |" in result
    assert "The server:\nno memory" in result
