"""quire serve --shadow: what it predicts of a simulated device beside what it observes, and what --admission slo makes of it."""
import concurrent.futures
import http.client
import json
import re
import shutil
import subprocess
import time

import pytest

from server import MODEL, QUIRE, QuireServer

STEP = 20  # milliseconds
SMALL = ["--max-num-batched-tokens", 128, "--num-blocks", 500]


def cost_model(folder, name, factor=1.0, **other):
    """A device that needs 20 ms a step, and more for what it computes."""
    phase = {"step": STEP * 1e6, "decode_step": 0, "decode": 5e5, "chunk": 0, "decode_context": 300, "chunk_square": 20, "chunk_prefix": 20,
             "logit_row": 0, "sampled_row": 0, "moved_block": 1e5, "copy": 0, "token": [1e5]}
    nothing = {key: 0 if key != "token" else [0] for key in phase}
    scaled = {key: value * factor if key != "token" else [each * factor for each in value] for key, value in phase.items()}
    counts = ("decoding", "decode_context", "chunks", "prefill_tokens", "chunk_squares", "chunk_prefix", "logit_rows", "sampled_rows", "moved_blocks",
              "copies")
    path = folder / name
    path.write_text(json.dumps({"quire_cost": 2, "model": MODEL.name, "machine": "a burrow", "device": "", "build": "", "steps": 0, "left_out": 0,
                                "errors": [], "knots": [0], "device_ns": scaled, "host_ns": nothing, "most": dict.fromkeys(counts, 10**9),
                                "deviations": [], **other}, separators=(",", ":")))
    return path


def served(cost, shadow, *flags, seqs=4):
    return QuireServer("--device", "sim", "--cost", cost, "--shadow", shadow, "--max-num-seqs", seqs, *SMALL, *flags)


def complete(server, headers=None, **fields):
    """Status, headers and body of a completion whose answer has exactly max_tokens tokens."""
    body = {"prompt": [5 + len(str(fields))] * 20, "max_tokens": 10, "ignore_eos": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


def this_machine(folder):
    """Its name, as a refusal of the costs of another one tells it."""
    said = fails("--device", "sim", "--cost", cost_model(folder, "burrow.json"))
    return re.search(r"the machine is 'a burrow', and this run's is '([^']*)'", said)[1]


def metrics_text(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def labelled(server, start):
    for line in metrics_text(server).splitlines():
        if line.startswith(start):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"{start} is not among the metrics")


@pytest.fixture(scope="module")
def cost(tmp_path_factory):
    return cost_model(tmp_path_factory.mktemp("shadow"), "cost.json", machine=this_machine(tmp_path_factory.mktemp("machine")))


WISH = {"x-quire-predict": "1"}


def test_requests_are_foretold(cost):
    """More at once than run at once, so that some wait: their first tokens and ends come about when they were predicted."""
    with served(cost, cost) as server:
        def ask(number):
            time.sleep(number * 0.04)
            return complete(server, WISH, prompt=[5 + number] * (10 + 15 * number), max_tokens=5 + 4 * number)

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(ask, range(12)))
        predicted, observed = 0, 0
        for status, headers, text in answers:
            usage = json.loads(text)["usage"]
            assert status == 200
            assert float(headers["x-quire-predicted-ttft-ms"]) == usage["predicted_ttft_ms"] > STEP
            assert float(headers["x-quire-predicted-ms"]) == usage["predicted_ms"] > usage["predicted_ttft_ms"]
            predicted += usage["predicted_ttft_ms"]
            observed += usage["ttft_ms"]
        assert predicted < 1.3 * observed  # a busy machine takes longer than the device that it stands for, and never less
        metrics = server.metrics()
        assert metrics["quire:predicted_ttft_seconds_total"] == pytest.approx(predicted / 1000, abs=0.01)
        assert metrics["quire:observed_ttft_seconds_total"] == pytest.approx(observed / 1000, abs=0.01)
        assert metrics["quire:e2e_prediction_error_seconds_count"] == 12
        assert -1 < labelled(server, 'quire:step_bias{kind="decode"') < 0.3


