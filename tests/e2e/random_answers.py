#!/usr/bin/env python3
"""Answers that follow random schemas, regular expressions and grammars, checked by implementations of others or plain ones.

  random_answers.py [--schemas 500] [--regexes 200] [--grammars 50]    writes a table; the tests run fewer

Each answer is of the demo model at temperature 1.5. Those that max_tokens cuts are not checked; all others must be valid.
"""
import argparse
import collections
import concurrent.futures
import json
import re

import jsonschema
import openai

from grammars import grammar
from regexes import Regexes
from schemas import Generator
from server import QuireServer

MESSAGES = [{"role": "user", "content": "Tell me about a little fox named Finn."}]
CANNOT = ("is not supported", "are not supported", "no instance", "needs minimum", "does not imply", "may both hold")  # what a schema is refused for


def ask(client, seed, **more):
    return client.chat.completions.create(model="", messages=MESSAGES, temperature=1.5, seed=seed, max_tokens=400, **more).choices[0]


def count(seeds, answer, check):
    """`answer`: of a seed, the choice, or None if it is refused. `check`: raises for a seed's text that is not valid."""
    out = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        choices = pool.map(answer, seeds)
    for seed, choice in zip(seeds, choices):
        if choice is None:
            out["refused"] += 1
        elif choice.finish_reason == "length":
            out["cut"] += 1
        else:
            assert choice.finish_reason == "stop", choice
            out["finished"] += 1
            check(seed, choice.message.content)
    return out


def schemas(client, seeds):
    def answer(seed):
        schema = Generator(seed).document()
        try:
            return ask(client, seed, response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}})
        except openai.BadRequestError as refused:
            assert any(words in refused.body["message"] for words in CANNOT), (seed, refused.body)
            return None

    def check(seed, text):
        jsonschema.validate(json.loads(text), Generator(seed).document(), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)

    return count(seeds, answer, check)


def regexes(client, seeds):
    def check(seed, text):
        pattern = Regexes(seed).document()
        assert re.fullmatch(pattern, text, re.ASCII), (seed, pattern, text)

    return count(seeds, lambda seed: ask(client, seed, extra_body={"guided_regex": Regexes(seed).document()}), check)


def grammars(client, seeds):
    told_apart = []

    def check(seed, text):
        one = grammar(seed)
        assert one.has(text), (seed, one.text(), text)
        told_apart.append(not one.has(text + "?"))

    done = count(seeds, lambda seed: ask(client, seed, extra_body={"grammar": grammar(seed).text()}), check)
    assert sum(told_apart) > len(told_apart) / 2  # else the check would say yes to anything
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("schemas", 500), ("regexes", 200), ("grammars", 50)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    wanted = vars(parser.parse_args())
    print("| | asked | refused | cut by `max_tokens` | finished, all valid |\n|---|---|---|---|---|")
    with QuireServer() as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        for name, run in (("schemas", schemas), ("regexes", regexes), ("grammars", grammars)):
            done = run(client, range(wanted[name]))
            print(f"| {name} | {wanted[name]} | {done['refused']} | {done['cut']} | {done['finished']} |", flush=True)


if __name__ == "__main__":
    main()
