#!/usr/bin/env python3
"""Compares number formats of one model on a text of your own: what each costs in answers, and gains in memory and time.

  bench/compare_formats.py MODEL TEXT [--formats bf16,bf16+kv8,int8,int4] [--items 200] [--tokens 20000] [--json FILE]

MODEL is what `quire serve` takes. TEXT is a file that the model was not trained on, of the kind that it is meant for.
A format is f32, f16, bf16, int8 or int4 (or auto: the file's own), with +kv8 where K/V is int8. The first one
is what the others are compared with. Each is served by itself, on the same questions:

  perplexity     of the first --tokens tokens of TEXT, in windows of 512 tokens (or the model's length), as
                 `quire perplexity` has it; `change`, with its standard error, is over the differences of single
                 tokens, as both formats score the same ones
  accuracy       of --items questions: which of four pieces of 16 tokens follows these 64 tokens? The true one against
                 three from elsewhere in TEXT; the most likely is the answer; with the standard error
  same answer    the questions to which the first format gives the same answer, right or wrong
  greedy         the tokens of the first format's answers at temperature 0 that this one chooses too, given the
                 same tokens before
  weights, K/V   as `quire inspect` has them: memory of the packed weights, and bytes of K/V for each token
  tok/s          decoding, of one sequence and of 16 at once
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
WINDOW = 512
CONTEXT, PIECE, CHOICES = 64, 16, 4
GREEDY_TOKENS = 32  # of each of up to 64 answers
DECODE_TOKENS, DECODE_BATCH, DECODE_ROUNDS = 64, 16, 3
PROMPTS_AT_ONCE = 32
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
PATIENCE = 600  # seconds that a model may take to load, or a request to be answered


class Trouble(Exception):
    """What the user can do something about, in a line."""


def flags_of(name):
    """The flags of `quire serve` for a format."""
    weights, plus, kv = name.partition("+")
    if weights not in (*BYTES, "int8", "int4", "auto") or (plus and kv != "kv8"):
        raise Trouble(f"--formats: there is no format '{name}'; there are f32, f16, bf16, int8, int4 and auto, each also with +kv8")
    flags = {"--kv-cache-dtype": "int8"} if plus else {}
    if weights in BYTES:
        return {"--dtype": weights, "--quantization": "none", **flags}
    return {"--dtype": "bf16", "--quantization": weights, **flags} if weights != "auto" else flags


class Server:
    """quire serve on a free port."""

    def __init__(self, program, model, flags):
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen([program, "serve", model, "--port", "0", *flags], stdout=self.log, stderr=self.log)
        except OSError as error:
            raise Trouble(f"{program}: {error.strerror}") from error
        try:
            self.url = self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def said(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_until_ready(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            ended = self.process.poll() is not None
            if found := re.search(r"listens on (http://\S+)", self.said()):
                return found[1]
            if ended:
                raise Trouble(f"quire serve ended: {(self.said().strip().splitlines() or ['without a word'])[-1]}")
            time.sleep(0.05)
        raise Trouble(f"quire serve does not listen after {PATIENCE} seconds")

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body is not None else None,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            raise Trouble(f"{path}: status {error.code}: {error.read().decode(errors='replace')}") from error
        except OSError as error:  # also a refused connection and a timeout
            last = (self.said().strip().splitlines() or [""])[-1]
            raise Trouble(f"{path}: {error}; the server's last line: {last}") from error

    def complete(self, prompts, **more):
        """The choices of each prompt, in order."""
        body = {"prompt": prompts, "temperature": 0, **more}
        return sorted(json.loads(self.ask("/v1/completions", body))["choices"], key=lambda choice: choice["index"])

    def scores(self, prompts):
        """Of each token of each prompt: its log probability and its rank; None for the first."""
        rows = []
        for at in range(0, len(prompts), PROMPTS_AT_ONCE):
            few = prompts[at:at + PROMPTS_AT_ONCE]
            for ids, choice in zip(few, self.complete(few, max_tokens=0, prompt_logprobs=0), strict=True):
                entries = zip(ids, choice["prompt_logprobs"], strict=True)
                rows.append([row and (row[str(id)]["logprob"], row[str(id)]["rank"]) for id, row in entries])
        return rows

    def tokenize(self, text, special=False):
        answer = json.loads(self.ask("/tokenize", {"prompt": text, "add_special_tokens": special}))
        return answer["tokens"], answer["max_model_len"]

    def decode_seconds(self):
        """Sum over sequences, from the first token to the last, since the start."""
        found = re.search(rb"^vllm:request_decode_time_seconds_sum\S* (\S+)", self.ask("/metrics"), re.M)
        return float(found[1])

    def close(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


class Task:
    """The questions, which are the same for all formats."""

    def __init__(self, server, text, options):
        self.begin, length = server.tokenize("", special=True)
        window = min(WINDOW, length) - len(self.begin)
        least = CONTEXT + max(PIECE, GREEDY_TOKENS, DECODE_TOKENS)
        if window < least:
            raise Trouble(f"{options.model}: sequences of {length} tokens are too short; {least + len(self.begin)} are needed")
        wanted = max(options.tokens, options.items * (CONTEXT + PIECE))
        ids = tokens_of(server, text, wanted)
        if len(ids) < wanted:
            raise Trouble(f"{options.text}: has {len(ids)} tokens; --tokens {options.tokens} and --items {options.items} need {wanted}")
        scored = ids[:options.tokens]
        self.windows = [self.begin + scored[at:at + window] for at in range(0, len(scored), window)]
        dice = random.Random(options.seed)
        self.contexts, self.pieces = [], []
        for i in range(options.items):
            at = i * (len(ids) - CONTEXT - PIECE) // options.items
            true = at + CONTEXT
            starts = [true]
            while len(starts) < CHOICES:
                start = dice.randrange(len(ids) - PIECE + 1)
                if abs(start - true) >= PIECE:
                    starts.append(start)
            self.contexts.append(self.begin + ids[at:true])
            self.pieces.append([ids[start:start + PIECE] for start in starts])


def tokens_of(server, text, wanted):
    """The first tokens of a text, `wanted` if there are so many. Pieces of it end at the end of a line, where they can."""
    ids, at = [], 0
    while len(ids) < wanted and at < len(text):
        end = at + (1 << 16)
        line = text.rfind("\n", at, end) + 1
        end = line if line > at and end < len(text) else end
        ids += server.tokenize(text[at:end])[0]
        at = end
    return ids[:wanted]


def perplexity(server, task):
    """The surprise of each token that is scored, in nats."""
    return [-score[0] for row in server.scores(task.windows) for score in row[1:]]


def answers(server, task):
    """Of each question the number of the most likely piece; 0 is the true one."""
    rows = server.scores([context + piece for context, pieces in zip(task.contexts, task.pieces) for piece in pieces])
    sums = [sum(score[0] for score in row[-PIECE:]) for row in rows]
    each = [sums[at:at + CHOICES] for at in range(0, len(sums), CHOICES)]
    return [likelihoods.index(max(likelihoods)) for likelihoods in each]


def greedy_answers(server, task):
    prompts = task.contexts[:64]
    choices = server.complete(prompts, max_tokens=GREEDY_TOKENS, ignore_eos=True, return_token_ids=True)
    return [(prompt, choice["token_ids"]) for prompt, choice in zip(prompts, choices, strict=True)]


def agreement(server, spoken):
    """The share of the tokens of answers that are this format's most likely ones too."""
    rows = server.scores([prompt + answer for prompt, answer in spoken])
    ranks = [score[1] for row, (_, answer) in zip(rows, spoken) for score in row[-len(answer):]]
    return ranks.count(1) / len(ranks)


