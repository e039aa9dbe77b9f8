"""The scheduler without a model: the same every time, and behind the server."""
import csv
import json
import pathlib
import re
import signal
import subprocess
import time

import openai
import pytest

from server import MODEL, MODEL_NAME, QuireServer
from test_cli import QUIRE, needs, quire
from test_plan import LLAMA_2_7B


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


def test_a_sweep_runs_all_combinations_and_each_as_alone(tmp_path):
    table, results, alone = tmp_path / "t.csv", tmp_path / "t.json", tmp_path / "one.json"
    flags = ["--requests", 60, "--slo", "ttft=300ms,tpot=40ms"]
    text = quire("simulate", *flags, "--sweep", "rate=4..12:8", "--sweep", "scheduling-policy=fcfs,srpt", "--csv", table, "--json",
                 results).stdout.decode()
    assert len(text.splitlines()) == 5 and text.startswith("rate  scheduling-policy  requests/s")
    rows = list(csv.DictReader(table.open()))
    assert [(row["rate"], row["scheduling-policy"]) for row in rows] == [("4", "fcfs"), ("4", "srpt"), ("12", "fcfs"), ("12", "srpt")]
    runs = json.loads(results.read_text())["runs"]
    quire("simulate", *flags, "--rate", 12, "--scheduling-policy", "srpt", "--json", alone)
    one = json.loads(alone.read_text())
    assert runs[3]["flags"] == {"rate": "12", "scheduling-policy": "srpt"}
    assert all(one[key] == value for key, value in runs[3].items() if key != "flags")
    assert float(rows[3]["ttft_mean_ms"]) == pytest.approx(one["ttft_ns"]["mean"] / 1e6, abs=0.06)
    # Twice the same on any number of CPUs.
    again = quire("simulate", *flags, "--sweep", "rate=4..12:8", "--sweep", "scheduling-policy=fcfs,srpt").stdout.decode()
    assert again == text


def test_the_capacity_is_met_and_a_little_more_is_not(tmp_path):
    results, one = tmp_path / "t.json", tmp_path / "one.json"
    flags = ["--slo", "ttft=1s,tpot=60ms,attainment=95", "--requests", 400]
    quire("simulate", *flags, "--find-capacity", "--seeds", 3, "--sweep", "num-blocks=200,4096", "--json", results)
    rows = json.loads(results.read_text())["rows"]
    assert rows[0]["least"] <= rows[0]["median"] <= rows[0]["most"] < rows[1]["median"]
    for row in rows:
        for found in row["seeds"]:
            good = []
            for rate in (found["load"], f"{found['load'] * 1.012:.3f}"):  # what it says can be asked for
                quire("simulate", *flags, "--num-blocks", row["flags"]["num-blocks"], "--seed", found["seed"], "--rate", rate,
                      "--json", one)
                good.append(json.loads(one.read_text())["good"])
            assert good[0] >= 0.95 * 400 > good[1]
    # The search may begin anywhere.
    quire("simulate", *flags, "--find-capacity", "--seeds", 1, "--request-rate", 40, "--json", results)
    assert json.loads(results.read_text())["rows"][0]["median"] == pytest.approx(rows[1]["seeds"][0]["load"], rel=0.011)
    # Between two seeds the median is their mean.
    said = quire("simulate", *flags, "--find-capacity", "--seeds", 2, "--json", results).stdout.decode()
    row = json.loads(results.read_text())["rows"][0]
    assert row["least"] < row["most"] and row["median"] == pytest.approx((row["least"] + row["most"]) / 2, rel=1e-12)
    assert said.splitlines()[-1].split()[0] == f"{row['median']:.3f}"
    # Users are counted in whole numbers.
    quire("simulate", *flags, "--find-capacity", "--seeds", 1, "--users", 3, "--think-time-ms", 500, "--json", results)
    assert json.loads(results.read_text())["rows"][0]["median"] % 1 == 0


