"""The server as the official OpenAI client sees it."""
import array
import concurrent.futures
import json
import math
import re
import signal
import subprocess
import threading
import time
import typing
import urllib.error
import urllib.request

import openai
import pytest

from server import MODEL, MODEL_NAME, QUIRE, ROOT, QuireServer

FOX = [{"role": "user", "content": "Tell me a story about a little fox named Finn."}]


@pytest.fixture(scope="module")
def server():
    with QuireServer("--max-num-seqs", 64) as running:
        yield running


def test_every_field_that_the_client_knows_stands_in_the_docs():
    from openai.types import completion_create_params as completions
    from openai.types.chat import completion_create_params as chat
    page = (ROOT / "docs" / "api.md").read_text()
    parts = {chat: page[page.index("## POST /v1/chat/completions"):],
             completions: page[page.index("## POST /v1/completions"):page.index("## POST /v1/chat/completions")]}
    for module, part in parts.items():
        fields = set(typing.get_type_hints(module.CompletionCreateParamsBase)) | {"stream"}
        assert len(fields) > 15 and [name for name in sorted(fields) if f"`{name}`" not in part] == []


def make_client(server, key="none"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def client(server):
    return make_client(server)


def chat(client, messages=FOX, **options):
    return client.chat.completions.create(model=MODEL_NAME, messages=messages, **options)


def complete(client, prompt, **options):
    return client.completions.create(model=MODEL_NAME, prompt=prompt, **options)


# ---- What is answered ----

def test_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL_NAME]
    assert models[0].max_model_len == 512
    assert client.models.retrieve(MODEL_NAME).object == "model"


def test_chat_is_what_transformers_says(client):
    """The expected greedy text was made with Hugging Face transformers."""
    for case in json.loads((MODEL / "expected_greedy_f32.json").read_text()):
        # As far as no two logits are so close that rounding decides.
        length = next((i for i, gap in enumerate(case["gaps"]) if gap < 0.1), len(case["gaps"]))
        answer = chat(client, case["messages"], temperature=0, max_completion_tokens=max(1, length),
                      extra_body={"return_token_ids": True, "ignore_eos": True})
        choice = answer.choices[0]
        assert answer.prompt_token_ids == case["prompt_ids"]
        assert choice.token_ids[:length] == case["greedy_ids"][:length]
        assert answer.usage.prompt_tokens == len(case["prompt_ids"])


def test_chat(client):
    answer = chat(client, temperature=0, max_tokens=30)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL_NAME
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content.startswith("Once upon a time")
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 30
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 30


def test_chat_streamed_is_chat(client):
    options = dict(seed=3, max_completion_tokens=60, temperature=0.8)
    whole = chat(client, **options)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}, **options))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens,
                                                              whole.usage.completion_tokens)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == whole.choices[0].finish_reason


def test_token_ids_stand_where_vllm_has_them(client):
    options = dict(temperature=0, max_tokens=10, extra_body={"return_token_ids": True})
    whole = chat(client, **options)
    assert not hasattr(whole.choices[0], "prompt_token_ids")
    chunks = list(chat(client, stream=True, **options))
    assert chunks[0].prompt_token_ids == whole.prompt_token_ids
    assert not any(hasattr(chunk, "prompt_token_ids") for chunk in chunks[1:])
    assert sum((chunk.choices[0].token_ids for chunk in chunks[1:]), []) == whole.choices[0].token_ids
    plain = complete(client, "One day", **options)
    chunks = list(complete(client, "One day", stream=True, **options))
    assert chunks[0].choices[0].prompt_token_ids == plain.choices[0].prompt_token_ids
    assert sum((chunk.choices[0].token_ids for chunk in chunks), []) == plain.choices[0].token_ids


