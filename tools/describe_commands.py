#!/usr/bin/env python3
"""Generates man pages and a bash completion from the program's help texts.

describe_commands.py QUIRE FOLDER    runs `QUIRE [COMMAND...] --help` for every command and writes
                                     FOLDER/man1/quire.1 and quire-COMMAND.1, and FOLDER/quire.bash

The help texts have the form that src/cli/help_formatter.cpp gives them: groups of `  NAMES VALUE    description`, then free text.
"""
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys

COLUMN = 38  # where descriptions begin


@dataclasses.dataclass
class Item:
    """An option, an argument or a command below this one."""
    names: list
    value: str  # what stands behind the names: "N=16 (16 to 1024)"
    text: str

    @property
    def type(self):
        return re.split(r"[ =]", self.value)[0]

    @property
    def takes_value(self):
        return bool(self.value) and not self.value.startswith("(")

    @property
    def choices(self):
        """The words that it accepts, if the value is {a,b} or the description lists them."""
        if braces := re.match(r"\{(.*?)\}", self.value):
            return braces[1].split(",")
        if self.type not in ("TYPE", "NAME", "LEVEL", "FORMAT", "SHAPE"):
            return []
        plain = re.sub(r" \([^)]*\)", "", self.text)
        listed = re.search(r"(?:^|: )((?:[\w.-]+, )+[\w.-]+(?: or [\w.-]+)?)(?:;|$)", plain)
        return re.split(r", | or ", listed[1]) if listed else []

    @property
    def completion(self):
        """How a shell completes its value: "words ...", file, folder, model, or text (not at all)."""
        if self.choices:
            return "words " + " ".join(self.choices)
        if self.type == "MODEL":
            return "model"
        if self.type in ("DIR", "[DIR]"):
            return "folder"
        return "file" if self.type in ("FILE", "FILE|NAME", "LOG", "IN", "OUT", "PATH") else "text"


@dataclasses.dataclass
class Command:
    path: tuple
    summary: str
    usage: str
    groups: list  # (title, items)
    notes: str

    def items(self, *titles):
        return [item for title, items in self.groups if title in titles for item in items]

    @property
    def arguments(self):
        return self.items("Arguments")

    @property
    def commands(self):
        return self.items("Commands", "Subcommands")

    @property
    def options(self):
        return [item for _, items in self.groups for item in items if item.names[0].startswith("-")]

    @property
    def name(self):
        return "-".join(("quire", *self.path))


def parse_item(lines):
    head, text = lines[0][2:], []
    # After a long head, the description begins in the next line.
    if len(lines[0]) > COLUMN and lines[0][COLUMN - 1] == " ":
        head, text = lines[0][2:COLUMN], [lines[0][COLUMN:]]
    names, _, value = head.strip().partition(" ")
    return Item(names.split(","), value, " ".join(line.strip() for line in text + lines[1:]))


def parse_group(paragraph):
    """(title, items), or None for free text."""
    title, *lines = paragraph.split("\n")
    if not title.endswith(":") or not lines or not re.match(r"  \S", lines[0]):
        return None
    if title not in ("Arguments:", "Commands:", "Subcommands:") and not lines[0].startswith("  -"):
        return None
    starts = [at for at, line in enumerate(lines) if re.match(r"  \S", line)]
    return title[:-1], [parse_item(lines[at:end]) for at, end in zip(starts, starts[1:] + [len(lines)])]


def parse_help(path, text):
    head, *paragraphs = re.split(r"\n\n+", text.strip("\n"))
    summary, _, usage = head.partition("\nUsage: ")
    if not usage:
        raise ValueError(f"quire {' '.join(path)} --help has no line 'Usage: ...'")
    groups = []
    while paragraphs and (group := parse_group(paragraphs[0])):
        groups.append(group)
        paragraphs.pop(0)
    return Command(path, summary, usage, groups, "\n\n".join(paragraphs))


def read_commands(quire, path=()):
    text = subprocess.run([quire, *path, "--help"], capture_output=True, text=True, check=True).stdout
    command = parse_help(path, text)
    found = [command]
    for each in command.commands:
        found += read_commands(quire, (*path, each.names[0]))
    return found


