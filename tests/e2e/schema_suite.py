#!/usr/bin/env python3
"""What the JSON-Schema-Test-Suite says of the schemas that are enforced: schema_suite.py SUITE/tests/draft2020-12

https://github.com/json-schema-org/JSON-Schema-Test-Suite. Each instance is said by the simulated device (--sim-answers) to a request
with its schema, which ends with status 400 where the grammar forbids it. An invalid instance is tried in several texts: none may be
accepted. Prints a table by file.
"""
import concurrent.futures
import json
import pathlib
import re
import sys
import tempfile

import openai

from server import QuireServer

REFUSED = re.compile(r"the schema at '(?P<pointer>[^']*)'")


def read(folder):
    """The groups of the suite: file, schema, tests."""
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        for group in json.loads(path.read_text()):
            yield path.stem, group["schema"], group["tests"]


def reversed_members(value):
    if isinstance(value, dict):
        return {name: reversed_members(value[name]) for name in reversed(value)}
    return [reversed_members(each) for each in value] if isinstance(value, list) else value


def texts(test):
    usual = json.dumps(test["data"], ensure_ascii=False)
    if test["valid"]:
        return [usual]
    others = [json.dumps(test["data"], ensure_ascii=False, separators=(",", ":")), json.dumps(test["data"], ensure_ascii=True),
              json.dumps(reversed_members(test["data"]), ensure_ascii=False), json.dumps(test["data"], ensure_ascii=False, indent=2)]
    return list(dict.fromkeys([usual, *others]))


def ask(client, schema, **more):
    return client.completions.create(model="", prompt="x", extra_body={"guided_json": json.dumps(schema)}, **more).choices[0]


def refusal(client, schema):
    """Why a schema is not enforced; None if it is."""
    try:
        ask(client, schema, max_tokens=1)
        return None
    except openai.BadRequestError as refused:
        return refused.body["message"]


def accepted(client, schema, text):
    try:
        choice = ask(client, schema, max_tokens=450)
    except openai.BadRequestError as refused:
        assert "the grammar leaves no token" in refused.body["message"], refused.body
        return False
    assert choice.finish_reason == "stop" and choice.text == text, (choice, text)
    return True


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    groups = list(read(sys.argv[1]))
    if not groups:
        sys.exit(f"{sys.argv[1]}: no *.json")
    with QuireServer("--device", "sim", "--sim-speed", 1000) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        why = list(pool.map(lambda group: refusal(connect(server), group[1]), groups))
    tried = [(file, schema, test["valid"], text) for (file, schema, tests), refused in zip(groups, why) if refused is None
             for test in tests for text in texts(test)]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as answers:
        answers.write("".join(json.dumps(text) + "\n" for *_, text in tried))
        answers.flush()
        with QuireServer("--device", "sim", "--sim-speed", 1000, "--sim-answers", answers.name) as server:
            client = connect(server)
            results = [(*each, accepted(client, each[1], each[3])) for each in tried]
    wrong = [each for each in results if each[4] and not each[2]]
    print("| file | schemas | refused | valid instances | accepted | invalid instances | accepted |\n|---|---|---|---|---|---|---|")
    for file in [*dict.fromkeys(group[0] for group in groups), None]:
        mine = [each for each in results if file in (None, each[0])]
        refused = [reason for group, reason in zip(groups, why) if file in (None, group[0]) and reason is not None]
        row = [sum(file in (None, group[0]) for group in groups), len(refused)]
        for valid in (True, False):
            row += [sum(each[2] == valid for each in mine), sum(each[2] == valid and each[4] for each in mine)]
        print(f"| {file or 'all'} | {' | '.join(map(str, row))} |")
    counts = {}
    for reason in filter(None, why):
        found = REFUSED.search(reason)
        keyword = re.sub(r".*/", "", found["pointer"]) if found else reason
        counts[keyword] = counts.get(keyword, 0) + 1
    print("\nRefused: " + ", ".join(f"{keyword or '#'} {count}" for keyword, count in sorted(counts.items(), key=lambda each: -each[1])))
    for file, schema, _, text, _ in wrong:
        print(f"WRONG: {file}: {text} is accepted by {json.dumps(schema)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
