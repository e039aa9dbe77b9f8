#!/usr/bin/env python3
"""What a long prompt does to those who stream, and they to it.

  bench/joins.py QUIRE MODEL [--formats none,int8] [--prompts 2000,16000] [--repeats 3] [-- FLAGS OF SERVE]

For each format (--quantization) and length of prompt, the prompt's time to its first token alone and among
streams, in turn, and the longest time that a stream waited for a token. A stream has a prompt of 64 tokens
and began --after seconds before; nothing is cached. It prints each figure, and the medians.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

STREAM_PROMPT = 64


class Server:
    def __init__(self, options, quantization):
        self.log = tempfile.TemporaryFile("w+")
        longest = max(options.prompts) + 64
        self.process = subprocess.Popen(
            [options.quire, "serve", options.model, "--port", "0", "--quantization", quantization,
             "--max-model-len", str(longest), "--no-enable-prefix-caching", *options.flags],
            stdout=self.log, stderr=self.log)
        while True:
            self.log.seek(0)
            text = self.log.read()
            if said := re.search(r"listens on (http://\S+)", text):
                break
            if self.process.poll() is not None:
                sys.exit(text)
            time.sleep(0.1)
        self.url = said[1]
        budget = re.search(r"([\d,]+) tokens a step", text)
        print(f"{quantization}: at most {budget[1]} tokens a step", flush=True)

    def close(self):
        self.process.terminate()
        self.process.wait()


def load(options, url, requests, seed):
    """`requests`: (second, prompt, answer) each, by arrival. Their records and the figures of all."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "joins.csv"
        lines = [f"2026-01-01 00:00:{at:09.6f},{prompt},{answer}" for at, prompt, answer in requests]
        trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
        ran = subprocess.run([options.quire, "bench", "serve", "--url", url, "--trace", str(trace), "--seed", str(seed),
                              "--json"], stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(ran.stdout)
    fields = report["record_fields"]
    return sorted((dict(zip(fields, record)) for record in report["records"]), key=lambda r: r["request"]), report


def ttft(record):
    return (record["first_token_ns"] - record["arrival_ns"]) / 1e9


def alone(options, url, prompt, seed):
    records, _ = load(options, url, [(0, prompt, 1)], seed)
    return ttft(records[0])


def among(options, url, prompt, seed):
    """Its time to the first token, and the longest pause of a stream."""
    answer = options.answer or 150 + prompt // 20
    streams = [(0, STREAM_PROMPT, answer)] * options.streams
    records, report = load(options, url, [*streams, (options.after, prompt, 1)], seed)
    newcomer = records[-1]
    if min(r["finished_ns"] for r in records[:-1]) < newcomer["first_token_ns"]:
        print(f"  the streams ended before the first token of {prompt}: a longer --answer would show more")
    return ttft(newcomer), report["itl_ns"]["max"] / 1e9


def measure(options, url, prompt):
    pairs = []
    for i in range(options.repeats):
        time_alone = alone(options, url, prompt, 2 * i)
        pairs.append((time_alone, *among(options, url, prompt, 2 * i + 1)))
    times = list(zip(*pairs))
    ratio = statistics.median(b / a for a, b, _ in pairs)
    row = [", ".join(f"{value:.2f}" for value in column) for column in times]
    print(f"  {prompt}: alone {row[0]} s; among {options.streams} {row[1]} s: {ratio:.2f} times;"
          f" longest pause {row[2]} s, median {statistics.median(times[2]):.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("--formats", default="none,int8")
    parser.add_argument("--prompts", default="2000,16000", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--after", type=float, default=6, help="seconds from the streams to the long prompt")
    parser.add_argument("--answer", type=int, default=0, help="tokens of a stream; by default 150 and a twentieth of"
                        " the prompt")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    options.flags = sys.argv[end + 1:]
    for quantization in options.formats.split(","):
        server = Server(options, quantization)
        try:
            alone(options, server.url, min(options.prompts), 1000)  # new pages of memory
            for prompt in options.prompts:
                measure(options, server.url, prompt)
        finally:
            server.close()


if __name__ == "__main__":
    main()
