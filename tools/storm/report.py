"""What a trial found: figures and verdicts, as a table, as JSON and as Markdown."""
import json
import os
import platform
import sys
import time

PASS, FAIL, SKIP = "ok", "FAILED", "skipped"


class Trial:
    def __init__(self, name, what):
        self.name, self.what = name, what
        self.figures = {}
        self.verdicts = []  # (verdict, sentence)
        self.begun = time.monotonic()
        self.seconds = 0
        print(f"\n== {name}: {what}", flush=True)

    def figure(self, name, value):
        self.figures[name] = value

    def check(self, holds, sentence):
        """`sentence` says what was found, with its figures."""
        self.verdicts.append((PASS if holds else FAIL, sentence))
        print(f"  {PASS if holds else FAIL:<8}{sentence}", flush=True)
        return holds

    def skip(self, why):
        self.verdicts.append((SKIP, why))
        print(f"  {SKIP:<8}{why}", flush=True)

    def say(self, text):
        print(f"          {text}", flush=True)

    def end(self):
        self.seconds = time.monotonic() - self.begun

    @property
    def failed(self):
        return any(verdict == FAIL for verdict, _ in self.verdicts)


def machine():
    name = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {name}, {memory:.0f} GiB, Linux {platform.release()}"


def mib(size):
    return f"{size / 2**20:.0f} MiB"


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def times(values):
    """Percentiles of seconds, as a sentence's part."""
    if not values:
        return "none"
    parts = [f"p50 {percentile(values, 0.5):.3f}", f"p99 {percentile(values, 0.99):.3f}", f"max {max(values):.3f}"]
    return ", ".join(parts) + " s"


def print_table(trials, out=sys.stdout):
    width = max(len(trial.name) for trial in trials)
    print("\n" + "-" * 100, file=out)
    for trial in trials:
        name, seconds = trial.name, f"{trial.seconds:.0f} s"
        for verdict, sentence in trial.verdicts:
            print(f"{name:<{width}}  {seconds:>6}  {verdict:<8}{sentence}", file=out)
            name = seconds = ""
    failed = [trial.name for trial in trials if trial.failed]
    total = sum(trial.seconds for trial in trials)
    print("-" * 100, file=out)
    print(f"{len(trials)} trials in {total:.0f} s: " + (f"FAILED: {', '.join(failed)}" if failed else "all hold"), file=out)


def as_json(trials, context):
    return json.dumps({
        "machine": machine(), "quire": context.quire, "quick": context.quick, "seed": context.seed,
        "trials": [{"name": t.name, "what": t.what, "seconds": round(t.seconds, 1), "failed": t.failed, "figures": t.figures,
                    "verdicts": [{"verdict": v, "what": s} for v, s in t.verdicts]} for t in trials],
    }, indent=1)


def as_markdown(trials):
    lines = [f"Machine: {machine()}.", "", "| trial | seconds | verdict | |", "|---|---|---|---|"]
    for trial in trials:
        name, seconds = f"`{trial.name}`", f"{trial.seconds:.0f}"
        for verdict, sentence in trial.verdicts:
            lines.append(f"| {name} | {seconds} | {verdict} | {sentence.replace('|', chr(92) + '|')} |")
            name = seconds = ""
    return "\n".join(lines) + "\n"