@pytest.mark.parametrize("more, what", [([], "runs"), (["--find-capacity", "--seeds", 2, "--slo", "ttft=500ms"], "rows")])
def test_a_run_in_which_nothing_finishes_has_no_times(tmp_path, more, what):
    table, results, page = tmp_path / "t.csv", tmp_path / "t.json", tmp_path / "t.html"
    flags = ["simulate", "--requests", 50, "--prompt-len", 200, "--output-len", 20, *more]
    done = quire(*flags, "--sweep", "num-blocks=2,400", "--csv", table, "--json", results, "--html", page, check=False)
    said = done.stderr.decode()
    assert done.returncode == 1 and "no request finished with num-blocks 2: 50 too long for the pool" in said and "400" not in said
    early = "quire: no request will fit with num-blocks 2: the shortest has 220 tokens, and there is room for 32\n"
    assert said.startswith("" if more else early) and said.count("will fit") == (0 if more else 1)
    none, some = done.stdout.decode().splitlines()[-2:]
    assert none.split().count("-") >= 6 and "-" not in some.split()
    rows = list(csv.DictReader(table.open()))
    assert rows[0]["ttft_mean_ms"] == rows[0]["e2e_p99_ms"] == "" and float(rows[1]["ttft_mean_ms"]) > 0
    first, second = json.loads(results.read_text())[what]
    if more:
        assert first["median"] is None and first["seeds"][0]["load"] is None and second["median"] > 0
    else:
        assert first["ttft_ns"] is None and first["e2e_ns"] is None and second["ttft_ns"]["mean"] > 0
    # Of none that fits there is nothing to print or to write.
    table.unlink()
    done = quire(*flags, "--sweep", "num-blocks=1,2", "--csv", table, check=False)
    assert done.returncode == 1 and done.stdout == b"" and not table.exists()
    why = ("finished in any run; the first, with num-blocks 1: 50 too long for the pool" if more
           else "fits in any run; the first, with num-blocks 1: the shortest has 220 tokens, and there is room for 16")
    assert f"no request {why}" in done.stderr.decode()


