"""Flags that change nothing, by themselves or with the rest, are refused; all others change something."""
import re

import pytest

from test_cli import DEMO, ROOT, quire
from test_flags import flags_of

ON_A_CARD = ["--machine", "a10g", "--model", DEMO]

# A value for each flag of simulate that differs from the demo's. What is refused needs the flags behind it.
VALUES = {
    "--help": None, "--demo": None, "--every": [3], "--json": None, "--decision-log": None, "--decision-log-max": None,
    "--html": None, "--overlay": None, "--compare": None, "--perfetto": None, "--eviction-bound": [], "--request-csv": None, "--step-csv": None, "--slo": ["ttft=1s"], "--sweep": None, "--find-capacity": None, "--seeds": None, "--csv": None,
    "--trace": None, "--trace-speed": None, "--requests": [40], "--num-prompts": [41], "--rate": [5], "--request-rate": [6],
    "--burst": [3], "--burst-every": [1], "--burstiness": [0.2], "--on-ms": [500, "--off-ms", 900], "--off-ms": [900, "--on-ms", 500],
    "--users": [4], "--think-time-ms": [300, "--users", 4], "--turns": [3], "--turn-len": [9, "--turns", 3], "--agents": None, "--prompt-len": [20], "--input-len": [21], "--output-len": [20],
    "--shared-prefix-len": [32], "--prefix-length": [33], "--shared-prefixes": [3], "--num-prefixes": [4], "--zipf": [3],
    "--seed": [9], "--n": [2], "--best-of": [3],
    "--tenants": [4], "--priorities": [4],
    "--ttft-deadline-ms": [900],
    "--known-lengths": ["--scheduling-policy", "srpt"],
    "--num-blocks": [100], "--num-gpu-blocks-override": [101], "--block-size": [32], "--max-num-seqs": [4],
    "--max-num-batched-tokens": [64], "--max-model-len": [200], "--max-waiting": [3], "--sliding-window": [32],
    "--enable-prefix-caching": None, "--no-enable-prefix-caching": [],
    "--scheduling-policy": ["srpt"], "--batching": ["static"], "--victim-policy": ["least-progress"],
    "--eviction-policy": ["lfu"], "--preemption-mode": ["swap"],
    "--swap-space": [0.01, "--preemption-mode", "swap"],
    "--priority-aging": [0.1, "--scheduling-policy", "priority", "--priorities", 4],
    "--watermark": [20], "--admit-eagerly": [],
    "--admit-while-preempting": ["--victim-policy", "least-progress"],
    "--machine": ["a10g", "--model", DEMO], "--model": [DEMO, "--machine", "a10g"], "--efficiency": [0.5, *ON_A_CARD],
    "--quantization": ["int4", *ON_A_CARD], "--kv-cache-dtype": ["int8", *ON_A_CARD], "--dtype": ["f32", *ON_A_CARD],
    "--cost": None, "--force": None, "--cost-jitter": None, "--jitter-seed": None, "--cost-step-us": [9], "--cost-prefill-tokens-per-ms": [3], "--cost-decode-us": [20000], "--cost-decode-more-us": [7],
    "--cost-swap-block-us": [9000, "--preemption-mode", "swap"], "--steps-in-flight": [3], "--latency-us": [5000], "--accept-us": [5000],
    "--check-kv": None,
}


def demo(*flags, check=True):
    """What the demo prints but for the digests, which follow every change of a reason, and for the flags that it repeats."""
    done = quire("simulate", "--demo", *flags, check=check)
    text = done.stdout.decode()
    return done, re.sub(r"^(digest|decisions|times of steps|memory) .*$", "", text, flags=re.M)


def test_every_flag_of_simulate_is_tried():
    assert flags_of("simulate") == set(VALUES)


@pytest.mark.parametrize("flag", [flag for flag, value in VALUES.items() if value is not None])
def test_every_flag_of_simulate_changes_something_or_is_refused(flag):
    value, needed = VALUES[flag], []
    for i, word in enumerate(value):
        if str(word).startswith("--"):
            value, needed = value[:i], value[i:]
            break
    if needed:
        done, _ = demo(flag, *value, check=False)
        assert done.returncode == 2 and done.stderr.decode().startswith(f"quire: {flag}: "), done.stderr.decode()
    pool = ["--num-blocks", 60] if flag not in ("--num-blocks", "--num-gpu-blocks-override") else []
    # Where it and what it needs do nothing without each other, they are compared with neither.
    base = needed if demo(*needed, check=False)[0].returncode == 0 else []
    assert demo(*base, *pool)[1] != demo(flag, *value, *needed, *pool)[1]