def decode_speed(server, task, batch):
    """Tokens a second while `batch` sequences decode: the median of a few rounds."""
    speeds = []
    for _ in range(DECODE_ROUNDS):
        before = server.decode_seconds()
        server.complete([task.contexts[0]] * batch, max_tokens=DECODE_TOKENS, ignore_eos=True)
        mean = (server.decode_seconds() - before) / batch
        speeds.append(batch * (DECODE_TOKENS - 1) / mean)
    return statistics.median(speeds)


def memory(program, model, name):
    """Bytes of the packed weights and of the K/V of a token."""
    flags = flags_of(name)
    dtype = flags.pop("--dtype", None)
    flags.setdefault("--kv-cache-dtype", dtype or "auto")
    flags.setdefault("--quantization", "auto")
    command = [program, "inspect", model, *(word for flag in flags.items() for word in flag)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kv = re.search(r"^K/V +([\d,]+) bytes a token", ran.stdout, re.M)
    weights = re.search(r"^quantization +([\d.]+) (\w+) in memory as (\w+)", ran.stdout, re.M) or \
        re.search(r"^parameters .*\(([\d.]+) (\w+) as ([^)]+)", ran.stdout, re.M)
    if ran.returncode != 0 or not kv or not weights:
        raise Trouble(f"quire inspect ended with {ran.returncode}: {(ran.stderr.strip().splitlines() or ['says no memory'])[-1]}")
    size = float(weights[1]) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB"].index(weights[2])
    if dtype and weights[3] in BYTES:  # inspect knows the file's type only
        size *= BYTES[dtype] / BYTES[weights[3]]
    return round(size), int(kv[1].replace(",", ""))


def mean_and_error(values):
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def measure(options, text):
    """A row of figures for each format."""
    rows, task, first = [], None, None
    for name in options.formats:
        print(f"{name} ...", file=sys.stderr, flush=True)
        flags = [word for flag in flags_of(name).items() for word in flag]
        if options.threads:
            flags += ["--threads", str(options.threads)]
        with Server(options.quire, options.model, flags) as server:
            task = task or Task(server, text, options)
            surprises, chosen = perplexity(server, task), answers(server, task)
            first = first or (surprises, chosen, greedy_answers(server, task))
            right, right_error = mean_and_error([float(choice == 0) for choice in chosen])
            change, change_error = mean_and_error([new - old for new, old in zip(surprises, first[0], strict=True)])
            weights, kv = memory(options.quire, options.model, name)
            rows.append({"format": name, "weight_bytes": weights, "kv_bytes_per_token": kv,
                         "tokens": len(surprises), "perplexity": math.exp(statistics.fmean(surprises)),
                         "change": math.expm1(change), "change_error": change_error,
                         "items": len(chosen), "accuracy": right, "accuracy_error": right_error,
                         "same_answers": sum(a == b for a, b in zip(chosen, first[1])) / len(chosen),
                         "greedy_agreement": agreement(server, first[2]),
                         "decode_tokens_per_s": {str(batch): decode_speed(server, task, batch) for batch in (1, DECODE_BATCH)}})
    return rows


def size_text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def print_table(rows):
    lines = [["format", "weights", "K/V a token", "perplexity", "change", "accuracy", "same answer", "greedy", "tok/s x 1", f"x {DECODE_BATCH}"]]
    for i, row in enumerate(rows):
        change = "" if i == 0 else f"{100 * row['change']:+.2f} % ± {100 * row['change_error']:.2f}"
        lines.append([row["format"], size_text(row["weight_bytes"]), f"{row['kv_bytes_per_token']:,} B", f"{row['perplexity']:.3f}", change,
                      f"{100 * row['accuracy']:.1f} % ± {100 * row['accuracy_error']:.1f}",
                      f"{100 * row['same_answers']:.1f} %", f"{100 * row['greedy_agreement']:.2f} %",
                      *(f"{speed:,.0f}" for speed in row["decode_tokens_per_s"].values())])
    widths = [max(len(cell) for cell in column) for column in zip(*lines)]
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
        if line is lines[0]:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def count(text):
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("must be at least 2")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face directory or a .gguf file")
    parser.add_argument("text", metavar="TEXT", help="a text file, UTF-8")
    parser.add_argument("--formats", default="bf16,bf16+kv8,int8,int4", help="which, the first to compare with (%(default)s)")
    parser.add_argument("--items", type=count, default=200, help="questions (%(default)s)")
    parser.add_argument("--tokens", type=count, default=20000, help="tokens of TEXT for the perplexity (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what the wrong pieces follow from (%(default)s)")
    parser.add_argument("--threads", type=int, help="of each server (default: its own)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quire", metavar="PATH", default=str(ROOT / "build/release/quire"), help="the program")
    options = parser.parse_args()
    options.formats = options.formats.split(",")
    try:
        for name in options.formats:
            flags_of(name)
        try:
            text = pathlib.Path(options.text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Trouble(f"{options.text}: {getattr(error, 'strerror', None) or 'is not UTF-8'}") from error
        rows = measure(options, text)
        if options.json:
            try:
                pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
            except OSError as error:
                raise Trouble(f"--json: {options.json}: {error.strerror}") from error
    except Trouble as trouble:
        sys.exit(f"compare_formats: {trouble}")
    print_table(rows)


if __name__ == "__main__":
    main()