# ---- Man pages ----


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").replace("^", "\\(ha")
    return re.sub(r"^\.", r"\\&.", text.replace("~", "\\(ti"), flags=re.M)


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def roff_items(items):
    out = []
    for item in items:
        names = ", ".join(map(bold, item.names))
        out += [".TP", f"{names} {roff(item.value)}".rstrip(), roff(item.text)]
    return out


def reference(name, last=False):
    return f".BR {roff(name)} (1)" + ("" if last else " ,")


EXIT_STATUS = """.SH EXIT STATUS
0: success. 1: the command failed; a line on standard error says why. 2: the command line was wrong.
130: Ctrl\-C ended a simulation, calibration or benchmark; what there was by then is printed or written."""


def man_page(command, commands, version):
    others = [each.name for each in commands if each.path[:-1] == command.path and each.path]
    above = ["-".join(("quire", *command.path[:-1]))] if command.path else []
    summary = command.summary.splitlines()[0]
    summary = summary.removeprefix("quire serves").strip() if not command.path else summary
    out = [f'.TH {roff(command.name.upper())} 1 "" "quire {roff(version)}" "User Commands"', ".nh", ".ad l", ".SH NAME",
           f"{roff(command.name)} \\- {roff('serve ' + summary.rstrip('.') if not command.path else summary)}", ".SH SYNOPSIS",
           bold(command.usage.split(" [OPTIONS]")[0]) + roff(" [OPTIONS]" + command.usage.partition(" [OPTIONS]")[2])]
    for title, items in command.groups:
        if title in ("Commands", "Subcommands"):
            out.append(".SH COMMANDS")
        elif title in ("Arguments", "Options"):
            out.append(f".SH {title.upper()}")
        else:
            out.append(f".SS {roff(title)}")
        out += roff_items(items)
    if command.notes:
        out += [".SH NOTES", ".nf", roff(command.notes), ".fi"]
    out.append(EXIT_STATUS)
    related = above + others
    if related:
        out += [".SH SEE ALSO", *(reference(name, name == related[-1]) for name in related)]
    return "\n".join(out) + "\n"


# ---- Completion ----

COMPLETION = r'''# bash completion for quire, generated by tools/describe_commands.py from the program's help texts.

# The subcommands and flags of a command.
_quire_lists() {
    case $1 in
@LISTS@
    esac
}

# How the value of a command's flag, or its N-th argument, is completed; empty: the flag has no value.
_quire_kind() {
    case $1 in
@KINDS@
        *) kind= ;;
    esac
}

_quire_complete() {
    local kind=$1
    case $kind in
        words\ *) mapfile -t COMPREPLY < <(compgen -W "${kind#words }" -- "$cursor") ;;
        file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cursor") ;;
        folder) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cursor") ;;
        model) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cursor"; compgen -f -X '!*.gguf' -- "$cursor") ;;
    esac
}

_quire() {
    local cursor=${COMP_WORDS[COMP_CWORD]} path="" places=0 awaited="" asks_help="" word kind commands flags i
    COMPREPLY=()
    _quire_lists "$path"
    for ((i = 1; i < COMP_CWORD; ++i)); do
        word=${COMP_WORDS[i]}
        if [[ $word == "=" ]]; then
            continue  # bash splits --flag=value into three words
        elif [[ -n $awaited && $word != -* ]]; then
            awaited=""
        elif [[ $word == -* ]]; then
            _quire_kind "$path $word"
            awaited=$kind
        elif [[ $i == 1 && $word == help ]]; then
            asks_help=yes
        elif [[ " $commands " == *" $word "* ]]; then
            path="${path:+$path }$word"
            _quire_lists "$path"
        else
            ((++places))
        fi
    done
    [[ $cursor == "=" ]] && cursor=""
    if [[ -n $asks_help ]]; then
        _quire_complete "words $commands"
    elif [[ -n $awaited && $cursor != -* ]]; then
        _quire_complete "$awaited"
    elif [[ $cursor == -* ]]; then
        _quire_complete "words $flags"
    elif [[ -n $commands ]]; then
        [[ -z $path ]] && commands+=" help"
        _quire_complete "words $commands"
    else
        _quire_kind "$path $((places + 1))"
        _quire_complete "$kind"
    fi
}

complete -F _quire quire
'''


def completion(commands):
    lists, kinds = [], []
    for command in commands:
        path = " ".join(command.path)
        below = " ".join(item.names[0] for item in command.commands)
        flags = " ".join(name for item in command.options for name in item.names if name.startswith("--"))
        lists.append(f'        "{path}") commands="{below}" flags="{flags}" ;;')
        for item in command.options:
            if item.takes_value:
                patterns = "|".join(f'"{path} {name}"' for name in item.names)
                kinds.append(f'        {patterns}) kind="{item.completion}" ;;')
        for place, item in enumerate(command.arguments, 1):
            kinds.append(f'        "{path} {place}") kind="{item.completion}" ;;')
    return COMPLETION.replace("@LISTS@", "\n".join(lists)).replace("@KINDS@", "\n".join(kinds))


def main():
    quire, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    commands = read_commands(quire)
    version = subprocess.run([quire, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    pages = folder / "man1"
    shutil.rmtree(pages, ignore_errors=True)  # commands may have been removed
    pages.mkdir(parents=True)
    for command in commands:
        (pages / f"{command.name}.1").write_text(man_page(command, commands, version))
    (folder / "quire.bash").write_text(completion(commands))


if __name__ == "__main__":
    main()
