#!/usr/bin/env python3
"""How well quire foresees a server, in four parts (--part, all by default); positive errors: the prediction is too long.

  bench/foresight.py [--part workloads|slo|policies|machine ...] [--workload NAME ...] [--repeats 3] [--at-once 1] [--requests 2000] [--seconds 60]

The first three have a device that hides its costs, served over HTTP. It is a cost model written here, whose steps deviate by up to a
tenth. `quire calibrate` sees it only by the steps of a server under two other loads, one of which also says how long a request's way there
and back takes. How long a server takes to receive a request is measured with a device that takes no time. Then `quire bench serve` measures
a server on the hidden device, and `quire simulate` predicts the same from the fitted model and those times. Each run of the server and each
prediction draws deviations of its own: a prediction does not know those of the device.

workloads  the times of five workloads that were not used to fit: the median of --repeats runs and of 20 predictions, and for the slowest
           requests how far either spread. The trace is Azure's of conversations (traces-azure in QUIRE_DATA); without the file, it is
           skipped, and its row of the table says so
slo        the largest rate that meets an objective, three of them, by bisection on both sides
policies   for each pair of scheduling policies and two pools: does the prediction have the same winner, wherever the difference exceeds
           the spread over the seeds
machine    --real-model on this machine: five runs, measured and predicted in turn; how fast the machine was is taken from the steps of
           the run in which one sequence decodes alone, and a request's way there and back from two runs under other loads: by how
           much TTFT was longer for the clients than for the engine
"""
import argparse
import concurrent.futures
import contextlib
import csv
import datetime
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

TRACE = pathlib.Path(os.environ.get("QUIRE_DATA", "../shared/data")) / "traces-azure/AzureLLMInferenceTrace_conv.csv"
TRACE_HERE = "TRACE"  # in the flags of a load: the file that write_trace has written
SEQS, BUDGET = 32, 512
SERVER = ["--max-num-seqs", SEQS, "--max-num-batched-tokens", BUDGET]
# Name, flags of the load, flags of the server; simulate has both.
WORKLOADS = [
    ("shared prefixes", ["--rate", 8, "--prompt-len", "uniform:10:60", "--output-len", "uniform:10:80", "--shared-prefix-len", 128,
                         "--shared-prefixes", 20], ["--num-blocks", 1500]),
    ("preemption and swap", ["--rate", 8, "--prompt-len", "uniform:20:100", "--output-len", "uniform:40:160"],
     ["--num-blocks", 180, "--preemption-mode", "swap"]),
    ("a trace", ["--trace", TRACE_HERE, "--trace-speed", 1], ["--num-blocks", 1500]),
    ("bursts", ["--rate", 3, "--burst", 16, "--burst-every", 4, "--prompt-len", "lognormal:80:0.8:300", "--output-len",
                "lognormal:40:0.7:150"], ["--num-blocks", 1500]),
    ("closed loop", ["--users", 24, "--think-time-ms", "exponential:300", "--prompt-len", "uniform:20:200", "--output-len", "uniform:10:80"],
     ["--num-blocks", 1500]),
]
PREDICTIONS = 20
OF_DEVICE = 1000  # seeds of the device's deviations, from here on; predictions have small ones
# What the cost model is fitted to: load, server.
LEARNED = [
    (["--rate", 9, "--prompt-len", "uniform:10:200", "--output-len", "uniform:20:120"], ["--num-blocks", 150, "--preemption-mode", "swap"]),
    (["--rate", 4, "--burst", 24, "--burst-every", 6, "--prompt-len", "lognormal:60:1:400", "--output-len", "uniform:5:60"], ["--num-blocks", 1500]),
]
FREE = ["--cost-step-us", 0, "--cost-decode-us", 0, "--cost-decode-more-us", 0, "--cost-prefill-tokens-per-ms", 10**9]
FIGURES = [("mean TTFT", "ttft_ns", "mean"), ("mean TPOT", "tpot_ns", "mean"), ("mean E2E", "e2e_ns", "mean"), ("p99 TTFT", "ttft_ns", "p99"),
           ("p99 E2E", "e2e_ns", "p99")]


