#!/usr/bin/env python3
"""Measures the control plane: runs the benchmarks, writes results.json and the plots, and puts the figures into
docs/measurements/control-plane.md. `./dev bench control` runs it."""
import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/measurements/control"
PAGE = ROOT / "docs/measurements/control-plane.md"
PARTS = ["paging", "batching", "sharing", "thrashing", "scheduling", "eviction", "cards", "speed"]
CARDS = ["a10g", "l4", "a100", "h100", "h200"]
# As its config.json says.
LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2}

BLUE, ORANGE, GREEN, RED, GREY, PURPLE, BROWN = (
    "#2b6cb0", "#dd6b20", "#2f855a", "#c53030", "#718096", "#6b46c1", "#8b5e34")
plt.rcParams.update({
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e2e8f0",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "axes.titlesize": 10, "axes.titleweight": "bold", "legend.frameon": False,
    "figure.constrained_layout.use": True, "svg.hashsalt": "quire", "svg.fonttype": "none"})


# ---- running ----

def run_json(program, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "out.json"
        subprocess.run([program, *flags, "--json", path], check=True)
        return json.loads(path.read_text())


def run_google_benchmark(program, repetitions):
    """By name, the best and the median of the repetitions; times in seconds, rates a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "out.json"
        subprocess.run([program, f"--benchmark_out={path}", "--benchmark_out_format=json", "--benchmark_min_time=0.1",
                        f"--benchmark_repetitions={repetitions}"], check=True)
        rows = json.loads(path.read_text())["benchmarks"]
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
    figures = {}
    for row in rows:
        if row["run_type"] != "iteration":
            continue
        if row.get("error_occurred"):
            sys.exit(f"{row['name']}: {row['error_message']}")
        of = figures.setdefault(row["run_name"].replace("/manual_time", ""), {"seconds": [], "tokens_per_second": []})
        of["seconds"].append(row["real_time"] * scale[row["time_unit"]])
        if "tokens/s" in row:
            of["tokens_per_second"].append(row["tokens/s"])
    def summary(of):
        middle = lambda values: sorted(values)[len(values) // 2]
        out = {"best_seconds": min(of["seconds"]), "median_seconds": middle(of["seconds"])}
        if of["tokens_per_second"]:
            out |= {"best_tokens_per_second": max(of["tokens_per_second"]),
                    "median_tokens_per_second": middle(of["tokens_per_second"])}
        return out
    return {name: summary(of) for name, of in figures.items()}


def plan_llama(program):
    """What quire plan says of Llama-2-7B on each card: with sequences of 2,048 tokens, and for the first token of one."""
    plans = {}
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "Llama-2-7b"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(LLAMA_2_7B))
        def plan(card, context):
            flags = ["--machine", card, "--context", str(context), "--json"]
            return json.loads(subprocess.run([program, "plan", model, *flags], check=True, capture_output=True).stdout)
        for card in CARDS:
            plans[card] = {"sequences": plan(card, 2048), "first": plan(card, 1)["ceilings"][0]}
            for left_out in ("changes", "advice", "capacity"):
                del plans[card]["sequences"][left_out]
    return plans


def measure(part, programs, repetitions):
    if part == "cards":
        return plan_llama(programs.parent / "quire")
    if part == "eviction":
        hits = run_json(programs / "bench_eviction", "--part", "zipf")
        if (data_dir() / "traces-mooncake").is_dir():
            hits |= run_json(programs / "bench_eviction", "--part", "mooncake")
        return hits
    if part == "speed":
        return {"control": run_google_benchmark(programs / "bench_control", repetitions),
                "simulation": run_google_benchmark(programs / "bench_sim", repetitions), "machine": machine()}
    return run_json(programs / "bench_scenarios", "--part", part)[part]


def data_dir():
    return pathlib.Path(os.environ.get("QUIRE_DATA", ROOT.parent / "shared/data"))


def machine():
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else []
    return f"{os.cpu_count()} cores of {names[0] if names else platform.processor()}, {platform.system()}"


def rounded(value):
    """Six digits: what differs beyond is no measurement."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


# ---- plots ----

def save(figure, name):
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / f"{name}.svg", metadata={"Date": None, "Creator": "tools/measure_control.py"})
    previews = ROOT / "build/plots"
    previews.mkdir(parents=True, exist_ok=True)
    figure.savefig(previews / f"{name}.png", dpi=110)
    plt.close(figure)


