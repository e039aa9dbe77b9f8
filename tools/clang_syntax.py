#!/usr/bin/env python3
"""Clang's front end over what the build in BUILD_DIR (of Clang) does not compile for TARGET: warnings are errors.

clang_syntax.py BUILD_DIR TARGET
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys


def check(entry):
    command = re.sub(r" -o \S+", "", entry["command"]).replace(" -c ", " -fsyntax-only ", 1)
    # No compiler cache: there is no object to keep.
    command = re.sub(r"^\S*ccache ", "", command)
    ran = subprocess.run(command, shell=True, cwd=entry["directory"], capture_output=True, text=True)
    return None if ran.returncode == 0 else ran.stderr


def main():
    build, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    inputs = subprocess.run(["ninja", "-C", build, "-t", "inputs", target], capture_output=True, text=True, check=True)
    compiled = set(inputs.stdout.split())
    entries = json.loads((build / "compile_commands.json").read_text())
    left = [entry for entry in entries if re.search(r" -o (\S+)", entry["command"])[1] not in compiled]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [message for message in pool.map(check, left) if message]
    print("\n".join(wrong) or f"Clang takes the {len(left)} other translation units too")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
