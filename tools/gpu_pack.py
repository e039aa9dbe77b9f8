#!/usr/bin/env python3
"""Puts together what tests and measures the CUDA backend on another machine: the programs device_test and gpu_bench, quire with
its backend, the shared libraries beside them that such a machine may lack, models, and `run`. Says how large it is. Fails above
60 MiB, and if a file is missing without which a packed test would be skipped.

gpu_pack.py BUILD_DIR OUT   BUILD_DIR: where all of these are built. OUT is made anew.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ["tests/device/device_test", "tests/device/gpu_bench", "quire", "libquire_cuda.so"]
SCRIPTS = {"gpu_run.py": "run", "gpu_aims.py": "gpu_aims.py", "gpu_eager.py": "gpu_eager.py"}
FIXTURES = "tests/model/fixtures"
MOST_BYTES = 60 << 20
# Of glibc and the compiler: a machine has its own, and newer ones would not start there.
SYSTEM = r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so.*"
README = """\
Tests and measures quire's CUDA backend on a GPU of compute capability 8.0 or more.

    ./run [FOLDER]

takes less than 8 minutes and no network, and 3 GB of disk here while it runs. It needs Linux on x86-64 with glibc {glibc} and the
C++ library of GCC 12 (as in Ubuntu 22.04 or Debian 12, or newer), Python 3, an NVIDIA driver for CUDA 13 (580 or newer), and
libcublasLt.so.13 or .12, which is part of CUDA toolkits and of PyTorch; FOLDER says where it is if it is not found. With
compute-sanitizer of a toolkit more is checked, and with PyTorch and transformers it is compared with these.
It writes result.md, to be committed as docs/measurements/gpu-NAME.md. Exit status: 0 all passed, 1 something did not, 2 nothing
can run here. Single tests: QUIRE_CUBLASLT=FOLDER QUIRE_DATA=data bin/device_test --gtest_filter=NAME, from this folder.
Machine code is there for compute capabilities 8.x and 9.0; newer devices compile the PTX of 9.0 when they load it.
"""


def libraries(program):
    """Of the shared libraries that a program loads, those to be packed beside it."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", listed, re.M):
        if not re.fullmatch(SYSTEM, name):
            yield name, path


def needed_glibc(files):
    versions = set()
    for file in files:
        symbols = subprocess.run(["objdump", "-T", str(file)], capture_output=True, text=True, check=True).stdout
        versions.update(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(2\.[\d.]+)", symbols))
    return ".".join(map(str, max(versions)))


def packed_tests():
    """The sources of device_test, as tests/device/CMakeLists.txt lists them."""
    listed = re.search(r"^set\(tests ([^)]+)\)", (ROOT / "tests/device/CMakeLists.txt").read_text(), re.M)
    return "".join((ROOT / f"tests/device_on_host/{name}_test.cpp").read_text() for name in listed[1].split())


def named_models(sources, data):
    """(the fixtures that tests name, what they need of the shared data and is not there)"""
    literals = {text.removeprefix(FIXTURES + "/") for text in re.findall(r'"([\w/.-]+)"', sources)}
    fixtures = sorted(name for name in literals if (ROOT / FIXTURES / name / "config.json").exists())
    needed = set(re.findall(r'QUIRE_NEEDS_DATA\("([\w/.-]+)"\)', sources))
    families = re.search(r"Families,\s*testing::Values\(([^)]+)\)", sources)
    needed |= {f"golden-models/{name}" for name in re.findall(r'"([\w.-]+)"', families[1])
               if name not in fixtures and name != "demo"}
    return fixtures, sorted(name for name in needed if not (data / name).exists())


def commit():
    said = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, out = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(out, ignore_errors=True)
    (out / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        copied = shutil.copy(build / program, out / "bin")
        subprocess.run(["strip", copied], check=True)
        for library, path in libraries(build / program):
            shutil.copy(path, out / "bin" / library)
    demo = "models/llama-quire-stories-5m"
    shutil.copytree(ROOT / demo, out / demo)
    data = pathlib.Path(os.environ.get("QUIRE_DATA", ROOT / "../shared/data"))
    fixtures, missing = named_models(packed_tests(), data)
    for name in fixtures:
        shutil.copytree(ROOT / FIXTURES / name, out / FIXTURES / name)
    for name in ("golden-models", "stories260k"):
        if (data / name).is_dir():
            shutil.copytree(data / name, out / "data" / name)
    for name in missing:
        print(f"{data / name} is absent (set QUIRE_DATA): tests that need it would be skipped there", file=sys.stderr)
    for script, name in SCRIPTS.items():
        shutil.copy(ROOT / "tools" / script, out / name)
    (out / "run").chmod(0o755)
    (out / "README").write_text(README.format(glibc=needed_glibc((out / "bin").iterdir())))
    (out / "commit").write_text(commit() + "\n")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"{out}: {size / (1 << 20):.1f} MiB; copy it to a machine with a GPU and start run there")
    return 1 if size > MOST_BYTES or missing else 0


if __name__ == "__main__":
    sys.exit(main())