def plain(axis):
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def select(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def label_bars(axes, bars, labels):
    for bar, text in zip(bars, labels):
        axes.annotate(text, (bar.get_x() + bar.get_width() / 2, bar.get_height()), ha="center", va="bottom",
                      xytext=(0, 2), textcoords="offset points")


def plot_paging(results):
    rows = results["fit"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    lengths = sorted({row["max_length"] for row in rows})
    for cache, color in [("paged", BLUE), ("contiguous", ORANGE)]:
        counts = [row["sequences"] for row in select(rows, cache=cache)]
        left.plot(lengths, counts, "o-", color=color, label=cache)
        for length, count in zip(lengths, counts):
            left.annotate(f"{count:.0f}", (length, count), xytext=(0, 6), textcoords="offset points", ha="center")
    left.set_xscale("log", base=2)
    left.set_xticks(lengths)
    plain(left.xaxis)
    left.set_ylim(0, 150)
    left.set_xlabel("maximum length (tokens)")
    left.set_title("sequences that fit in K/V of 32,768 tokens")
    left.legend(loc="center right")
    for offset, cache in [(-0.2, "paged"), (0.2, "contiguous")]:
        of = select(rows, cache=cache)
        places = [i + offset for i in range(len(of))]
        used = [100 * row["utilisation"] for row in of]
        inside = [100 * row["empty_in_blocks"] for row in of]
        outside = [100 - u - i for u, i in zip(used, inside)]
        first = offset < 0
        right.bar(places, used, 0.36, color=BLUE if first else ORANGE, label=f"{cache}: holds a token")
        right.bar(places, inside, 0.36, bottom=used, color="#cbd5e0", label="reserved and empty" if first else None)
        right.bar(places, outside, 0.36, bottom=[u + i for u, i in zip(used, inside)], color="#edf2f7", hatch="///",
                  edgecolor="#a0aec0", linewidth=0, label="free, but too little" if first else None)
    right.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
    right.set_ylim(0, 140)
    right.set_yticks([0, 25, 50, 75, 100])
    right.set_xlabel("maximum length (tokens)")
    right.set_title("where the K/V goes (%)")
    right.legend(loc="upper center", ncols=2, fontsize=8)
    save(figure, "paging")


def plot_batching(results):
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for name, color in [("continuous", BLUE), ("static", ORANGE)]:
        rows = select(results["load"], batching=name)
        rates = [row["requests_per_second"] for row in rows]
        axes.plot(rates, [row["ttft_p99"] for row in rows], "o-", color=color, label=f"{name}, p99")
        axes.plot(rates, [row["ttft_p50"] for row in rows], ".:", color=color, label=f"{name}, median")
        ceiling = results[f"ceiling_{name}"]
        axes.axvline(ceiling, color=color, linewidth=1, alpha=0.6)
        axes.annotate(f"{name}\nat most {ceiling:.1f}/s", (ceiling, 1.0), xycoords=("data", "axes fraction"), ha="right",
                      va="top", xytext=(-4, -2), textcoords="offset points", color=color)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0.01, 1000)
    axes.set_xlabel("requests a second")
    axes.set_ylabel("seconds")
    axes.set_title("time to the first token by load")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "batching")


