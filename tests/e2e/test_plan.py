"""quire plan: what a machine carries of a model."""
import json
import re

import pytest

from test_cli import DEMO, quire

LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2,
}
GIB = 2**30


@pytest.fixture
def llama(tmp_path):
    folder = tmp_path / "Llama-2-7b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_2_7B))
    return folder


def figures(*args):
    return json.loads(quire("plan", *args, "--json").stdout)


def refused(*args):
    done = quire("plan", *args, check=False)
    message = done.stderr.decode()
    assert done.stdout == b"" and message.startswith("quire: ") and message.count("\n") == 1, message
    return done.returncode, message


def test_a_screen_of_llama_2_on_a_card(llama):
    text = quire("plan", llama, "--machine", "a10g").stdout.decode()
    lines = text.splitlines()
    assert len(lines) <= 32 and max(map(len, lines)) <= 100
    for said in ("NVIDIA A10G", "524,288 bytes a token as f16", "1.0 GiB for 2,048 tokens", "memory is the limit, at 11 users"):
        assert said in text
    assert re.search(r"^paged +1\.0 GiB +3\.8 MiB +0\.4 % +11$", text, re.M)
    assert re.search(r"^contiguous +2\.0 GiB +1\.0 GiB +50\.0 % +5  ", text, re.M)
    assert re.search(r"^batch 64 .*  does not fit in memory$", text, re.M)
    assert quire("plan", llama / "config.json", "--machine", "A10G").stdout.decode() == text


def test_json_says_the_same_as_the_screen(llama):
    found = figures(llama, "--machine", "a10g")
    assert found["model"] == "Llama-2-7b" and found["memory_bytes"] == 24 * GIB
    assert "data sheet" in found["machine"]["source"]
    assert found["kv"]["bytes_per_token"] == 512 * 1024 and found["paged"]["sequence_bytes"] == GIB
    weights = found["weights"]
    assert weights["bytes_in_memory"] == sum(weights["bytes_by_format"].values()) + weights["embedding_bytes"]
    assert found["kv"]["blocks"] == (24 * GIB - weights["bytes_in_memory"]) // found["kv"]["block_bytes"]
    for ceiling in found["ceilings"]:
        assert ceiling["tokens_per_s_by_bandwidth"] == pytest.approx(ceiling["batch"] * 600e9 / ceiling["step_bytes"])
    assert found["capacity"]["users"] == 11 and found["capacity"]["limit"] == "memory"
    gained = [change["users"] for change in found["changes"]]
    assert gained == sorted(gained, reverse=True) and gained[0] > 11
    assert found["advice"] in " ".join(quire("plan", llama, "--machine", "a10g").stdout.decode().split())


def test_what_a_change_promises_is_what_it_gives(llama):
    for change in figures(llama, "--machine", "a100")["changes"]:
        given = figures(llama, "--machine", "a100", *change["flag"].split())
        assert given["capacity"]["users"] == change["users"], change


def test_flags_say_how_fast_a_machine_is(llama):
    found = figures(llama, "--memory", "24GiB", "--bandwidth", 600)
    assert found["machine"]["name"] == "given" and found["machine"]["flops"] is None
    assert found["ceilings"][0]["tokens_per_s_by_arithmetic"] is None
    assert found["ceilings"][0]["tokens_per_s_by_bandwidth"] == pytest.approx(42, abs=0.1)
    faster = figures(llama, "--machine", "a10g", "--bandwidth", 1200, "--flops", 7)
    assert faster["ceilings"][0]["tokens_per_s_by_bandwidth"] == pytest.approx(84, abs=0.2)
    assert faster["machine"]["flops"] == 7e12


def test_this_machine_is_measured():
    found = figures(DEMO, "--memory", "1GiB")
    assert found["machine"]["name"] == "cpu" and found["machine"]["source"] == "measured now"
    assert found["machine"]["bandwidth_bytes_per_s"] > 1e8
    assert "what is free here" in quire("plan", DEMO, "--bandwidth", 10, "--flops", 1).stdout.decode()


