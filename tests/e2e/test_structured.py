"""Answers that follow a schema, a regular expression, a choice or a grammar, over HTTP."""
import json
import math
import re
import threading
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest

import grammar_files
import random_answers
from grammars import grammar
from server import QuireServer


@pytest.fixture(scope="module")
def server():
    with QuireServer() as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none")


MESSAGES = [{"role": "user", "content": "Tell me about a little fox named Finn."}]


def ask(client, **more):
    extra = {name: more.pop(name) for name in list(more) if name not in ("response_format", "max_tokens", "n", "stream", "logprobs")}
    return client.chat.completions.create(model="", messages=MESSAGES, temperature=1.5, seed=more.pop("seed", 3),
                                          max_tokens=more.pop("max_tokens", 300), extra_body=extra, **more)


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def error_of(client, **more):
    with pytest.raises(openai.APIStatusError) as failed:
        ask(client, **more)
    return failed.value.status_code, failed.value.body


class Home(pydantic.BaseModel):
    place: str = pydantic.Field(pattern="^[a-z]{3,8}$")


class Fox(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=20)
    colours: list[Literal["red", "grey", "white"]] = pydantic.Field(max_length=3)
    home: Home | None = None


def test_the_client_parses_a_class(client):
    answer = client.chat.completions.parse(model="", messages=MESSAGES, response_format=Fox, seed=5, temperature=1.0, max_tokens=400)
    assert isinstance(answer.choices[0].message.parsed, Fox)


def test_answers_to_random_schemas_expressions_and_grammars_are_valid(client):
    """random_answers.py, run as a program, asks for more. How many answers end in time hangs on the sums of the machine's level."""
    assert random_answers.schemas(client, range(60))["finished"] >= 35
    assert random_answers.regexes(client, range(30))["finished"] >= 12
    assert random_answers.grammars(client, range(15))["finished"] >= 4


def test_grammar_files_are_followed(tmp_path, capsys):
    """grammar_files.py, run as a program, takes those of llama.cpp."""
    (tmp_path / "a.gbnf").write_text(grammar(3).text())
    assert grammar_files.try_files(tmp_path), capsys.readouterr().out
    (tmp_path / "b.gbnf").write_text('root ::= "a" missing')
    assert not grammar_files.try_files(tmp_path)
    assert "'missing', which is not defined" in capsys.readouterr().out


def test_ambiguous_grammars_end_their_own_client_only(tmp_path):
    """Masks that take ever longer: an answer ends, then the client has to wait; a client with another key does not."""
    keys = tmp_path / "keys"
    keys.write_text("one:first-key-0123456789\ntwo:second-key-0123456789\n")
    keys.chmod(0o600)
    with QuireServer("--api-key-file", keys) as running:
        first, second = (openai.OpenAI(base_url=running.url + "/v1", api_key=key, max_retries=0)
                         for key in ("first-key-0123456789", "second-key-0123456789"))
        codes = []
        for number in range(20):
            code, body = error_of(first, max_tokens=400, ignore_eos=True,
                                  grammar=f'root ::= "{number}"? s\ns ::= s s s | s s | [a-z ]')
            codes.append(code)
            if code == 429:
                break
            assert "too ambiguous or recursive" in body["message"]
        assert codes[0] == 400 and codes[-1] == 429, codes
        assert re.search(r"may use grammars again in [1-9][0-9]* s", body["message"]), body
        assert ask(first, max_tokens=5).choices[0].message.content
        assert ask(second, guided_choice=["a fox", "a bear"]).choices[0].message.content in ("a fox", "a bear")


def test_plain_grammars_are_read_as_they_were_written():
    for seed in range(50):
        one = grammar(seed)
        read = grammar_files.Gbnf(one.text())
        for text in ("", "fox", "a", "fox(", "bear, a", "1é🦊", "[]", "a a \n"):
            assert read.read(text) == one.read(text), (seed, text)