SERVE, RUN, BENCH, SIMULATE = ["serve", DEMO], ["run", DEMO, "-p", "x"], ["bench", "throughput", DEMO], ["simulate"]
SIM = ["--device", "sim"]


@pytest.mark.parametrize("args, flag, why", [
    *[(command + ["--admit-while-preempting"], "--admit-while-preempting", "the next to be admitted")
      for command in (SERVE, BENCH, SIMULATE)],
    *[(command + [*flags, "--max-num-seqs", "1"], flags[0], "--max-num-seqs 1")
      for command in (SERVE, BENCH, SIMULATE)
      for flags in (["--batching", "static"], ["--victim-policy", "least-progress"], ["--preemption-mode", "swap"],
                    ["--watermark", "5"], ["--admit-eagerly"], ["--admit-while-preempting"])],
    *[(command + ["--scheduling-policy", "fair"], "--scheduling-policy", "one tenant") for command in (BENCH, SIMULATE)],
    *[(command + ["--scheduling-policy", "priority"], "--scheduling-policy", "one priority") for command in (BENCH, SIMULATE)],
    *[(command + ["--victim-policy", "priority"], "--victim-policy", "one priority") for command in (BENCH, SIMULATE)],
    (BENCH + ["--tenants", "3", "--scheduling-policy", "srpt"], "--tenants", "fair"),
    (BENCH + ["--priorities", "3"], "--priorities", "--victim-policy priority"),
    *[(command + ["--known-lengths", "--scheduling-policy", policy], "--known-lengths", "srpt")
      for command in (BENCH, SIMULATE) for policy in ("fcfs", "slo", "lpm")],
    *[(command + ["--zipf", "2"], "--zipf", "--shared-prefixes") for command in (BENCH, SIMULATE, ["bench", "serve"])],
    (SIMULATE + ["--zipf", "2", "--shared-prefix-len", "9"], "--zipf", "--shared-prefixes"),
    (SIMULATE + ["--cost-swap-block-us", "5"], "--cost-swap-block-us", "--preemption-mode swap"),
    (SIMULATE + ["--cost-decode-more-us", "5", "--max-num-seqs", "1"], "--cost-decode-more-us", "--max-num-seqs 1"),
    *[(SIMULATE + ON_A_CARD + flags, flags[0], "--machine")
      for flags in (["--cost-step-us", "5"], ["--cost-prefill-tokens-per-ms", "5"], ["--cost-decode-us", "200"], ["--cost-swap-block-us", "5"])],
    *[(SIMULATE + flags, flags[0], "--machine")
      for flags in (["--efficiency", "0.5"], ["--model", DEMO], ["--quantization", "int8"], ["--kv-cache-dtype", "int8"], ["--dtype", "f32"])],
    (SIMULATE + ON_A_CARD + ["--cost-jitter"], "--cost-jitter", "--cost"),
    *[(SIMULATE + flags, "--force", "--cost and --model") for flags in (["--force"], ["--force", *ON_A_CARD])],
    (SIMULATE + ["--demo", "--trace", "f"], "--trace", "--demo"),
    (SIMULATE + ["--sliding-window", "500", "--max-model-len", "400"], "--sliding-window", "--max-model-len"),
    *[(RUN + flags, flags[0], "-n asks for several")
      for flags in (["--scheduling-policy", "srpt"], ["--batching", "static"], ["--victim-policy", "least-progress"],
                    ["--preemption-mode", "auto"], ["--watermark", "7"], ["--admit-eagerly"], ["--admit-while-preempting"])],
    *[(RUN + flags, flags[0], "-n asks for several")
      for flags in (["--max-num-seqs", "2"], ["--max-waiting", "0"], ["--max-waiting", "9"], ["--eviction-policy", "lfu"],
                    ["--no-enable-prefix-caching"])],
    *[(RUN + ["-n", "4", "--max-waiting", "0", *flags], "--max-waiting", "run at once")
      for flags in ([], ["--max-num-seqs", "4"], ["--beam-search"])],
    *[(RUN + ["-n", "4", "--scheduling-policy", policy], "--scheduling-policy", "answers to one prompt")
      for policy in ("fair", "priority", "slo")],
    (RUN + ["-n", "4", "--victim-policy", "priority"], "--victim-policy", "one priority"),
    *[(RUN + ["--temperature", "0", *flags], flags[0], "--temperature 0")
      for flags in (["--top-k", "5"], ["--top-p", "0.5"], ["--min-p", "0.1"], ["--seed", "3"])],
    *[(RUN + ["--beam-search", "-n", "2", *flags], flags[0], "--beam-search")
      for flags in (["--temperature", "1"], ["--top-k", "5"], ["--repetition-penalty", "1.1"], ["--seed", "3"])],
    (["chat", DEMO, "--temperature", "0", "--seed", "3"], "--seed", "--temperature 0"),
    *[(command + SIM + flags, flags[0], "--device sim")
      for command in (SERVE, BENCH)
      for flags in (["--threads", "2"], ["--isa", "auto"], ["--quantization", "int8"], ["--pack-cache"], ["--no-mmap"], ["--dtype", "f32"],
                    ["--kv-cache-dtype", "int8"])],
    *[(command + flags, flags[0], "--device sim")
      for command in (SERVE, BENCH, SERVE + ["--device", "cpu"])
      for flags in (["--sim-speed", "2"], ["--cost-step-us", "5"], ["--cost-swap-block-us", "5"],
                    ["--steps-in-flight", "2"])],
    *[(command + flags, flags[0], "--device sim") for command in (SERVE, BENCH) for flags in (["--machine", "a10g"], ["--efficiency", "0.5"])],
    *[(command + SIM + ["--machine", "a10g", *flags], flags[0], "--machine")
      for command in (SERVE, BENCH) for flags in (["--cost-step-us", "5"],)],
    *[(command + SIM + ["--efficiency", "0.5"], "--efficiency", "--machine") for command in (SERVE, BENCH)],
    (SERVE + ["--sim-answers", "f"], "--sim-answers", "--device sim"),
    (SERVE + SIM + ["--cost-swap-block-us", "5"], "--cost-swap-block-us", "--preemption-mode swap"),
    (SERVE + ["--isolate-users", "--no-enable-prefix-caching"], "--isolate-users", "--no-enable-prefix-caching"),
    *[(["bench", "ops", "--list", *flags], flags[0], "--list")
      for flags in (["--repeats", "2"], ["--threads", "2"], ["--json", "f"])],
    (["render", DEMO, "--messages", "f", "--continue-final-message", "--no-generation-prompt"], "--no-generation-prompt",
     "--continue-final-message"),
    (["convert", DEMO, "x.gguf", "--tokenizer", "t"], "--tokenizer", "llama2.c"),
    (["convert", ROOT / "LICENSE", "x", "--outtype", "f16"], "--outtype", "llama2.c"),
    (["perplexity", DEMO, ROOT / "LICENSE", "--context", "4096"], "--context", "512 positions"),
    (["bench", "serve", "--endpoint", "chat", "--words"], "--words", "--endpoint chat"),
    *[(["calibrate", "--from", "f", *flags], flags[0], "--from, which measures nothing")
      for flags in (["--threads", "2"], ["--quantization", "int8"], ["--num-blocks", "9"], ["--device", "sim"], ["--cost-step-us", "5"], ["--force"],
                    ["--step-log", "x"], ["--max-num-seqs", "2"], ["--seconds", "2"])],
    (["calibrate", DEMO, "--from", "f"], "model", "--from, which measures nothing"),
])
def test_flags_that_change_nothing_are_refused(args, flag, why):
    done = quire(*args, check=False)
    message = done.stderr.decode()
    assert done.returncode == 2 and message.startswith(f"quire: {flag}: ") and why in message, message
    assert message.count("\n") == 1 and done.stdout == b""


