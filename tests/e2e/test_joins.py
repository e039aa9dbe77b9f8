"""A long prompt joins eight streams on a simulated machine: how long they wait, and what it pays for them."""
import json
import shutil
import subprocess

import pytest

from server import MODEL, QUIRE, QuireServer

SPEED = 40
STREAMS, STREAM_PROMPT = 8, 64
PHASES = ["step", "decode_step", "decode", "chunk", "decode_context", "chunk_square", "chunk_prefix", "logit_row", "sampled_row",
          "moved_block", "copy"]
COUNTS = ["decoding", "decode_context", "chunks", "prefill_tokens", "chunk_squares", "chunk_prefix", "logit_rows", "sampled_rows",
          "moved_blocks", "copies"]
# Nanoseconds, of a model of a billion parameters on the machine of docs/measurements/cpu.md: prompts of 2,048 and of 8,100 tokens take
# what they take there.
MACHINES = {"bf16": {"token": 2.23e6, "context": 436, "row": 0.7e6, "weights": 60e6}, "int8": {"token": 1.6e6, "context": 383, "row": 0.5e6, "weights": 30e6}}


def phase(**terms):
    return {**dict.fromkeys(PHASES, 0), "token": [0, 0], **terms}


@pytest.fixture(scope="module", params=MACHINES)
def machine(request, tmp_path_factory):
    """A model without weights, for long sequences, and the costs of the machine."""
    costs = MACHINES[request.param]
    folder = tmp_path_factory.mktemp("joins") / "model"
    folder.mkdir()
    for file in MODEL.glob("*.json"):
        shutil.copy(file, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 20_000}))
    # A few tokens cost as little as reading the weights takes.
    few = round(costs["weights"] / costs["token"])
    device = phase(step=costs["weights"], chunk_square=costs["context"] / 2, chunk_prefix=costs["context"], decode_context=1000,
                   logit_row=costs["row"], token=[0, costs["token"]])
    cost = folder.parent / "cost.json"
    cost.write_text(json.dumps({
        "quire_cost": 2, "model": folder.name, "machine": "that of the measurements", "device": "bf16", "build": "none", "steps": 1,
        "left_out": 0, "errors": [], "knots": [0, few], "device_ns": device, "host_ns": phase(step=1e6),
        "most": dict.fromkeys(COUNTS, 1 << 40), "deviations": []}))
    return folder, cost


def steps_of(machine, tmp_path, streams, prompt):
    """The records of the steps from the one in which the prompt's first chunk is, while it is computed."""
    folder, cost = machine
    log, trace = tmp_path / "steps.log", tmp_path / "joins.csv"
    first = [f"2026-01-01 00:00:00,{STREAM_PROMPT},{prompt // 40 + 300}"] * streams
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *first, f"2026-01-01 00:00:00.2,{prompt},1"]) + "\n")
    with QuireServer("--device", "sim", "--cost", cost, "--force", "--sim-speed", SPEED, "--num-blocks", 2000, "--step-log", log,
                     model=folder) as server:
        subprocess.run([QUIRE, "bench", "serve", "--url", server.url, "--trace", trace, "--json"], check=True, stdout=subprocess.DEVNULL)
    head, *lines = log.read_text().splitlines()
    records = [dict(zip(json.loads(head)["columns"], json.loads(line))) for line in lines]
    chunks = [i for i, record in enumerate(records) if record["chunks"] > 0]
    # The prompts of the streams come first, and fill fewer tokens than come with the long one.
    computed, start = 0, len(records)
    for i in reversed(chunks):
        if computed >= prompt - 1:
            break
        computed, start = computed + records[i]["prefill_tokens"], i
    return records[start:chunks[-1] + 1]


def seconds(record):
    return (record["compute"] + record["sample"]) * SPEED / 1e9 + 0.001


@pytest.mark.parametrize("prompt, pause", [(2000, 0.3), (16_000, 0.35)])
def test_streams_wait_a_moment_and_the_newcomer_pays_little(machine, tmp_path, prompt, pause):
    alone = steps_of(machine, tmp_path, 0, prompt)
    among = steps_of(machine, tmp_path, STREAMS, prompt)
    assert sum(record["decoding"] >= STREAMS for record in among) > len(among) - 3, "the streams did not run all the time"
    assert max(map(seconds, among)) < pause
    assert sum(map(seconds, among)) < 1.2 * sum(map(seconds, alone))
