"""An answer that follows a grammar is the same, to the last bit of its log probabilities, whatever is answered beside it."""
import concurrent.futures
import random
import threading

import openai
import pytest

from schemas import Generator
from server import QuireServer

FORMS = [{"guided_regex": "([A-Z][a-z]{1,6} ){3,9}end"}, {"guided_choice": ["yes", "no way", "never, said the bear"]}, {},
         {"grammar": 'root ::= ("fox" | "bear" | " and "){4,12} "."'}, {"structured_outputs": {"json_object": True}}, {"min_tokens": 30}]
FAULTY = {"guided_regex": "x{40}", "allowed_token_ids": [1]}


def requests():
    """Requests of all forms, half of them with a random schema."""
    out = []
    for seed in range(28):
        dice = random.Random(seed)
        more = FORMS[seed % len(FORMS)] if seed % 2 else {"guided_json": Generator(100 + seed).document()}
        out.append({"prompt": ("Once upon a time, ", "One day ")[seed // 2 % 2] * dice.randrange(1, 12) + f"fox {seed % 3}", "seed": seed, "max_tokens": dice.randrange(60, 150),
                    "temperature": dice.choice([0, 0.7, 1.5]), "n": dice.choice([1, 1, 2]), "logprobs": 2, "extra_body": more})
    return out


def answer(client, request):
    """All that an answer says; of a schema that is refused, why."""
    try:
        choices = client.completions.create(model="", **request).choices
    except openai.BadRequestError as refused:
        return refused.body["message"]
    return [(choice.text, choice.finish_reason, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs) for choice in choices]


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def alone():
    """The answers one after the other, nothing shared between them."""
    with QuireServer("--no-enable-prefix-caching") as server:
        client = connect(server)
        out = [answer(client, request) for request in requests()]
    answered = [each for each in out if isinstance(each, list)]
    assert len(answered) >= 22 and any(choice[1] == "stop" for each in answered for choice in each)
    return out


SMALL = ["--num-blocks", "18", "--max-model-len", "256", "--watermark", "0"]


@pytest.mark.parametrize("flags", [[], SMALL, [*SMALL, "--preemption-mode", "swap", "--swap-space", "64MiB"],
                                   ["--max-num-batched-tokens", "24", "--max-num-seqs", "5"]],
                         ids=["all at once", "few blocks", "swap", "small steps"])
def test_answers_are_those_alone(alone, flags):
    wanted = requests()
    order = list(range(len(wanted)))
    random.Random(len(flags)).shuffle(order)
    with QuireServer(*flags) as server:
        client = connect(server)
        for request in wanted:  # its grammar is compiled: else they would arrive one after the other
            answer(client, {**request, "prompt": "x", "max_tokens": 1})
        done = threading.Event()

        def disturb():
            """Requests that fail, and that their clients leave."""
            while not done.is_set():
                assert "leave no token" in answer(client, {"prompt": "x", "max_tokens": 60, "extra_body": FAULTY})
                left = client.completions.create(model="", prompt="Once", max_tokens=100, stream=True, extra_body=FORMS[1])
                next(iter(left))
                left.close()

        with concurrent.futures.ThreadPoolExecutor(len(wanted) + 1) as pool:
            disturber = pool.submit(disturb)
            try:
                running = {i: pool.submit(answer, client, wanted[i]) for i in order}
                together = [running[i].result() for i in range(len(wanted))]
            finally:
                done.set()
            disturber.result()
        server.wait_until_idle()
        if flags[:2] == SMALL[:2]:
            assert server.metrics()["vllm:num_preemptions_total"] > 0
    for i, request in enumerate(wanted):
        assert together[i] == alone[i], request