def test_only_on_wish(cost):
    with served(cost, cost) as server:
        for headers in ({}, {"x-quire-predict": "0"}):
            status, got, text = complete(server, headers)
            assert status == 200 and "predicted" not in text and not [name for name in got if name.startswith("x-quire")]
        for odd in ("yes", "2", "1, 1", "\t1 1", "9" * 5000):
            status, _, text = complete(server, {"x-quire-predict": odd})
            assert status == 400 and json.loads(text)["error"]["param"] == "x-quire-predict"
        status, headers, text = complete(server, WISH, stream=True, stream_options={"include_usage": True})
        assert status == 200 and float(headers["x-quire-predicted-ttft-ms"]) > 0
        usage = json.loads(text.strip().split("\n\n")[-2].removeprefix("data: "))["usage"]
        assert usage["predicted_ttft_ms"] == float(headers["x-quire-predicted-ttft-ms"]) and usage["ttft_ms"] > 0
    with QuireServer("--device", "sim", *SMALL) as server:
        status, _, text = complete(server, WISH)
        assert status == 400 and "quire serve --shadow" in text
        assert "quire:step_bias" not in server.metrics()


def test_a_model_that_is_off_is_named_once(cost, tmp_path):
    """The shadow takes steps to last half as long as they do."""
    half = cost_model(tmp_path, "half.json", 0.5, machine=json.loads(cost.read_text())["machine"])
    with served(cost, half) as server:
        assert complete(server, max_tokens=150)[0] == 200
        server.wait_for("decode steps take")
        assert complete(server, max_tokens=80)[0] == 200
        assert server.output().count("steps take") == 1
        assert "in the device's phases" in server.output()
        assert labelled(server, 'quire:step_bias{kind="decode"') < -0.4


def test_what_lies_beyond_the_fit_is_counted_and_said_once(cost, tmp_path):
    """Fitted to prompts of 15 tokens and short contexts: a prompt of 20 is beyond, and so is a long answer, which is known at its arrival."""
    kept = json.loads(cost.read_text())
    few = cost_model(tmp_path, "few.json", machine=kept["machine"], most={**kept["most"], "prefill_tokens": 15, "decode_context": 60})
    with served(cost, few, "--admission", "slo") as server:
        assert complete(server, prompt=[7] * 10)[0] == 200
        assert "beyond what" not in server.output() and labelled(server, "quire:extrapolated_forecasts_total") == 0
        assert complete(server, prompt=[8] * 20, ttft_deadline_ms=5000)[0] == 200
        assert complete(server, prompt=[9] * 10, max_tokens=80)[0] == 200
        server.wait_until_idle()
        assert server.output().count("--shadow: a step lies beyond what the cost model was fitted to") == 1
        assert labelled(server, 'quire:extrapolated_steps_total{kind="prefill"') == 1
        assert labelled(server, 'quire:extrapolated_steps_total{kind="decode"') >= 20
        assert labelled(server, "quire:extrapolated_forecasts_total") == 2
        assert "--cost: a step lies" not in server.output()
    with QuireServer("--device", "sim", "--cost", few, *SMALL) as server:
        assert complete(server, prompt=[7] * 10)[0] == 200 and "beyond what" not in server.output()
        for _ in range(2):
            assert complete(server, prompt=[8] * 20)[0] == 200
        server.wait_for("--cost: a step lies beyond what the cost model was fitted to")
        assert server.output().count("beyond what the cost model was fitted to") == 1


def test_promises_are_kept_and_others_refused(cost):
    """One runs at a time, some 0.6 s each: of ten at once that want their first token within 1.5 s, some have to come back."""
    with served(cost, cost, "--admission", "slo", seqs=1) as server:
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            asked = [pool.submit(complete, server, WISH, max_tokens=30, ttft_deadline_ms=1500, stream=number % 2 == 0) for number in range(10)]
            answers = [each.result() for each in asked]
        refused = [(headers, text) for status, headers, text in answers if status == 429]
        assert len(refused) >= 3 and len(answers) - len(refused) >= 2
        assert all(status in (200, 429) for status, _, _ in answers)
        for headers, text in refused:
            error = json.loads(text)["error"]
            assert 1 <= int(headers["retry-after"]) <= 5
            assert "within 1500 ms (ttft_deadline_ms) and predicted after" in error["message"]
            assert error["code"] == "rate_limit_exceeded"
        for status, headers, _ in answers:
            assert status != 200 or float(headers["x-quire-predicted-ttft-ms"]) <= 1500
        metrics = server.metrics()
        assert metrics["quire:admission_refused_total"] == len(refused)
        assert metrics["quire:deadlines_promised_total"] == len(answers) - len(refused)
        assert metrics["quire:deadlines_kept_total"] <= len(answers) - len(refused)
        # What needs longer even alone is no matter of patience.
        status, headers, text = complete(server, ttft_deadline_ms=5, stream=True)
        assert status == 400 and "retry-after" not in headers
        assert json.loads(text)["error"]["param"] == "ttft_deadline_ms" and "even alone" in text
        # Who names no deadline is promised none.
        assert complete(server)[0] == 200
        server.wait_until_idle()