def plot_sharing(results):
    rows = results["rows"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
    names = [f"{row['budget']:,} a step" if row["prefix_cache"] else "without cache" for row in rows]
    colors = [BLUE if row["prefix_cache"] else ORANGE for row in rows]
    bars = left.bar(names, [row["prefill_tokens"] for row in rows], color=colors, width=0.55)
    label_bars(left, bars, [f"{row['prefill_tokens']:,}" for row in rows])
    left.set_title("prompt tokens computed")
    bars = right.bar(names, [1e3 * row["ttft_p50"] for row in rows], color=colors, width=0.55)
    label_bars(right, bars, [f"{1e3 * row['ttft_p50']:,.0f} ms" for row in rows])
    right.set_title("median time to the first token (ms)")
    for axes in (left, right):
        axes.margins(y=0.15)
        plain(axes.yaxis)
        axes.grid(axis="x", visible=False)
    save(figure, "sharing")


def plot_thrashing(results):
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.2))
    facts = [("preemptions", "preemptions", 1), ("computed_again", "tokens computed again (% of the least)", 100),
             ("tokens_per_second", "output tokens a second", 1)]
    for axes, (key, title, factor) in zip(panels, facts):
        for admitted, color in [("unguarded", RED), ("with one block", ORANGE), ("while preempting", GREEN), ("guarded", BLUE)]:
            for caching, style in [(False, "o-"), (True, "s:")]:
                rows = select(results["rows"], admitted=admitted, prefix_cache=caching)
                axes.plot([100 * row["watermark"] for row in rows], [factor * row[key] for row in rows], style, color=color,
                          label=f"{admitted}{', prefix cache' if caching else ''}")
        axes.set_xlabel("watermark (% of the blocks)")
        axes.set_title(title)
        if key == "preemptions":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        plain(axes.yaxis)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save(figure, "thrashing")


POLICY_STYLES = {"lru": (BLUE, "o-"), "lfu": (GREEN, "s-"), "cost": (GREY, "v-"), "gdf": (PURPLE, "^-"), "arc": (RED, "D-"),
                 "s3fifo": (BROWN, "P-"), "queue-lru": (ORANGE, "X-"), "queue-lru, 128 wait": (ORANGE, "X:"),
                 "clairvoyant": ("black", "--")}