def hidden_device():
    knots = [0, 8, 48, 200]
    phase = {"step": 9e6, "decode_step": 1.5e6, "decode": 1e5, "chunk": 3e5, "decode_context": 300, "chunk_square": 40, "chunk_prefix": 90,
             "logit_row": 7e4, "sampled_row": 0, "moved_block": 2e5, "copy": 3e4, "token": [4e4, 1e5, 2e5, 2.5e5]}
    return {"quire_cost": 2, "model": "hidden", "machine": "hidden", "device": "", "build": "", "steps": 0, "left_out": 0, "errors": [], "knots": knots,
            "device_ns": phase, "host_ns": {name: 0 if name != "token" else [0] * len(knots) for name in phase},
            "most": {name: 10**12 for name in ("decoding", "decode_context", "chunks", "prefill_tokens", "chunk_squares", "chunk_prefix",
                                               "logit_rows", "sampled_rows", "moved_blocks", "copies")},
            "deviations": [0.9, 0.95, 1.0, 1.05, 1.1]}


# Of a sequence of 512 tokens; the trace's longest prompt is 14,050, its longest answer 1,000.
PROMPT_PART, PROMPT_MOST, ANSWER_PART, ANSWER_MOST, TRACE_RATE = 12, 360, 4, 150, 8


