"""Workloads of simulate and bench throughput: arrivals, users, conversations, traces in all formats, and what is refused."""
import csv
import json
import re
import signal
import subprocess
import time

import pytest

from test_cli import DEMO, QUIRE, needs, quire

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SHAREGPT = [{"id": str(i), "conversations": [{"from": ("human", "gpt")[k % 2], "value": "word " * (10 + i + k)} for k in range(6)]}
            for i in range(5)]


def simulated(tmp_path, *flags):
    """The figures of a run, and what it said on standard error."""
    done = quire("simulate", "--json", tmp_path / "out.json", *flags)
    figures = json.loads((tmp_path / "out.json").read_text())
    figures["records"] = [dict(zip(figures["record_fields"], record)) for record in figures["records"]]
    return figures, done.stderr.decode()


def test_burstier_arrivals_wait_longer(tmp_path):
    load = ("--requests", 600, "--prompt-len", 300, "--output-len", 60)
    waits = [simulated(tmp_path, *load, *more)[0]["ttft_ns"]["mean"]
             for more in (["--rate", 4, "--burstiness", 10], ["--rate", 4], ["--rate", 4, "--burstiness", 0.1],
                          ["--rate", 40, "--on-ms", "exponential:1000", "--off-ms", "exponential:9000"])]
    assert waits == sorted(waits) and waits[-1] > 3 * waits[0]
    assert simulated(tmp_path, "--rate", 4)[0]["digest"] == simulated(tmp_path, "--rate", 4, "--burstiness", 1)[0]["digest"]


def test_a_closed_loop_has_as_many_requests_as_users(tmp_path):
    figures, _ = simulated(tmp_path, "--users", 5, "--think-time-ms", 200, "--requests", 50)
    records = figures["records"]
    assert figures["finished"] == 50 and figures["peak_running"] <= 5
    for i, record in enumerate(records):
        assert record["arrival_ns"] == (records[i - 5]["finished_ns"] if i >= 5 else 0) + 200_000_000


@pytest.mark.parametrize("flags", [["--users", 4, "--turns", 5, "--turn-len", 40], ["--agents", "--users", 3, "--num-blocks", 20000]])
def test_the_history_of_a_conversation_is_found_again(tmp_path, flags):
    with_cache, _ = simulated(tmp_path, "--requests", 100, *flags)
    without, _ = simulated(tmp_path, "--requests", 100, *flags, "--no-enable-prefix-caching")
    assert with_cache["prefix_hit_tokens"] > 0.6 * with_cache["prefix_queried_tokens"]
    assert with_cache["ttft_ns"]["mean"] < without["ttft_ns"]["mean"]


def test_lengths_from_a_histogram(tmp_path):
    counts = tmp_path / "lengths.csv"
    counts.write_text("\ufefflength,count\n100,1\n200-299,3\n")
    figures, _ = simulated(tmp_path, "--requests", 400, "--rate", 5, "--prompt-len", f"file:{counts}", "--output-len", 8)
    lengths = [record["prompt_tokens"] for record in figures["records"]]
    assert 70 < lengths.count(100) < 130 and all(length == 100 or 200 <= length < 300 for length in lengths)


def test_traces_of_all_formats(tmp_path):
    burst = tmp_path / "burst.csv"
    burst.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                     "9.5,ChatGPT,100,10,110,API log\n3,GPT-4,50,0,50,API log\n4.25,GPT-4,60,7,67,API log\n")
    figures, said = simulated(tmp_path, "--trace", burst)
    assert [record["arrival_ns"] for record in figures["records"]] == [0, 5_250_000_000]
    assert "left out 1 requests that failed" in said and "sorted by time: 1 of 2 requests" in said
    share = tmp_path / "share.json"
    share.write_text(json.dumps(SHAREGPT))
    figures, said = simulated(tmp_path, "--trace", share, "--rate", 1, "--think-time-ms", 3000)
    assert "a quarter of their characters" in said
    records = figures["records"]
    assert len(records) == 15 and records[1]["arrival_ns"] == records[0]["finished_ns"] + 3_000_000_000
    assert records[0]["prompt_tokens"] == 13 and records[1]["prompt_tokens"] > 13 and figures["prefix_hit_tokens"] > 0
    in_users, _ = simulated(tmp_path, "--trace", share, "--users", 2)
    assert in_users["finished"] == 15 and in_users["peak_running"] <= 2