def test_every_form_is_followed(client):
    assert ask(client, structured_outputs={"choice": ["yes", "no way"]}).choices[0].message.content in ("yes", "no way")
    assert ask(client, guided_choice=["a", "b"]).choices[0].message.content in "ab"
    for more in ({"structured_outputs": {"regex": "[a-f]{3}-[0-9]{2}"}}, {"guided_regex": "[a-f]{3}-[0-9]{2}"}):
        assert re.fullmatch("[a-f]{3}-[0-9]{2}", ask(client, **more).choices[0].message.content)
    grammar = 'root ::= "<" ("fox" | "bear"){1,3} ">"'
    for more in ({"structured_outputs": {"grammar": grammar}}, {"guided_grammar": grammar}, {"grammar": grammar}):
        assert re.fullmatch("<(fox|bear){1,3}>", ask(client, **more).choices[0].message.content)
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["n"]}
    for more in ({"structured_outputs": {"json": schema}}, {"structured_outputs": {"json": json.dumps(schema)}}, {"guided_json": schema},
                 {"json_schema": schema}, {"response_format": {"type": "json_object", "schema": schema}}):
        assert json.loads(ask(client, **more).choices[0].message.content)["n"] in range(1, 6)
    tag = {"type": "structural_tag", "format": {"type": "tag", "begin": "<n>", "end": "</n>",
                                                "content": {"type": "json_schema", "json_schema": schema}}}
    for more in ({"structured_outputs": {"structural_tag": tag}}, {"structured_outputs": {"structural_tag": json.dumps(tag)}},
                 {"response_format": tag}):
        inside = re.fullmatch("<n>(.*)</n>", ask(client, **more).choices[0].message.content, re.DOTALL)
        assert json.loads(inside[1])["n"] in range(1, 6)
    triggered = {"type": "structural_tag", "triggers": [" "], "structures": [{"begin": " ", "schema": {"const": [7]}, "end": "|"}]}
    text = ask(client, response_format=triggered, max_tokens=60).choices[0].message.content
    assert re.fullmatch(r"[^ ]*( \[\s*7\s*\]\|[^ ]*)*( [^|]*)?", text), text
    answer = ask(client, response_format={"type": "json_object"}, max_tokens=400).choices[0]
    assert answer.finish_reason == "length" or isinstance(json.loads(answer.message.content), dict)


def test_logprobs_are_of_what_the_grammar_permits(client):
    words = ["a", "b", "c"]
    ids = [client.post("/../tokenize", body={"prompt": word, "add_special_tokens": False}, cast_to=object)["tokens"] for word in words]
    assert all(len(each) == 1 for each in ids)
    body = {"model": "", "prompt": "One day", "max_tokens": 1, "temperature": 0}
    labels = {"logprob_token_ids": [each[0] for each in ids]}
    for more in ({}, {"logit_bias": {str(ids[2][0]): 50}}):
        answer = client.completions.create(**body, logprobs=20, **more, extra_body={"structured_outputs": {"choice": words}}).choices[0]
        (top,) = answer.logprobs.top_logprobs
        assert set(top) == set(words) and abs(sum(map(math.exp, top.values())) - 1) < 1e-5
        assert answer.text == ("c" if more else max(top, key=top.get)) and answer.logprobs.token_logprobs == [top[answer.text]]
        # They differ from the model's own by what is missing.
        free = client.completions.create(**body, logprobs=0, extra_body=labels).choices[0].logprobs.top_logprobs[0]
        for word in words:
            assert abs(top[word] - free[word] - (top["a"] - free["a"])) < 1e-4 and free[word] < top[word]
    # A token that the grammar forbids has none, where it is asked for.
    forbidden = client.completions.create(**body, logprobs=0, extra_body={"structured_outputs": {"choice": ["a"]}, **labels})
    assert forbidden.choices[0].logprobs.top_logprobs[0] == {"a": 0, "b": -9999, "c": -9999}