@pytest.mark.parametrize("args", [
    SIMULATE + ["--scheduling-policy", "fcfs", "--victim-policy", "last", "--batching", "continuous", "--watermark", 1,
                "--max-num-seqs", 1, "--preemption-mode", "recompute", "--tenants", 1],
    SIMULATE + ["--requests", 9, "--scheduling-policy", "fair", "--tenants", 2],
    SIMULATE + ["--requests", 9, "--victim-policy", "priority", "--priorities", 2, "--admit-while-preempting"],
    SIMULATE + ["--requests", 9, "--zipf", 2, "--shared-prefix-len", 9, "--shared-prefixes", 3],
    SIMULATE + ["--requests", 9, "-n", 2, "--admit-while-preempting"],
    RUN + ["-n", 2, "--max-tokens", 4, "--scheduling-policy", "srpt", "--watermark", 2],
    RUN + ["-n", 4, "--max-tokens", 4, "--max-num-seqs", 2, "--max-waiting", 2, "--eviction-policy", "lfu"],
    RUN + ["-n", 4, "--max-tokens", 4, "--no-enable-prefix-caching"],
    RUN + ["--max-tokens", 4, "--max-num-seqs", 1, "--enable-prefix-caching"],
    RUN + ["--max-tokens", 4, "--temperature", 0.5, "--seed", 3, "--top-k", 5],
    ["bench", "throughput", DEMO, *SIM, "--sim-speed", 50, "--requests", 2, "--kv-cache-memory", "8MiB", "--kv-cache-dtype", "int8"],
    ["bench", "throughput", DEMO, *SIM, "--machine", "l4", "--requests", 2, "--quantization", "int8", "--kv-cache-dtype", "int8"],
    ["bench", "throughput", DEMO, *SIM, "--machine", "l4", "--requests", 2, "--dtype", "f32"],
])
def test_defaults_and_what_counts_are_taken(args):
    assert quire(*args).stdout


