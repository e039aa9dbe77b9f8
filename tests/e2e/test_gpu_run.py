"""tools/gpu_run.py, which ./dev gpu pack makes `run`, over programs that only play the real ones: no device is needed."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = "NVIDIA Toy, compute capability 9.0, 1 GiB of 2 GiB free"
BENCH = """#!/bin/sh
[ "$1" = --facts ] && echo "%s" && exit 0
echo "### Times of $1"
""" % DEVICE
# Notes what it is asked for.
TESTS = """#!/bin/sh
echo "$1 in $PWD with $QUIRE_DATA and $QUIRE_CUBLASLT" >> asked
echo "[  PASSED  ] 3 tests."
"""
# Makes a model, is loaded, or serves until it is killed.
QUIRE = """#!/bin/sh
echo "$*" >> quire_asked
case "$1" in
  make-model) mkdir "$3" ;;
  serve) : > health; exec python3 -m http.server --bind 127.0.0.1 "${8}" ;;
  bench) echo "64 requests, 1000 output tokens/s" ;;
esac
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
    (tmp_path / "commit").write_text("abc123\n")

    def run(*arguments, bench=BENCH, tests=TESTS, quire=QUIRE):
        tools = {"bin/gpu_bench": bench, "bin/device_test": tests, "bin/quire": quire, "tools/nvidia-smi": "#!/bin/sh\necho 580.1\n",
                 "tools/compute-sanitizer": SANITIZER}
        (tmp_path / "tools").mkdir(exist_ok=True)
        for name, script in tools.items():
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
        done = subprocess.run([sys.executable, tmp_path / "run", *arguments], capture_output=True, text=True,
                              env={"PATH": f"{tmp_path / 'tools'}:/usr/bin:/bin"})
        result = tmp_path / "result.md"
        return done, result.read_text() if result.exists() else None
    return run


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location("gpu_run", ROOT / "tools/gpu_run.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


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
    assert "| kernels | passed | 3 passed, 0 failed, 0 skipped | 0 |" in result
    for part in ("attention", "small", "gemms", "steps"):
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
    assert "ptx.h: failed (exit status 1), 0 s\n  Ptx.Exp2\n" in done.stdout
    assert "failed: ptx.h, times: small" in done.stdout
    assert len((tmp_path / "asked").read_text().splitlines()) == 6
    assert "| ptx.h | **failed** (exit status 1) | 3 passed, 1 failed, 0 skipped | 0 |" in result
    assert "## What failed: ptx.h\n\n- Ptx.Exp2\n" in result
    assert "### Times of steps" in result


def test_a_filter_that_fits_no_test_is_a_failure(pack):
    done, result = pack(tests="#!/bin/sh\necho '[  PASSED  ] 0 tests.'\n")
    assert done.returncode == 1 and "| kernels | **failed**: ran no test |" in result


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
    limits = [stage[-1] for stage in [*module.STAGES, *module.SANITIZER_STAGES, *module.MEASUREMENTS, module.MAKING, *module.LOADS,
                                      module.SERVING]]
    assert sum(limits) + module.DEMO_LIMIT < 480


def test_the_engine_is_loaded_and_served(pack, tmp_path):
    done, result = pack()
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "quire_asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["bench", "make-model", "bench", "bench", "bench", "serve", "bench"]
    assert all("--device cuda" in line for line in asked if "throughput" in line or line.startswith("serve"))
    assert "### engine: 64 sequences of 384 + 128 tokens\n\n```\n64 requests" in result
    assert "| 64 clients over HTTP | passed |" in result
    assert not list(tmp_path.glob("tmp*")), "the model that was made is gone"


def test_a_server_that_does_not_start_is_a_failure(pack):
    done, result = pack(quire=QUIRE.replace('exec python3 -m http.server --bind 127.0.0.1 "${8}"', "echo no memory; exit 1")
                        .replace("bench) echo", 'bench) [ "$2" = serve ] && exit 1; echo'))
    assert done.returncode == 1
    assert "| 64 clients over HTTP | **failed** (exit status 1) |" in result
    assert "The server:\nno memory" in result