def plot_hit_rates(axes, rows):
    for policy, (color, style) in POLICY_STYLES.items():
        of = select(rows, policy=policy)
        axes.plot([row["blocks"] for row in of], [100 * row["hit_rate"] for row in of], style, color=color, label=policy,
                  markersize=4, linewidth=1.3)
    axes.axhline(100 * select(rows, policy="unbounded")[0]["hit_rate"], color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks(sorted({row["blocks"] for row in rows}))
    plain(axes.xaxis)
    axes.set_ylim(bottom=0)


def plot_eviction(results):
    if "mooncake" in results:
        figure, axes = plt.subplots(figsize=(6.8, 3.8))
        plot_hit_rates(axes, results["mooncake"])
        axes.set_xlabel("blocks of 512 tokens")
        axes.set_ylabel("hit rate (% of blocks)")
        axes.set_title("Mooncake conversation trace; dotted: an endless cache")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        save(figure, "eviction_mooncake")
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.6))
    for axes, alpha in zip(panels, ["0.8", "1", "1.5"]):
        plot_hit_rates(axes, results[f"zipf_{alpha}"])
        axes.set_ylim(0, 80)
        axes.set_title(f"Zipf prefixes, alpha {alpha}")
        axes.set_xlabel("blocks of 16 tokens")
    panels[0].set_ylabel("hit rate (% of blocks)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    save(figure, "eviction_zipf")


ORDER_COLORS = {"fcfs": GREY, "srpt": GREEN, "srpt, lengths known": BLUE, "slo": ORANGE}


def plot_scheduling(results):
    rows = results["three_requests"]
    figure, axes = plt.subplots(figsize=(6.4, 2.6))
    for place, row in enumerate(rows):
        for request, (end, color) in enumerate(zip(row["ends"], [GREY, BLUE, ORANGE])):
            axes.barh(place + 0.26 * (request - 1), end, 0.24, color=color,
                      label=["long", "short, due in 1 s", "short, due in 0.5 s"][request] if place == 0 else None)
    axes.set_yticks(range(len(rows)), [row["policy"] for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ends after (s)")
    axes.set_title("a long request and two short ones, one at a time")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "three_requests")
    if "azure" not in results:
        return
    rows = results["azure"]
    speeds = sorted({row["speed"] for row in rows})
    figure, panels = plt.subplots(1, 4, figsize=(12, 3.2))
    facts = [("mean time to the first token (s)", lambda row: row["ttft"]["mean"]),
             ("mean time to the last token (s)", lambda row: row["e2e"]["mean"]),
             ("p99 time to the last token (s)", lambda row: row["e2e"]["p99"]),
             ("first tokens in time (%)", lambda row: 100 * row["in_time"])]
    for axes, (title, value) in zip(panels, facts):
        for i, (policy, color) in enumerate(ORDER_COLORS.items()):
            of = select(rows, policy=policy)
            axes.bar([place + 0.2 * (i - 1.5) for place in range(len(of))], [value(row) for row in of], 0.19, color=color,
                     label=policy)
        axes.set_xticks(range(len(speeds)), [f"{speed:g}x" for speed in speeds])
        axes.set_title(title, fontsize=9)
        axes.grid(axis="x", visible=False)
    for axes in panels:
        axes.set_xlabel("speed of the trace")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save(figure, "azure")


def series(figures, name):
    """[(argument, figures)] of the benchmarks NAME/ARGUMENT."""
    found = [(int(key.split("/")[1]), of) for key, of in figures.items() if re.fullmatch(re.escape(name) + r"/\d+", key)]
    return sorted(found, key=lambda pair: pair[0])


def plot_speed(results):
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.2))
    drawn = [(panels[0], "step_by_running", "plan + commit by sequences running", "sequences of 1,000 tokens"),
             (panels[1], "step_by_cached", "64 running, by blocks cached", "cached blocks")]
    for axes, name, title, label in drawn:
        rows = series(results["control"], name)
        for key, style, text in [("median_seconds", "o-", "median"), ("best_seconds", ".:", "best")]:
            axes.plot([n for n, _ in rows], [1e6 * of[key] for _, of in rows], style, color=BLUE, label=text)
        axes.set_xscale("log")
        axes.set_title(title)
        axes.set_xlabel(label)
        axes.set_ylabel("microseconds a step")
        plain(axes.xaxis)
    panels[0].set_yscale("log")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panels[0].plot([256], [50], "_", color=RED, markersize=18, markeredgewidth=2, label="50 us at 256")
    panels[0].legend()
    panels[1].set_ylim(bottom=0)
    panels[1].legend()
    rows = series(results["simulation"], "decode")
    for key, style, text in [("median_tokens_per_second", "o-", "median"), ("best_tokens_per_second", ".:", "best")]:
        panels[2].plot([n for n, _ in rows], [of[key] / 1e6 for _, of in rows], style, color=BLUE, label=text)
    panels[2].plot([128], [10], "_", color=RED, markersize=18, markeredgewidth=2, label="10 M at 128")
    panels[2].set_xscale("log")
    plain(panels[2].xaxis)
    panels[2].set_ylim(bottom=0)
    panels[2].set_title("simulated decode tokens (M/s)")
    panels[2].set_xlabel("sequences running")
    panels[2].legend()
    save(figure, "speed")


# ---- the page ----

def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def micros(seconds):
    return f"{1e6 * seconds:.3g}"


