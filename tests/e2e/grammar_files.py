#!/usr/bin/env python3
"""Whether grammar files of others are taken and followed: grammar_files.py FOLDER [--tests LLAMA.CPP/tests]

FOLDER: of *.gbnf files, such as llama.cpp's grammars/. The demo model answers under each of them; a plain recognizer reads
what it says. LLAMA.CPP/tests: of a source tree of llama.cpp. The grammars that stand in its test programs are tried too, with the
texts that these expect to be permitted and refused (said by the simulated device). Prints tables. Exit status 1: a right grammar is
refused, but for tokens, or an answer is wrong.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import sys
import tempfile

import openai

from grammars import Grammar
from server import QuireServer

SEEDS = 16
# Of a C++ source. `call`: with what it is given, that is, no literal.
PIECE = re.compile(r'//[^\n]*|/\*.*?\*/|\s+|R"(?P<mark>[^(]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<plain>(?:\\.|[^"\\])*)"|(?P<call>\w+\([^)]*\))|(?P<sign>.)', re.S)
TOKENS = "tokens (<...>) are not supported"


class Gbnf(Grammar):
    """A file as an expression of grammars.py. It takes what is right; of what is wrong it may take anything."""

    def __init__(self, text):
        self.text_, self.at, self.numbers, self.rules = text, 0, {"root": 0}, [None]
        while self.here(r"(?:\s|#[^\n]*)*([\w-]+)\s*::=", take=True):
            number = self.number_of(self.found[1])
            self.rules[number] = self.ways()
        assert self.at == len(text) and None not in self.rules, (text[self.at:], self.numbers)

    def number_of(self, name):
        if name not in self.numbers:
            self.numbers[name] = len(self.rules)
            self.rules.append(None)
        return self.numbers[name]

    def here(self, pattern, take=False):
        self.found = re.compile(pattern).match(self.text_, self.at)
        if self.found and take:
            self.at = self.found.end()
        return bool(self.found)

    def space(self):
        self.here(r"(?:\s|#[^\n]*)*", take=True)

    def ways(self):
        ways, parts = [], []
        while True:
            self.space()
            if self.at == len(self.text_) or self.here(r"\)|[\w-]+\s*::="):
                return ("one", (*ways, ("all", tuple(parts))))
            if self.here(r"\|", take=True):
                ways, parts = [*ways, ("all", tuple(parts))], []
            else:
                parts.append(self.item())

    def item(self):
        if self.here(r'"', take=True):
            out = ("text", "".join(self.characters('"')))
        elif self.here(r"\[(\^?)", take=True):
            inverted, ranges = bool(self.found[1]), []
            for c in self.characters("]"):
                ranges.append((c, c))
                if self.here(r"-(?!\])", take=True):
                    ranges[-1] = (c, self.character())
            out = ("set", inverted, tuple(ranges))
        elif self.here(r"\.", take=True):
            out = ("any",)
        elif self.here(r"\(", take=True):
            out = self.ways()
            assert self.here(r"\)", take=True), self.text_[self.at:]
        else:
            assert self.here(r"[\w-]+", take=True), self.text_[self.at:]
            out = ("rule", self.number_of(self.found[0]))
        while self.here(r"\s*(?:([*+?])|\{\s*(\d+)\s*(,?)\s*(\d*)\s*\})", take=True):
            sign, low, comma, high = self.found.groups()
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign] if sign else (int(low), int(high) if high else None if comma else int(low))
            out = ("times", out, *bounds)
        return out

    def characters(self, end):
        while self.text_[self.at] != end:
            yield self.character()
        self.at += 1

    def character(self):
        assert self.here(r"\\x(..)|\\u(.{4})|\\U(.{8})|\\(.)|(.)", take=True) or self.here(r"(\n)", take=True)
        digits = self.found[0][2:] if self.found[0][:2] in ("\\x", "\\u", "\\U") else None
        return chr(int(digits, 16)) if digits else {"\\n": "\n", "\\r": "\r", "\\t": "\t"}.get(self.found[0], self.found[0][-1])


def answers(client, grammar):
    def ask(seed):
        return client.chat.completions.create(model="", messages=[{"role": "user", "content": "Tell me of Finn."}], seed=seed, max_tokens=300,
                                              temperature=(0, 0.7, 1, 1.5)[seed % 4], extra_body={"grammar": grammar}).choices[0]
    with concurrent.futures.ThreadPoolExecutor(SEEDS) as pool:
        return list(pool.map(ask, range(SEEDS)))


def try_files(folder):
    """Whether all is as wanted."""
    good = True
    print(f"| file | bytes | taken | of {SEEDS} answers, all permitted: cut by `max_tokens` | finished |\n|---|---|---|---|---|")
    with QuireServer() as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        for path in sorted(folder.glob("*.gbnf")):
            text = path.read_text()
            row = f"| {path.name} | {len(text.encode())} |"
            try:
                choices = answers(client, text)
            except openai.BadRequestError as refused:
                print(f"{row} no: {refused.body['message']} | | |")
                good = False
                continue
            ended = [choice.message.content for choice in choices if choice.finish_reason == "stop"]
            cut = [choice.message.content.removesuffix("\ufffd") for choice in choices if choice.finish_reason == "length"]
            assert len(ended) + len(cut) == SEEDS
            plain = Gbnf(text)
            wrong = [answer for answer in ended if not plain.has(answer)] + [answer for answer in cut if not plain.begins(answer)]
            for answer in wrong:
                print(f"WRONG: {path.name}: {json.dumps(answer)}")
            good = good and not wrong
            print(f"{row} yes | {len(cut)} | {len(ended)} |", flush=True)
    return good


def calls(source, begin):
    """The calls in a C++ source that begin like that, up to their first argument: the literal arguments of each, a list as a list.
    Elements that are no literal are left out."""
    for found in re.finditer(begin, source):
        arguments, into, element = [], None, []
        for piece in PIECE.finditer(source, found.end()):
            kind = piece.lastgroup
            if kind == "raw":
                element.append(piece["raw"])
            elif kind == "plain":
                element.append(re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t", "r": "\r"}.get(escape[1], escape[1]), piece["plain"]))
            elif kind and piece[0] not in list(",{})"):
                element.append(None)
            elif kind:
                if element and None not in element:
                    (arguments if into is None else into).append("".join(element))
                element = []
                if piece[0] == ")" or (piece[0] == "}" and into is None):
                    break
                if piece[0] == "{":
                    into = []
                    arguments.append(into)
                elif piece[0] == "}":
                    into = None
        if arguments:
            yield arguments


def groups(folder):
    """Of llama.cpp's test programs: where it stands, grammar, texts that are permitted, texts that are not; None: it is to be refused."""
    def read(program):
        return (folder / f"{program}.cpp").read_text()

    program = "test-grammar-integration"
    for _, grammar, yes, no in calls(read(program), r"(?<!void )test_grammar\("):
        yield program, grammar, yes, no
    program = "test-grammar-parser"
    for function, yes in (("parsing", []), ("failure", None)):
        for grammar, *_ in calls(read(program), rf"(?<!void )verify_{function}\("):
            yield program, grammar, yes, []
    program = "test-json-schema-to-grammar"
    for *_, grammar in calls(read(program), r"test\(\{\s*SUCCESS,"):
        yield program, grammar, [], []


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def refusal(client, grammar):
    """Why a grammar is not taken; None if it is."""
    try:
        client.completions.create(model="", prompt="x", max_tokens=1, extra_body={"grammar": grammar})
        return None
    except openai.BadRequestError as refused:
        return refused.body["message"]