def test_a_sweep_says_before_it_begins_where_nothing_fits(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1,300,20\n2,100,20\n3,5000,9\n")
    for flags, shortest in ((["--prompt-len", "uniform:200:400", "--output-len", 20, "--requests", 10 ** 6, "--rate", 1], None),
                            (["--trace", trace], 120)):
        sweep = subprocess.Popen([QUIRE, "simulate", *map(str, flags), "--sweep", "num-blocks=2,4000"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        said = sweep.stderr.readline().decode()
        assert re.fullmatch(rf"quire: no request will fit with num-blocks 2: the shortest has {shortest or '22[0-9]'} tokens, and there is room for 32\n", said)
        if shortest is None:
            assert sweep.poll() is None  # it runs a million requests
            sweep.send_signal(signal.SIGINT)
        sweep.communicate(timeout=60)
    # One that fits is enough.
    assert "will fit" not in quire("simulate", "--trace", trace, "--sweep", "num-blocks=8,400").stderr.decode()


def interrupted(*args):
    """What it prints and what it says, when it is interrupted after two seconds."""
    running = subprocess.Popen([QUIRE, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=60)
    assert running.returncode == 130
    return out, said


@pytest.mark.parametrize("more, what", [([], "runs"), (["--find-capacity", "--seeds", 1, "--slo", "ttft=500ms"], "searches")])
def test_ctrl_c_keeps_what_had_ended_of_a_sweep(tmp_path, more, what):
    table, results, page = tmp_path / "t.csv", tmp_path / "t.json", tmp_path / "t.html"
    files = ["--csv", table, "--json", results, "--html", page]
    out, said = interrupted("simulate", *more, "--rate", 2, "--sweep", "requests=50,5000000", *files)
    assert said == f"quire: interrupted; 1 of 2 {what} had not ended\n"
    assert out.splitlines()[-1].split()[0] == "50" and "5000000" not in out
    assert f"Interrupted: 1 of 2 {what} had not ended." in page.read_text()
    root = json.loads(results.read_text())
    assert root["interrupted"] is True and root["unfinished"] == 1 and len(root["rows" if more else "runs"]) == 1
    assert [row["requests"] for row in csv.DictReader(table.open())][:1] == ["50"]
    for path in (table, results, page):
        path.unlink()
    # Of nothing there is no table.
    out, said = interrupted("simulate", *more, "--rate", 2, "--sweep", "requests=5000000,6000000", *files)
    assert said == f"quire: interrupted; 2 of 2 {what} had not ended\n" and out == ""
    assert not any(path.exists() for path in (table, results, page))


def test_a_single_run_in_which_nothing_finishes_has_no_times(tmp_path):
    none, some, page, compared = (tmp_path / name for name in ("none.json", "some.json", "page.html", "compared.json"))
    flags = ["simulate", "--requests", 50, "--prompt-len", 200, "--output-len", 20, "--tenants", 2, "--scheduling-policy", "fair"]
    done = quire(*flags, "--num-blocks", 2, "--json", none, check=False)
    assert done.returncode == 1 and b"milliseconds" not in done.stdout and b"deadlines" not in done.stdout
    result = json.loads(none.read_text())
    assert all(each[name] is None for each in [result, *result["tenants"]] for name in ("ttft_ns", "tpot_ns", "e2e_ns"))
    assert result["queue_ns"] is None and result["output_tokens_per_second"] == 0
    # Who reads it has a run without times.
    quire(*flags, "--json", some, "--overlay", none, "--html", page)
    assert "Two runs side by side" in page.read_text()
    done = quire("simulate", "--compare", none, some, "--json", compared)
    figures = json.loads(compared.read_text())["comparison"]["figures"]
    assert figures["TTFT p99 ms"]["a"] is None is figures["TTFT p99 ms"]["ratio"] and figures["TTFT p99 ms"]["b"] > 0
    assert quire(*flags, "--num-blocks", 2, "--html", page, check=False).returncode == 1
    assert "Times in milliseconds" not in page.read_text()


def test_answers_of_one_token_have_no_time_between_tokens(tmp_path):
    one, two, page, table, sweep, compared = (tmp_path / name for name in ("1.json", "2.json", "p.html", "t.csv", "s.json", "c.json"))
    flags = ["simulate", "--requests", 50, "--prompt-len", 20, "--tenants", 2, "--scheduling-policy", "fair"]
    said = quire(*flags, "--output-len", 1, "--json", one, "--html", page).stdout.decode()
    rows = {line.split("  ")[0]: line.split()[-5:] for line in said.splitlines() if line.startswith(("per further", "to the"))}
    assert rows["per further token"] == ["-"] * 5 and "-" not in rows["to the first token"] + rows["to the last token"]
    tenants = [line.split() for line in said.split("\ntenant ")[1].splitlines()[1:3]]
    assert all(cells[6:8] == ["-", "-"] and cells.count("-") == 2 for cells in tenants)
    result = json.loads(one.read_text())
    assert all(each["tpot_ns"] is None and each["e2e_ns"]["mean"] > 0 for each in [result, *result["tenants"]])
    assert "Per further token (TPOT)</th>" not in page.read_text() and "To the last token (E2E)</th>" in page.read_text()
    # Another run beside it has some, and a ratio has none.
    quire(*flags, "--output-len", 20, "--json", two, "--overlay", one, "--html", page)
    quire("simulate", "--compare", one, two, "--json", compared)
    figures = json.loads(compared.read_text())["comparison"]["figures"]
    assert figures["TPOT mean ms"]["a"] is None is figures["TPOT mean ms"]["ratio"] and figures["TPOT mean ms"]["b"] > 0
    said = quire(*flags, "--sweep", "output-len=1,20", "--csv", table, "--json", sweep).stdout.decode()
    none, some = said.splitlines()[-2:]
    assert none.split().count("-") == 2 and "-" not in some.split()
    rows = list(csv.DictReader(table.open()))
    assert rows[0]["tpot_mean_ms"] == rows[0]["tpot_p99_ms"] == "" and float(rows[1]["tpot_mean_ms"]) > 0
    assert [run["tpot_ns"] is None for run in json.loads(sweep.read_text())["runs"]] == [True, False]


def test_no_load_is_carried_where_no_request_fits():
    done = quire("simulate", "--find-capacity", "--slo", "ttft=500ms", "--num-blocks", 3, check=False)
    assert done.returncode == 1 and done.stdout == b"" and "no request finished: 1,000 too long for the pool" in done.stderr.decode()


@pytest.mark.parametrize("flags, error", [
    (["--sweep", "rte=1,2"], "there is no flag '--rte'; did you mean --rate?"),
    (["--sweep", "json=a,b"], "--sweep: --json is no flag of simulate that can be swept"),
    (["--sweep", "rate=1,2", "--rate", 4], "--sweep: --rate is given too"),
    (["--sweep", "rate=1,x"], "--rate: 'x' is not a number"),
    (["--sweep", "num-blocks=0,1"], "--num-blocks: 0 is not"),
    (["--sweep", "swap-space=1GiB,2GiB"], "--swap-space: nothing is swapped out"),
    (["--sweep", "rate=1,2", "--every", 2], "--every: changes nothing with --sweep"),
    (["--sweep", "seed=1,2", "--find-capacity", "--slo", "ttft=1s"], "--sweep: --find-capacity has --seeds"),
    (["--find-capacity"], "--find-capacity: needs --slo"),
    (["--seeds", 3], "--seeds: changes nothing without --find-capacity"),
    (["--csv", "t.csv"], "--csv: changes nothing without --sweep"),
    (["--slo", "ttft=3"], "--slo: 'ttft=3': is not a time"),
])
def test_what_if_refuses(flags, error):
    done = quire("simulate", *flags, check=False)
    assert done.returncode == 2 and error in done.stderr.decode(), done.stderr.decode()


@pytest.fixture
def llama(tmp_path):
    folder = tmp_path / "Llama-2-7b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_2_7B))
    return folder


def test_a_model_runs_on_a_machine_as_fast_as_a_plan_says_at_most(llama, tmp_path):
    """Eight that decode with 1,024 tokens each: the ceiling, less what launching takes."""
    out = tmp_path / "out.json"
    flags = ["--machine", "a10g", "--model", llama, "--requests", 8, "--prompt-len", 16, "--output-len", 2016]
    text = quire("simulate", *flags, "--json", out).stdout.decode()
    assert re.search(r"^times of steps +roofline: Llama-2-7b on NVIDIA A10G, 600 GB/s, 70 TFLOP/s, 0.147 ms a step, 25 GB/s to the host$", text, re.M)
    ran = json.loads(out.read_text())
    plan = json.loads(quire("plan", llama, "--machine", "a10g", "--context", 1024, "--json").stdout)
    # The pool is that of the plan, and so are the constants.
    assert f"{plan['kv']['blocks']:,} blocks of 16 tokens" in text and ran["scheduler"]["num_blocks"] == plan["kv"]["blocks"]
    cost = ran["cost"]
    assert cost["kind"] == "roofline" and cost["weight_bytes"] == sum(plan["weights"]["bytes_by_format"].values())
    assert cost["attention"] == [{"window": 0, "layers": 32, "token_bytes": 16384, "pair_ops": 4 * 4096}]
    step = 8 / plan["ceilings"][1]["tokens_per_s_by_bandwidth"] + (32 * 9 + 6) * 0.5e-6
    assert ran["tpot_ns"]["mean"] / 1e9 == pytest.approx(step, rel=1e-3)


def test_what_a_machine_lacks_can_be_swept(llama):
    flags = ["--model", llama, "--requests", 40, "--rate", 4]
    rows = quire("simulate", *flags, "--sweep", "machine=a10g,h100", "--sweep", "quantization=none,int4", "--efficiency", 0.5).stdout.decode()
    table = [line.split() for line in rows.splitlines()[1:]]
    assert [row[:2] for row in table] == [["a10g", "none"], ["a10g", "int4"], ["h100", "none"], ["h100", "int4"]]
    tpot = [float(row[6]) for row in table]
    assert tpot[0] > tpot[1] > tpot[3] and tpot[0] > tpot[2] > tpot[3]


@pytest.mark.parametrize("flags, error", [
    (["--machine", "a10g"], "--machine: needs --model"),
    (["--machine", "a10", "--model", "x"], "--machine: 'a10' is not one of cpu, a10g, l4, a100, h100, h200; did you mean a10g"),
    (["--machine", "a10g", "--model", "/nowhere"], "/nowhere"),
    (["--machine", "a10g", "--model", MODEL, "--cost", "f"], "--machine: cannot be combined with --cost"),
    (["--machine", "a10g", "--model", MODEL, "--sliding-window", 64], "--sliding-window: cannot be combined with --model"),
    (["--machine", "a10g", "--model", MODEL, "--max-model-len", 100000], "--max-model-len: 100000 is more than the 512 positions of the model"),
    (["--machine", "a10g", "--model", MODEL, "--quantization", "int3"], "--quantization: 'int3' is not"),
    (["--machine", "a10g", "--model", MODEL, "--efficiency", 2], "--efficiency: 2 is not"),
])
def test_a_machine_without_its_model_is_refused(flags, error):
    done = quire("simulate", *flags, check=False)
    assert done.returncode in (1, 2) and error in done.stderr.decode() and done.stdout == b"", done.stderr.decode()


def test_weights_that_a_machine_cannot_hold_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_2_7B, "num_hidden_layers": 80}))
    message = quire("simulate", "--machine", "l4", "--model", tmp_path, check=False).stderr.decode()
    assert "--machine: NVIDIA L4 has 24.0 GiB of memory, and the weights take 30" in message and message.count("\n") == 1


def test_a_server_takes_the_place_of_a_card():
    with QuireServer("--device", "sim", "--machine", "a100", "--efficiency", 0.5) as running:
        client = openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=120)
        assert client.completions.create(model=MODEL_NAME, prompt="Once", max_tokens=5).usage.completion_tokens == 5
        assert "simulated, at 1 times the speed of NVIDIA A100 SXM 80 GB" in running.output()


