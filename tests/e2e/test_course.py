"""The course: what its commands print, what it quotes of the code, and that its links lead somewhere.

QUIRE_WRITE_DOCS=1 writes into the lessons what the commands print now, but where a lesson shows only a part ("...").
"""
import os
import pathlib
import re
import subprocess

import pytest

from test_cli import QUIRE, ROOT

COURSE = ROOT / "docs/course"
LESSONS = sorted(COURSE.glob("[0-9]*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
# A command and what it prints, with nothing but blank lines between.
EXPERIMENT = re.compile(r"^```sh\n(?P<command>.*?)^```\n\n```text\n(?P<output>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


def run(command, folder):
    """What the commands of a lesson print, from the repository's folder; the files that they name are in `folder`."""
    (folder / "models").exists() or (folder / "models").symlink_to(ROOT / "models")
    program = 'quire() { "$QUIRE" "$@"; }\nset -eo pipefail\n'
    done = subprocess.run(["bash", "-c", program + command], cwd=folder, env={**os.environ, "QUIRE": QUIRE}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, command + done.stderr
    return done.stdout


def is_shown(expected, printed):
    """Whether all is there as it is shown; a line of "..." stands for any number of lines."""
    pieces = re.split(r"^\.\.\.\n", expected, flags=re.M)
    return printed != "" and re.fullmatch("(?:.*\n)*".join(map(re.escape, pieces)), printed) is not None


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_experiments_print_what_is_shown(tmp_path, lesson):
    text = lesson.read_text()
    for experiment in list(EXPERIMENT.finditer(text)):
        printed = run(experiment["command"], tmp_path)
        if os.environ.get("QUIRE_WRITE_DOCS") and "...\n" not in experiment["output"]:
            text = text.replace(experiment[0], f"```sh\n{experiment['command']}```\n\n```text\n{printed}```")
            lesson.write_text(text)
        else:
            assert is_shown(experiment["output"], printed), experiment["command"] + printed


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_quotes_are_in_the_source_that_was_named_last(lesson):
    text = lesson.read_text()
    quotes = [block for block in BLOCK.finditer(text) if block[1] == "cpp"]
    assert quotes
    for quote in quotes:
        sources = [link[1] for link in LINK.finditer(text[:quote.start()]) if "/src/" in link[1]]
        found = sources and "\n" + quote[2] in (COURSE / sources[-1]).read_text()
        assert found, f"{lesson.name}: not whole lines of {sources[-1:]}:\n{quote[2]}"


def test_every_output_is_that_of_a_command():
    """And every command's is shown, but for these."""
    silent = []
    for page in COURSE.glob("*.md"):
        text = EXPERIMENT.sub("", page.read_text())
        silent += [block[2] for block in BLOCK.finditer(text) if block[1] == "sh"]
        assert not [block[0] for block in BLOCK.finditer(text) if block[1] not in ("sh", "cpp")], page
        assert EXPERIMENT.search(page.read_text()) or page.name == "README.md"
    assert sorted(silent) == ["./dev demo\n", "export PATH=$PWD/build/release:$PATH\n"]


def test_links_lead_somewhere():
    for page in COURSE.glob("*.md"):
        for target, anchor in LINK.findall(page.read_text()):
            if target.startswith("http"):
                continue
            place = COURSE / target
            assert place.exists(), f"{page.name}: {target}"
            titles = re.findall(r"^#+ (.*)", place.read_text(), re.M) if anchor else []
            slugs = ["#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert not anchor or anchor in slugs, f"{page.name}: {target}{anchor}"


def test_the_index_has_every_lesson_in_order():
    assert re.findall(r"^\d+\. \[.*?\]\((.*?)\)", (COURSE / "README.md").read_text(), re.M) == [lesson.name for lesson in LESSONS]
    assert len(LESSONS) == 8