def test_what_cannot_be_planned_is_refused(llama, tmp_path):
    few = refused(llama, "--memory", "8GiB", "--machine", "h100")
    assert few[0] == 2 and "8.0 GiB cannot hold the weights, 12.6 GiB: with one sequence of 2,048 tokens at least 13.6 GiB is needed" in few[1]
    assert "as int4 they take 3.5 GiB" in few[1]
    for flags, said in [(["--machine", "h10"], "--machine: 'h10' is not one of cpu, a10g, l4, a100, h100, h200; did you mean h100?"),
                        (["--machine", "gaudi"], "h200\n"), (["--memory", "much"], "--memory: 'much' is not an amount of memory"),
                        (["--context", "5000"], "--context: 5000 is more than the longest sequence, 4096 tokens"),
                        (["--max-model-len", "5000"], "--max-model-len: 5000 is more than the 4096 positions"),
                        (["--block-size", "24"], "--block-size: 24 is not a multiple of 16"),
                        (["--bandwidth", "0"], "--bandwidth: "), (["--quantization", "int3"], "--quantization: 'int3' is not"),
                        (["--kv-cache-dtype", "i3"], "--kv-cache-dtype: 'i3' is not")]:
        status, message = refused(llama, "--flops", 1, *flags)
        assert status == 2 and said in message, message
    (llama / "config.json").write_text(json.dumps({**LLAMA_2_7B, "hidden_size": "wide"}))
    assert refused(llama)[0] == 1 and "config.json: key 'hidden_size'" in refused(llama)[1]
    (llama / "config.json").write_text("{")
    assert refused(llama)[0] == 1 and "config.json: at byte" in refused(llama)[1]
    assert refused(tmp_path)[1].startswith(f"quire: {tmp_path}: is not a model: there is no config.json in it")
    assert "MODEL is missing" in refused()[1]


# ---- within objectives, and by a fitted cost model ----

SLO = "ttft=2s,tpot=50ms"


def test_the_users_within_objectives_are_those_that_the_simulator_serves(llama, tmp_path):
    flags = ["--machine", "a100", "--context", 1024]
    found = figures(llama, *flags, "--slo", SLO)
    within, cost = found["within"], found["cost"]
    assert cost["kind"] == "roofline" and cost["model"] == "Llama-2-7b" and cost["machine"] == "NVIDIA A100 SXM 80 GB"
    assert (within["prompt_tokens"], within["output_tokens"]) == (768, 256) and not within["or_more"]
    assert within["good"] >= 0.99 * within["requests"] and within["tpot_ns"]["p99"] <= 50e6
    # The ceilings are what they were, and no plan promises more than they do.
    plain = figures(llama, *flags)
    assert {key: value for key, value in found.items() if key not in ("within", "cost")} == plain
    # They read the weights and at least their prompts for each token.
    read = sum(found["weights"]["bytes_by_format"].values()) + within["users"] * 768 * found["kv"]["bytes_per_token"]
    assert 1 < within["users"] and 0.5 < within["output_tokens_per_s"] / (within["users"] * 2039e9 / read) < 1
    # Fewer with half the rates or more prompts among them, and none with a limit that one alone breaks.
    slower = figures(llama, *flags, "--slo", SLO, "--efficiency", 0.5)
    assert slower["ceilings"][0]["tokens_per_s_by_bandwidth"] == pytest.approx(plain["ceilings"][0]["tokens_per_s_by_bandwidth"] / 2)
    assert slower["within"]["users"] < within["users"]
    shorter = figures(llama, *flags, "--slo", SLO, "--output-len", 32)["within"]
    assert (shorter["prompt_tokens"], shorter["output_tokens"]) == (992, 32) and shorter["users"] < within["users"]
    none = figures(llama, *flags, "--slo", "tpot=2ms")["within"]
    assert none["users"] == 0 and none["tpot_ns"]["mean"] > 2e6
    assert "not one user with 768 tokens in and 256 out; one alone gets" in " ".join(
        quire("plan", llama, *flags, "--slo", "tpot=2ms").stdout.decode().split())


def test_a_screen_holds_what_objectives_add(llama):
    lines = quire("plan", llama, "--machine", "a10g", "--slo", SLO).stdout.decode().splitlines()
    assert len(lines) <= 36 and max(map(len, lines)) <= 100
    said = next(line for line in lines if line.startswith("within"))
    assert re.search(r"ttft=2s,tpot=50ms,attainment=99: \d+ users with 1,536 tokens in and 512 out;", said)


PARAMETERS = "6,738,415,616"  # of Llama 2 7B


