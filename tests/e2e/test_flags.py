"""The control plane's flags: which command has which, what they do, and what is refused."""
import json
import re

import pytest

from test_cli import DEMO, ROOT, quire

COMMANDS = {"serve": ["serve"], "run": ["run"], "bench": ["bench", "throughput"], "simulate": ["simulate"]}


def flags_of(command):
    text = quire(*COMMANDS[command], "--help").stdout.decode()
    heads = re.findall(r"^  (?:-\w,)?(--[^\s=:{]\S*)", text, re.M)
    return {flag for head in heads for flag in re.findall(r"--[a-z][a-z-]*", head)}


def documented():
    """Rows of the table in docs/control-plane.md: flags, the commands that have them, all names in the last column."""
    text = (ROOT / "docs/control-plane.md").read_text().split("## Flags", 1)[1].split("\n## ", 1)[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `--"):
            continue
        yield (re.findall(r"--[a-z][a-z-]*", cells[0]), [name for name, cell in zip(COMMANDS, cells[1:5]) if cell == "•"],
               re.findall(r"--[a-z][a-z-]*", cells[6]))


def test_the_table_says_which_command_has_which_flag():
    rows = list(documented())
    assert len(rows) > 20
    have = {command: flags_of(command) for command in COMMANDS}
    for flags, commands, aliases in rows:
        for command in COMMANDS:
            for flag in flags + aliases:
                assert (flag in have[command]) == (command in commands), (flag, command)
    # What belongs to the control plane is in the table.
    for command in COMMANDS:
        text = quire(*COMMANDS[command], "--help").stdout.decode()
        policies = text.split("\nPolicies:\n", 1)[1].split("\n\n", 1)[0]
        for flag in re.findall(r"^  (--[a-z][a-z-]*)", policies, re.M):
            assert any(flag in flags for flags, _, _ in rows), flag


@pytest.mark.parametrize("args, said", [
    (["serve", DEMO, "--max-waiting", "2", "--max-waiting-per-tenant", "3"],
     "--max-waiting-per-tenant: 3 is more than the queue of 2 (--max-waiting)"),
    (["serve", DEMO, "--swap-space", "4"], "--swap-space: nothing is swapped out without --preemption-mode swap"),
    (["simulate", "--swap-space", "1GiB"], "--swap-space: nothing is swapped out without --preemption-mode swap"),
    (["simulate", "--preemption-mode", "auto", "--swap-space", "none"], "--swap-space: 'none' is not an amount of memory"),
    (["run", DEMO, "-p", "x", "--priority-aging", "3"], "--priority-aging: no priorities count without"),
    (["bench", "throughput", DEMO, "--no-enable-prefix-caching", "--scheduling-policy", "lpm"], "--scheduling-policy: lpm"),
    (["serve", DEMO, "--no-enable-prefix-caching", "--eviction-policy", "arc"], "--eviction-policy: arc has nothing to evict"),
    (["run", DEMO, "-p", "x", "--no-enable-prefix-caching", "--prefix-cache-file", "f"], "--prefix-cache-file"),
    (["bench", "throughput", DEMO, "--device", "sim", "--prefix-cache-file", "f"], "--prefix-cache-file"),
    (["serve", DEMO, "--sim-speed", "2"], "--device"),
    (["bench", "throughput", DEMO, "--cost-decode-us", "5"], "--device"),
    (["chat", DEMO, "--batching", "static"], "--batching"),
    (["bench", "latency", DEMO, "--scheduling-policy", "srpt"], "--scheduling-policy"),
    (["run", DEMO, "-p", "x", "--victim-policy", "first"], "'first' is not one of last, priority, least-progress"),
    (["run", DEMO, "-p", "x", "--watermark", "-1"], "--watermark"),
    (["run", DEMO, "-p", "x", "-n", "3", "--max-num-seqs", "1", "--max-waiting", "1"], "3 sequences were requested"),
    (["run", DEMO, "-p", "x", "--num-gpu-blocks-override", "9", "--kv-cache-memory-bytes", "1MiB"], "--kv-cache-memory"),
    (["serve", DEMO, "--served-model-name", "a", "b", "a"], "--served-model-name: 'a' is given twice"),
    (["serve", DEMO, "--max-connections-per-client", ""], "--max-connections-per-client: '' is not a number"),
    (["serve", DEMO, "--port", ""], "--port: '' is not a number from 0 to 65535"),
    (["simulate", "--requests", ""], "--requests: '' is not a number"),
    (["simulate", "--burst-every", "2"], "--burst-every: there are no bursts without --burst"),
    (["bench", "throughput", DEMO, "--shared-prefixes", "2"], "--shared-prefixes: there are none without"),
    (["bench", "throughput", DEMO, "--prompt-len", "600"], "512 tokens"),
    (["bench", "throughput", "no/such/model"], "no/such/model"),
])
def test_what_makes_no_sense_is_refused(args, said):
    done = quire(*args, check=False)
    assert done.returncode in (1, 2)
    message = done.stderr.decode()
    assert said in message and "terminate" not in message


def simulated(*flags):
    text = quire("simulate", "--demo", "--every", 0, *flags).stdout.decode()
    return re.search(r"^digest (.*)$", text, re.M)[1]


def test_names_and_units_as_in_vllm():
    assert simulated("--num-gpu-blocks-override", 100) == simulated("--num-blocks", 100) != simulated()
    swapping = ("--preemption-mode", "swap")
    assert simulated(*swapping, "--swap-space", 1) == simulated(*swapping, "--swap-space", "1GiB") == simulated(*swapping)
    assert simulated(*swapping, "--swap-space", 0.01) != simulated(*swapping)


def test_a_window_needs_fewer_blocks(tmp_path):
    peaks = []
    for window in (0, 64):
        quire("simulate", "--requests", 8, "--prompt-len", 640, "--sliding-window", window, "--json", tmp_path / "out.json")
        peaks.append(json.loads((tmp_path / "out.json").read_text())["peak_blocks"])
    assert peaks[1] * 2 < peaks[0]


def answers(*flags):
    text = quire("run", DEMO, "-p", "Once upon a time there was", "-n", 6, "--seed", 3, "--max-tokens", 80, "--ignore-eos",
                 *flags).stdout.decode()
    parts = re.split(r"^--- \d of 6 ---\n", text, flags=re.M)
    assert parts[0] == "" and len(parts) == 7
    return parts[1:]


def test_answers_to_one_prompt_do_not_depend_on_how_they_share_a_pool(tmp_path):
    log = tmp_path / "run.log"
    alone = answers()
    assert len(set(alone)) == 6
    small = ("--num-blocks", 12, "--max-model-len", 128, "--decision-log", log)
    ways = {"preempted": [], "moved to the host": ["--preemption-mode", "swap", "--swap-space", "64MiB"]}
    for word, flags in ways.items():
        assert answers(*small, *flags, "--watermark", 0, "--eviction-policy", "lfu") == alone
        told = quire("explain", log, "--request", 1).stdout.decode()
        told += quire("explain", log, "--request", 4).stdout.decode()
        assert word in told
        assert "replaying the log gives the same" in quire("explain", log, "--replay").stdout.decode()
    assert answers("--max-num-seqs", 2, "--batching", "static") == alone


def throughput(*flags):
    done = quire("bench", "throughput", DEMO, "--requests", 12, "--prompt-len", "uniform:8:64", "--output-len", "uniform:4:24",
                 "--json", *flags)
    return json.loads(done.stdout)


def test_bench_throughput_runs_the_workload(tmp_path):
    figures = throughput("--seed", 1)
    assert figures["finished"] == 12 and figures["failed"] == 0
    assert figures["ttft_ns"]["p50"] <= figures["ttft_ns"]["max"] <= figures["e2e_ns"]["max"] <= figures["seconds"] * 1e9
    assert figures["ttft_ns"]["p50"] < figures["e2e_ns"]["p50"] and figures["tpot_ns"]["p50"] > 0
    assert abs(figures["output_tokens"] / figures["seconds"] / figures["output_tokens_per_second"] - 1) < 1e-6
    log = tmp_path / "bench.log"
    tight = throughput("--seed", 1, "--num-blocks", 12, "--max-model-len", 128, "--watermark", 0, "--scheduling-policy", "srpt",
                       "--known-lengths", "--preemption-mode", "swap", "--decision-log", log, "--shared-prefix-len", 32)
    assert tight["output_tokens"] == figures["output_tokens"]
    assert tight["preemptions"] > 0 and tight["evictions"] > 0 and tight["prefix_hit_tokens"] > 0
    assert "replaying the log gives the same" in quire("explain", log, "--replay").stdout.decode()


def test_bench_throughput_answers_several_times():
    one, three = throughput("--seed", 1), throughput("--seed", 1, "-n", 3)
    assert three["finished"] == 12 and three["output_tokens"] == 3 * one["output_tokens"]
    assert three["prompt_tokens"] == one["prompt_tokens"] and three["ttft_ns"]["p50"] < three["e2e_ns"]["p50"]


def test_bench_throughput_on_a_simulated_device_takes_its_time():
    slow = throughput("--device", "sim", "--max-num-seqs", 1)
    fast = throughput("--device", "sim", "--max-num-seqs", 1, "--sim-speed", 20)
    assert slow["output_tokens"] == fast["output_tokens"]
    assert slow["seconds"] > 0.011 * (slow["output_tokens"] - 12) and fast["seconds"] * 4 < slow["seconds"]
    assert 11e6 <= slow["tpot_ns"]["p50"] < 30e6 and slow["ttft_ns"]["p50"] < slow["e2e_ns"]["p50"]


def test_bench_throughput_for_a_person():
    text = quire("bench", "throughput", DEMO, "--requests", 3, "--output-len", 4, "--max-waiting", 2, "--max-num-seqs", 2,
                 "--rate", 50).stdout.decode()
    assert re.search(r"^3 requests in [0-9.]+ s \(0 failed\): ", text) and "to the first token" in text
