#!/usr/bin/env python3
"""Clang's front end over each source in the compile commands of BUILD_DIR, which is configured for Clang, but for the
tests: warnings are errors. What BUILD_DIR has compiled since the last change of any source is left out: Clang has taken
it already.

clang_syntax.py BUILD_DIR
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def last_change():
    files = (path for folder in ("src", "tests", "bench", "examples") for path in (ROOT / folder).rglob("*"))
    return max(path.stat().st_mtime for path in files if path.suffix in (".h", ".cpp"))


def is_compiled(entry, since):
    compiled = pathlib.Path(entry["directory"], re.search(r" -o (\S+)", entry["command"])[1])
    return compiled.exists() and compiled.stat().st_mtime > since


def is_test(entry):
    # One that is compiled together with others lies in the build.
    place = pathlib.Path(entry["file"])
    for root in (pathlib.Path(entry["directory"]), ROOT):
        if place.is_relative_to(root):
            return place.relative_to(root).parts[0] == "tests"
    return False


def check(entry):
    command = re.sub(r" -o \S+", "", entry["command"]).replace(" -c ", " -fsyntax-only ", 1)
    # No compiler cache: there is no object to keep.
    command = re.sub(r"^\S*ccache ", "", command)
    ran = subprocess.run(command, shell=True, cwd=entry["directory"], capture_output=True, text=True)
    return None if ran.returncode == 0 else ran.stderr


def main():
    build = pathlib.Path(sys.argv[1])
    changed = last_change()
    # A generated source may not be there yet.
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text())
               if not is_test(entry) and pathlib.Path(entry["file"]).exists()]
    left = [entry for entry in entries if not is_compiled(entry, changed)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [message for message in pool.map(check, left) if message]
    print("\n".join(wrong) or f"Clang takes all {len(entries)} translation units ({len(left)} of them now)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
