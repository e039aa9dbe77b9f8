#!/usr/bin/env python3
"""Refuses includes that the diagram in docs/architecture.md does not allow, and a control plane that has grown fat."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A room is a folder of src/, or one of these folders in one.
INNER_ROOMS = {"backend/cpu", "backend/sim"}
# Room -> what it may include besides itself: rooms, or single headers.
ALLOWED = {
    "base": set(),
    "tensor": {"base"},
    "control": {"base"},
    "kernels": {"base", "tensor"},
    "model": {"base", "tensor"},
    "formats": {"base", "tensor", "model"},
    "jinja": {"base/json.h", "base/utf8.h"},
    "chat": {"base", "jinja/template.h", "jinja/text.h"},
    "tokenize": {"base", "chat/chat_templates.h"},
    "sample": {"base"},
    "backend": {"base", "control/step.h"},
    "backend/cpu": {"base", "tensor", "kernels", "model", "formats", "sample", "backend", "control/step.h"},
    "backend/sim": {"base", "backend", "control"},
    "record": {"base", "control"},
    "sim": {"base", "control", "record", "backend", "backend/sim"},
    "engine": {"base", "control", "record", "tokenize", "backend", "formats/mapped_file.h", "formats/kept_file.h"},
    "serve": {"base", "engine", "tokenize", "chat", "control/request.h"},
    "cli": {"base", "tensor", "kernels", "model", "formats", "tokenize", "chat", "sample", "backend", "backend/cpu", "backend/sim", "control",
            "record", "engine", "serve", "sim"},
}
# The control plane decides as a pure function of its inputs.
IMPURE = {"chrono", "thread", "mutex", "atomic", "condition_variable", "random", "fstream", "iostream", "cmath", "filesystem",
          "cstdlib", "cstdio"}
# Non-blank lines: of all of src/control but the policies, which are a file each, and of any one file.
CONTROL_LIMIT = 2200
CONTROL_FILE_LIMIT = 400
CONTROL_TABLES = {"policy", "eviction"}


def room_of(path):
    """`path`: relative to src/, with slashes."""
    parts = path.split("/")
    inner = "/".join(parts[:2])
    return inner if inner in INNER_ROOMS else parts[0]


INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def main():
    complaints = []
    control_lines = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        name = path.relative_to(ROOT / "src")
        folder = name.parts[0]
        room = room_of(name.as_posix())
        text = path.read_text()
        if folder == "control":
            lines = sum(1 for line in text.splitlines() if line.strip())
            if name.parts[1] not in CONTROL_TABLES:
                control_lines += lines
            if lines > CONTROL_FILE_LIMIT:
                complaints.append(f"src/{name} has {lines} non-blank lines, more than {CONTROL_FILE_LIMIT}")
        if folder != "cli" and re.search(r"\bgetenv\b", text):
            complaints.append(f"src/{name}: getenv is for src/cli alone")
        for kind, target in INCLUDE.findall(text):
            if kind == "<":
                if folder == "control" and target in IMPURE:
                    complaints.append(f"src/{name}: <{target}> in the control plane")
                continue
            if not (ROOT / "src" / target).exists():
                complaints.append(f"src/{name}: \"{target}\" is not relative to src/")
            elif room_of(target) not in {room, *ALLOWED[room]} and target not in ALLOWED[room]:
                complaints.append(f"src/{name}: {room} may not include {target}")
    if control_lines > CONTROL_LIMIT:
        complaints.append(f"src/control has {control_lines} non-blank lines without its policies, more than {CONTROL_LIMIT}")
    print("\n".join(complaints) or f"include rules hold; src/control has {control_lines} non-blank lines without its policies")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