def test_a_deadline_needs_what_heeds_it(cost):
    with served(cost, cost) as server:
        status, _, text = complete(server, ttft_deadline_ms=500)
        assert status == 400 and "--admission slo with --shadow" in text


def fails(*flags):
    done = subprocess.run([QUIRE, "serve", str(MODEL), "--port", "0", *map(str, flags)], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    return done.stderr


def test_the_costs_of_another_are_refused(cost, tmp_path):
    sim = ["--device", "sim", "--cost", cost]
    said = fails(*sim, "--shadow", cost_model(tmp_path, "machine.json", machine="a den"))
    assert "the machine is 'a den', and this run's is" in said and "--force" in said
    other = cost_model(tmp_path, "model.json", model="hedgehog", machine=json.loads(cost.read_text())["machine"])
    said = fails(*sim, "--shadow", other)
    assert f"the model is 'hedgehog', and this run's is '{MODEL.name}'" in said
    with served(cost, other, "--force") as server:
        assert "hedgehog" in server.output()
        assert complete(server, WISH)[0] == 200
        warning = next(line for line in metrics_text(server).splitlines() if line.startswith("quire:cost_warning"))
        assert 'flag="--shadow"' in warning and "the model is 'hedgehog'" in warning
    with QuireServer("--device", "sim", "--cost", other, "--force", *SMALL) as server:
        warning = next(line for line in metrics_text(server).splitlines() if line.startswith("quire:cost_warning"))
        assert 'flag="--cost"' in warning and "the model is 'hedgehog'" in warning
    with served(cost, cost) as server:
        assert "quire:cost_warning" not in metrics_text(server)
    of_cpu = {"machine": json.loads(cost.read_text())["machine"], "device": "5,475,584 parameters, int8 weights, K/V in bf16"}
    log = tmp_path / "steps.log"
    said = fails("--shadow", cost_model(tmp_path, "int8.json", **of_cpu), "--step-log", log)  # of the real model, in bf16
    assert not log.exists()
    assert "the format of the weights is 'int8', and this run's is 'bf16'" in said and "--force" in said
    of_cpu["device"] = "5,475,584 parameters, bf16 weights, K/V in int8, kernels avx9 on 99 threads"
    said = fails("--shadow", cost_model(tmp_path, "threads.json", **of_cpu), "--threads", 1, "--isa", "avx2")
    assert "the type of K/V is 'int8', and this run's is 'bf16'; the level of the kernels is 'avx9', and this run's is 'avx2'; " in said
    assert "the number of threads is '99', and this run's is '1'" in said
    assert "the machine is 'a burrow'" in fails("--shadow", cost_model(tmp_path, "burrow.json"))  # of the real model
    assert "no such file" in fails("--shadow", tmp_path / "none.json")
    assert "--shadow" in fails("--admission", "slo")
    assert "--force: changes nothing without a cost model" in fails("--force")
    assert "--max-waiting" in fails(*sim, "--shadow", cost, "--max-waiting", 100000)


def test_the_costs_of_another_are_refused_before_the_weights_are_loaded(tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(MODEL, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    costs = {"model": "bare", "machine": this_machine(tmp_path)}
    said = {}
    for weights in ("int8", "bf16"):
        shadow = cost_model(tmp_path, f"{weights}.json", device=f"5,475,584 parameters, {weights} weights, K/V in bf16", **costs)
        done = subprocess.run([QUIRE, "serve", bare, "--port", "0", "--shadow", shadow], capture_output=True, text=True, timeout=120)
        assert done.returncode != 0
        said[weights] = done.stderr
    assert "the format of the weights is 'int8', and this run's is 'bf16'" in said["int8"]
    assert ".safetensors" in said["bf16"] and "format" not in said["bf16"]
