#!/usr/bin/env python3
"""Refuses includes that the diagram in docs/architecture.md does not allow, names outside their library's namespace, files
that are too long, and a control plane that is impure, has grown fat or has a long function.

--root DIR   looks there instead of in this repository.
--write      writes the diagram into docs/architecture.md; without it, a diagram that differs from the rules is refused too.
"""
import argparse
import pathlib
import re
import sys

# A room is a folder of src/, or one of these folders in one.
INNER_ROOMS = {"backend/cpu", "backend/cuda", "backend/sim", "backend/sync"}
# Room -> what it may include besides itself: rooms, or single headers.
ALLOWED = {
    "base": set(),
    "tensor": {"base"},
    "control": {"base"},
    "kernels": {"base", "tensor"},
    "model": {"base", "tensor"},
    "decoder": {"base", "tensor", "model"},
    "formats": {"base", "tensor", "model"},
    "jinja": {"base/json.h", "base/utf8.h"},
    "chat": {"base", "jinja/template.h", "jinja/text.h"},
    "tokenize": {"base", "chat/chat_templates.h"},
    "sample": {"base"},
    "backend": {"base", "control/step.h", "control/costs.h"},
    "backend/sync": {"base", "model", "decoder", "sample", "backend", "control/step.h", "control/costs.h"},
    "backend/cpu": {"base", "tensor", "kernels", "model", "decoder", "formats", "sample", "backend", "backend/sync",
                    "control/step.h", "control/costs.h"},
    "backend/cuda": {"base", "tensor", "model", "decoder", "formats", "sample", "kernels/quantize.h", "backend", "backend/sync",
                     "control/step.h", "control/costs.h"},
    "backend/sim": {"base", "backend", "control"},
    "record": {"base", "control"},
    "sim": {"base", "control", "record", "backend", "backend/sim"},
    "engine": {"base", "control", "record", "tokenize", "backend", "formats/mapped_file.h", "formats/kept_file.h"},
    "grammar": {"base", "tokenize/tokenizer.h", "tokenize/regex_char_set.h", "engine/mask_source.h"},
    "answer": {"base"},
    "startup": {"base", "tensor", "kernels", "model", "formats", "tokenize", "chat", "control", "record", "backend", "backend/cpu",
                "backend/cuda/activations.h", "backend/cuda/entry.h", "backend/cuda/launches.h", "backend/cuda/sampler_memory.h", "backend/cuda/supported.h", "backend/sim", "engine"},
    "api": {"base", "startup", "engine", "chat", "control/request.h"},
    "page": {"base"},
    "serve": {"base", "engine", "grammar", "answer", "tokenize", "chat", "page", "control/request.h"},
    "bench": {"base", "tensor", "kernels", "model", "decoder", "formats", "sample", "backend", "backend/cpu", "backend/sim", "control", "record", "sim"},
    "cli": {"base", "tensor", "kernels", "model", "decoder", "formats", "tokenize", "chat", "sample", "backend", "backend/cpu", "backend/sim", "control",
            "record", "engine", "grammar/compiler.h", "answer/format.h", "startup", "serve", "sim", "bench"},
}
# The control plane decides as a pure function of its inputs: neither it nor a header that it includes has these.
IMPURE = {"chrono", "ctime", "thread", "mutex", "shared_mutex", "atomic", "condition_variable", "future", "semaphore", "latch",
          "barrier", "stop_token", "random", "fstream", "sstream", "iostream", "istream", "ostream", "cmath", "filesystem",
          "cstdlib", "cstdio", "unistd.h", "fcntl.h", "pthread.h", "time.h", "stdio.h", "stdlib.h", "math.h"}
# Non-blank lines: of any file; of all of src/control but the policies, which are a file each, and of any one file there.
FILE_LIMIT = 500
CONTROL_LIMIT = 2200
CONTROL_FILE_LIMIT = 400
CONTROL_TABLES = {"policy", "eviction"}
# Lines of a function in src/control, from its first to its last.
CONTROL_FUNCTION_LIMIT = 60


# What every library speaks of stands in `quire` itself; any other library has a namespace of its own.
COMMON = {"base", "tensor"}
# Has a namespace of its own, and opens `quire` for what its installed header declares.
FACADE = {"api"}


def room_of(path):
    """`path`: relative to src/, with slashes."""
    parts = path.split("/")
    inner = "/".join(parts[:2])
    return inner if inner in INNER_ROOMS else parts[0]


INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
NAMESPACE = re.compile(r"^namespace (quire[\w:]*) \{\n(?P<body>.*?)^\}", re.M | re.S)
FORWARD = re.compile(r"(?:(?:class|struct|enum class) \w+(?: : \w+)?;\s*)+")


def stray_namespaces(room, text):
    """The namespaces of quire that a file opens for more than forward declarations and that are not of its library."""
    own = "quire" if room in COMMON else "quire::" + room.replace("/", "::")
    for match in NAMESPACE.finditer(text):
        inside = match[1] == own or room not in COMMON and match[1].startswith(own + "::") or room in FACADE and match[1] == "quire"
        if not inside and not FORWARD.fullmatch(match["body"].strip()):
            yield match[1], own


NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M | re.S)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b(?![^{]*\()")


def functions(text):
    """(name, first line, lines) of each function that a file defines; lambdas and blocks are part of theirs."""
    text = NOT_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    open_braces = []  # for each: the function that it opens, or None
    head = 0  # where the text before a brace begins
    for match in re.finditer(r"[{};]", text):
        before = text[head:match.start()].strip()
        if match[0] == "{":
            inside = any(open_braces)
            is_function = not inside and "(" in before and not SCOPE.match(before) and not before.endswith(("=", ","))
            open_braces.append((before, text.count("\n", 0, match.start()) - before.count("\n")) if is_function else None)
        elif match[0] == "}" and open_braces:
            if (found := open_braces.pop()) is not None:
                name = re.search(r"(operator\W+|[\w:~]+)\s*\(", found[0])
                yield name[1] if name else found[0], found[1] + 1, text.count("\n", 0, match.start()) - found[1] + 1
        head = match.end()


def impure_includes(src, path, seen):
    """(header, what) for each impure header that `path` includes, by itself or by headers of src/, which `seen` collects."""
    for kind, target in INCLUDE.findall(path.read_text()):
        if kind == "<" and target in IMPURE:
            yield path.relative_to(src), target
        elif kind == '"' and target not in seen and (src / target).exists():
            seen.add(target)
            yield from impure_includes(src, src / target, seen)


BEGIN, END = "<!-- The rules of tools/check_includes.py, which writes this. -->\n", "<!-- End of the rules. -->"


def diagram():
    """The rules as a Mermaid graph. A room's arrow to another is left out where a chain of arrows says as much."""
    whole = {room: {target for target in targets if "." not in target} for room, targets in ALLOWED.items()}
    node = {room: room if "/" not in room else f'{room.replace("/", "_")}["{room}"]' for room in ALLOWED}
    lines = ["```mermaid", "graph TD"]
    for room in reversed(ALLOWED):
        implied = {further for target in whole[room] for further in whole[target]}
        lines += [f"  {node[room]} --> {node[target]}" for target in sorted(whole[room] - implied)]
        headers = {}
        for header in sorted(ALLOWED[room] - whole[room]):
            headers.setdefault(room_of(header), []).append(header.rpartition("/")[2])
        lines += [f'  {node[room]} -. "{", ".join(names)}" .-> {node[target]}' for target, names in headers.items()]
    return "\n".join([*lines, "```", ""])


def check_diagram(path, write):
    """Complaints about the diagram in the document at `path`, once it is written if that is wanted."""
    text = path.read_text()
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        return [f"{path.name}: the lines around the include diagram are missing"]
    wanted = text[: begin + len(BEGIN)] + diagram() + text[end:]
    if wanted == text:
        return []
    if not write:
        return [f"{path.name}: its include diagram is not that of the rules; tools/check_includes.py --write"]
    path.write_text(wanted)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    root = options.root
    complaints = []
    document = root / "docs/architecture.md"
    if document.exists():
        complaints += check_diagram(document, options.write)
    control_lines = 0
    seen = set()  # headers that src/control includes
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        name = path.relative_to(root / "src")
        folder = name.parts[0]
        room = room_of(name.as_posix())
        text = path.read_text()
        lines = sum(1 for line in text.splitlines() if line.strip())
        if lines > FILE_LIMIT:
            complaints.append(f"src/{name} has {lines} non-blank lines, more than {FILE_LIMIT}")
        if folder == "control":
            if name.as_posix() not in seen:
                complaints += [f"src/{where}: <{what}> in the control plane" + ("" if where == name else ", which includes it")
                               for where, what in impure_includes(root / "src", path, seen)]
            complaints += [f"src/{name}:{line}: {function} has {count} lines, more than {CONTROL_FUNCTION_LIMIT}"
                           for function, line, count in functions(text) if count > CONTROL_FUNCTION_LIMIT]
            if name.parts[1] not in CONTROL_TABLES:
                control_lines += lines
            if lines > CONTROL_FILE_LIMIT:
                complaints.append(f"src/{name} has {lines} non-blank lines, more than {CONTROL_FILE_LIMIT}")
        if folder != "cli" and re.search(r"\bgetenv\b", text):
            complaints.append(f"src/{name}: getenv is for src/cli alone")
        for found, own in stray_namespaces(room, text):
            complaints.append(f"src/{name}: namespace {found}, where {own} is this library's")
        for kind, target in INCLUDE.findall(text):
            if kind == "<":
                continue
            if not (root / "src" / target).exists():
                complaints.append(f"src/{name}: \"{target}\" is not relative to src/")
            elif room_of(target) not in {room, *ALLOWED[room]} and target not in ALLOWED[room]:
                complaints.append(f"src/{name}: {room} may not include {target}")
    if control_lines >= CONTROL_LIMIT:
        complaints.append(f"src/control has {control_lines} non-blank lines without its policies: it must have fewer than {CONTROL_LIMIT}")
    print("\n".join(complaints) or f"include rules hold; src/control has {control_lines} non-blank lines without its policies")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