def tables(results):
    """By the name of its place in the page, the table that belongs there."""
    out = {}
    if "paging" in results:
        rows = results["paging"]["fit"]
        out["paging"] = table(
            ["maximum length", "cache", "sequences that fit", "K/V used %", "reserved and empty %", "free, but too little %"],
            [[f"{r['max_length']:,}", r["cache"], f"{r['sequences']:.1f}", f"{100 * r['utilisation']:.1f}",
              f"{100 * r['empty_in_blocks']:.1f}", f"{100 * (1 - r['utilisation'] - r['empty_in_blocks']):.1f}"] for r in rows])
        out["paging-run"] = table(["cache", "output tokens/s", "running on average"],
                                  [[r["cache"], f"{r['tokens_per_second']:,.0f}", f"{r['running']:.1f}"]
                                   for r in results["paging"]["simulated"]])
    if "batching" in results:
        of = results["batching"]
        loads = [(c, s) for c, s in zip(select(of["load"], batching="continuous"), select(of["load"], batching="static"))]
        out["batching-ceiling"] = table(["batching", "requests/s at most"],
                                        [["continuous", f"{of['ceiling_continuous']:.2f}"],
                                         ["static", f"{of['ceiling_static']:.2f}"],
                                         ["ratio", f"{of['ceiling_continuous'] / of['ceiling_static']:.2f}"]])
        out["batching"] = table(
            ["requests/s", "of static's ceiling %", "TTFT p50 s: continuous", "static", "TTFT p99 s: continuous", "static",
             "ratio of p99"],
            [[f"{c['requests_per_second']:.2f}", f"{100 * c['share']:.0f}", f"{c['ttft_p50']:.3f}", f"{s['ttft_p50']:.3f}",
              f"{c['ttft_p99']:.3f}", f"{s['ttft_p99']:.3f}", f"{s['ttft_p99'] / c['ttft_p99']:.0f}"] for c, s in loads])
    if "sharing" in results:
        out["sharing"] = table(
            ["tokens a step", "prefix cache", "hit rate of the shared tokens %", "prompt tokens computed", "prefill saved %", "TTFT p50 ms",
             "TTFT p99 ms"],
            [[f"{r['budget']:,}", "on" if r["prefix_cache"] else "off", f"{100 * r['hit_rate']:.1f}", f"{r['prefill_tokens']:,}",
              f"{100 * r['prefill_saved']:.1f}", f"{1e3 * r['ttft_p50']:.1f}", f"{1e3 * r['ttft_p99']:.1f}"]
             for r in results["sharing"]["rows"]])
    if "thrashing" in results:
        out["thrashing"] = table(
            ["prefix cache", "admitted", "watermark %", "preemptions", "computed again %", "output tokens/s"],
            [["on" if r["prefix_cache"] else "off", r["admitted"], f"{100 * r['watermark']:g}", f"{r['preemptions']:,}",
              f"{100 * r['computed_again']:.1f}", f"{r['tokens_per_second']:,.0f}"] for r in results["thrashing"]["rows"]])
    if "scheduling" in results:
        of = results["scheduling"]
        out["three-requests"] = table(
            ["policy", "long ends s", "short ends s", "short ends s", "mean s", "first tokens in time"],
            [[r["policy"], *(f"{end:.2f}" for end in r["ends"]), f"{r['e2e']['mean']:.2f}", f"{3 * r['in_time']:.0f} of 3"]
             for r in of["three_requests"]])
        if "azure" in of:
            out["azure"] = table(
                ["speed", "policy", "TTFT mean s", "p50", "p99", "e2e mean s", "p50", "p99", "in time %", "preemptions"],
                [[f"{r['speed']:g}", r["policy"], *(f"{r[w][k]:.2f}" for w in ("ttft", "e2e") for k in ("mean", "p50", "p99")),
                  f"{100 * r['in_time']:.1f}", f"{r['preemptions']:,}"] for r in of["azure"]])
    if "eviction" in results:
        for name, rows in results["eviction"].items():
            sizes = sorted({r["blocks"] for r in rows})
            policies = list(dict.fromkeys(r["policy"] for r in rows))
            out["eviction-" + name.replace("_", "-")] = table(
                ["policy", *(f"{size:,}" for size in sizes)],
                [[p, *(f"{100 * select(rows, policy=p, blocks=size)[0]['hit_rate']:.2f}" for size in sizes)]
                 for p in policies])
    if "cards" in results:
        out |= card_tables(results["cards"])
    if "speed" in results:
        control = results["speed"]["control"]
        rows = [[f"plan + commit, {n:,} running", f"{micros(of['median_seconds'])} us", f"{micros(of['best_seconds'])} us",
                 "50 us" if n == 256 else ""] for n, of in series(control, "step_by_running")]
        rows += [[f"the same, 64 running, {n:,} blocks cached", f"{micros(of['median_seconds'])} us",
                  f"{micros(of['best_seconds'])} us", "flat"] for n, of in series(control, "step_by_cached")]
        lookup = control["prefix_lookup"]
        rows.append(["prefix lookup of 50,000 tokens", f"{micros(lookup['median_seconds'])} us",
                     f"{micros(lookup['best_seconds'])} us", "1,000 us"])
        rows += [[f"simulated decode tokens, {n:,} running", f"{of['median_tokens_per_second'] / 1e6:.2f} M/s",
                  f"{of['best_tokens_per_second'] / 1e6:.2f} M/s", "10 M/s" if n == 128 else ""]
                 for n, of in series(results["speed"]["simulation"], "decode")]
        out["speed"] = table(["", "median", "best", "wanted"], rows)
        out["machine"] = f"Machine: {results['speed']['machine']}."
    return out


