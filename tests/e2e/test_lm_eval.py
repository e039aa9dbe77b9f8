"""The requests of lm-evaluation-harness (lm_eval 0.4.13, --model local-completions), and what it reads of the answers."""
import concurrent.futures
import json
import urllib.request

import pytest

from server import MODEL_NAME, QuireServer

CONTEXTS = ["Once upon a time there was a little fox who", "Tom and his mother went to the park.", "One day", "The big bear was sad because"]
CONTINUATIONS = [" was", " lived in the forest.", " they saw a cat", " and it is a very long way to the moon, said the old owl."]


@pytest.fixture(scope="module")
def server():
    with QuireServer() as running:
        yield running


def post(server, path, body):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer "}
    with urllib.request.urlopen(urllib.request.Request(server.url + path, json.dumps(body).encode(), headers), timeout=60) as answer:
        return json.load(answer)


def tokens(server, text):
    return post(server, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def complete(server, prompt, **more):
    return post(server, "/v1/completions", {"model": MODEL_NAME, "prompt": prompt, "temperature": 0, "seed": 1234, **more})


def read_likelihoods(answer, contexts):
    """As the harness does: the sum over the continuation, without the last token, which was generated; and whether each was the best."""
    out = []
    for choice, length in zip(sorted(answer["choices"], key=lambda choice: choice["index"]), contexts, strict=True):
        said = choice["logprobs"]["token_logprobs"][length:-1]
        best = choice["logprobs"]["top_logprobs"][length:-1]
        out.append((sum(said), all(one == max(top.values()) for one, top in zip(said, best, strict=True))))
    return out


def expected_likelihood(server, ids, context):
    rows = complete(server, ids, max_tokens=0, prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
    entries = [rows[i][str(ids[i])] for i in range(context, len(ids))]
    return sum(entry["logprob"] for entry in entries), all(entry["rank"] == 1 for entry in entries)


def test_likelihoods_of_continuations(server):
    items = [(context, context + continuation) for context in map(lambda text: tokens(server, text), CONTEXTS)
             for continuation in map(lambda text: tokens(server, text), CONTINUATIONS)]
    # What the model itself says next is its best.
    for context in (tokens(server, text) for text in CONTEXTS):
        said = complete(server, context, max_tokens=5, return_token_ids=True, ignore_eos=True)["choices"][0]["token_ids"]
        items.append((context, context + said))
    lengths = [len(context) for context, _ in items]
    expected = [expected_likelihood(server, ids, length) for (_, ids), length in zip(items, lengths, strict=True)]
    assert [best for _, best in expected[-4:]] == [True] * 4 and not all(best for _, best in expected)
    options = {"max_tokens": 1, "logprobs": 1, "echo": True}
    batches = [range(at, at + 3) for at in range(0, len(items) - 2, 3)] + [range(18, 20)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda batch: complete(server, [items[i][1] for i in batch], **options), batches)
        found = [one for batch, answer in zip(batches, answers) for one in read_likelihoods(answer, [lengths[i] for i in batch])]
    assert found == expected
    # One prompt alone, and as a text: the server puts the first token before it.
    text = CONTEXTS[0] + CONTINUATIONS[0]
    alone = complete(server, text, **options)
    begun = post(server, "/tokenize", {"prompt": text, "add_special_tokens": True})["tokens"]
    assert read_likelihoods(alone, [3])[0] == expected_likelihood(server, begun, 3)


def test_generation_until_a_text(server):
    prompts = [tokens(server, text) for text in CONTEXTS]
    options = {"max_tokens": 40, "stop": [".", "\n\n"]}
    whole = complete(server, prompts, **options)
    by_index = {choice["index"]: choice["text"] for choice in whole["choices"]}
    assert sorted(by_index) == [0, 1, 2, 3] and all(text and "." not in text for text in by_index.values())
    free = complete(server, prompts, max_tokens=40, stop=[])["choices"]
    assert [choice["text"].split(".")[0] for choice in free] == [by_index[i] for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        alone = pool.map(lambda ids: complete(server, [ids], **options)["choices"][0]["text"], prompts)
        assert list(alone) == [by_index[i] for i in range(4)]
