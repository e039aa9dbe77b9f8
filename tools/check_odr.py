#!/usr/bin/env python3
"""Refuses names that stand for two things (violations of C++'s one definition rule).

check_odr.py              reads the sources: no class, struct, union or enum of one qualified name is defined in two places
                          that a program may link together. No source hides a constant of a header of its namespace: where
                          the sources of a folder are compiled together, those behind it would get its value.
check_odr.py BUILD_DIR    reads the objects of a build with -g1 or more:
                          - an inline function or implicit member of quire has one place in the sources, whichever object
                            has it. (Its code may differ from object to object, as the optimiser saw more or less; the line
                            and column of its declaration may not.)
                          - what is compiled for some instruction-set level defines no function weakly that an object for
                            another level also does: the linker keeps either, and a machine without the level would run it.
--root DIR                looks there instead of in this repository.

Tests of one folder are one program, and so is each benchmark; src/ is part of all of them.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

Place = collections.namedtuple("Place", "room file line")


def room_of(path):
    """What links together: src, or a folder of tests, or a benchmark by itself."""
    parts = path.split("/")
    if parts[0] == "tests" and len(parts) > 2 and parts[1] != "support":
        return f"tests/{parts[1]}"
    return path if parts[0] in ("bench", "examples") else "src"


def may_meet(a, b):
    return a.room == b.room or "src" in (a.room, b.room)


# ---- Sources ----

# No two of these are ever compiled for the same machine.
EXCLUSIVE = [{"src/kernels/cpu/x86/", "src/kernels/cpu/no_x86/"}]

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*|R"(?P<tag>[^()\\ ]*)\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<number>\d[\w.']*)|(?P<mark>::|\[\[|\]\]|[{};:<>(),=\[\]])""",
    re.S | re.M | re.X,
)


def scan_source(text):
    """Yields (qualified name, line) of every type that is defined at namespace scope with external linkage."""
    tokens = []
    for match in TOKEN.finditer(text):
        if match.lastgroup in ("word", "mark"):
            tokens.append((match[0], match.start()))
    scopes = []  # a namespace's name, "" for an anonymous one, None for anything else in braces
    i = 0
    statement = 0  # where the present one began
    while i < len(tokens):
        token, _ = tokens[i]
        if token == "{":
            head = [t for t, _ in tokens[statement:i]]
            at = tokens[statement][1] if head else 0
            scope = None
            if all(s is not None for s in scopes):
                if "namespace" in head and "using" not in head:
                    scope = "::".join(w for w in head[head.index("namespace") + 1 :] if w not in ("inline", "::"))
                elif (name := type_name(head)) and "" not in scopes:
                    yield "::".join([s for s in scopes if s] + [name]), text.count("\n", 0, at) + 1
            scopes.append(scope)
            statement = i + 1
        elif token == "}":
            if scopes:
                scopes.pop()
            statement = i + 1
        elif token == ";":
            statement = i + 1
        i += 1


def type_name(head):
    """The name that `class X final : Base`, `enum class X : int`, `template <...> struct X` defines; None if it is none, or
    a specialisation."""
    depth = 0
    outer = []
    for word in head:
        if word == "<":
            depth += 1
            outer.append("<>")
        elif word == ">":
            depth -= 1
        elif depth == 0:
            outer.append(word)
    if outer[:2] == ["template", "<>"]:
        outer = outer[2:]
    if "(" in outer and not {"alignas", "__attribute__"} & set(outer) or "=" in outer:
        return None
    outer = re.sub(r"(alignas|__attribute__) (\( )+\S*( \))+|\[\[ .*? \]\]", "", " ".join(outer)).split()
    if not outer or outer[0] not in ("class", "struct", "union", "enum"):
        return None
    words = [w for w in outer if w not in ("class", "struct", "union", "enum", "final")]
    if ":" in words:
        words = words[: words.index(":")]
    return words[0] if len(words) == 1 and words[0].isidentifier() else None


CONSTANT = re.compile(r"^(?:inline |static )?const(?:expr)? [^=;({]*?\b(k[A-Z]\w*)(?:\[[^\]]*\])* ?[={]", re.M)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)