@pytest.mark.parametrize("streams", [1, 16])
def test_a_chunk_a_token(client, streams):
    """Whoever counts chunks counts tokens, also where several are written at once."""
    def read(i):
        counts = []
        for chunk in complete(client, "One day", seed=i, max_tokens=200, stream=True, extra_body={"ignore_eos": True},
                              stream_options={"include_usage": True, "continuous_usage_stats": True}):
            if chunk.choices:
                counts.append(chunk.usage.completion_tokens)
        return counts

    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        for counts in pool.map(read, range(streams)):
            assert counts == list(range(1, 201))


def test_a_developers_message_is_the_systems(client):
    def ids(role):
        return chat(client, [{"role": role, "content": "You tell sad stories."}] + FOX, max_tokens=1,
                    extra_body={"return_token_ids": True}).prompt_token_ids

    assert ids("developer") == ids("system")
    assert len(ids("developer")) > len(chat(client, max_tokens=1, extra_body={"return_token_ids": True})
                                       .prompt_token_ids)


def test_completion_streamed_is_completion(client):
    options = dict(seed=9, max_tokens=40, n=2)
    whole = complete(client, "Once upon a time", **options)
    texts = ["", ""]
    for chunk in complete(client, "Once upon a time", stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert texts[0] != texts[1]


def test_prompts_in_all_forms(client):
    text = complete(client, "One day", temperature=0).choices[0].text
    ids = json.loads(post(client, "/tokenize", {"prompt": "One day"})[1])["tokens"]
    assert complete(client, ids, temperature=0).choices[0].text == text
    many = complete(client, ["One day", "The cat"], temperature=0, n=2)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert many.choices[0].text == many.choices[1].text == text
    assert complete(client, [ids, ids], temperature=0).choices[1].text == text


def test_echo(client):
    answer = complete(client, "One day", temperature=0, max_tokens=5, echo=True)
    assert answer.choices[0].text.startswith("One day")


@pytest.fixture(scope="module")
def scored(client, tmp_path_factory):
    """Three prompts, and of each the log probabilities of all tokens by `quire logits`."""
    prompts = [json.loads(post(client, "/tokenize", {"prompt": text})[1])["tokens"]
               for text in ("One day a fox", "Once upon a time, there was", "The moon and the sun and the sea were")]
    folder = tmp_path_factory.mktemp("scored")
    rows = []
    for ids in prompts:
        (folder / "ids.json").write_text(json.dumps({"input_ids": [ids]}))
        subprocess.run([QUIRE, "logits", MODEL, "--ids-file", folder / "ids.json", "-o", folder / "out"], check=True)
        rows.append([log_softmax(row) for row in logits_of(folder / "out")])
    return prompts, rows


def log_softmax(row):
    best = max(row)
    total = math.log(sum(math.exp(value - best) for value in row))
    return [value - best - total for value in row]


def logits_of(path):
    """The rows of the one sequence in a file of `quire logits`."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    vocab_size = json.loads(data[8:8 + length])["logits"]["shape"][-1]
    values = array.array("f", data[8 + length:])
    return [values[i:i + vocab_size].tolist() for i in range(0, len(values), vocab_size)]


def test_echo_with_logprobs(client, scored):
    """As lm-eval asks for them."""
    prompts, rows = scored
    for more in ({"max_tokens": 1}, {"max_tokens": 0}, {"max_tokens": 3, "n": 2}):
        answer = complete(client, prompts, temperature=0, logprobs=2, echo=True, **more)
        n = more.get("n", 1)
        for index, choice in enumerate(answer.choices):
            ids, expected = prompts[index // n], rows[index // n]
            found = choice.logprobs
            assert len(found.tokens) == len(ids) + more["max_tokens"]
            assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
            for i in range(1, len(ids)):
                assert abs(found.token_logprobs[i] - expected[i - 1][ids[i]]) < 1e-4
                assert abs(max(found.top_logprobs[i].values()) - max(expected[i - 1])) < 1e-4
            assert found.tokens[0] == "<|begin_of_text|>" and found.text_offset[:2] == [0, 0]
            for offset, token in list(zip(found.text_offset, found.tokens))[1:]:
                assert choice.text[offset:].startswith(token)
            assert choice.text.endswith("".join(found.tokens[len(ids):]))


def test_streamed_echo_with_logprobs(client, scored):
    prompts, _ = scored
    options = {"temperature": 0, "max_tokens": 4, "logprobs": 3, "echo": True, "n": 2}
    whole = complete(client, prompts, **options).choices
    found = {}
    for chunk in complete(client, prompts, stream=True, **options):
        for choice in chunk.choices:
            text, logprobs = found.setdefault(choice.index, ["", []])
            found[choice.index][0] = text + choice.text
            logprobs += choice.logprobs.token_logprobs
    for choice in whole:
        assert found[choice.index] == [choice.text, choice.logprobs.token_logprobs]


def test_prompt_logprobs(client, scored):
    prompts, rows = scored
    answer = complete(client, prompts, max_tokens=2, extra_body={"prompt_logprobs": 3})
    for choice, ids, expected in zip(answer.choices, prompts, rows):
        assert choice.prompt_logprobs[0] is None and len(choice.prompt_logprobs) == len(ids)
        for i in range(1, len(ids)):
            entry = choice.prompt_logprobs[i][str(ids[i])]
            assert abs(entry["logprob"] - expected[i - 1][ids[i]]) < 1e-4
            assert entry["rank"] == 1 + sum(value > expected[i - 1][ids[i]] for value in expected[i - 1])
            best = {int(key) for key, value in choice.prompt_logprobs[i].items() if value["rank"] <= 3}
            assert best >= set(sorted(range(len(expected[i - 1])), key=lambda k: -expected[i - 1][k])[:3])
    answer = chat(client, max_tokens=2, extra_body={"prompt_logprobs": 0})
    assert len(answer.prompt_logprobs) == answer.usage.prompt_tokens


def test_logprobs_of_tokens_that_are_named(client, scored):
    prompts, rows = scored
    wanted = [4095, 7, 260, 0]
    extra = {"logprob_token_ids": wanted, "return_tokens_as_token_ids": True, "return_token_ids": True}
    answer = complete(client, prompts, temperature=0, max_tokens=1, logprobs=2, extra_body=extra)
    for choice, row in zip(answer.choices, rows, strict=True):
        (top,), (sampled,) = choice.logprobs.top_logprobs, choice.token_ids
        assert set(top) == {f"token_id:{id}" for id in [sampled, *wanted]}
        for id in [sampled, *wanted]:
            assert abs(top[f"token_id:{id}"] - row[-1][id]) < 1e-4
    # Of the echo the best are listed, as without the field.
    echo = complete(client, prompts[0], max_tokens=1, logprobs=1, echo=True, extra_body=extra).choices[0].logprobs.top_logprobs
    assert len(echo[1]) <= 2 and len(echo[-1]) >= 4
    options = {"max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2, "extra_body": extra}
    whole = chat(client, **options).choices[0]
    entries = whole.logprobs.content
    for id, entry in zip(whole.token_ids, entries, strict=True):
        named = [f"token_id:{each}" for each in dict.fromkeys([id, *wanted])]
        assert [best.token for best in entry.top_logprobs] == named and entry.top_logprobs[0].logprob == entry.logprob
    streamed = [entry for chunk in chat(client, stream=True, **options) for choice in chunk.choices if choice.logprobs
                for entry in choice.logprobs.content]
    assert streamed == entries
    for more, said in (({"logprobs": True, "extra_body": {"logprob_token_ids": [4096]}}, "must be a token id from 0 to 4095"),
                       ({"logprobs": True, "extra_body": {"logprob_token_ids": [1] * 129}}, "must hold 1 to 128 ids"),
                       ({"extra_body": {"logprob_token_ids": [1]}}, "needs logprobs")):
        with pytest.raises(openai.BadRequestError) as refused:
            chat(client, max_tokens=1, **more)
        assert refused.value.param.startswith("logprob_token_ids") and said in refused.value.message


def test_tokens_are_forbidden(client):
    def ids(**more):
        answer = complete(client, "One day", temperature=0, max_tokens=12,
                          extra_body={"return_token_ids": True, "ignore_eos": True, **more})
        return answer.choices[0].token_ids, answer.choices[0].text

    free, text = ids()
    allowed = [free[0], free[2]]
    assert set(ids(allowed_token_ids=allowed)[0]) <= set(allowed)
    word = text.split()[1]
    assert word not in ids(bad_words=[word])[1].split()
    chat_ids = chat(client, temperature=0, extra_body={"min_tokens": 300, "return_token_ids": True}).choices[0].token_ids
    assert len(chat_ids) >= 300
    assert len(chat(client, temperature=0, extra_body={"return_token_ids": True}).choices[0].token_ids) < 300
    cut = complete(client, "One day the fox", max_tokens=1, echo=True, extra_body={"truncate_prompt_tokens": 1})
    assert cut.usage.prompt_tokens == 1 and not cut.choices[0].text.startswith("One")
    head = complete(client, "One day the fox", max_tokens=1, echo=True,
                    extra_body={"truncate_prompt_tokens": 3, "truncation_side": "right"})
    assert head.usage.prompt_tokens == 3 and head.choices[0].text.startswith("One")


def test_fields_of_vllm(client):
    own = chat(client, max_tokens=1, extra_body={"request_id": "mine-1", "return_prompt_text": True})
    assert own.id == "chatcmpl-mine-1" and own.prompt_text
    for name, value in {"samplers": ["top_k"], "chat_template": "x", "repetition_detection": {}}.items():
        with pytest.raises(openai.BadRequestError) as refused:
            chat(client, max_tokens=1, extra_body={name: value})
        assert refused.value.param == name and f"{name} is not supported: " in refused.value.message


def test_seed(client):
    first = complete(client, "One day", seed=1, max_tokens=30, temperature=1).choices[0].text
    assert complete(client, "One day", seed=1, max_tokens=30, temperature=1).choices[0].text == first
    assert complete(client, "One day", seed=2, max_tokens=30, temperature=1).choices[0].text != first
    unseeded = {complete(client, "One day", max_tokens=30, temperature=1).choices[0].text for _ in range(3)}
    assert len(unseeded) == 3


def test_n(client):
    answer = chat(client, n=4, seed=5, max_tokens=20, temperature=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens == 80


def test_stop(client):
    whole = chat(client, temperature=0, max_tokens=60).choices[0].message.content
    stop = whole.split()[8]
    answer = chat(client, temperature=0, max_tokens=60, stop=["no such text", stop]).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.message.content == whole[:whole.index(stop)]
    kept = chat(client, temperature=0, max_tokens=60, stop=stop,
                extra_body={"include_stop_str_in_output": True}).choices[0]
    assert kept.message.content == whole[:whole.index(stop) + len(stop)]
    streamed = "".join(chunk.choices[0].delta.content or ""
                       for chunk in chat(client, temperature=0, max_tokens=60, stop=stop, stream=True))
    assert streamed == answer.message.content


def test_stop_tokens_and_ignore_eos(client):
    ids = chat(client, temperature=0, max_tokens=10, extra_body={"return_token_ids": True}).choices[0].token_ids
    answer = chat(client, temperature=0, max_tokens=10, extra_body={"stop_token_ids": [ids[4]]}).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.stop_reason == ids[4]
    long = chat(client, seed=1, max_tokens=400, extra_body={"ignore_eos": True})
    assert long.usage.completion_tokens == 400


def test_chat_logprobs(client):
    answer = chat(client, temperature=0, max_tokens=10, logprobs=True, top_logprobs=3).choices[0]
    assert len(answer.logprobs.content) == 10
    for token in answer.logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert bytes(token.bytes).decode() == token.token
    assert "".join(token.token for token in answer.logprobs.content).strip() == answer.message.content.strip()


def test_completion_logprobs(client):
    whole = complete(client, "One day", seed=4, max_tokens=10, logprobs=2).choices[0]
    probs = whole.logprobs
    assert len(probs.tokens) == len(probs.token_logprobs) == len(probs.text_offset) == len(probs.top_logprobs) == 10
    for token, offset in zip(probs.tokens, probs.text_offset):
        assert whole.text[offset:offset + len(token)] == token
    for token, logprob, best in zip(probs.tokens, probs.token_logprobs, probs.top_logprobs):
        assert best[token] == logprob
        assert 2 <= len(best) <= 3
    tokens, offsets = [], []
    for chunk in complete(client, "One day", seed=4, max_tokens=10, logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            tokens += chunk.choices[0].logprobs.tokens
            offsets += chunk.choices[0].logprobs.text_offset
    assert (tokens, offsets) == (probs.tokens, probs.text_offset)


def test_sampling_fields_change_the_answer(client):
    banned = chat(client, temperature=0, max_tokens=1, extra_body={"return_token_ids": True}).choices[0].token_ids[0]
    other = chat(client, temperature=0, max_tokens=1, logit_bias={str(banned): -100},
                 extra_body={"return_token_ids": True}).choices[0].token_ids[0]
    assert other != banned
    greedy = chat(client, temperature=0, max_tokens=20).choices[0].message.content
    for options in ({"extra_body": {"top_k": 1}}, {"top_p": 1e-6}, {"extra_body": {"min_p": 1.0}}):
        assert chat(client, temperature=2, seed=1, max_tokens=20, **options).choices[0].message.content == greedy
    penalised = chat(client, temperature=0, max_tokens=100, frequency_penalty=2, presence_penalty=2)
    assert penalised.choices[0].message.content[:len(greedy)] != greedy or \
        penalised.choices[0].message.content != chat(client, temperature=0, max_tokens=100).choices[0].message.content


def test_a_system_prompt_is_cached(client, server):
    system = {"role": "system", "content": "You are the narrator of a children's radio show. " * 4}
    before = server.metrics()
    cached = [chat(client, [system] + FOX, max_tokens=2).usage.prompt_tokens_details.cached_tokens for _ in range(2)]
    assert cached[1] >= 32 and cached[1] > cached[0]
    after = server.metrics()
    assert after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"] == sum(cached)
    assert after["vllm:prefix_cache_queries_total"] > before["vllm:prefix_cache_queries_total"]


def post(client, path, body, method="POST", headers=None):
    """Without the client library: status and text."""
    url = str(client.base_url).removesuffix("/v1/") + path
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method,
                                     headers={"Content-Type": "application/json"} | (headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_tokenize(client):
    status, body = post(client, "/tokenize", {"prompt": "Once upon a time", "return_token_strs": True})
    told = json.loads(body)
    assert status == 200 and told["count"] == len(told["tokens"]) == len(told["token_strs"])
    assert told["max_model_len"] == 512
    status, body = post(client, "/detokenize", {"tokens": told["tokens"]})
    assert json.loads(body)["prompt"].endswith("Once upon a time")
    info = json.loads(post(client, "/tokenizer_info", None, "GET")[1])
    assert info == {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    status, body = post(client, "/tokenize", {"messages": FOX})
    expected = json.loads((MODEL / "expected_greedy_f32.json").read_text())[0]["prompt_ids"]
    assert json.loads(body)["tokens"] == expected


# ---- What is refused ----

@pytest.mark.parametrize("options, field", [
    ({"n": 0}, "n"), ({"temperature": -1}, "temperature"), ({"max_tokens": -1}, "max_tokens"),
    ({"top_p": 2}, "top_p"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stop": [""]}, "stop[0]"), ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"functions": [{"name": "f"}]}, "functions"),
])
def test_bad_fields_are_named(client, options, field):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **options)
    assert caught.value.param == field
    assert field in caught.value.message


def test_tools_without_a_wish_for_calls(client):
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert chat(client, temperature=0, max_tokens=5, tools=tools, tool_choice="none").choices[0].message.content == \
        chat(client, temperature=0, max_tokens=5).choices[0].message.content


def test_roles_that_are_no_more(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, FOX + [{"role": "function", "name": "f", "content": "1"}])
    assert caught.value.param == "messages[1].role" and "tool_call_id" in caught.value.message


def test_too_long_a_prompt(client):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, "word " * 2000)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "prompt"
    assert "512" in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, [{"role": "user", "content": "word " * 2000}])
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, "word", max_tokens=10000)
    assert caught.value.code == "context_length_exceeded"


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=FOX)
    assert caught.value.code == "model_not_found"


def test_http_errors(client):
    assert post(client, "/v1/completions", None, method="GET")[0] == 405
    assert post(client, "/v1/no-such-path", {})[0] == 404
    status, body = post(client, "/v1/completions", b'{"prompt": "a"')
    assert status == 400 and "at byte" in json.loads(body)["error"]["message"]
    for wrong, told in (b'"\xff"', "at byte 12: not valid UTF-8"), (rb'"\ud83d"', "at byte 12: a lone surrogate"):
        status, body = post(client, "/v1/completions", b'{"prompt": ' + wrong + b"}")
        assert status == 400 and told in json.loads(body)["error"]["message"]
    status, body = post(client, "/v1/completions", b'\xef\xbb\xbf{"prompt": "a"}')
    assert status == 400 and "at byte 0: a byte order mark" in json.loads(body)["error"]["message"]
    assert post(client, "/v1/completions", b" " * (17 << 20))[0] == 413
    assert post(client, "/health", None, method="GET", headers={"X-Long": "a" * 20000})[0] == 431


def test_a_model_without_a_chat_template(tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with QuireServer("--served-model-name", MODEL_NAME, model=tmp_path) as server:
        assert "no chat template" in server.output()
        client = make_client(server)
        assert complete(client, "Once", max_tokens=3).choices[0].finish_reason
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client)
        assert "no chat template" in caught.value.message


def test_a_model_with_a_broken_chat_template(tmp_path):
    for file in MODEL.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}\n{{ 1 + }}")
    with QuireServer("--served-model-name", MODEL_NAME, model=tmp_path) as server:
        assert f"{tmp_path}/chat_template.jinja: line 2, column 8: " in server.output()
        client = make_client(server)
        assert complete(client, "Once", max_tokens=3).choices[0].finish_reason
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client)
        assert "is broken: chat_template.jinja: line 2, column 8: " in caught.value.message
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}")
    with QuireServer("--served-model-name", MODEL_NAME, "--chat-template", tmp_path / "own.jinja",
                     model=tmp_path) as server:
        assert chat(make_client(server)).choices[0].finish_reason


def test_more_than_can_ever_wait():
    with QuireServer("--max-num-seqs", 2, "--max-waiting", 2) as server:
        client = make_client(server)
        for prompt, n, field in (["a"] * 5, 1, "prompt"), ("a", 5, "n"):
            with pytest.raises(openai.BadRequestError) as caught:
                complete(client, prompt, n=n)
            assert caught.value.param == field and "at most 4" in caught.value.message


def test_keys_and_names():
    with QuireServer("--api-key", "alpha", "--api-key", "beta", "--served-model-name", "stories") as server:
        with pytest.raises(openai.AuthenticationError):
            make_client(server, "gamma").models.list()
        with pytest.raises(openai.AuthenticationError):
            make_client(server, "gamma").completions.create(model="stories", prompt="a")
        for key in ("alpha", "beta"):
            client = make_client(server, key)
            assert [model.id for model in client.models.list().data] == ["stories"]
            assert client.completions.create(model="stories", prompt="a").model == "stories"
        with pytest.raises(openai.NotFoundError):
            make_client(server, "alpha").completions.create(model=MODEL_NAME, prompt="a")


def test_a_full_queue():
    with QuireServer("--device", "sim", "--cost-step-us", 50000, "--max-num-seqs", 1, "--max-waiting", 2) as server:
        client = make_client(server)
        release = threading.Event()

        def hold():
            stream = complete(client, "a", max_tokens=500, stream=True, extra_body={"ignore_eos": True})
            release.wait()
            stream.close()

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            held = [pool.submit(hold) for _ in range(3)]
            try:
                server.wait_for_metrics({"vllm:num_requests_waiting": 2})
                with pytest.raises(openai.RateLimitError) as caught:
                    complete(client, "a", max_tokens=500, n=3, extra_body={"ignore_eos": True})
            finally:
                release.set()
            for one in held:
                one.result()
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 600
        assert "2 of 2 places are taken" in caught.value.message
        server.wait_until_idle()
        assert complete(client, "a").choices[0].finish_reason


# ---- Many at once ----

def test_64_streams_of_which_20_are_cut(tmp_path):
    """Those that are cut give their blocks back by the next step; the others say what they say alone."""
    wishes = [f"Tell me a story about a {colour} {animal}."
              for colour in ("red", "blue", "green", "small", "big", "old", "happy", "lonely")
              for animal in ("fox", "cat", "bridge", "bear", "boat", "owl", "tree", "star")]
    assert len(wishes) == 64
    cut = set(range(1, 61, 3))
    assert len(cut) == 20
    started = threading.Barrier(64)
    answered = threading.Barrier(64, timeout=60)

    def wish(i):
        text = ""
        pieces = 0
        user = make_client(server)
        started.wait()
        stream = user.chat.completions.create(
            model=MODEL_NAME, messages=[{"role": "user", "content": wishes[i]}], seed=i, temperature=0.8,
            max_completion_tokens=400, stream=True, extra_body={"ignore_eos": True})
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            pieces += 1
            if pieces == 1:
                answered.wait()  # else the first to be served, reading, keep the last of 64 from asking
            if i in cut and pieces == 10:
                stream.close()
                break
        return text

    trace = tmp_path / "steps.jsonl"
    with QuireServer("--max-num-seqs", 64, "--no-enable-prefix-caching", "--step-trace", trace) as server:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            together = list(pool.map(wish, range(64)))
        after = server.wait_until_idle()
        client = make_client(server)
        alone = [chat(client, [{"role": "user", "content": wishes[i]}], seed=i, temperature=0.8,
                      max_completion_tokens=1 if i in cut else 400, extra_body={"ignore_eos": True})
                 for i in range(64)]
    for i in set(range(64)) - cut:
        assert together[i] == alone[i].choices[0].message.content, wishes[i]
    longest_prompt = max(answer.usage.prompt_tokens for answer in alone)
    # A cut stream may have been at its end by the time that the server hears of it.
    ends = [after["vllm:request_success_total:length"], after["vllm:request_success_total:abort"]]
    assert sum(ends) == 64 and ends[0] >= 44 and ends[1] >= 10
    # Without sharing, the token places in use are the computed tokens of those that run. Every one of them has
    # its prompt and at most a token a step, so one that is gone and still held blocks would show.
    burst = [json.loads(line) for line in trace.read_text().splitlines()]
    burst = burst[:next(i for i, step in enumerate(burst) if i > 100 and step["running"] <= 1)]
    assert max(step["running"] for step in burst) > 44
    for number, step in enumerate(burst):
        assert step["prefill_tokens"] + step["decode_tokens"] <= step["token_budget"], step
        held = step["blocks_referenced"] * 16 - step["slots_unused"]
        assert held <= step["running"] * (longest_prompt + number + 1), step


def test_cut_streams_free_their_blocks_while_others_run(server):
    clients = [make_client(server) for _ in range(9)]
    # An answer of 500 tokens takes a moment only, and this machine may be busy: until all nine were seen together, and
    # then the first alone.
    for _ in range(50):
        streams = [complete(c, "Once", max_tokens=500, stream=True, extra_body={"ignore_eos": True}) for c in clients]
        for stream in streams:
            next(iter(stream))
        held = server.metrics()
        for stream in streams[1:]:
            stream.close()
        now = held
        while held["vllm:num_requests_running"] == 9 and now["vllm:num_requests_running"] > 1:
            now = server.metrics()
        streams[0].close()
        server.wait_until_idle()
        if held["vllm:num_requests_running"] == 9 and now["vllm:num_requests_running"] == 1:
            assert 0 < now["vllm:kv_cache_usage_perc"] < held["vllm:kv_cache_usage_perc"]
            return
    raise AssertionError("nine streams never ran together, or none outlived the others")


def test_metrics_names(server, client):
    complete(client, "a", max_tokens=3)
    now = server.metrics()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total",
                 "prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total",
                 "prefix_cache_hits_total", "time_to_first_token_seconds_count",
                 "inter_token_latency_seconds_count", "e2e_request_latency_seconds_count"):
        assert f"vllm:{name}" in now, name


def test_a_dashboard_draws_what_there_is(server, client):
    """Every metric that the Grafana dashboard in docs/ asks for is one that /metrics has."""
    complete(client, "a", max_tokens=3)
    dashboard = json.loads((ROOT / "docs/grafana/quire.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    names = {name for expr in asked for name in re.findall(r"\b(?:vllm|quire):\w+", expr)}
    now = server.metrics()
    assert len(names) > 15
    assert sorted(names - {":".join(key.split(":")[:2]) for key in now}) == []
    # And so does vLLM's own of a server's requests.
    for name in ("prompt_tokens", "generation_tokens", "queue_time_seconds", "prefill_time_seconds",
                 "decode_time_seconds", "max_num_generation_tokens"):
        assert now[f"vllm:request_{name}_count"] > 0, name


# ---- The end ----

def test_sigterm_lets_streams_finish():
    with QuireServer() as server:
        client = make_client(server)
        stream = complete(client, "Once", max_tokens=300, seed=1, stream=True, extra_body={"ignore_eos": True})
        chunks = [next(iter(stream))]
        server.process.send_signal(signal.SIGTERM)
        chunks += list(stream)
        assert chunks[-1].choices[0].finish_reason == "length"
        assert server.process.wait(60) == 0
        with pytest.raises(openai.APIConnectionError):
            complete(client, "a")


def test_what_takes_too_long_after_sigterm_ends_with_an_error():
    with QuireServer("--drain-timeout", 0.05, "--max-num-seqs", 1) as server:
        client = make_client(server)
        streams = [complete(client, "Once", max_tokens=500, n=8, stream=True, extra_body={"ignore_eos": True})
                   for _ in range(4)]
        next(iter(streams[0]))
        server.process.send_signal(signal.SIGTERM)
        reasons = set()
        for stream in streams:
            with pytest.raises(openai.APIError) as caught:
                for chunk in stream:
                    reasons.update(choice.finish_reason for choice in chunk.choices)
            assert caught.value.code == "shutting_down"
        assert reasons <= {None, "length"}
        assert server.process.wait(20) == 1


def test_a_second_signal_ends_at_once():
    with QuireServer("--max-num-seqs", 1) as server:
        client = make_client(server)
        streams = [complete(client, "Once", max_tokens=500, n=8, stream=True, extra_body={"ignore_eos": True})
                   for _ in range(4)]
        next(iter(streams[0]))
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("shutting down")  # two that are both pending are one
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 1
        assert time.monotonic() - begun < 10
        with pytest.raises(openai.APIError):
            for stream in streams:
                list(stream)
