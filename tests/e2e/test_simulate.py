"""The scheduler without a model: the same every time, and behind the server."""
import json
import re
import time

import openai
import pytest

from server import MODEL, MODEL_NAME, QuireServer
from test_cli import needs, quire


def test_the_demo_is_the_same_every_time(tmp_path):
    first = quire("simulate", "--demo").stdout.decode()
    assert first == quire("simulate", "--demo", "--json", tmp_path / "out.json").stdout.decode()
    digest = re.search(r"^digest ([0-9a-f]{16})$", first, re.M)[1]
    assert "\033" not in first
    for word in "step time running waiting prefill decode KV shared preempted done".split():
        assert word in first
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["digest"] == digest
    assert figures["finished"] == figures["requests"] == len(figures["records"])
    # The pool is small enough to show what it is about.
    assert figures["preemptions"] > 0 and figures["prefix_hit_tokens"] > 0 and figures["peak_waiting"] > 0
    assert all(len(record) == len(figures["record_fields"]) for record in figures["records"])
    other = quire("simulate", "--demo", "--seed", 1).stdout.decode()
    assert digest not in other


def test_flags_change_the_demo():
    without = quire("simulate", "--demo", "--no-enable-prefix-caching", "--every", 0).stdout.decode()
    assert "0.0 % of 0 prompt tokens" in without
    assert re.search(r"^requests +7 finished", quire("simulate", "--demo", "--requests", 7).stdout.decode(), re.M)


def test_policies_change_the_demo_and_its_decisions_can_be_explained(tmp_path):
    log = tmp_path / "demo.log"
    usual = quire("simulate", "--demo", "--every", 0).stdout.decode()
    digests = {re.search(r"^digest (.*)$", usual, re.M)[1]}
    flags = [("--scheduling-policy", "srpt", "--known-lengths"), ("--batching", "static"), ("--watermark", 20),
             ("--victim-policy", "least-progress"), ("--eviction-policy", "arc"), ("--admit-eagerly",),
             ("--admit-while-preempting", "--victim-policy", "least-progress"),
             ("--preemption-mode", "swap"), ("--scheduling-policy", "fair", "--tenants", 3),
             ("--scheduling-policy", "priority", "--priorities", 4),
             ("--scheduling-policy", "slo", "--ttft-deadline-ms", "uniform:50:1000")]
    for each in flags:
        text = quire("simulate", "--demo", "--every", 0, "--decision-log", log, *each).stdout.decode()
        assert re.search(r"^requests +96 finished", text, re.M)
        digests.add(re.search(r"^digest (.*)$", text, re.M)[1])
        decisions = re.search(r"^decisions ([0-9a-f]{16})$", text, re.M)[1]
        replayed = quire("explain", log, "--replay").stdout.decode()
        assert decisions in replayed and "replaying the log gives the same" in replayed
    assert len(digests) == len(flags) + 1
    assert re.search(r"[1-9][0-9]* blocks to the host, [1-9][0-9]* back", quire("simulate", "--demo", "--preemption-mode", "swap").stdout.decode())


@pytest.mark.parametrize("trace", ["traces-azure/AzureLLMInferenceTrace_conv.csv",
                                   "traces-mooncake/conversation_trace.jsonl"])
def test_traces_run(trace):
    text = quire("simulate", "--trace", needs(trace), "--requests", 200, "--num-blocks", 60000,
                 "--max-num-batched-tokens", 8192, "--cost-prefill-tokens-per-ms", 100).stdout.decode()
    assert re.search(r"^requests +200 finished, 0 refused$", text, re.M)


@pytest.fixture(scope="module")
def server():
    with QuireServer("--device", "sim", "--cost-step-us", 500, "--cost-decode-us", 5000) as running:
        yield running


def test_a_simulated_device_streams_words_at_its_pace(server):
    assert "simulated" in server.output() and "parameters" not in server.output()
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    ask = lambda **more: client.chat.completions.create(
        model=MODEL_NAME, messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=40, seed=5, **more)
    begin = time.monotonic()
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(stream=True) if chunk.choices]
    assert time.monotonic() - begin >= 39 * 0.0055
    text = "".join(pieces)
    assert len(pieces) > 10 and len(text.split()) > 10
    assert all(char.isprintable() for char in text)
    again = ask(stream=False, logprobs=True, top_logprobs=2)
    assert again.choices[0].message.content == text
    assert again.usage.completion_tokens == 40 and again.choices[0].finish_reason == "length"
    assert len(again.choices[0].logprobs.content[0].top_logprobs) == 2
    server.wait_until_idle()


def test_it_needs_no_weights(tmp_path):
    for file in MODEL.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with QuireServer("--device", "sim", "--sim-speed", 100, model=tmp_path) as running:
        client = openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=120)
        answer = client.completions.create(model=tmp_path.name, prompt="Once", max_tokens=5)
        assert answer.usage.completion_tokens == 5
