"""quire calibrate: it finds the costs of a device that hides them, and says what it cannot do."""
import csv
import json
import re
import signal
import subprocess
import time

import pytest

from server import MODEL, QUIRE

# Of the device that is to be found.
HIDDEN = ["--cost-step-us", 1500, "--cost-prefill-tokens-per-ms", 50, "--cost-decode-us", 2500, "--cost-decode-more-us", 120]
SWAP = ["--cost-swap-block-us", 300]


def quire(*args, fails=False):
    done = subprocess.run([QUIRE, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrate") / "cost.json"
    said = quire("calibrate", MODEL, "--device", "sim", *HIDDEN, *SWAP, "--max-num-seqs", 16, "--max-num-batched-tokens", 256, "--num-blocks",
                 300, "--seconds", 8, "--table", "-o", path)
    return path, said


def simulate(tmp_path, *cost):
    out = tmp_path / "out.json"
    quire("simulate", "--rate", 20, "--requests", 300, "--prompt-len", "uniform:20:200", "--output-len", "uniform:5:60", "--max-num-seqs", 16,
          "--max-num-batched-tokens", 256, "--num-blocks", 512, "--json", out, *cost)
    return json.loads(out.read_text())


def test_a_hidden_device_is_found(fitted, tmp_path):
    """The times of a workload that was not used to fit, by the real costs and by the fitted ones."""
    path, said = fitted
    assert "median error %" in said and "measured ms" in said and str(path) in said
    kept = json.loads(path.read_text())
    seen = {each["kind"]: each["steps"] for each in kept["errors"]}
    assert min(seen["decode"], seen["prefill"], seen["mixed"]) > 20 and seen["swap"] > 0, seen
    real, guessed = simulate(tmp_path, *HIDDEN), simulate(tmp_path, "--cost", path)
    assert guessed["extrapolated_steps"] == 0
    for figure, bound in (("ttft_ns", 0.1), ("tpot_ns", 0.08), ("e2e_ns", 0.08)):
        assert guessed[figure]["mean"] == pytest.approx(real[figure]["mean"], rel=bound), figure


@pytest.mark.parametrize("step_us, enough", [(1000, True), (300_000, False)])
def test_ctrl_c_fits_what_was_measured(tmp_path, step_us, enough):
    out = tmp_path / "cost.json"
    running = subprocess.Popen([QUIRE, "calibrate", str(MODEL), "--device", "sim", "--cost-step-us", str(step_us), "--max-num-seqs", "16",
                                "--max-num-batched-tokens", "256", "--num-blocks", "300", "--seconds", "600", "-o", out],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = running.stdout.readline()
    assert first.startswith("The sweep: ")
    time.sleep(3)
    running.send_signal(signal.SIGINT)
    said, complaint = running.communicate(timeout=60)
    assert running.returncode == 130, complaint
    if enough:
        assert re.search(r"interrupted; the fit is of the \d+ steps that were measured by then\n$", complaint), complaint
        assert f"{out} is written" in said and json.loads(out.read_text())["steps"] >= 50
        quire("simulate", "--requests", 3, "--cost", out)
    else:
        assert re.search(r"interrupted; nothing was fitted: \d+ steps? were measured, and a fit needs 50\n$", complaint), complaint
        assert not out.exists()


def test_the_same_flags_give_the_same_digest(fitted, tmp_path):
    first, second = (simulate(tmp_path, "--cost", fitted[0]) for _ in range(2))
    assert first == second
    jittered = [simulate(tmp_path, "--cost", fitted[0], "--cost-jitter") for _ in range(2)]
    assert jittered[0] == jittered[1] and jittered[0]["digest"] != first["digest"]


def test_another_jitter_seed_gives_another_run_of_the_same_workload(fitted, tmp_path):
    default, same, other = (simulate(tmp_path, "--cost", fitted[0], "--cost-jitter", "--seed", 3, *flags)
                            for flags in ([], ["--jitter-seed", 3], ["--jitter-seed", 4]))
    assert same["digest"] == default["digest"] != other["digest"]
    given = [default["record_fields"].index(name) for name in ("arrival_ns", "prompt_tokens", "output_tokens")]
    sent, again = ([[record[i] for i in given] for record in run["records"]] for run in (default, other))
    assert sent == again


def test_beyond_what_was_fitted_it_says_so(fitted, tmp_path):
    said = quire("simulate", "--requests", 5, "--prompt-len", 3000, "--output-len", 20, "--max-num-seqs", 64, "--num-blocks", 4096, "--cost", fitted[0])
    beyond = re.search(r"(\d+ of \d+ steps) lie beyond what the cost model was fitted to", said)[1]
    page, trace, steps = (tmp_path / name for name in ("page.html", "trace.json", "steps.csv"))
    run = ["simulate", "--requests", 5, "--output-len", 20, "--max-num-seqs", 64, "--num-blocks", 4096, "--cost", fitted[0], "--html", page]
    quire(*run, "--prompt-len", 3000, "--perfetto", trace, "--step-csv", steps)
    assert f'<p class="alarm">{beyond} lie beyond what the cost model was fitted to' in page.read_text()
    kept = json.loads(trace.read_text())
    assert str(kept["extrapolated_steps"]) == beyond.split(" of")[0]
    # Each of them is marked.
    marked = [event["args"]["step"] for event in kept["traceEvents"] if event.get("args", {}).get("extrapolated")]
    with steps.open() as file:
        rows = list(csv.DictReader(file))
    assert marked == [int(row["step"]) for row in rows if row["extrapolated"] == "1"] and len(marked) == kept["extrapolated_steps"]
    assert {row["extrapolated"] for row in rows} == {"0", "1"}
    assert kept["otherData"]["cost"].startswith("fitted to steps of llama-quire-stories-5m on ")
    # Of several runs it is said in the same words, also on their page.
    more = ["--prompt-len", 3000, "--sweep", "watermark=1,2"]
    said = quire(*run, *more)
    of_both = re.search(r"\d+ of \d+ (steps) lie beyond .*", said)[0]
    words = " lie beyond what the cost model was fitted to (more of some count, as tokens, context or copies, fewer tokens or sequences, or another kind of step): their times are extrapolated"
    assert of_both.endswith(words) and f'<p class="alarm">{of_both}.</p>' in page.read_text()
    assert int(of_both.split()[0]) > int(beyond.split()[0])
    said = quire(*run, "--prompt-len", 3000, "--find-capacity", "--seeds", 1, "--slo", "ttft=1000s")
    assert words in said and words in page.read_text()
    quire(*run, "--prompt-len", 20, "--sweep", "watermark=1,2")
    assert "lie beyond" not in page.read_text()
    quire(*run, "--prompt-len", 20, "--perfetto", trace)
    assert "beyond what" not in page.read_text() and json.loads(trace.read_text())["extrapolated_steps"] == 0
    said = subprocess.run([QUIRE, "bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], "--requests", "2", "--prompt-len", "400",
                           "--max-num-batched-tokens", "512", "--output-len", "3"], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0 and said.stderr.count("--cost: a step lies beyond what the cost model was fitted to") == 1, said.stderr


def test_what_a_log_had_no_steps_of_is_extrapolated(fitted, tmp_path):
    """A log of prompts of 32 tokens and more that are never computed while others decode."""
    log, part, cost = tmp_path / "steps.log", tmp_path / "part.log", tmp_path / "cost.json"
    quire("bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], "--max-num-seqs", 16, "--max-num-batched-tokens", 256,
          "--num-blocks", 512, "--requests", 60, "--rate", 20, "--prompt-len", "uniform:20:200", "--output-len", "uniform:5:40", "--step-log", log)
    head, *rows = log.read_text().splitlines()
    columns = json.loads(head)["columns"]
    decoding, tokens = columns.index("decoding"), columns.index("prefill_tokens")

    def is_kept(row):
        return row[tokens] >= 32 and row[decoding] == 0 or row[tokens] == 0

    part.write_text("\n".join([head, *(row for row in rows if is_kept(json.loads(row)))]) + "\n")
    said = quire("calibrate", "--from", part, "-o", cost)
    assert re.search(r"mixed +0 none was seen: their times are extrapolated", said), said
    kept = json.loads(cost.read_text())
    assert set(kept["kinds"]) == {"decode", "prefill"} and kept["least"]["decoding"] == 1 and kept["least"]["prefill_tokens"] >= 32

    def extrapolated(*flags):
        out = tmp_path / "out.json"
        quire("simulate", "--cost", cost, "--output-len", 3, "--json", out, *flags)
        return json.loads(out.read_text())["extrapolated_steps"]

    one_by_one = ["--requests", 3, "--rate", 0.01]
    assert extrapolated(*one_by_one, "--prompt-len", 40) == 0, "one sequence that decodes is as few as there were"
    assert extrapolated(*one_by_one, "--prompt-len", 3) == 3, "each prompt is shorter than all that were seen"
    assert extrapolated("--requests", 40, "--rate", 100, "--prompt-len", 40) > 5, "prompts are computed while others decode"
    for key in ("least", "kinds"):
        del kept[key]
    cost.write_text(json.dumps(kept))
    assert extrapolated(*one_by_one, "--prompt-len", 3) == 0, "an older file does not say"


def test_a_comparison_says_what_each_run_said_of_its_times(fitted, tmp_path):
    far, near, page, out = (tmp_path / name for name in ("far.json", "near.json", "page.html", "out.json"))
    run = ["simulate", "--requests", 5, "--output-len", 20, "--max-num-seqs", 64, "--num-blocks", 4096]
    other = ["--cost", of_int8(fitted, tmp_path), "--model", MODEL, "--max-model-len", 512, "--force"]
    said = quire(*run, "--prompt-len", 3000, "--cost", fitted[0], "--json", far)
    beyond = re.search(r".* steps lie beyond what .* are extrapolated", said)[0]
    quire(*run, "--prompt-len", 20, *other, "--json", near)
    said = quire("simulate", "--compare", far, near, "--html", page, "--json", out)
    assert f"A: {beyond}.\n" in said and "\nB: Warning: " in said and FORMAT in said.split("\nB: ")[1] and "B: 0" not in said
    complaints = json.loads(out.read_text())["comparison"]["complaints"]
    assert len(complaints["a"]) == 2 and beyond + "." in complaints["a"] and any(SIMULATED in each for each in complaints["a"])
    assert len(complaints["b"]) == 1 and FORMAT in complaints["b"][0]
    for text in (f'<p class="alarm">far.json: {beyond}.</p>', '<p class="alarm">near.json: Warning: '):
        assert text in page.read_text()
    quire(*run, "--prompt-len", 20, "--overlay", far, "--html", page)
    assert f'<p class="alarm">far.json: {beyond}.</p>' in page.read_text()
    # A file from before they were counted says nothing.
    kept = json.loads(far.read_text())
    del kept["extrapolated_steps"]
    far.write_text(json.dumps(kept))
    assert "extrapolated" not in quire("simulate", "--compare", far, near)


def test_a_server_runs_at_the_fitted_pace(fitted, tmp_path):
    """A step log of the device that the fitted model makes, fitted again, gives the same times."""
    log, again = tmp_path / "steps.log", tmp_path / "again.json"
    quire("bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], "--max-num-seqs", 16, "--max-num-batched-tokens", 256,
          "--num-blocks", 512, "--requests", 60, "--rate", 20, "--prompt-len", "uniform:20:200", "--output-len", "uniform:5:40",
          "--step-log", log)
    said = quire("calibrate", "--from", log, "-o", again)
    assert "steps" in said
    one, two = (simulate(tmp_path, "--cost", path) for path in (fitted[0], again))
    assert two["tpot_ns"]["mean"] == pytest.approx(one["tpot_ns"]["mean"], rel=0.1)


def test_a_sweep_may_be_logged_too(tmp_path):
    """The log of its steps gives the same fit as they do."""
    log, cost, again = (tmp_path / name for name in ("steps.log", "cost.json", "again.json"))
    run = ["calibrate", MODEL, "--device", "sim", *HIDDEN, "--sim-speed", 20, "--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--num-blocks", 100,
           "--seconds", 0]
    quire(*run, "-o", cost, "--step-log", log)
    quire("calibrate", "--from", log, "-o", again)
    one, two = (json.loads(path.read_text()) for path in (cost, again))
    assert one["steps"] + one["left_out"] == len(log.read_text().splitlines()) - 1 > 50
    assert one == two
    assert "--step-log" in quire(*run, "-o", cost, "--step-log", cost, fails=True)


def test_what_moving_a_block_costs_is_found(fitted, tmp_path):
    kept = json.loads(fitted[0].read_text())
    assert kept["most"]["moved_blocks"] > 5 and kept["most"]["copies"] > 5
    assert kept["device_ns"]["moved_block"] + kept["host_ns"]["moved_block"] == pytest.approx(300_000, rel=0.1)
    assert "blocks moved to the host and back" in fitted[1]


def test_a_sweep_that_cannot_be_whole_says_so_before_it_starts(tmp_path):
    device = ["--device", "sim", *HIDDEN, "--max-num-seqs", 8, "--seconds", 0, "-o", tmp_path / "cost.json"]
    said = quire("calibrate", MODEL, *device, "--num-blocks", 512)
    assert said.index("what moving a block costs is not measured: ") < said.index("median error")
    assert "longer than --seconds 0" in said
    assert "blocks of the host; give fewer --num-blocks" in said
    said = quire("calibrate", MODEL, *device, "--num-blocks", 30)
    assert "tokens before, not 467: the pool has 30 blocks" in said
    assert "63 tokens are too short to measure: at least 64" in quire("calibrate", MODEL, *device, "--max-model-len", 63, fails=True)
    assert "a pool of 1 blocks is too small to measure with: at least" in quire(
        "calibrate", MODEL, *device, "--num-blocks", 1, "--block-size", 64, "--max-model-len", 64, fails=True)
    assert "K/V for 65536 sequences of up to 512 tokens takes" in quire(
        "calibrate", MODEL, "--max-num-seqs", 65536, "--kv-cache-dtype", "f32", "--block-size", 1024, "--max-model-len", 512, "-o", tmp_path / "cost.json", fails=True)


def step_log(fitted, path):
    """Of some hundred steps of the fitted device."""
    quire("bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], "--sim-speed", 10, "--max-num-seqs", 8, "--requests", 40,
          "--prompt-len", "uniform:10:60", "--output-len", 30, "--step-log", path)
    return path


def other_cost(fitted, folder, **changes):
    path = folder / "other.json"
    path.write_text(json.dumps({**json.loads(fitted[0].read_text()), **changes}))
    return path


@pytest.mark.parametrize("key, name", [("model", "a-hen"), ("machine", "a bigger machine")])
def test_a_cost_file_of_something_else_is_taken_only_by_force(fitted, tmp_path, key, name):
    other = other_cost(fitted, tmp_path, **{key: name})
    device = [MODEL, "--device", "sim", "--cost", other]
    run = ["bench", "throughput", *device, "--requests", 3, "--prompt-len", 10, "--output-len", 5]
    for command in (run, ["serve", *device, "--port", 0]):
        said = quire(*command, fails=True)
        assert f"the {key} is '{name}', and this run's is '{json.loads(fitted[0].read_text())[key]}'" in said and "--force" in said
    log = tmp_path / "steps.log"
    warning = f"the {key} is '{name}'"
    assert warning in quire(*run, "--force", "--step-log", log).split("requests in")[0]
    assert warning in json.loads(log.read_text().split("\n")[0])["warning"]
    assert warning in json.loads(quire(*run, "--force", "--json"))["warning"]
    assert json.loads(quire("bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], *run[7:], "--json"))["warning"] is None
    again = tmp_path / "again.json"
    quire("bench", "throughput", *device, "--requests", 40, "--prompt-len", 10, "--output-len", 60, "--max-num-seqs", 8, "--force",
          "--step-log", log)
    assert warning in quire("calibrate", "--from", log, "-o", again)
    assert warning in json.loads(again.read_text())["device"]
    out = tmp_path / "out.json"
    assert warning in quire("simulate", "--cost", again, "--requests", 3, "--json", out)
    assert warning in json.loads(out.read_text())["cost"]["warning"]


SIMULATED = "its times are those of a simulated device (simulated, at 1 times the speed: the words are arbitrary)"


def test_the_times_of_a_simulated_device_are_no_machines(fitted, tmp_path):
    out = tmp_path / "out.json"
    assert SIMULATED in quire("simulate", "--cost", fitted[0], "--requests", 3, "--json", out)
    assert SIMULATED in json.loads(out.read_text())["cost"]["warning"]
    quire("simulate", "--cost", fitted[0], "--model", MODEL, "--requests", 3, "--prompt-len", 20, "--json", out)
    assert SIMULATED in json.loads(out.read_text())["cost"]["warning"]
    assert SIMULATED in json.loads(quire("plan", MODEL, "--cost", fitted[0], "--json"))["warning"]
    said = quire("serve", MODEL, "--shadow", fitted[0], "--port", 0, fails=True)
    assert "the device is 'simulated, at 1 times the speed: the words are arbitrary', and this run's computes; --force" in said


def test_a_simulation_says_whose_times_it_has(fitted, tmp_path):
    requests, steps, table, out = (tmp_path / name for name in ("requests.csv", "steps.csv", "table.csv", "out.json"))
    whose = "llama-quire-stories-5m on "
    said = quire("simulate", "--cost", fitted[0], "--requests", 5, "--prompt-len", 20, "--output-len", 5, "--request-csv", requests, "--step-csv",
                 steps, "--json", out)
    assert whose in said
    assert json.loads(out.read_text())["cost"]["model"] == "llama-quire-stories-5m"
    for path in (requests, steps):
        head, first = path.read_text().split("\n")[:2]
        assert head.endswith(",cost") and whose in first
    assert whose in quire("simulate", "--cost", fitted[0], "--requests", 5, "--sweep", "max-num-seqs=1,2", "--csv", table)
    head, first = table.read_text().split("\n")[:2]
    assert head.endswith(",cost") and whose in first
    quire("simulate", "--requests", 5, "--request-csv", requests)
    assert ",cost" not in requests.read_text()


def of_int8(fitted, folder):
    """Of the demo model, which is in bf16, with other formats."""
    return other_cost(fitted, folder, device="5,475,584 parameters, int8 weights, K/V in bf16, kernels avx2 on 64 threads")


FORMAT = "the format of the weights is 'int8', and this run's is 'bf16'"


def test_a_simulated_device_has_the_formats_of_its_costs(fitted, tmp_path):
    device = [MODEL, "--device", "sim", "--cost", of_int8(fitted, tmp_path)]
    run = ["bench", "throughput", *device, "--requests", 3, "--prompt-len", 10, "--output-len", 5]
    for command in (run, ["serve", *device, "--port", 0]):
        said = quire(*command, fails=True)
        assert FORMAT in said and "--force" in said and "threads" not in said
    assert FORMAT in json.loads(quire(*run, "--force", "--json"))["warning"]
    assert json.loads(quire(*run, "--quantization", "int8", "--json"))["warning"] is None
    said = quire(*run, "--quantization", "int8", "--kv-cache-dtype", "int8", fails=True)
    assert "the type of K/V is 'bf16', and this run's is 'int8'" in said and "format of the weights" not in said
    assert "the format of the weights is 'int8', and this run's is 'f32'" in quire(*run, "--dtype", "f32", fails=True)


def test_costs_in_a_type_of_their_own_are_told_so(fitted, tmp_path):
    """What is fitted with --dtype f32 is taken with --dtype f32, and by it alone."""
    other = other_cost(fitted, tmp_path, device="5,475,584 parameters, f32 weights, K/V in f32, kernels avx2 on 2 threads")
    bf16 = tmp_path / "bf16.json"
    bf16.write_text(other.read_text().replace("f32 weights, K/V in f32", "bf16 weights, K/V in bf16"))
    run = ["simulate", "--cost", other, "--model", MODEL, "--requests", 5, "--prompt-len", 20, "--output-len", 5]
    assert "the format of the weights is 'f32', and this run's is 'bf16'; the type of K/V is 'f32'" in quire(*run, fails=True)
    assert "warning" not in quire(*run, "--dtype", "f32")
    assert "the format of the weights is 'bf16', and this run's is 'f32'" in quire(*run[:2], bf16, *run[3:], "--dtype", "f32", fails=True)
    assert "--dtype: 'f8' is not one of auto, f32, f16, bf16" in quire(*run, "--dtype", "f8", fails=True)


def test_a_model_of_the_same_name_may_be_another(fitted, tmp_path):
    other = other_cost(fitted, tmp_path, device="5 parameters, bf16 weights, K/V in bf16")
    said = "the number of parameters is '5', and this run's is '5,475,584'; --force"
    for command in (["bench", "throughput", MODEL, "--device", "sim", "--requests", 3, "--prompt-len", 10, "--output-len", 5], ["simulate", "--model", MODEL]):
        assert said in quire(*command, "--cost", other, fails=True)


def test_a_simulation_checks_its_costs_against_a_model(fitted, tmp_path):
    other = of_int8(fitted, tmp_path)
    names = ("out.json", "out.html", "requests.csv", "steps.csv", "trace.json", "table.csv", "sweep.json", "sweep.html", "d.log")
    out, page, requests, steps, trace, table, sweep, small, log = (tmp_path / name for name in names)
    run = ["simulate", "--cost", other, "--model", MODEL, "--requests", 5, "--prompt-len", 20, "--output-len", 5]
    for more in ([], ["--sweep", "max-num-seqs=1,2"]):
        said = quire(*run, *more, fails=True)
        assert FORMAT in said and said.endswith("--force takes its times all the same\n") and "machine" not in said
    assert "warning" not in quire(*run, "--quantization", "int8", "--json", out)
    assert "warning" not in json.loads(out.read_text())["cost"]
    model = json.loads(out.read_text())["scheduler"]["max_model_len"]
    assert model == 512, "its sequences are no longer than the model's"
    assert FORMAT in quire(*run, "--force", "--json", out, "--html", page, "--request-csv", requests, "--step-csv", steps, "--perfetto", trace,
                           "--decision-log", log)
    assert FORMAT in json.loads(log.read_bytes().split(b"\n")[0])["warning"]
    assert FORMAT in re.sub(r"\s+", " ", quire("explain", log))
    quire(*run, "--quantization", "int8", "--decision-log", log)
    assert "warning" not in json.loads(log.read_bytes().split(b"\n")[0]) and "warning" not in quire("explain", log)
    assert FORMAT in json.loads(out.read_text())["cost"]["warning"]
    assert FORMAT in json.loads(trace.read_text())["otherData"]["cost"]
    assert FORMAT in quire(*run, "--force", "--sweep", "max-num-seqs=1,2", "--csv", table, "--json", sweep, "--html", small)
    assert all(FORMAT in each["cost"]["warning"] for each in json.loads(sweep.read_text())["runs"])
    for path in (requests, steps, table):
        assert all(FORMAT in line for line in path.read_text().splitlines()[1:])
    for path in (page, small):
        assert '<p class="alarm">Warning: ' in path.read_text() and FORMAT in path.read_text().replace("&#39;", "'")
    assert "the model is 'a-hen', and this run's is" in quire(*run[:2], other_cost(fitted, tmp_path, model="a-hen"), *run[3:], fails=True)
    for flags, why in ((["--force"], "--force: changes nothing without --cost and --model"),
                       (["--quantization", "int8"], "--quantization: changes nothing with --cost alone; --model says")):
        assert why in quire(*run[:3], *flags, fails=True)


def test_the_example_of_the_help_is_taken(fitted, tmp_path):
    log = step_log(fitted, tmp_path / "steps.log")
    example = re.search(r"--step-log steps.log; quire (calibrate .*)", quire("calibrate", "--help"))[1].split()
    assert "--from" in example
    done = subprocess.run([QUIRE, *example], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "cost.json").exists() and log.exists(), done.stderr


def test_a_damaged_log_is_told_by_its_line(fitted, tmp_path):
    log, cost = step_log(fitted, tmp_path / "steps.log"), tmp_path / "cost.json"
    whole = log.read_text()
    columns = json.loads(whole.split("\n")[0])["columns"]

    def changed(line, **columns_to):
        lines = whole.split("\n")
        row = json.loads(lines[line - 1])
        for name, value in columns_to.items():
            row[columns.index(name)] = value
        lines[line - 1] = json.dumps(row)
        log.write_text("\n".join(lines))
        return quire("calibrate", "--from", log, "-o", cost, fails=True)

    assert f"{log}: line 7: 'prefill_tokens' is {10**15}" in changed(7, prefill_tokens=10**15)
    assert f"{log}: line 8: step " in changed(8, open=2) and "was one of 2 in flight" in changed(8, open=2)
    assert not cost.exists()
    # What a server that is killed leaves.
    log.write_text(whole[:-9])
    done = subprocess.run([QUIRE, "calibrate", "--from", log, "-o", cost], capture_output=True, text=True, timeout=300)
    last = len(whole.splitlines())
    assert done.returncode == 0 and f"{log}: line {last} is not whole" in done.stderr, done.stderr
    kept = json.loads(cost.read_text())
    assert kept["steps"] + kept["left_out"] == last - 2


def test_errors_say_what_to_do(fitted, tmp_path):
    path, _ = fitted
    assert "MODEL is missing" in quire("calibrate", fails=True)
    assert "no such file" in quire("calibrate", "--from", tmp_path / "none", fails=True)
    log = tmp_path / "few.log"
    quire("run", MODEL, "-p", "a fox", "--max-tokens", 5, "--step-log", log)
    assert "too few to fit a cost model" in quire("calibrate", "--from", log, "-o", tmp_path / "x.json", fails=True)
    assert not (tmp_path / "x.json").exists()
    letter = tmp_path / "letter.json"
    letter.write_text("dear fox")
    assert "cost model" in quire("calibrate", MODEL, "-o", letter, fails=True)
    assert letter.read_text() == "dear fox"
    assert "is no cost model" in quire("simulate", "--cost", fitted_copy(tmp_path, path, "quire_cost", "other"), fails=True)
    assert "with --cost" in quire("simulate", "--cost", path, "--cost-step-us", 5, fails=True)
    assert "without --device sim" in quire("bench", "throughput", MODEL, "--cost", path, fails=True)
    assert "without --device cuda or --device sim: a CPU computes one step at a time" in quire("bench", "throughput", MODEL, "--steps-in-flight", 2, fails=True)


def fitted_copy(folder, path, key, new):
    kept = json.loads(path.read_text())
    kept[new] = kept.pop(key)
    copy = folder / "copy.json"
    copy.write_text(json.dumps(kept))
    return copy


def test_a_page_shows_the_fit_beside_the_measurement(fitted, tmp_path):
    """One file, without a script or anything from elsewhere; from the steps of a log."""
    log, page = tmp_path / "steps.log", tmp_path / "fit.html"
    quire("bench", "throughput", MODEL, "--device", "sim", "--cost", fitted[0], "--max-num-seqs", 8, "--num-blocks", 100, "--preemption-mode", "swap",
          "--requests", 60, "--rate", 30, "--prompt-len", "uniform:20:200", "--output-len", "uniform:5:60", "--step-log", log)
    quire("calibrate", "--from", log, "-o", tmp_path / "again.json", "--html", page)
    text = page.read_text()
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "<script" not in text and "http" not in text.replace("http-equiv", "") and "prefers-color-scheme: dark" in text
    assert text.count("<svg") >= 6
    for part in ("Prompts alone, by their tokens", "Decoding, by the batch", "Decoding, by the context", "Swaps, by the blocks", "median error",
                 "moved block", "Ranges", "measured", "fitted", str(log)):
        assert part in text, part
    letter = tmp_path / "letter.html"
    letter.write_text("dear fox")
    assert "letter.html" in quire("calibrate", "--from", log, "-o", tmp_path / "again.json", "--html", letter, fails=True)
    assert letter.read_text() == "dear fox"