def test_a_recorded_run_is_a_trace(tmp_path):
    log = tmp_path / "run.log"
    first, _ = simulated(tmp_path, "--demo", "--decision-log", log, "--every", 0, "--tenants", 3, "--scheduling-policy", "fair")
    again, said = simulated(tmp_path, "--trace", log, "--num-blocks", 128, "--max-num-seqs", 24, "--max-num-batched-tokens", 192,
                            "--scheduling-policy", "fair")
    assert "a recorded run" in said
    for key in ("finished", "prompt_tokens", "output_tokens"):
        assert first[key] == again[key]
    assert 0.8 < again["prefix_hit_tokens"] / first["prefix_hit_tokens"] < 1.2
    assert 0.8 < again["ttft_ns"]["mean"] / first["ttft_ns"]["mean"] < 1.2
    for flag, value in (("--tenants", 3), ("--ttft-deadline-ms", 5), ("--rate", 2)):
        done = quire("simulate", "--trace", log, "--scheduling-policy", "fair", flag, value, check=False)
        assert done.returncode == 2 and done.stderr.decode().startswith(f"quire: {flag}: changes nothing with this trace")


def test_policies_follow_the_trace(tmp_path):
    trace = tmp_path / "trace.csv"
    lines = [f"{i / 100},{200 + i % 7},20,{-(i % 3)},{'abc'[i % 3]}\n" for i in range(90)]
    trace.write_text("Timestamp,Request tokens,Response tokens,priority,tenant\n" + "".join(lines))
    small = ("--max-num-seqs", 2)
    by_priority, _ = simulated(tmp_path, "--trace", trace, "--scheduling-policy", "priority", *small)
    waits = [sum(record["admitted_ns"] - record["arrival_ns"] for record in by_priority["records"][k::3]) for k in range(3)]
    assert waits[2] < waits[1] < waits[0]
    assert simulated(tmp_path, "--trace", trace, "--scheduling-policy", "fair", *small)[0]["finished"] == 90
    trace.write_text(AZURE + "2023-11-16 18:15:46,100,20\n" * 20)
    for policy, what in (("fair", "one tenant"), ("priority", "one priority")):
        done = quire("simulate", "--trace", trace, "--scheduling-policy", policy, check=False)
        assert done.returncode == 2 and what in done.stderr.decode()
        assert simulated(tmp_path, "--trace", trace, "--scheduling-policy", policy, "--tenants" if policy == "fair" else "--priorities", 2)


def test_refused_requests_are_counted_by_reason(tmp_path):
    trace = needs("traces-mooncake/conversation_trace.jsonl")
    flags = ("--trace", trace, "--block-size", 512, "--num-blocks", 128, "--requests", 3000)
    text = quire("simulate", *flags).stdout.decode()
    figures, _ = simulated(tmp_path, *flags)
    too_long = [record for record in figures["records"] if record["refused"] == "too_long_for_pool"]
    assert 0 < len(too_long) == figures["refused"] == figures["refused_by"]["too_long_for_pool"]
    assert re.search(rf"^requests +[\d,]+ finished, {len(too_long)} refused$", text, re.M)
    assert re.search(rf"^refused +{len(too_long)} too long for the pool, the first in line {too_long[0]['line']} of the trace", text, re.M)
    limited, _ = simulated(tmp_path, "--requests", 20, "--max-waiting", 5, "--max-num-seqs", 1)
    assert limited["refused_by"] == {"too_long_for_model": 0, "too_long_for_pool": 0, "queue_full": 14, "conversation": 0}


def test_a_run_in_which_nothing_finishes_is_an_error(tmp_path):
    done = quire("simulate", "--requests", 3, "--prompt-len", 600, "--max-model-len", 500, check=False)
    assert done.returncode == 1 and b"0 finished, 3 refused" in done.stdout
    assert done.stderr.decode() == "quire: no request finished: 3 too long for the model, the first number 1 with 728 tokens\n"