def write_trace(source, path, requests):
    """The trace's first requests, with lengths that the hidden device's sequences have room for and, in all, TRACE_RATE arrivals a second. What
    makes it a trace stays: its bursts and lulls, and which lengths come together and after each other."""
    with source.open() as file:
        rows = list(itertools.islice(csv.DictReader(file), requests))
    # Its times have seven decimals, of which Python takes six.
    times = [datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    faster_by = TRACE_RATE * (times[-1] - times[0]).total_seconds() / (len(rows) - 1) if len(rows) > 1 else 1

    def length(text, part, most):
        return min(-(-int(text) // part), most)

    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for at, row in zip(times, rows):
            out.writerow([f"{(at - times[0]).total_seconds() / faster_by:.6f}", length(row["ContextTokens"], PROMPT_PART, PROMPT_MOST),
                          length(row["GeneratedTokens"], ANSWER_PART, ANSWER_MOST)])


def run(quire, *args):
    return subprocess.run([quire, *map(str, args)], stdout=subprocess.PIPE, text=True, check=True).stdout


class Server:
    def __init__(self, quire, model, flags, device="sim"):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([quire, "serve", model, "--device", device, "--port", "0", *map(str, flags)], stdout=self.log,
                                        stderr=self.log)

    def __enter__(self):
        for _ in range(300):
            self.log.seek(0)
            if said := re.search(r"listens on (http://[^ ]*:\d+)", self.log.read()):
                return said[1]
            time.sleep(0.1)
        self.log.seek(0)
        raise SystemExit(self.log.read())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def accept_us(quire, model):
    """What a request takes, received one after the other, where its steps take no time."""
    with Server(quire, model, [*FREE, *SERVER]) as url:
        got = json.loads(run(quire, "bench", "serve", "--url", url, "--requests", 3000, "--concurrency", SEQS, "--prompt-len", 50,
                             "--output-len", 1, "--json"))
    return round(got["elapsed_ns"] / 1000 / 3000)


def way_us(url, result):
    """By how much TTFT was longer for the client than for the engine, in the mean of the only load that a server has had: a request's way there and
    back."""
    with urllib.request.urlopen(url + "/metrics") as answer:
        metrics = answer.read().decode()
    total, count = (float(re.search(rf"^vllm:time_to_first_token_seconds_{part}{{.*}} (.*)$", metrics, re.MULTILINE)[1]) for part in ("sum", "count"))
    return round(result["ttft_ns"]["mean"] / 1e3 - total / count * 1e6)


class Way:
    """The time of a request beside its steps."""

    def __init__(self, of, once):
        self.accept = accept_us(of.quire, of.model)
        # Users keep their connections; other requests have one each.
        self.once = once - self.accept
        with of.server(repeat=-9) as url:
            self.kept = way_us(url, of.measure(url, "--users", 8, "--think-time-ms", "exponential:300", "--prompt-len", 50, "--output-len", 20,
                                               "--requests", 200)) - self.accept

    def __str__(self):
        return (f"a request is received in {self.accept} us; its way there and back takes {self.once} us on a connection of its own, {self.kept} us on "
                "one that is kept")

    def flags(self, load):
        return ["--accept-us", self.accept, "--latency-us", max(0, self.kept if "--users" in load else self.once)]


TIMES = {"--rate": -1, "--trace-speed": -1, "--burst-every": 1, "--think-time-ms": 1}  # the powers in which flags of a load are times


def faster(load, speed):
    """The same load in a fraction of the time."""
    load = list(load)
    for i, (flag, value) in enumerate(zip(load, load[1:])):
        if flag in TIMES:
            kind, _, number = str(value).rpartition(":")
            load[i + 1] = f"{kind}:" * bool(kind) + f"{float(number) / speed ** TIMES[flag]:g}"
    return load


class Foresight:
    """A server on the hidden device, and the prediction of it."""

    def __init__(self, options, folder):
        self.quire, self.model = options.quire, options.model
        self.folder = pathlib.Path(folder)
        hidden, self.fitted, self.out, self.trace = (self.folder / name for name in ("hidden.json", "fitted.json", "out.json", "trace.csv"))
        hidden.write_text(json.dumps(scaled(hidden_device(), 1 / options.speed), separators=(",", ":")))
        self.device = ["--cost", hidden, "--cost-jitter", "--force"]
        # The steps of a server, which sends tokens to connections between them; a sweep has none.
        logs, ways = [], []
        for i, (load, engine) in enumerate(LEARNED):
            logs += ["--from", self.folder / f"learned{i}.log"]
            with self.server(*engine, "--step-log", logs[-1], repeat=-1 - i) as url:
                result = self.measure(url, *faster(load, options.speed), "--seed", 101 + i, "--requests", 800)
                ways.append(way_us(url, result))
        said = run(self.quire, "calibrate", *logs, "-o", self.fitted)
        self.way = Way(self, ways[0])
        print(f"{said}{self.way}", file=sys.stderr)

    def server(self, *flags, repeat=0):
        return Server(self.quire, self.model, [*self.device, "--jitter-seed", OF_DEVICE + repeat, *SERVER, *flags])

    def measure(self, url, *flags):
        return json.loads(run(self.quire, "bench", "serve", "--url", url, *flags, "--json"))

    def predict(self, *flags):
        run(self.quire, "simulate", "--cost", self.fitted, "--cost-jitter", *self.way.flags(flags), "--max-model-len", 512, *SERVER, *flags, "--json",
            self.out)
        return json.loads(self.out.read_text())


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(*names):
    row(*names)
    row(*["---"] * len(names))


def percent(ratio):
    return f"{100 * ratio:+.1f} %"


def steps_of(path):
    """The steps of a log, by column."""
    lines = path.read_text().splitlines()
    columns = json.loads(lines[0])["columns"]
    for line in lines[1:]:
        yield dict(zip(columns, json.loads(line)))


def lateness(path):
    """By which part of their time the steps of a paced device ended late; the log is deleted."""
    late = took = 0
    for step in steps_of(path):
        late, took = late + step["wait"] - step["compute"], took + step["compute"]
    path.unlink()
    return late / took


def span(values):
    return f"{min(values) / 1e6:.1f} to {max(values) / 1e6:.1f}"


def workloads(of, options):
    head("workload", *(name for name, *_ in FIGURES), "measured: TTFT, TPOT ms", "p99 TTFT measured, ms", "predicted: median, span",
         "steps ended late by")
    for name, both, engine in WORKLOADS:
        if options.workload and name not in options.workload:
            continue
        if TRACE_HERE in both:
            if not TRACE.exists():
                row(name, f"skipped: {TRACE} is absent (QUIRE_DATA says where the data are)")
                continue
            write_trace(TRACE, of.trace, options.requests)
            both = [of.trace if word == TRACE_HERE else word for word in both]
        both = [*faster(both, options.speed), "--requests", options.requests]

        def once(repeat):
            log = of.folder / f"steps{repeat}.log"
            with of.server(*engine, "--step-log", log, repeat=repeat) as url:
                result = of.measure(url, *both)
            return result, lateness(log)  # more than some thousandths: something else ran on the machine

        # A server on the hidden device sleeps nearly all the time.
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            measured, late = zip(*pool.map(once, range(options.repeats)))
        predicted = [of.predict(*engine, *both, "--jitter-seed", seed) for seed in range(PREDICTIONS)]
        # The slowest requests follow from single deviations: one run says little about another of the same server.
        middle = {figure: [statistics.median(each[of_][part] for each in runs) for runs in (measured, predicted)] for figure, of_, part in FIGURES}
        slowest = [[each["ttft_ns"]["p99"] for each in runs] for runs in (measured, predicted)]
        row(name, *(percent(foreseen / real - 1) for real, foreseen in middle.values()),
            f"{middle['mean TTFT'][0] / 1e6:.1f}, {middle['mean TPOT'][0] / 1e6:.2f}", ", ".join(f"{each / 1e6:.1f}" for each in slowest[0]),
            f"{middle['p99 TTFT'][1] / 1e6:.1f}, {span(slowest[1])}", f"{percent(min(late))} to {percent(max(late))}")


OBJECTIVES = ["ttft=150ms,attainment=90", "tpot=20ms,attainment=95", "ttft=200ms,e2e=1500ms,attainment=95"]


def largest_rates(of, requests):
    load = ["--prompt-len", "uniform:20:100", "--output-len", "uniform:20:80", "--requests", requests]
    head("objectives", "predicted, requests/s", "measured", "error")
    for slo in OBJECTIVES:
        found = of.predict("--num-blocks", 1500, *load, "--rate", 5, "--slo", slo, "--find-capacity", "--seeds", 1)
        predicted = found["rows"][0]["median"]
        attainment = float(slo.rsplit("=", 1)[1]) / 100
        with of.server("--num-blocks", 1500) as url:
            low, high = 0.75 * predicted, 1.33 * predicted  # the first should meet it, the second not; the result says if not
            while high / low > 1.015:
                middle = (low * high) ** 0.5
                good = of.measure(url, *load, "--rate", f"{middle:.3f}", "--slo", slo)["good"]
                low, high = (middle, high) if good >= attainment * requests else (low, middle)
        row(slo, f"{predicted:.2f}", f"{low:.2f}", percent(predicted / low - 1))


POLICIES = ["fcfs", "srpt", "slo", "lpm"]
POOLS = [300, 1500]
SEEDS = 3


def policies(of, requests):
    # Bursts of more than the slots, so that there is a queue to order.
    load = ["--rate", 2, "--burst", 80, "--burst-every", 8, "--prompt-len", "lognormal:60:0.9:250", "--output-len", "lognormal:40:0.8:150",
            "--shared-prefix-len", 128, "--shared-prefixes", 20, "--requests", requests]
    head("blocks", "policies", "measured: mean E2E ms", "predicted", "difference measured", "spread", "predicted", "winner")
    right = wrong = 0
    for pool in POOLS:
        engine = {policy: ["--num-blocks", pool, "--scheduling-policy", policy] for policy in POLICIES}
        measured, predicted = ({policy: [] for policy in POLICIES} for _ in range(2))
        with contextlib.ExitStack() as servers:
            urls = {policy: servers.enter_context(of.server(*engine[policy])) for policy in POLICIES}
            for seed in range(SEEDS):  # the policies by turns, so that all meet the same machine
                for policy in POLICIES:
                    measured[policy].append(of.measure(urls[policy], *load, "--seed", seed)["e2e_ns"]["mean"] / 1e6)
                    predicted[policy].append(of.predict(*engine[policy], *load, "--seed", seed)["e2e_ns"]["mean"] / 1e6)
        for one, other in itertools.combinations(POLICIES, 2):
            by_seed = [b - a for a, b in zip(measured[one], measured[other])]
            difference, spread = statistics.mean(by_seed), max(by_seed) - min(by_seed)
            foreseen = statistics.mean(b - a for a, b in zip(predicted[one], predicted[other]))
            winner = "within the spread"
            if abs(difference) > spread:
                same = difference * foreseen > 0
                winner = "the same" if same else "ANOTHER"
                right, wrong = right + same, wrong + (not same)
            row(pool, f"{one}, {other}", *(", ".join(f"{statistics.mean(of_[name]):.0f}" for name in (one, other)) for of_ in (measured, predicted)),
                f"{difference:+.0f}", f"{spread:.0f}", f"{foreseen:+.0f}", winner)
    print(f"\nOf {right + wrong} decisive pairs {right} have the predicted winner.")


def scaled(cost, factor):
    """A cost file of a machine that takes `factor` times as long."""
    out = dict(cost)
    for phase in ("device_ns", "host_ns"):
        out[phase] = {name: [each * factor for each in value] if isinstance(value, list) else value * factor for name, value in cost[phase].items()}
    return out


def reference_factor(cost, path):
    """How long the steps of a log in which one sequence decodes alone took in all, over what the cost model says, with what it draws from its
    deviations; nothing else of the log is used. In all, not in the median: what interrupts some steps of a run also takes its time."""
    took, said, count = 0, 0, 0
    for step in steps_of(path):
        if step["decoding"] != 1 or step["chunks"] or step["copies"] or step["moved_blocks"]:
            continue
        foreseen = sum(phase["step"] + phase["decode_step"] + phase["decode"] + phase["token"][0] + phase["decode_context"] * step["decode_context"]
                       + phase["logit_row"] + phase["sampled_row"] for phase in (cost["device_ns"], cost["host_ns"]))
        took, said, count = took + step["whole"], said + foreseen, count + 1
    usual, slow = cost["deviations"], cost["slow"]
    drawn = (1 - slow["part"]) * statistics.mean((a + b) / 2 for a, b in zip(usual, usual[1:])) + slow["part"] * slow["factor"]
    return took / (said * drawn), count


def machine(options, folder):
    folder = pathlib.Path(folder)
    log, out, now = (folder / name for name in ("steps.log", "out.json", "now.json"))
    engine = ["--max-num-seqs", 16, "--max-model-len", 512, "--max-num-batched-tokens", 256, "--num-blocks", 512]
    weights = ["--quantization", options.quantization]

    def load(rate, seed=0):
        return ["--rate", rate, "--seed", seed, "--prompt-len", "uniform:20:100", "--output-len", "uniform:20:60", "--requests", options.real_requests]

    def serve(path, *flags):
        """The load's figures, and its way_us()."""
        with Server(options.quire, options.real_model, [*weights, *engine, "--step-log", path], device="cpu") as url:
            result = json.loads(run(options.quire, "bench", "serve", "--url", url, *flags, "--json"))
            return result, way_us(url, result)

    # Two fits: of the sweep, which has the machine to itself, and of the steps of a server under two other rates.
    files = {"sweep": folder / "sweep.json", "logs of a server": folder / "logs.json"}
    said = run(options.quire, "calibrate", options.real_model, *weights, *engine, "--seconds", options.seconds, "-o", files["sweep"])
    logs, ways = [], []
    for i, rate in enumerate((options.real_rate * 0.6, options.real_rate * 1.2)):
        logs.append(folder / f"learn{i}.log")
        ways.append(serve(logs[-1], *load(rate, 101 + i))[1])
    said += run(options.quire, "calibrate", *[word for path in logs for word in ("--from", path)], "-o", files["logs of a server"])
    # Where steps compute on all cores, what is not a step waits for one of them.
    way = ["--latency-us", round(statistics.mean(ways))]
    print(f"{said}a request's way there and back, by the same two runs, takes {way[1]} us", file=sys.stderr)
    costs = {name: json.loads(path.read_text()) for name, path in files.items()}
    figures = [("mean TTFT ms", lambda r: r["ttft_ns"]["mean"] / 1e6), ("mean TPOT ms", lambda r: r["tpot_ns"]["mean"] / 1e6),
               ("mean E2E ms", lambda r: r["e2e_ns"]["mean"] / 1e6), ("output tokens/s", lambda r: r["output_tokens_per_second"])]
    measured, predicted, speeds = [], {name: [] for name in costs}, {name: [] for name in costs}
    for _ in range(5):
        flags = load(options.real_rate)
        measured.append(serve(log, *flags)[0])
        for name, cost in costs.items():
            factor, steps = reference_factor(cost, log)
            speeds[name].append(f"{factor:.2f}")
            now.write_text(json.dumps(scaled(cost, factor), separators=(",", ":")))
            run(options.quire, "simulate", "--cost", now, "--cost-jitter", *way, *engine, *flags, "--json", out)
            predicted[name].append(json.loads(out.read_text()))
        log.unlink()
    for name, each in speeds.items():
        print(f"Fit of the {name}: the time of a reference step over that of the fit, in the five runs: {', '.join(each)}\n")
    head("", "measured, five runs", "range", "fit of", "predicted", "median error", "the predicted median is")
    for figure, of in figures:
        real = [of(each) for each in measured]
        spread = (max(real) - min(real)) / statistics.median(real)
        for name in costs:
            foreseen = [of(each) for each in predicted[name]]
            middle = statistics.median(foreseen)
            # Where all arrive in time, the rate sets the throughput, and the five are the same but for a request's last tokens.
            inside = min(real) * 0.999 <= middle <= max(real) * 1.001
            verdict = "within the five" if inside else "outside"
            row(figure, ", ".join(f"{each:.1f}" for each in real), f"{100 * spread:.0f} %", name, ", ".join(f"{each:.1f}" for each in foreseen),
                percent(statistics.median(b / a - 1 for a, b in zip(real, foreseen))), f"not measurable here ({verdict})" if spread > 0.15 else verdict)


PARTS = ["workloads", "slo", "policies", "machine"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/quire")
    parser.add_argument("--model", default="models/llama-quire-stories-5m", help="whose tokenizer the simulated device has")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--workload", choices=[name for name, *_ in WORKLOADS], action="append", help="of the part workloads; all by default")
    parser.add_argument("--speed", type=float, default=1, help="of the hidden device and of the workloads' time; the other parts want 1")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each of the workloads")
    parser.add_argument("--at-once", type=int, default=1, help="so many of these runs at a time, each with a server of its own")
    parser.add_argument("--requests", type=int, default=2000, help="of each of the workloads")
    parser.add_argument("--slo-requests", type=int, default=400, help="of each run of the search")
    parser.add_argument("--policy-requests", type=int, default=200, help="of each policy, pool and seed")
    parser.add_argument("--seconds", type=float, default=60, help="of the sweep of the part machine")
    parser.add_argument("--real-model", default="models/llama-quire-stories-5m", help="of the part machine")
    parser.add_argument("--quantization", default="auto", help="of its weights")
    parser.add_argument("--real-rate", type=float, default=10)
    parser.add_argument("--real-requests", type=int, default=300)
    options = parser.parse_args()
    parts = options.part or PARTS
    with tempfile.TemporaryDirectory() as folder:
        if set(parts) - {"machine"}:
            of = Foresight(options, folder)
            for part, what in (("workloads", lambda: workloads(of, options)),
                               ("slo", lambda: largest_rates(of, options.slo_requests)), ("policies", lambda: policies(of, options.policy_requests))):
                if part in parts:
                    print(f"\n## {part}\n")
                    what()
        if "machine" in parts:
            print("\n## machine\n")
            machine(options, folder)


if __name__ == "__main__":
    main()
