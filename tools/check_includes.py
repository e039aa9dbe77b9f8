#!/usr/bin/env python3
"""Refuses includes that the diagram in docs/architecture.md does not allow, and a control plane that has grown fat."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder -> what it may include besides itself. A path with a slash is that header alone.
ALLOWED = {
    "base": set(),
    "tensor": {"base"},
    "control": {"base"},
    "kernels": {"base", "tensor"},
    "load": {"base", "tensor"},
    "model": {"base", "tensor", "kernels", "load"},
    "jinja": {"base/json.h", "base/utf8.h"},
    "text": {"base", "jinja/template.h", "jinja/text.h"},
    "sample": {"base"},
    "exec": {"base", "tensor", "kernels", "model", "sample", "control/step.h"},
    "sim": {"base", "control", "record", "exec/executor.h", "exec/slot_table.h", "exec/open_results.h"},
    "record": {"base", "control"},
    "engine": {"base", "control", "record", "text", "exec/executor.h", "load/mapped_file.h", "load/kept_file.h"},
    "serve": {"base", "engine", "text", "control/request.h"},
    "cli": {"base", "tensor", "kernels", "load", "model", "text", "sample", "exec", "control", "record", "engine", "serve", "sim"},
}
# The control plane decides as a pure function of its inputs.
IMPURE = {"chrono", "thread", "mutex", "atomic", "condition_variable", "random", "fstream", "iostream", "cmath", "filesystem",
          "cstdlib", "cstdio"}
# Non-blank lines: of all of src/control but the policies, which are a file each, and of any one file.
CONTROL_LIMIT = 2200
CONTROL_FILE_LIMIT = 400
CONTROL_TABLES = {"policy", "eviction"}

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def main():
    complaints = []
    control_lines = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        name = path.relative_to(ROOT / "src")
        folder = name.parts[0]
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
            top = target.split("/")[0]
            if not (ROOT / "src" / target).exists():
                complaints.append(f"src/{name}: \"{target}\" is not relative to src/")
            elif top != folder and top not in ALLOWED[folder] and target not in ALLOWED[folder]:
                complaints.append(f"src/{name}: {folder} may not include {target}")
    if control_lines > CONTROL_LIMIT:
        complaints.append(f"src/control has {control_lines} non-blank lines without its policies, more than {CONTROL_LIMIT}")
    print("\n".join(complaints) or f"include rules hold; src/control has {control_lines} non-blank lines without its policies")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