def test_tables_of_requests_and_steps_and_figures_by_tenant(tmp_path):
    requests, steps, results = tmp_path / "r.csv", tmp_path / "s.csv", tmp_path / "out.json"
    text = quire("simulate", "--demo", "--every", 0, "--tenants", 3, "--slo", "ttft=200ms", "--request-csv", requests, "--step-csv", steps,
                 "--json", results).stdout.decode()
    root = json.loads(results.read_text())
    rows = list(csv.DictReader(requests.open()))
    assert len(rows) == 96 and sum(int(row["good"]) for row in rows) == root["good"] < 96
    assert sum(int(row["output_tokens"]) for row in rows) == root["output_tokens"]
    assert len(list(csv.DictReader(steps.open()))) == root["steps"]
    assert re.search(r"^tenant +requests", text, re.M) and len(root["tenants"]) == 3
    for key in ("requests", "finished", "good", "output_tokens", "in_time"):
        assert sum(tenant[key] for tenant in root["tenants"]) == root[key]


def test_a_file_that_cannot_be_written_costs_no_other(tmp_path):
    results = tmp_path / "out.json"
    done = quire("simulate", "--requests", 5, "--decision-log", "/dev/full", "--perfetto", "/dev/full", "--json", results, check=False)
    assert done.returncode == 1 and b"tokens/s" in done.stdout
    root = json.loads(results.read_text())
    assert root["finished"] == 5 and root["good"] is None and root["tenants"][0]["good"] is None
    requests = tmp_path / "r.csv"
    quire("simulate", "--requests", 5, "--request-csv", requests)
    assert [row["good"] for row in csv.DictReader(requests.open())] == [""] * 5
    assert [line for line in done.stderr.decode().splitlines() if line.startswith("quire: ")] == ["quire: /dev/full: cannot be written"] * 2


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