def hidden_constants(root):
    """Constants of sources that a header of the same namespace has too, of those that may be compiled together."""
    declared = {}  # (room, namespace, name): its header
    sources = []
    for path in sorted((root / "src").rglob("*")) + sorted((root / "tests").rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        text, place = path.read_text(), path.relative_to(root).as_posix()
        for name in CONSTANT.finditer(text):
            for space in NAMESPACE.findall(text):
                key = (room_of(place), space, name[1])
                if path.suffix == ".h":
                    declared[key] = place
                else:
                    sources.append((key, f"{place}:{text.count(chr(10), 0, name.start()) + 1}"))
    return [f"{place}: {key[2]} hides that of {declared[key]}" for key, place in sources if key in declared]


def never_meet(a, b):
    return any({next((f for f in pair if p.file.startswith(f)), p.file) for p in (a, b)} == pair for pair in EXCLUSIVE)


def check_sources(root):
    places = collections.defaultdict(list)
    count = 0
    for folder in ("src", "tests", "bench", "examples"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            name = path.relative_to(root).as_posix()
            for what, line in scan_source(path.read_text()):
                count += 1
                places[what].append(Place(room_of(name), name, line))
    complaints = hidden_constants(root)
    for what, found in sorted(places.items()):
        for i, second in enumerate(found):
            first = next((p for p in found[:i] if may_meet(p, second) and not never_meet(p, second)), None)
            if first:
                complaints.append(f"{second.file}:{second.line}: {what} is also defined in {first.file}:{first.line}")
    return complaints, f"{count} types have a name each"


# ---- Objects ----

OURS = re.compile(r"_ZN?K?5quire")
UNIFIED = re.compile(r"([CD])[0-9](?=E)")  # constructors and destructors: complete, base, deleting
DIE = re.compile(r"^ <1><[0-9a-f]+>: Abbrev Number: \d+ \((DW_TAG_\w+)\)")
ATTRIBUTE = re.compile(r"^    <[0-9a-f]+>   DW_AT_(linkage_name|decl_line|decl_column|inline) *: (?:\(.*?\): )?(\S+)")


def weak_symbols(path):
    listed = subprocess.run(["nm", "--defined-only", "-P", path], capture_output=True, text=True, check=True).stdout
    # DW.ref.X is a pointer to X, whatever the flags.
    return {name for name, kind, *_ in map(str.split, listed.splitlines())
            if kind in ("W", "V", "u") and not name.startswith("DW.ref.")}


def read_object(path):
    """The weak symbols of an object, and of its inline functions (name, "line:column" of the declaration)."""
    weak = weak_symbols(path)
    unified = {UNIFIED.sub(r"\1*", symbol) for symbol in weak}
    declared = {}
    die = {}

    def take():
        name = die.get("linkage_name", "")
        if not OURS.match(name) or "decl_line" not in die:
            return
        name = UNIFIED.sub(r"\1*", name)
        if name in unified or die.get("inline") == "3":
            declared[name] = f"{die['decl_line']}:{die.get('decl_column', '?')}"

    dump = subprocess.Popen(["readelf", "-wi", "--dwarf-depth=2", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            bufsize=1 << 20, text=True, errors="replace")
    wanted = False
    for line in dump.stdout:
        if line.startswith(" <1>"):
            if wanted:
                take()
            wanted = "(DW_TAG_subprogram)" in line
            die = {}
        elif wanted and (match := ATTRIBUTE.match(line)):
            die.setdefault(match[1], match[2])
    if wanted:
        take()
    dump.wait()
    return weak, declared


def check_objects(root, build):
    commands = json.loads((build / "compile_commands.json").read_text())
    objects = []
    for command in commands:
        path = build / re.search(r" -o (\S+)", command["command"])[1]
        if path.exists():
            source = os.path.relpath(command["file"], root)
            if source.startswith(".."):
                source = os.path.relpath(command["file"], build)
            flags = " ".join(sorted(set(re.findall(r" (-m[a-z0-9=-]+)", command["command"]))))
            objects.append((path, source, flags))
    if not objects:
        return [f"{build}: there are no objects"], ""
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        read = list(pool.map(read_object, [str(path) for path, _, _ in objects], chunksize=4))

    complaints = []
    declarations = collections.defaultdict(dict)  # symbol -> line:column -> places
    levels = collections.defaultdict(dict)  # symbol -> flags -> a source
    # A source of src/ that a test compiles for itself takes the place of the library's object, and both never link together.
    stand_ins = {path for path, source, _ in objects if source.startswith("src/") and (build / "tests") in path.parents}
    for (path, source, flags), (weak, declared) in zip(objects, read):
        for symbol, line in declared.items():
            declarations[symbol].setdefault(line, []).append(Place(room_of(source), source, line))
        if path in stand_ins:
            continue
        for symbol in weak:
            levels[symbol].setdefault(flags, source)
    for symbol, by_line in sorted(declarations.items()):
        groups = list(by_line.values())
        for i, group in enumerate(groups):
            clash = [(a, b) for other in groups[:i] for a in other for b in group if may_meet(a, b)]
            if clash:
                a, b = clash[0]
                complaints.append(f"{demangle(symbol)} is declared in line {a.line} for {a.file}, {b.line} for {b.file}")
    for symbol, by_flags in sorted(levels.items()):
        if len(by_flags) > 1:
            (flags, source), (others, other) = sorted(by_flags.items())[:2]
            complaints.append(f"{demangle(symbol)} is weak in {source} ({flags or 'any machine'}) and in {other} ({others})")
    return complaints, f"{len(declarations)} inline functions in {len(objects)} objects have a place each"


def demangle(symbol):
    plain = re.sub(r"([CD])\*E", r"\g<1>1E", symbol)
    return subprocess.run(["c++filt", plain], capture_output=True, text=True).stdout.strip() or symbol


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    root = args.root.resolve()
    complaints, well = check_objects(root, args.build.resolve()) if args.build else check_sources(root)
    print("\n".join(complaints) or f"one definition rule: {well}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
