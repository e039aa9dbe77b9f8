#!/usr/bin/env python3
"""Plants defects, one at a time, and sees that a named test catches each.

mutants.py [NAME...]    for each of tests/mutants/NAME.patch (all of them): the named test passes without it and fails with it.
                        Renews their rows in tests/mutants/result.md.
mutants.py --renew [NAME...]   writes patches anew whose surroundings have changed but whose changed lines are still there, once;
                        the others it leaves and names
mutants.py --check      only that every patch still applies and names a test that there is (seconds; ./dev check)

A patch begins with two lines,
    Broken: WHAT, in one line
    Caught by: PROGRAM SUITE.TEST
and goes on as `git diff` writes it. SUITE.TEST is a pattern of --gtest_filter. It works on a copy in build/mutants, which shares
the compiler cache with the release build.
"""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests/mutants"
COPY = ROOT / "build/mutants"
BUILD = COPY / "build/release"
ALSO_RUN = {"levels_anywhere": ("kernels", "backend")}  # programs with tests of other folders
SECONDS = 300  # for a test; one that a defect keeps from ending is killed then

HEAD = re.compile(r"\ABroken: (?P<what>.+)\nCaught by: (?P<program>\w+_test) (?P<test>\S+)\n")


class Mutant:
    def __init__(self, path):
        self.name = path.stem
        self.path = path
        head = HEAD.match(path.read_text())
        if not head:
            raise ValueError("it does not begin with 'Broken: ...' and 'Caught by: PROGRAM SUITE.TEST'")
        self.what, self.program, self.test = head["what"], head["program"], head["test"]

    def apply(self, where, *options):
        command = ["git", "apply", *options, str(self.path)]
        # Of a copy inside this repository git would take the paths for those of this one.
        env = dict(os.environ, GIT_CEILING_DIRECTORIES=str(COPY.parent))
        return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True)

    def complaint(self):
        applied = self.apply(ROOT, "--check")
        if applied.returncode:
            return "the patch no longer applies: " + applied.stderr.strip().splitlines()[0].removeprefix("error: ")
        # A pattern has the name as it stands in the sources: .../SUITE.TEST/... of a test with parameters.
        suite, test = re.sub(r"/\*?$|^\*/", "", self.test).split(".")
        pattern = re.compile(rf"TEST(_[FP])?\({re.escape(suite.split('/')[-1])}, {re.escape(test.split('/')[0])}\)")
        name = self.program.removesuffix("_test")
        folders = [ROOT / "tests" / folder for folder in (name, *ALSO_RUN.get(name, ()))]
        if not any(pattern.search(path.read_text()) for folder in folders for path in folder.rglob("*.cpp")):
            return f"there is no test {self.test} in {folders[0].relative_to(ROOT)}"
        return None


def load(names):
    paths = [PATCHES / f"{name}.patch" for name in names] or sorted(PATCHES.glob("*.patch"))
    mutants, wrong = [], []
    for path in paths:
        try:
            mutants.append(Mutant(path))
        except (OSError, ValueError) as error:
            wrong.append(f"{path.name}: {error}")
    for mutant in mutants:
        if complaint := mutant.complaint():
            wrong.append(f"{mutant.path.name}: {complaint}")
    return mutants, wrong


def changes_of(patch):
    """Of a patch: for each hunk, its file, and its lines as they are without and with the defect, context left out."""
    hunks, path, before, after = [], None, [], []
    for line in [*patch.splitlines(), "@@"]:
        if line.startswith(("@@", "diff ")):
            if before or after:
                hunks.append((path, before, after))
            before, after = [], []
        elif line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
        elif line.startswith("---"):
            continue
        elif line.startswith("-"):
            before.append(line[1:])
        elif line.startswith("+"):
            after.append(line[1:])
        elif before or after:  # context between changes of one hunk belongs to both
            before.append(line[1:])
            after.append(line[1:])
    return hunks


def without_tail(before, after):
    """Without the context after the last change."""
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return before, after


def renewed(path):
    """The patch for the sources as they are; an error if a hunk's lines are not there exactly once."""
    text = path.read_text()
    head = HEAD.match(text)
    texts = {}
    for file, before, after in changes_of(text[head.end():]):
        before, after = without_tail(before, after)
        source = texts.setdefault(file, (ROOT / file).read_text().splitlines())
        if not before:
            raise ValueError(f"a change of {file} only adds lines, and nothing says where")
        found = [i for i in range(len(source)) if source[i:i + len(before)] == before]
        if len(found) != 1:
            raise ValueError(f"{file} has the changed lines {len(found)} times")
        source[found[0]:found[0] + len(before)] = after
    out = text[:head.end()]
    for file, source in texts.items():
        was = (ROOT / file).read_text().splitlines()
        diff = difflib.unified_diff(was, source, f"a/{file}", f"b/{file}", lineterm="", n=2)
        out += "\n" + "\n".join([f"diff --git a/{file} b/{file}", *diff]) + "\n"
    return out