@pytest.mark.parametrize("flags", [[], ["--preemption-mode", "swap"], ["--n", 3, "--steps-in-flight", 3], ["--sliding-window", 32]])
def test_a_check_of_the_kv_finds_nothing_and_changes_nothing(flags):
    plain, checked = (quire("simulate", "--demo", "--num-blocks", 60, "--max-model-len", 400, *flags, *check).stdout for check in ([], ["--check-kv"]))
    assert plain == checked


def peak_memory(*flags):
    """In KiB, of a simulation that succeeds. (What wait4 says would include what pytest itself takes.)"""
    process = subprocess.Popen([QUIRE, "simulate", *map(str, flags)], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        if found := re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text()):
            peak = int(found[1])
        time.sleep(0.01)
    assert process.returncode == 0
    return peak


@pytest.mark.parametrize("load", ["--rate 40", "--users 50 --turns uniform:1:6 --turn-len 8 --tenants 5"])
def test_memory_does_not_grow_with_the_number_of_requests(load):
    def take(requests):
        return peak_memory(*load.split(), "--requests", requests, "--prompt-len", 16, "--output-len", 2)

    # Both more than the percentiles have exactly.
    assert take(300_000) <= 1.1 * take(80_000)


def test_a_request_that_waits_takes_less_than_a_kilobyte():
    def take(requests):
        return 1024 * peak_memory("--requests", requests, "--rate", 0, "--prompt-len", 64, "--output-len", 4)

    assert take(300_000) - take(100_000) < 1000 * 200_000
