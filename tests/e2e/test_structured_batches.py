"""An answer is the same, to the last bit of its log probabilities and its prompt's, whatever is answered beside it: with grammars, tools
and reasoning."""
import concurrent.futures
import random
import threading

import openai
import pytest

from schemas import Generator
from server import QuireServer
from test_tools import TEMPLATE, TOOLS

FORMS = [{"guided_regex": "([A-Z][a-z]{1,6} ){3,9}end"}, {"guided_choice": ["yes", "no way", "never, said the bear"]}, {},
         {"grammar": 'root ::= ("fox" | "bear" | " and "){4,12} "."'}, {"structured_outputs": {"json_object": True}}, {"min_tokens": 30}]
STRICT = [{"type": "function", "function": {**tool["function"], "strict": True}} for tool in TOOLS]
THINKS = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 12}
CHATS = [{"tools": TOOLS, "tool_choice": "required"}, {"tools": STRICT, "prompt_logprobs": 1}, {"tools": TOOLS, "tool_choice": "required", **THINKS},
         {"tools": STRICT, "tool_choice": {"type": "function", "function": {"name": "now"}}, "prompt_logprobs": 3}, THINKS,
         {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no", {"a": [1]}]}}}, "prompt_logprobs": 0, **THINKS}]
SCORES = [{"echo": True}, {}, {"prompt_logprobs": 2}, {}, {"echo": True, "max_tokens": 0}]
FAULTY = {"guided_regex": "x{40}", "allowed_token_ids": [1]}


def requests():
    """Completions of all forms, half of them with a random schema and some with scores of the prompt; and chats."""
    out = []
    for seed in range(28):
        dice = random.Random(seed)
        more = FORMS[seed // 2 % len(FORMS)] if seed % 2 else {"guided_json": Generator(100 + seed).document()}
        more = {**SCORES[seed % len(SCORES)], **more}
        max_tokens = more.pop("max_tokens", dice.randrange(60, 150))
        out.append({"prompt": ("Once upon a time, ", "One day ")[seed // 2 % 2] * dice.randrange(1, 12) + f"fox {seed % 3}", "seed": seed, "max_tokens": max_tokens,
                    "temperature": dice.choice([0, 0.7, 1.5]), "n": dice.choice([1, 1, 2]) if max_tokens > 0 else 1, "logprobs": 2, "extra_body": more})
    for seed in range(12):
        messages = [{"role": "user", "content": "How is the weather? " * (1 + seed % 3)}]
        out.append({"messages": messages, "seed": seed, "max_tokens": 90, "temperature": (0.7, 1.5)[seed % 2], "logprobs": True, "top_logprobs": 2,
                    "extra_body": CHATS[seed % len(CHATS)]})
    return out


def answer(client, request):
    """All that an answer says; of a schema that is refused, why."""
    create = client.chat.completions.create if "messages" in request else client.completions.create
    try:
        said = create(model="", **request).model_dump(exclude={"id", "created", "usage", "system_fingerprint"})
    except openai.BadRequestError as refused:
        return refused.body["message"]
    for choice in said["choices"]:
        for call in choice.get("message", {}).get("tool_calls") or []:
            del call["id"]
    return said


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "hermes.jinja"
    path.write_text(TEMPLATE)
    return ["--chat-template", path]


@pytest.fixture(scope="module")
def alone(template):
    """The answers one after the other, nothing shared between them."""
    with QuireServer("--no-enable-prefix-caching", *template) as server:
        client = connect(server)
        out = [answer(client, request) for request in requests()]
    choices = [choice for each in out if isinstance(each, dict) for choice in each["choices"]]
    assert sum(isinstance(each, dict) for each in out) >= 34 and any(choice["finish_reason"] == "stop" for choice in choices)
    assert any(choice.get("message", {}).get("tool_calls") for choice in choices) and any(choice.get("message", {}).get("reasoning") for choice in choices)
    assert sum(bool(each.get("prompt_logprobs") or each["choices"][0].get("prompt_logprobs")) for each in out if isinstance(each, dict)) >= 10
    return out


SMALL = ["--num-blocks", "18", "--max-model-len", "256", "--watermark", "0"]


@pytest.mark.parametrize("flags", [[], SMALL, [*SMALL, "--preemption-mode", "swap", "--swap-space", "64MiB"],
                                   ["--max-num-batched-tokens", "24", "--max-num-seqs", "5"]],
                         ids=["all at once", "few blocks", "swap", "small steps"])
def test_answers_are_those_alone(alone, template, flags):
    wanted = requests()
    order = list(range(len(wanted)))
    random.Random(len(flags)).shuffle(order)
    with QuireServer(*flags, *template) as server:
        client = connect(server)
        for request in wanted:  # its grammar is compiled: else they would arrive one after the other
            short = {**request, "max_tokens": 1}
            answer(client, {**short, "prompt": "x"} if "prompt" in short else short)
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
