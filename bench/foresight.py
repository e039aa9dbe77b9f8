#!/usr/bin/env python3
"""How well quire foresees a server: a device that hides its costs is served over HTTP, calibrated and simulated.

  bench/foresight.py [--quire build/release/quire] [--model models/llama-quire-stories-5m] [--requests 2000] [--seconds 60]

The hidden device is a cost model written here, whose steps deviate by up to a tenth. `quire calibrate` sees it only as a server does:
by its steps. How long a server takes to receive a request is measured with a device that takes no time. Then, for workloads that were
not used to fit, `quire bench serve` measures a server on the hidden device over HTTP, and `quire simulate` predicts the same from the
fitted model and that time. It prints a table of the relative errors; positive: the prediction is too long.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SEQS, BUDGET = 32, 512
SERVER = ["--max-num-seqs", SEQS, "--max-num-batched-tokens", BUDGET]
# Name, flags of both, flags of the server and of simulate alone, of bench serve alone, of simulate alone.
WORKLOADS = [
    ("shared prefixes", ["--rate", 8, "--prompt-len", "uniform:10:60", "--output-len", "uniform:10:80", "--shared-prefix-len", 128,
                         "--shared-prefixes", 20], ["--num-blocks", 1500], [], []),
    ("preemption and swap", ["--rate", 8, "--prompt-len", "uniform:20:100", "--output-len", "uniform:40:160"],
     ["--num-blocks", 180, "--preemption-mode", "swap"], [], []),
    ("bursts", ["--rate", 3, "--burst", 16, "--burst-every", 4, "--prompt-len", "lognormal:80:0.8:300", "--output-len",
                "lognormal:40:0.7:150"], ["--num-blocks", 1500], [], []),
    ("closed loop", ["--users", 24, "--think-time-ms", "exponential:300", "--prompt-len", "uniform:20:200", "--output-len", "uniform:10:80"],
     ["--num-blocks", 1500], [], []),
]
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


def run(quire, *args):
    return subprocess.run([quire, *map(str, args)], stdout=subprocess.PIPE, text=True, check=True).stdout


class Server:
    def __init__(self, quire, model, flags):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([quire, "serve", model, "--device", "sim", "--port", "0", *map(str, flags)], stdout=self.log,
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
    free = ["--cost-step-us", 0, "--cost-decode-us", 0, "--cost-decode-more-us", 0, "--cost-prefill-tokens-per-ms", 10**9]
    with Server(quire, model, [*free, *SERVER]) as url:
        got = json.loads(run(quire, "bench", "serve", "--url", url, "--requests", 3000, "--concurrency", SEQS, "--prompt-len", 50,
                             "--output-len", 1, "--json"))
    return round(got["elapsed_ns"] / 1000 / 3000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/quire")
    parser.add_argument("--model", default="models/llama-quire-stories-5m")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60, help="of calibration")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hidden, fitted, out = (pathlib.Path(folder) / name for name in ("hidden.json", "fitted.json", "out.json"))
        hidden.write_text(json.dumps(hidden_device(), separators=(",", ":")))
        device = ["--cost", hidden, "--cost-jitter", "--force"]
        said = run(options.quire, "calibrate", options.model, "--device", "sim", *device, *SERVER, "--num-blocks", 700, "--preemption-mode",
                   "swap", "--seconds", options.seconds, "-o", fitted)
        accept = accept_us(options.quire, options.model)
        print(f"{said}a request is received in {accept} us", file=sys.stderr)
        print("| workload | " + " | ".join(name for name, *_ in FIGURES) + " | measured: TTFT, TPOT ms |")
        print("|---" * (len(FIGURES) + 2) + "|")
        for name, both, engine, bench, simulated in WORKLOADS:
            both = [*both, "--requests", options.requests]
            with Server(options.quire, options.model, [*device, *SERVER, *engine]) as url:
                measured = json.loads(run(options.quire, "bench", "serve", "--url", url, *both, *bench, "--json"))
            run(options.quire, "simulate", "--cost", fitted, "--cost-jitter", "--accept-us", accept, "--max-model-len", 512, *SERVER, *engine, *both, *simulated,
                "--json", out)
            predicted = json.loads(out.read_text())
            errors = [predicted[of][part] / measured[of][part] - 1 for _, of, part in FIGURES]
            print(f"| {name} | " + " | ".join(f"{100 * error:+.1f} %" for error in errors) +
                  f" | {measured['ttft_ns']['mean'] / 1e6:.1f}, {measured['tpot_ns']['mean'] / 1e6:.2f} |", flush=True)


if __name__ == "__main__":
    main()
