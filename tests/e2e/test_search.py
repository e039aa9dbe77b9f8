"""best_of and beam search, against what a client finds that asks for one token at a time."""
import concurrent.futures
import json
import re
import subprocess

import openai
import pytest

from server import MODEL, MODEL_NAME, QUIRE, QuireServer

PROMPTS = ["Once upon a time there was a", "The fox and the bird", "One day, Lily"]
EOS = set(json.loads((MODEL / "config.json").read_text())["eos_token_id"])


@pytest.fixture(scope="module")
def server():
    """A pool so small that searches beside one another preempt."""
    with QuireServer("--max-num-seqs", 16, "--num-blocks", 12) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def complete(client, prompt, extra=None, **options):
    return client.completions.create(model=MODEL_NAME, prompt=prompt,
                                     extra_body={"return_token_ids": True, **(extra or {})}, **options)


def beams(client, prompt, width, length, penalty=1.0, **options):
    return complete(client, prompt, {"use_beam_search": True, "length_penalty": penalty}, n=width,
                    max_tokens=length, **options)


def continuations(client, ids, count):
    """The likeliest tokens after `ids`, best first, with their logprobs."""
    choice = complete(client, ids, {"return_tokens_as_token_ids": True, "ignore_eos": True}, max_tokens=1,
                      temperature=0, logprobs=count).choices[0]
    return [(int(name.removeprefix("token_id:")), logprob)
            for name, logprob in choice.logprobs.top_logprobs[0].items()]


def naive_beams(client, prompt_ids, width, length, penalty, eos):
    living, finished = [([], 0.0)], []
    for _ in range(length):
        grown = []
        for ids, total in living:
            for token, logprob in continuations(client, prompt_ids + ids, 2 * width)[:2 * width]:
                (finished if token in eos else grown).append((ids + [token], total + logprob))
        living = sorted(grown, key=lambda answer: -answer[1])[:width]
    finished += living
    return [ids for ids, total in sorted(finished, key=lambda a: -a[1] / len(a[0]) ** penalty)[:width]]


def run(*flags):
    done = subprocess.run([QUIRE, "run", MODEL, "-p", PROMPTS[0], *map(str, flags)], capture_output=True, timeout=60, check=True)
    return re.split(r"\n?\n?--- \d of \d ---\n", done.stdout.decode())[1:]


def test_run_finds_the_same(client):
    found = [choice.text for choice in beams(client, PROMPTS[0], 4, 6, penalty=0.0).choices]
    assert [text.rstrip("\n") for text in run("--beam-search", "-n", 4, "--max-tokens", 6, "--length-penalty", 0)] == found
    two = [text.rstrip("\n") for text in run("--beam-search", "-n", 2, "--best-of", 4, "--max-tokens", 6, "--length-penalty", 0)]
    assert two == found[:2]
    answer = complete(client, PROMPTS[0], n=2, max_tokens=12, seed=5, temperature=1.0, extra={"best_of": 6})
    best = [choice.text for choice in answer.choices]
    assert [text.rstrip("\n") for text in run("-n", 2, "--best-of", 6, "--seed", 5, "--max-tokens", 12, "--temperature", 1)] == best


@pytest.mark.parametrize("width,length,penalty", [(1, 8, 1.0), (3, 8, 1.0), (4, 6, 0.0)])
def test_beams_are_those_of_a_patient_client(client, width, length, penalty):
    for prompt in PROMPTS:
        answer = beams(client, prompt, width, length, penalty)
        prompt_ids = answer.choices[0].prompt_token_ids
        expected = naive_beams(client, prompt_ids, width, length, penalty, EOS)
        assert [choice.token_ids for choice in answer.choices] == expected
        assert answer.usage.completion_tokens == sum(map(len, expected))


def test_beams_do_not_depend_on_who_else_is_served(server, client):
    alone = [[choice.text for choice in beams(client, prompt, 4, 40).choices] for prompt in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(12) as workers:
        together = list(workers.map(lambda prompt: beams(client, prompt, 4, 40), PROMPTS * 4))
    assert [[choice.text for choice in answer.choices] for answer in together] == alone * 4
    assert server.metrics()["vllm:num_preemptions_total"] > 0


def test_logprobs_are_of_the_tokens_that_were_chosen(client):
    answer = beams(client, PROMPTS[0], 3, 10, logprobs=2)
    for choice in answer.choices:
        assert len(choice.logprobs.token_logprobs) == len(choice.token_ids) == 10
        assert all(len(top) in (2, 3) for top in choice.logprobs.top_logprobs)  # the chosen one beside the best
        ids = choice.prompt_token_ids + choice.token_ids[:-1]
        likely = dict(continuations(client, ids, 20))
        assert choice.logprobs.token_logprobs[-1] == likely[choice.token_ids[-1]]


def test_best_of_gives_the_likeliest(client):
    options = dict(max_tokens=20, seed=7, temperature=1)
    every = complete(client, PROMPTS[0], n=8, logprobs=0, **options).choices
    mean = lambda choice: sum(choice.logprobs.token_logprobs) / len(choice.token_ids)
    expected = [choice.token_ids for choice in sorted(every, key=lambda choice: -mean(choice))[:2]]
    answer = complete(client, PROMPTS[0], n=2, best_of=8, **options)
    assert [choice.token_ids for choice in answer.choices] == expected
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].logprobs is None
    assert answer.usage.completion_tokens == sum(len(choice.token_ids) for choice in every)


def test_what_cannot_be_streamed_is_refused(client):
    for extra in ({"best_of": 2}, {"use_beam_search": True}):
        with pytest.raises(openai.BadRequestError) as refused:
            complete(client, "a", extra, stream=True)
        assert refused.value.param == "stream"