def permits(client, grammar, text):
    try:
        choice = client.completions.create(model="", prompt="x", max_tokens=450, extra_body={"grammar": grammar}).choices[0]
    except openai.BadRequestError as refused:
        assert "the grammar leaves no token" in refused.body["message"], refused.body
        return False
    assert choice.finish_reason == "stop" and choice.text == text, (choice, text)
    return True


def try_tests(folder):
    """Whether all is as wanted."""
    every = list(groups(folder))
    assert every, folder
    with QuireServer("--device", "sim", "--sim-speed", 1000) as server:
        why = [refusal(connect(server), grammar) for _, grammar, *_ in every]
    said = [(grammar, text, wanted) for (_, grammar, yes, no), refused in zip(every, why) if refused is None and yes is not None
            for texts, wanted in ((yes, True), (no, False)) for text in texts]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(text) + "\n" for _, text, _ in said))
        file.flush()
        with QuireServer("--device", "sim", "--sim-speed", 1000, "--sim-answers", file.name) as server:
            client = connect(server)
            results = [(grammar, text, wanted, permits(client, grammar, text)) for grammar, text, wanted in said]
    good = all(wanted == permitted for *_, wanted, permitted in results)
    for grammar, text, wanted, permitted in results:
        if wanted != permitted:
            print(f"WRONG: {json.dumps(text)} is {'permitted' if permitted else 'not permitted'} by {grammar}")
    for (program, grammar, yes, _), refused in zip(every, why):
        if refused is not None and yes is not None:
            good = good and TOKENS in refused
            print(f"REFUSED: {program}: {refused}: {grammar}")
        elif refused is None and yes is None:
            print(f"TAKEN, unlike by llama.cpp: {grammar}")
    print("| program | right grammars | taken | wrong ones | refused | right texts | permitted | wrong ones | permitted |\n|---|---|---|---|---|---|---|---|---|")
    for program in dict.fromkeys(each[0] for each in every):
        row = []
        for wanted in (True, False):
            mine = [refused for (name, _, yes, _), refused in zip(every, why) if name == program and (yes is not None) == wanted]
            row += [len(mine), sum((refused is None) == wanted for refused in mine)]
        mine = {grammar for name, grammar, *_ in every if name == program}
        for wanted in (True, False):
            texts = [permitted for grammar, _, each, permitted in results if grammar in mine and each == wanted]
            row += [len(texts), sum(texts)]
        print(f"| {program} | {' | '.join(map(str, row))} |")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tests", type=pathlib.Path)
    wanted = parser.parse_args()
    if not list(wanted.folder.glob("*.gbnf")):
        sys.exit(f"{wanted.folder}: no *.gbnf")
    good = try_files(wanted.folder)
    if wanted.tests:
        print()
        good = try_tests(wanted.tests) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