def cost_file(path, model="Llama-2-7b", most=64, device=f"{PARAMETERS} parameters, f16 weights and K/V on NVIDIA A10G"):
    """A step takes 30 ms, and 1 ms more for each sequence."""
    phase = dict.fromkeys(("step", "decode_step", "decode", "chunk", "decode_context", "chunk_square", "chunk_prefix", "logit_row",
                           "sampled_row", "moved_block", "copy"), 0)
    counts = dict.fromkeys(("decoding", "decode_context", "chunks", "prefill_tokens", "chunk_squares", "chunk_prefix", "logit_rows",
                            "sampled_rows", "moved_blocks", "copies"), 10**9)
    path.write_text(json.dumps({
        "quire_cost": 2, "model": model, "machine": "a machine", "device": device, "build": "b", "steps": 9, "left_out": 0, "errors": [],
        "knots": [0],
        "device_ns": {**phase, "step": 30e6, "decode": 1e6, "token": [1e4]}, "host_ns": {**phase, "token": [0]},
        "most": {**counts, "decoding": most}, "deviations": []}))
    return path


def test_a_fitted_cost_model_stands_beside_the_ceilings(llama, tmp_path):
    path = cost_file(tmp_path / "cost.json", most=32)
    text = quire("plan", llama, "--machine", "a10g", "--cost", path).stdout.decode()
    assert "batch 1 31.0 ms, 32.2 tokens/s; batch 8 38.1 ms, 210 tokens/s; batch 64 94.6 ms, 676" in text
    assert "tokens/s (extrapolated)" in text and "fitted to steps of Llama-2-7b on a machine" in text and "by fitted" not in text and "within" not in text
    found = figures(llama, "--machine", "a10g", "--cost", path, "--slo", "ttft=10s,tpot=45ms")
    assert [each["extrapolated"] for each in found["fitted"]] == [False, False, True]
    assert found["fitted"][1]["step_seconds"] == pytest.approx(38.08e-3)
    # Some 14 at once take 45 ms; a few more fit, as some of them wait or compute their prompts.
    assert found["cost"]["kind"] == "fitted" and 10 <= found["within"]["users"] <= 14
    assert {key: found[key] for key in ("ceilings", "capacity")} == {
        key: figures(llama, "--machine", "a10g")[key] for key in ("ceilings", "capacity")}


def test_sampling_has_its_part_of_a_step(llama, tmp_path):
    """3 ms for each row that is sampled, beside its logits."""
    plain = cost_file(tmp_path / "plain.json")
    dear = tmp_path / "dear.json"
    kept = json.loads(plain.read_text())
    kept["device_ns"]["sampled_row"] = 3e6
    dear.write_text(json.dumps(kept))
    fitted, sampled = (figures(llama, "--machine", "a10g", "--cost", path)["fitted"] for path in (plain, dear))
    for one, other, batch in zip(fitted, sampled, (1, 8, 64)):
        assert other["step_seconds"] - one["step_seconds"] == pytest.approx(3e-3 * batch)


def said_in_text(warning, done):
    """On the screen, whose lines are broken, not only in the log."""
    text = " ".join(done.stdout.decode().split())
    return "WARNING " in text and warning in text.split("WARNING ")[1]


@pytest.mark.parametrize("flags, device, what, of_file, of_run", [
    (["--machine", "h100"], f"{PARAMETERS} parameters, f16 weights and K/V on NVIDIA A10G", "machine", "a machine", "NVIDIA H100 SXM 80 GB"),
    (["--machine", "l4"], f"{PARAMETERS} parameters, f16 weights and K/V on NVIDIA L40S", "machine", "a machine", "NVIDIA L4"),
    (["--memory", "64GiB"], f"{PARAMETERS} parameters, f16 weights, K/V in f16", "machine", "a machine", None),
    (["--bandwidth", 100, "--flops", 1, "--memory", "64GiB"], "", "machine", "a machine", "as the flags say"),
    (["--machine", "A10G", "--quantization", "int8"], f"{PARAMETERS} parameters, f16 weights and K/V on NVIDIA A10G", "format of the weights", "f16", "int8"),
    (["--machine", "a10g"], f"{PARAMETERS} parameters, int8 weights, K/V in f16, on NVIDIA A10G", "format of the weights", "int8", "f16"),
    (["--machine", "a10g", "--kv-cache-dtype", "int8"], f"{PARAMETERS} parameters, f16 weights and K/V on NVIDIA A10G", "type of K/V", "f16", "int8")])