@pytest.mark.parametrize("text, why", [
    (AZURE + "2023-11-16 18:15:46,x,1\n", "line 2: ContextTokens is 'x'"),
    (AZURE + "yesterday,1,1\n", "line 2: TIMESTAMP is 'yesterday'"),
    (AZURE + "2023-11-16 18:15:46,1\n", "line 2: 2 values, not the 3 of the header"),
    ('{"timestamp": 1, "input_length": 1, "output_length": 1}\n', "line 1: key 'hash_ids'"),
    ('{"timestamp": "1", "input_length": 1, "output_length": 1, "hash_ids": [1]}\n', "line 1: key 'timestamp'"),
    ('\n{"timestamp": 1', "line 2: at byte "),
    ('[{"conversations": "none"}]', "line 1: key 'conversations': not a list"),
    ('[{"conversations": []}', "line 1: ',' or ']' is missing"),
    ('{"quire_run": 999}\n', "format"),
])
def test_malformed_traces_are_refused_with_line_and_field(tmp_path, text, why):
    trace = tmp_path / "trace"
    trace.write_text(text)
    for command in (["simulate"], ["bench", "serve"]):
        done = quire(*command, "--trace", trace, check=False)
        message = done.stderr.decode()
        assert done.returncode == 1 and message.startswith(f"quire: {trace}") and why in message, message
        assert message.count("\n") == 1 and done.stdout == b""


@pytest.mark.parametrize("flags, why", [
    (["--users", 3, "--rate", 2], "--rate: cannot be combined with --users"),
    (["--users", 3, "--burst", 2], "--burst: cannot be combined with --users"),
    (["--think-time-ms", 5], "--think-time-ms: no request follows another"),
    (["--turn-len", 5], "--turn-len: there are no later turns"),
    (["--burstiness", 2], "--burstiness: the times of requests are not drawn without --rate"),
    (["--rate", 2, "--burstiness", 0.001], "--burstiness: must be from 0.01"),
    (["--rate", 2, "--on-ms", 5], "--on-ms: it is always on without --off-ms"),
    (["--rate", 2, "--off-ms", 5], "--off-ms: it is always off without --on-ms"),
    (["--on-ms", 5, "--off-ms", 5], "--on-ms: the times of requests are not drawn"),
    (["--demo", "--agents"], "--agents: changes nothing with --demo"),
    (["--prompt-len", "file:/nowhere/x"], "--prompt-len: /nowhere/x"),
    (["--prompt-len", "exponential:0"], "--prompt-len: 'exponential:0' is not one of"),
])
def test_flags_without_effect_are_refused(flags, why):
    done = quire("simulate", *flags, check=False)
    assert done.returncode == 2 and done.stderr.decode().startswith(f"quire: {why}"), done.stderr.decode()


def bench(*flags, check=True):
    return quire("bench", "throughput", DEMO, "--device", "sim", "--sim-speed", 200, "--json", *flags, check=check)


def test_bench_throughput_skips_what_is_too_long_and_counts_it():
    done = bench("--trace", needs("traces-azure/AzureLLMInferenceTrace_conv.csv"), "--requests", 40, "--trace-speed", 100)
    figures = json.loads(done.stdout)
    assert figures["skipped_too_long"] > 0 and figures["failed"] == 0
    assert figures["finished"] + figures["skipped_too_long"] == 40
    assert re.search(rf"quire: {figures['skipped_too_long']} of 40 requests were skipped, the first in line 4 of the trace: "
                     r"This model's maximum context length is 512 tokens", done.stderr.decode())
    none = bench("--trace", needs("traces-mooncake/conversation_trace.jsonl"), "--requests", 4, check=False)
    assert none.returncode == 1 and "no request finished" in none.stderr.decode()
    assert [json.loads(none.stdout)[times] for times in ("ttft_ns", "tpot_ns", "e2e_ns")] == [None] * 3


def test_bench_throughput_has_users_and_conversations(tmp_path):
    done = bench("--users", 3, "--think-time-ms", 20, "--turns", 4, "--turn-len", 20, "--prompt-len", 40, "--output-len", 30,
                 "--requests", 24)
    figures = json.loads(done.stdout)
    # Turn k finds all of its history in whole blocks of 16 but the last token: 64, 112 and 160 of 6 conversations.
    assert figures["finished"] == 24 and figures["prefix_hit_tokens"] == 6 * (64 + 112 + 160)
    share = tmp_path / "share.json"
    share.write_text(json.dumps(SHAREGPT))
    done = bench("--trace", share)
    assert json.loads(done.stdout)["finished"] == 15 and "quarter" not in done.stderr.decode()


