"""What `run` of ./dev gpu pack measured, beside what the CUDA backend aims at on an H200. No part of it measures anything: all is
read from what the stages printed.
"""
import json
import re
import statistics

HTTP = "64 clients over HTTP"
EAGER = "eager PyTorch"


def engine(sequences):
    """The name of a stage."""
    return f"engine: {sequences} sequence{'s' if sequences > 1 else ''} of 384 + 128 tokens"


def full_steps(log, sequences):
    """Of a step log: a line with the median time of the steps in which all of `sequences` decode and nothing else runs, from one
    step's tokens to the next one's; empty if there was none."""
    head, *records = [json.loads(line) for line in log.splitlines()]
    steps = [dict(zip(head["columns"], record)) for record in records]
    full = [step["whole"] * 1e-9 for step in steps if step["decoding"] == sequences and not step["chunks"]]
    if not full:
        return ""
    seconds = statistics.median(full)
    return (f"while all decode: {seconds * 1e3:.3f} ms a step (median of {len(full)}), "
            f"{sequences / seconds:.1f} tokens/s")


def memory_line(peaks):
    """Of MiB by the number of clients."""
    return "memory of the device at most: " + ", ".join(f"{mib} MiB with {clients}" for clients, mib in peaks.items())


def number(pattern, text):
    found = re.search(pattern, text, re.M)
    return float(found[1].replace(",", "")) if found else None


def rows(text):
    """The rows of gpu_bench's tables, by name: µs, share of copy bandwidth, share of the matrix rate; shares in %, or None."""
    out = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 6 and re.fullmatch(r"[\d.]+", cells[1]):
            shares = [float(cell.rstrip(" %")) if cell else None for cell in (cells[3], cells[5])]
            out[cells[0]] = (float(cells[1]), *shares)
    return out


def row(what, measured, least, unit):
    """A row of the table. `measured`: None if it was not."""
    if measured is None:
        return f"| {what} | not measured | {least:,} {unit} | |"
    digits = 1 if measured < 1000 else 0
    return f"| {what} | {measured:,.{digits}f} {unit} | {least:,} {unit} | {'met' if measured >= least else '**not met**'} |"


def attention_rows(outputs):
    found = rows(outputs.get("times: attention", ""))
    decodes = {name: cells[1] for name, cells in found.items() if re.match(r"paged_attention.* 64 x 4,096, .*heads of 64$", name)}
    for name, share in (decodes or {"paged_attention 64 x 4,096": None}).items():
        yield row(f"{name}: of the copy bandwidth", share, 85, "%")


def decode_rows(outputs):
    """The bytes of the weights in the time of a step, against the copy bandwidth."""
    load = outputs.get(engine(1), "")
    steps = "\n".join(outputs.get(f"times: {part}", "") for part in ("steps", "executor"))
    parameters, copied = number(r"([\d,]+) parameters", load), number(r"writes (\d+) GB/s", steps)
    times = {"the engine": number(r"([\d.]+) ms a step", load)}
    for name, cells in rows(steps).items():
        if re.search(r"\b1 x 1 tokens", name) and not name.startswith("layers"):
            times[f"a step, {name}"] = cells[0] * 1e-3
    for name, milliseconds in times.items():
        known = None not in (parameters, copied, milliseconds)
        share = 100 * 2 * parameters / (milliseconds * 1e-3) / (copied * 1e9) if known else None
        yield row(f"decode of one sequence, {name}: bytes of the weights a second, of the copy bandwidth", share, 70, "%")


def engine_rows(outputs):
    for sequences, least in ((64, 30_000), (256, 60_000)):
        load = outputs.get(engine(sequences), "")
        what = f"bench throughput, {sequences} at once, contexts up to 512"
        yield row(f"{what}: all of it, prompts too", number(r"([\d.]+) output tokens/s", load), least, "tok/s")
        yield row(f"{what}: while all decode", number(r"a step .* ([\d.]+) tokens/s", load), least, "tok/s")
    yield row(HTTP, number(r"([\d.]+) output tokens/s", outputs.get(HTTP, "")), 20_000, "tok/s")


def prefill_rows(outputs):
    wanted = (("times: steps", r"and logits on the host, 1 x 8,192 tokens", "a prompt of 8,192 tokens, with logits"),
              ("times: attention", r"paged_attention, a prompt of 8,192, .*heads of 64$", "its attention alone, heads of 64"))
    for stage, pattern, what in wanted:
        shares = [cells[2] for name, cells in rows(outputs.get(stage, "")).items() if re.match(pattern, name)]
        yield row(f"{what}: of the matrix rate", shares[0] if shares else None, 45, "%")


def eager_row(outputs):
    ours, theirs = (number(r"([\d.]+) output tokens/s", outputs.get(stage, "")) for stage in (HTTP, EAGER))
    return row(f"{HTTP} against eager PyTorch one by one", ours / theirs if ours and theirs else None, 40, "x")


def memory_row(outputs):
    peaks = [int(mib) for mib in re.findall(r"(\d+) MiB with", outputs.get(HTTP, ""))]
    what = "memory of the device with 64 clients, of that with 1"
    if len(peaks) != 2:
        return f"| {what} | not measured | within 2 % | |"
    more = peaks[1] - peaks[0]
    is_met = 100 * abs(more) <= 2 * peaks[0]
    return f"| {what} | {100 * more / peaks[0]:+.1f} % | within 2 % | {'met' if is_met else '**not met**'} |"


def table(outputs):
    """Lines of Markdown. `outputs`: by the name of the stage, what those printed that passed."""
    return ["| what | measured | aim on an H200 | |", "|---|--:|--:|---|", *attention_rows(outputs), *decode_rows(outputs),
            *engine_rows(outputs), *prefill_rows(outputs), eager_row(outputs), memory_row(outputs)]
