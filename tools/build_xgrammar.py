#!/usr/bin/env python3
"""Builds XGrammar, which computes the masks of grammars, as a static library.

build_xgrammar.py PREFIX [--cxx COMPILER] [--sanitize LIST]    into PREFIX/include, PREFIX/lib and PREFIX/share/doc

pip fetches its source distribution, by the version and the hash in tools/xgrammar.txt (a network, or an index or folder of
packages as pip takes it: PIP_INDEX_URL, PIP_FIND_LINKS). It is built by its own CMake file in a build folder of its own, so
that none of its flags reaches quire. tools/xgrammar.ed changes it before. Does nothing where PREFIX was built from the same version
with the same edits and flags.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

REQUIREMENT = pathlib.Path(__file__).resolve().parent / "xgrammar.txt"
EDITS = REQUIREMENT.with_suffix(".ed")
# Warnings of a newer compiler do not stop the build. Link-time optimization would not link with another compiler.
FLAGS = ["-Wno-error", "-fno-lto", "-fPIC", "-fvisibility=hidden", "-DXGRAMMAR_LOG_CUSTOMIZE=1"]
# XGrammar's own and those of what it contains and compiles.
LICENCES = {"LICENSE": "LICENSE", "NOTICE": "NOTICE", "3rdparty/dlpack/LICENSE": "LICENSE.dlpack",
            "3rdparty/picojson/picojson.h": "LICENSE.picojson"}


def fetch(folder):
    # A Python of Debian has no pip of its own.
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    # Only to read its metadata, pip fetches what the package's own build needs; quire's build does not.
    subprocess.run([folder / "venv/bin/python", "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary",
                    "xgrammar", "-r", REQUIREMENT, "-d", folder], check=True)
    with tarfile.open(next(folder.glob("xgrammar-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
    return next(path for path in folder.glob("xgrammar-*") if path.is_dir())


def change(source):
    """Applies the edits; the version is pinned, so lines are known by their numbers."""
    for part in EDITS.read_text().split("\nfile ")[1:]:
        name, *script = part.splitlines()
        lines = (source / name).read_text().splitlines()
        script = iter(script)
        for command in filter(None, script):
            first, last, action = re.fullmatch(r"(\d+)(?:,(\d+))?([acd])", command).groups()
            begin = int(first) - (action != "a")
            end = begin if action == "a" else int(last or first)
            lines[begin:end] = [] if action == "d" else iter(script.__next__, ".")
        (source / name).write_text("\n".join(lines) + "\n")


def build(source, folder, prefix, cxx, flags):
    folder.mkdir()
    # A file, since these options are read before -D could set them.
    (folder / "config.cmake").write_text("set(XGRAMMAR_BUILD_PYTHON_BINDINGS OFF)\nset(XGRAMMAR_BUILD_CXX_TESTS OFF)\n"
                                         "set(XGRAMMAR_ENABLE_CPPTRACE OFF)\n")
    command = ["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
               # Files together, since most of the time goes into headers that nearly all of them include.
               "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=10",
               f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", f"-DCMAKE_CXX_COMPILER={cxx}"]
    if ccache := shutil.which("ccache"):
        command.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}")
    subprocess.run([*command, "-DCMAKE_CXX_FLAGS_RELEASE=" + " ".join(["-O2", "-DNDEBUG", *flags])], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--install", folder], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--sanitize", default="")
    args = parser.parse_args()
    flags = FLAGS + ([f"-fsanitize={args.sanitize}"] if args.sanitize else [])
    prefix = args.prefix.resolve()
    made = prefix / "made-of.txt"
    made_of = "\n".join([REQUIREMENT.read_text(), EDITS.read_text(), args.cxx, *flags])
    if made.exists() and made.read_text() == made_of:
        return
    shutil.rmtree(prefix, ignore_errors=True)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    print(f"fetching and building XGrammar into {prefix}", file=sys.stderr, flush=True)
    # Not one with a random name, which would be new to a compiler cache each time.
    folder = prefix.with_name(prefix.name + ".build")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        source = fetch(folder)
        change(source)
        build(source, folder / "build", prefix, args.cxx, flags)
        documents = prefix / "share/doc/xgrammar"
        documents.mkdir(parents=True)
        for licence, to in LICENCES.items():
            text = (source / licence).read_text()
            # Of a header, the comment at its beginning.
            (documents / to).write_text(text[:text.index("*/") + 2] + "\n" if licence.endswith(".h") else text)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    made.write_text(made_of)


if __name__ == "__main__":
    main()