def card_tables(plans):
    any_card = plans[CARDS[0]]["sequences"]
    weights, kv = any_card["weights"], any_card["kv"]
    of_2048, reserved = any_card["paged"]["sequence_bytes"], any_card["contiguous"]["sequence_bytes"]
    memory = table(["Llama-2-7B in f16", ""], [
        ["parameters", f"{weights['parameters']:,}"],
        ["weights that a step reads", f"{sum(weights['bytes_by_format'].values()) / 1e9:.2f} GB"],
        ["embeddings, of which it reads a row for each token", f"{weights['embedding_bytes'] / 1e9:.2f} GB"],
        ["K/V of a token", f"{kv['bytes_per_token'] / 2**10:g} KiB"],
        ["K/V of 2,048 tokens", f"{of_2048 / 2**30:g} GiB"],
        ["the same, contiguous for 4,096", f"{reserved / 2**30:g} GiB"],
        ["a token, the 2,048th", f"{any_card['token_flop'] / 1e9:.1f} GFLOP"]])
    rows = []
    for card, plan in plans.items():
        of, machine = plan["sequences"], plan["sequences"]["machine"]
        by_bandwidth = [each["tokens_per_s_by_bandwidth"] for each in of["ceilings"]]
        rows.append([f"`{card}`", f"{machine['bandwidth_bytes_per_s'] / 1e9:,.0f}", f"{machine['flops'] / 1e12:,.1f}",
                     f"{machine['flops'] / machine['bandwidth_bytes_per_s']:.0f}",
                     f"{1e3 / plan['first']['tokens_per_s_by_bandwidth']:.1f}",
                     f"{1e3 / by_bandwidth[0]:.1f}", *(f"{rate:,.0f}" for rate in by_bandwidth),
                     f"{1e3 * of['prompt_seconds']:,.0f}", of["paged"]["sequences"], of["contiguous"]["sequences"]])
    tokens = table(["card", "GB/s", "TFLOP/s", "operations a byte", "ms a token: the first", "the 2,048th", "tokens/s at batch 1", "8", "64",
                    "prompt of 2,048, ms", "sequences of 2,048", "contiguous"], rows)
    return {"card-memory": memory, "card-tokens": tokens}


def fill_page(results):
    text = PAGE.read_text()
    for name, content in tables(results).items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        if not place.search(text):
            sys.exit(f"{PAGE}: there is no place for '{name}'")
        text = place.sub(lambda match: match[1] + content + "\n" + match[2], text)
    PAGE.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bench")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this (may be given several times)")
    parser.add_argument("--repetitions", type=int, default=15, help="of what is timed")
    parser.add_argument("--draw", action="store_true", help="plots and page from the results that are there")
    options = parser.parse_args()
    path = OUT / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    if not options.draw:
        for part in options.part or PARTS:
            print(f"== {part}", flush=True)
            results[part] = rounded(measure(part, options.programs, options.repetitions))
            OUT.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({part: results[part] for part in PARTS if part in results}, indent=1) + "\n")
    for part in options.part or PARTS:
        if part in results and f"plot_{part}" in globals():
            globals()[f"plot_{part}"](results[part])
    fill_page(results)
    print(f"figures and plots are in {OUT.relative_to(ROOT)}, the page is {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