def test_an_empty_text_is_a_text():
    assert quire("tokenize", DEMO, "-p", "", "--no-special", input=b"not read").stdout == b"[]\n"


def test_what_a_file_tells_or_keeps_of_one_answer_may_be_chosen(tmp_path):
    """With one answer the cache of prefixes helps nobody, but these files show or keep it."""
    one = RUN + ["--max-tokens", 4]
    assert quire(*one, "--no-enable-prefix-caching", "--step-trace", tmp_path / "steps").stdout
    assert quire(*one, "--eviction-policy", "lfu", "--decision-log", tmp_path / "log").stdout
    assert quire(*one, "--max-num-seqs", 2, "--eviction-policy", "lfu", "--prefix-cache-file", tmp_path / "prefixes").stdout


@pytest.mark.parametrize("flags", [["--max-num-seqs", 2, "--max-waiting", 1], ["--max-num-seqs", 3, "--max-waiting", 0]])
def test_the_answers_of_one_request_may_be_too_many_to_wait(flags):
    """So --max-waiting counts where they do not all run at once."""
    done = quire(*RUN, "-n", 4, "--max-tokens", 4, *flags, check=False)
    assert done.returncode == 1 and "at most 3 can run and wait" in done.stderr.decode()


SMALL = ["simulate", "--requests", 9, "--seed", 1]
ONCE = [*RUN, "--max-tokens", 4, "--seed", 1]
GREEDY = [*RUN, "--max-tokens", 4, "--temperature", 0]


@pytest.mark.parametrize("command, flags", [
    (SMALL, ["--admit-while-preempting"]), (SMALL, ["--zipf", 2]), (SMALL, ["--scheduling-policy", "fair"]),
    (SMALL, ["--known-lengths"]), (SMALL, ["--priorities", 3]), (SMALL, ["--victim-policy", "priority"]),
    (SMALL, ["--cost-swap-block-us", 5]),
    (ONCE, ["--scheduling-policy", "srpt"]), (ONCE, ["--watermark", 7]), (GREEDY, ["--top-k", 5]), (GREEDY, ["--seed", 3]),
    (["bench", "ops", "--list"], ["--threads", 2]),
])
def test_no_flag_is_taken_and_changes_nothing(command, flags):
    without, given = quire(*command), quire(*command, *flags, check=False)
    assert given.returncode == 2 or given.stdout != without.stdout, "taken, and the output is the same"
    assert without.stdout