def test_a_cost_model_of_another_machine_or_format_is_refused(llama, tmp_path, flags, device, what, of_file, of_run):
    """The steps of one machine do not go with the memory of another; planning for that machine needs --force."""
    path = cost_file(tmp_path / "cost.json", device=device)
    status, message = refused(llama, *flags, "--cost", path, "--slo", SLO)
    difference = f"the {what} is '{of_file}', and this run's is '" + (of_run + "'" if of_run else "")
    assert status == 1 and difference in message and "--force" in message
    done = quire("plan", llama, *flags, "--cost", path, "--slo", SLO, "--force")
    assert difference in done.stderr.decode() and said_in_text(difference, done)
    assert difference in figures(llama, *flags, "--cost", path, "--slo", SLO, "--force")["warning"]


def test_a_cost_model_of_the_same_is_taken_without_a_word(llama, tmp_path):
    path = cost_file(tmp_path / "cost.json")
    done = quire("plan", llama, "--machine", "A10G", "--cost", path)
    assert done.stderr == b"" and b"WARNING" not in done.stdout
    assert figures(llama, "--machine", "a10g", "--cost", path)["warning"] is None


def test_a_cost_model_in_a_compute_type_of_its_own_is_told_so(llama, tmp_path):
    path = cost_file(tmp_path / "cost.json", device=f"{PARAMETERS} parameters, f32 weights and K/V on NVIDIA A10G")
    on_a_card = [llama, "--machine", "a10g", "--memory", "64GiB"]
    status, message = refused(*on_a_card, "--cost", path)
    assert status == 1 and "the format of the weights is 'f32', and this run's is 'f16'; the type of K/V is 'f32', and this run's is 'f16'" in message
    wide, narrow = figures(*on_a_card, "--cost", path, "--dtype", "f32"), figures(*on_a_card)
    assert wide["warning"] is None
    for bytes_of in (lambda found: found["weights"]["bytes_in_memory"], lambda found: found["kv"]["bytes_per_token"]):
        assert bytes_of(wide) == pytest.approx(2 * bytes_of(narrow), rel=0.01)
    assert refused(*on_a_card, "--dtype", "f8")[1].startswith("quire: --dtype: 'f8' is not one of auto, f32, f16, bf16")


def test_a_cost_model_of_another_model_is_refused(llama, tmp_path):
    path = cost_file(tmp_path / "cost.json", model="Mistral-7B")
    status, message = refused(llama, "--machine", "a10g", "--cost", path)
    assert status == 1 and f"{path}: is a cost model of something else: the model is 'Mistral-7B', and this run's is 'Llama-2-7b'; --force" in message
    # A model of the same name may be another.
    namesake = cost_file(tmp_path / "namesake.json", device="7 parameters, f16 weights and K/V on NVIDIA A10G")
    status, message = refused(llama, "--machine", "a10g", "--cost", namesake)
    assert status == 1 and f"else: the number of parameters is '7', and this run's is '{PARAMETERS}'; --force" in message
    done = quire("plan", llama, "--machine", "a10g", "--cost", path, "--force")
    assert "the model is 'Mistral-7B', and this run's is 'Llama-2-7b'" in done.stderr.decode() and said_in_text("the model is 'Mistral-7B'", done)
    assert "the model is 'Mistral-7B'" in figures(llama, "--machine", "a10g", "--cost", path, "--force")["warning"]
    for flags, said in [(["--force"], "--force: changes nothing without --cost"),
                        (["--output-len", 9], "--output-len: changes nothing without --slo"),
                        (["--slo", SLO, "--output-len", 2048], "--output-len: 2048 of a context of 2048 tokens leave no prompt"),
                        (["--slo", "ttft=3"], "--slo: 'ttft=3': is not a time"),
                        (["--slo", SLO, "--context", 1], "--slo: a context of one token"),
                        (["--efficiency", 0], "--efficiency: ")]:
        status, message = refused(llama, "--machine", "a10g", *flags)
        assert status == 2 and said in message, message
    path.write_text("{}")
    assert "is no cost model" in refused(llama, "--machine", "a10g", "--cost", path)[1]