def test_a_sweep_says_what_was_changed_of_each_trace(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(AZURE + "2,40,4\n1,40,4\n")
    second.write_text("Timestamp,Request tokens,Response tokens\n1,40,4\n2,40,0\n3,50,3\n")
    flags = ["--sweep", f"trace={first},{second}", "--sweep", "num-blocks=100,200"]
    for more in ([], ["--find-capacity", "--seeds", 1, "--slo", "ttft=1s"]):
        said = quire("simulate", *flags, *more).stderr.decode()
        assert said.count(f"{first}: sorted by time: 1 of 2 requests") == 1, said
        assert said.count(f"{second}: left out 1 requests that failed") == 1, said
    said = quire("simulate", "--trace", second, "--sweep", "requests=1,3").stderr.decode()
    assert said.count("left out 1 requests that failed") == 1, "of the second run, which reads more of it"


def test_a_median_is_never_between_a_load_and_none(tmp_path):
    path = tmp_path / "found.json"
    quire("simulate", "--find-capacity", "--seeds", 2, "--slo", "ttft=93ms,attainment=100", "--prompt-len", "uniform:10:1000", "--output-len", 20,
          "--requests", 20, "--json", path)
    row = json.loads(path.read_text())["rows"][0]
    assert row["least"] == row["median"] == 0 < row["most"]


@pytest.mark.parametrize("command", [["simulate", "--requests", 10 ** 6, "--rate", 3],
                                     ["bench", "throughput", DEMO, "--device", "sim", "--requests", 5000, "--rate", 20]])
def test_ctrl_c_shows_the_results_so_far(command):
    running = subprocess.Popen([QUIRE, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and "requests had not ended" in err.decode()
    assert "to the first token" in out.decode() and int(re.search(r"requests +([\d,]+)|^(\d+) requests", out.decode(), re.M)[0].strip("requests ").replace(",", "")) > 0


@pytest.mark.parametrize("arrivals", [["--rate", 1000], []])
def test_ctrl_c_ends_a_run_that_refuses_all(arrivals):
    running = subprocess.Popen([QUIRE, "simulate", "--requests", str(10 ** 7), "--prompt-len", "600", "--max-model-len", "500", *map(str, arrivals)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    err = running.communicate(timeout=20)[1].decode()
    assert running.returncode == 130 and "requests had not ended" in err


def test_ctrl_c_judges_only_what_had_ended(tmp_path):
    one, page, table, whole, over = (tmp_path / name for name in ("one.json", "one.html", "one.csv", "whole.json", "over.html"))
    flags = ["--slo", "ttft=1000s", "--users", 20, "--think-time-ms", 100, "--turns", 4]
    running = subprocess.Popen([QUIRE, "simulate", "--requests", "1000000", *map(str, flags), "--json", one, "--html", page, "--request-csv", table],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(2)
    running.send_signal(signal.SIGINT)
    out = running.communicate(timeout=60)[0].decode()
    result = json.loads(one.read_text())
    ended = result["finished"] + result["refused"]
    assert result["interrupted"] is True and 0 < result["unfinished"] == 10 ** 6 - ended
    assert f"{ended:,} of {ended:,} requests that had ended met ttft=1000s,attainment=99: 100.00 % (enough)" in out
    assert f"{result['unfinished']:,} of 1,000,000 requests had not ended" in out
    # Of requests that never arrived there is nothing to tell.
    records = [dict(zip(result["record_fields"], each)) for each in result["records"]]
    assert ended <= len(records) <= ended + 20 and all(each["arrival_ns"] >= 0 for each in records)
    numbers = [each["request"] for each in records]
    # There are gaps where a user's later turns have not arrived, unless all happen to be between two conversations.
    assert numbers == sorted(set(numbers)) and numbers[-1] >= len(numbers)
    with table.open() as file:
        assert [int(row["request"]) for row in csv.DictReader(file)] == numbers
    # Who reads it is told.
    said = f"Interrupted: {result['unfinished']:,} of 1,000,000 requests had not ended."
    assert said in page.read_text() and "of the requests that had ended met" in page.read_text()
    quire("simulate", *flags, "--requests", 400, "--json", whole, "--overlay", one, "--html", over)
    assert f"one.json: {said}" in over.read_text() and json.loads(whole.read_text())["interrupted"] is False
    compared = quire("simulate", "--compare", one, whole).stdout.decode()
    assert f"A: {said}" in compared and "B: Interrupted" not in compared
    assert re.search(r"^attainment % +100 +100 +1.000$", compared, re.M), compared
    assert "400 pairs" in compared