def renew(names):
    """Whether all could be renewed."""
    paths = [PATCHES / f"{name}.patch" for name in names] or sorted(PATCHES.glob("*.patch"))
    well = True
    for path in paths:
        if not names and Mutant(path).complaint() is None:
            continue
        try:
            path.write_text(renewed(path))
            print(f"{path.stem}: renewed")
        except ValueError as error:
            print(f"{path.stem}: {error}; write it anew", file=sys.stderr)
            well = False
    return well


def refresh_copy():
    """The working tree as it is; what has not changed keeps its time, so that little is built."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in wanted:
        source, copy = ROOT / name, COPY / name
        if copy.exists() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for folder in ("src", "tests", "bench"):
        for path in (COPY / folder).rglob("*"):
            if path.is_file() and path.relative_to(COPY).as_posix() not in wanted:
                path.unlink()


def build(program):
    command = ["cmake", "--build", str(BUILD), "--target", program]
    ran = subprocess.run(command, capture_output=True, text=True)
    return None if ran.returncode == 0 else ran.stdout + ran.stderr


def run(mutant):
    """(whether the test passed, what it said): one that ran no test has not passed."""
    program = next(path for path in (BUILD / "tests").rglob(mutant.program) if path.is_file())
    env = dict(os.environ)
    env.setdefault("QUIRE_DATA", str(ROOT.parent / "shared/data"))
    try:
        ran = subprocess.run([program, f"--gtest_filter={mutant.test}"], cwd=COPY, env=env, timeout=SECONDS,
                             capture_output=True, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return False, "did not end"
    passed = re.search(r"\[  PASSED  \] (\d+) test", ran.stdout)
    if ran.returncode == 0:
        skipped = "[  SKIPPED ]" in ran.stdout
        return bool(passed) and int(passed[1]) > 0 and not skipped, "no test ran"
    if ran.returncode < 0:
        return False, f"ended by signal {-ran.returncode}"
    failed = re.search(r"^(\S+):(\d+): Failure$", ran.stdout, re.M)
    # Without the line, which another change would make wrong.
    return False, pathlib.Path(failed[1]).name if failed else f"exit status {ran.returncode}"


def try_one(mutant):
    """What came of it, and whether the test did its work."""
    applied = mutant.apply(COPY)
    if applied.returncode:
        return "DOES NOT APPLY", False
    try:
        if broken := build(mutant.program):
            print(broken, file=sys.stderr)
            return "DOES NOT COMPILE", False
        passed, said = run(mutant)
        return ("SURVIVED", False) if passed else (f"caught ({said})", True)
    finally:
        mutant.apply(COPY, "-R")


def run_all(mutants):
    COPY.mkdir(parents=True, exist_ok=True)
    refresh_copy()
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=COPY, check=True, stdout=subprocess.DEVNULL)
    results = {}
    for program in sorted({mutant.program for mutant in mutants}):
        own = [mutant for mutant in mutants if mutant.program == program]
        if broken := build(program):
            sys.exit(f"{broken}\n{program} does not compile without a defect")
        sound = {mutant.name: run(mutant) for mutant in own}
        for mutant in own:
            passed, said = sound[mutant.name]
            results[mutant.name] = try_one(mutant) if passed else (f"FAILS WITHOUT IT ({said})", False)
            write_result(results)
            print(f"{mutant.name}: {results[mutant.name][0]}", flush=True)
        build(program)  # sound again
    return results


def write_result(results):
    """Those that were not tried this time keep their outcome, unless their patch names another test since."""
    path = PATCHES / "result.md"
    before = dict(re.findall(r"^(\| .* \|) ([^|]*) \|$", path.read_text(), re.M)) if path.exists() else {}
    rows = []
    for mutant in load([])[0]:
        row = f"| {mutant.name} | {mutant.what} | `{mutant.program} {mutant.test}` |"
        outcome = results[mutant.name][0] if mutant.name in results else before.get(row, "not tried")
        rows.append(f"{row} {outcome} |")
    caught = sum("| caught" in row for row in rows)
    path.write_text("\n".join([
        "# Planted defects", "",
        f"Written by `./dev mutants`: {caught} of {len(rows)} were caught by the test that their patch names, which passes",
        "without them. The last column says in which file that test failed first.", "",
        "| defect | what is broken | caught by | outcome |", "|---|---|---|---|", *rows]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--renew", action="store_true")
    args = parser.parse_args()
    if args.renew and not renew(args.names):
        sys.exit(1)
    mutants, wrong = load(args.names)
    if wrong:
        sys.exit("\n".join(wrong))
    if args.check or args.renew:
        print(f"{len(mutants)} planted defects apply, and their tests are there")
        return
    results = run_all(mutants)
    failures = [f"{name}: {outcome}" for name, (outcome, well) in sorted(results.items()) if not well]
    if failures:
        sys.exit("\n".join(failures))
    print(f"{len(mutants)} defects, all caught")


if __name__ == "__main__":
    main()