def test_with_choices_logprobs_streams_and_ignored_ends(client):
    wanted = {"structured_outputs": {"regex": "(ab|cd){2}"}}
    answer = ask(client, n=3, logprobs=True, ignore_eos=True, **wanted)
    for choice in answer.choices:
        assert choice.finish_reason == "stop" and re.fullmatch("(ab|cd){2}", choice.message.content)
        assert all(entry.logprob <= 0 for entry in choice.logprobs.content)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, stream=True, **wanted) if chunk.choices)
    assert streamed == ask(client, **wanted).choices[0].message.content


def test_completions_follow_too(client):
    done = client.completions.create(model="", prompt="One, two,", max_tokens=30, seed=1, extra_body={"guided_regex": " [a-z]+!"})
    assert done.choices[0].finish_reason == "length" or re.fullmatch("[ ]?[a-z]+!", done.choices[0].text)


def test_what_cannot_be_followed_is_refused(client):
    status, body = error_of(client, response_format=schema_format({"properties": {"a": {"not": {}}}}))
    assert status == 400 and "'#/properties/a/not'" in body["message"] and body["param"] == "response_format.json_schema.schema"
    assert error_of(client, guided_regex="a(?=b)")[0] == 400
    assert error_of(client, grammar="root ::= a")[1]["param"] == "grammar"
    assert error_of(client, guided_choice=[])[0] == 400
    assert error_of(client, guided_regex="a", guided_choice=["b"])[0] == 400
    assert error_of(client, response_format={"type": "xml"})[0] == 400
    assert error_of(client, structured_outputs={"json": "{"})[0] == 400
    assert error_of(client, guided_choice=["a"], use_beam_search=True)[0] == 400
    # Nothing is compiled for a request that is refused anyway.
    too_long = error_of(client, guided_regex="([a-z]{1,120}x){1,120}", max_tokens=100_000)
    assert too_long[0] == 400 and "maximum context length" in too_long[1]["message"]


def test_a_request_that_contradicts_itself_is_at_fault(client):
    contradicting = {"guided_regex": "x{40}", "allowed_token_ids": [1]}
    wanted = {"max_tokens": 60, "seed": 4}
    alone = ask(client, **wanted).choices[0].message.content
    for more in (contradicting, {"guided_choice": ["a"], "min_tokens": 40}, {**contradicting, "n": 3}):
        status, body = error_of(client, **more)
        assert status == 400 and body["type"] == "invalid_request_error"
        assert "the grammar" in body["message"] and "leave no token for position" in body["message"]
    with pytest.raises(openai.APIError) as ended:
        list(ask(client, stream=True, **contradicting))
    assert ended.value.body["type"] == "invalid_request_error" and "allowed_token_ids and the grammar" in ended.value.body["message"]
    assert ask(client, **wanted).choices[0].message.content == alone


def test_a_simulated_device_follows_too():
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["a", "n"], "additionalProperties": False}
    with QuireServer("--device", "sim") as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
        for seed in range(5):
            answer = ask(client, seed=seed, response_format=schema_format(schema), logprobs=True).choices[0]
            assert answer.finish_reason == "stop"
            jsonschema.validate(json.loads(answer.message.content), schema)
        assert ask(client, guided_choice=["yes", "no"], n=2).choices[1].message.content in ("yes", "no")


def test_a_hostile_grammar_disturbs_no_other_request(client):
    alone = ask(client, seed=9, max_tokens=120).choices[0].message.content
    failures = []

    def attack():
        for pattern in ("((a{1,100}){1,100}){1,2}", "([a-z]{1,120}x){1,120}"):
            try:
                ask(client, guided_regex=pattern, max_tokens=5)
            except openai.BadRequestError as refused:
                failures.append(refused.body["message"])

    attackers = [threading.Thread(target=attack) for _ in range(3)]
    for each in attackers:
        each.start()
    for _ in range(5):
        assert ask(client, seed=9, max_tokens=120).choices[0].message.content == alone
    for each in attackers:
        each.join()
    assert ask(client, guided_choice=["a"]).choices[0].message.content == "a"
    assert client.models.list().data
