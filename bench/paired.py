#!/usr/bin/env python3
"""Compares two quire programs in one run, so that both meet the same machine.

  bench/paired.py step OLD NEW MODEL [--prompt 512] [--batch 16] ...   time of prefill and of decode steps
  bench/paired.py server OLD NEW MODEL [--concurrency 64] ...          CPU time of the server per streamed token

Pieces of a few seconds of OLD and NEW alternate. For each figure it prints the median of the paired ratios
old / new (above 1: NEW is faster) with its 95 % interval (of the median, by order statistics), and stops
when the interval is within 1.5 points or --pairs are done. NEW is not slower where the interval reaches 0.99.
"""
import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

NARROW = 0.015  # an interval that is this wide is enough
LEAST_PAIRS = 6  # below, no interval of 95 % exists


def interval(ratios):
    """The order statistics between which the median lies in 95 of 100 cases."""
    ordered, n = sorted(ratios), len(ratios)
    outside, k = 0.0, 0
    while k < n // 2 and (outside + math.comb(n, k)) / 2**n <= 0.025:
        outside += math.comb(n, k)
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k > 0 else (0.0, math.inf)


class Steps:
    """Each piece is one `quire bench latency`."""

    def __init__(self, program, options):
        self.command = [program, "bench", "latency", options.model, "--json", "--repeats", "1",
                        "--prompt", str(options.prompt), "--batch", options.batch,
                        "--context", str(options.context), "--steps", str(options.steps), *options.flags]

    def piece(self):
        ran = subprocess.run(self.command, stdout=subprocess.PIPE, text=True, check=True)
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        return {line["step"]: line["seconds"] for line in lines}

    def close(self):
        pass


class SimServer:
    """A server on the simulated device, which computes nothing: what it costs is the server itself."""

    def __init__(self, program, options):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program, "serve", options.model, "--device", "sim", "--sim-speed", str(options.sim_speed),
             "--port", "0", *options.flags], stdout=self.log, stderr=self.log)
        self.load = [options.client or options.new, "bench", "serve", "--json",
                     "--concurrency", str(options.concurrency), "--requests", str(options.requests),
                     "--url", f"http://127.0.0.1:{self._port()}"]

    def _port(self):
        for _ in range(600):
            self.log.seek(0)
            said = re.search(r"listens on http://[^ ]*:(\d+)", self.log.read())
            if said:
                return int(said[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{self.process.args[0]} did not start")

    def _cpu_seconds(self):
        """Of all threads, by the scheduler's clock: /proc/PID/stat counts in hundredths of a second."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def piece(self):
        before = self._cpu_seconds()
        ran = subprocess.run(self.load, stdout=subprocess.PIPE, text=True, check=True)
        tokens = json.loads(ran.stdout)["output_tokens"]
        return {"CPU a token": (self._cpu_seconds() - before) / tokens}

    def close(self):
        self.process.kill()
        self.process.wait()


def compare(old, new, most_pairs):
    """Pairs of pieces, whose order changes from pair to pair; {name: [(old seconds, new seconds)]}."""
    pairs = {}
    for number in range(most_pairs):
        first, second = (old, new) if number % 2 == 0 else (new, old)
        one, other = first.piece(), second.piece()
        before, after = (one, other) if number % 2 == 0 else (other, one)
        for name in before:
            pairs.setdefault(name, []).append((before[name], after[name]))
        if number + 1 >= LEAST_PAIRS and all(narrow(each) for each in pairs.values()):
            break
    return pairs


def narrow(pairs):
    low, high = interval([old / new for old, new in pairs])
    return high - low <= NARROW


def report(pairs):
    slower = False
    for name, each in pairs.items():
        ratios = [old / new for old, new in each]
        low, high = interval(ratios)
        slower |= high < 0.99
        print(f"{name:16} old {statistics.median(old for old, _ in each) * 1e6:12.2f} us"
              f"   new {statistics.median(new for _, new in each) * 1e6:12.2f} us"
              f"   old/new {statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}], {len(each)} pairs"
              f"{'   SLOWER' if high < 0.99 else ''}")
    return 1 if slower else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "server"])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--prompt", type=int, default=512, help="step: tokens of the prompt")
    parser.add_argument("--batch", default="16", help="step: sequences that decode at once")
    parser.add_argument("--context", type=int, default=64, help="step: tokens that each has before")
    parser.add_argument("--steps", type=int, default=8, help="step: decode steps of one piece")
    parser.add_argument("--concurrency", type=int, default=64, help="server: streams at once")
    parser.add_argument("--requests", type=int, default=192, help="server: requests of one piece")
    parser.add_argument("--sim-speed", type=float, default=3, help="server: speed of the simulated device")
    parser.add_argument("--client", help="server: the quire that makes the load (default: NEW)")
    parser.add_argument("flags", nargs="*", help="after --: further flags of both programs")
    options = parser.parse_intermixed_args()
    kind = Steps if options.what == "step" else SimServer
    old, new = kind(options.old, options), kind(options.new, options)
    try:
        sys.exit(report(compare(old, new, options.pairs)))
    finally:
        old.close()
        new.close()


if __name__ == "__main__":
    main()
