"""The pages of simulate and bench serve, --compare and --perfetto; the pages in a headless Chromium, as readers see them."""
import json
import os
import pathlib
import re
import shutil

import pytest

from test_bench_serve import Page
from test_cli import quire
from test_plan import LLAMA_2_7B

BUSY = ["--requests", 120, "--rate", 14, "--prompt-len", "lognormal:200:0.8", "--output-len", "uniform:10:150", "--shared-prefix-len", 64,
        "--shared-prefixes", 4, "--num-blocks", 300, "--tenants", 3, "--priorities", 2, "--slo", "ttft=1s,tpot=60ms"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One of each kind, by name."""
    folder = tmp_path_factory.mktemp("pages")
    files = {name: folder / f"{name}.html" for name in ["one", "over", "sweep", "bars", "capacity", "compared"]}
    one, two = folder / "one.json", folder / "two.json"
    few = ["--requests", 60, "--slo", "ttft=1s"]
    quire("simulate", *BUSY, "--html", files["one"], "--json", one)
    quire("simulate", *BUSY, "--watermark", 20, "--html", files["over"], "--overlay", one, "--json", two)
    quire("simulate", *few, "--sweep", "rate=2..14:6", "--sweep", "scheduling-policy=fcfs,srpt", "--html", files["sweep"])
    quire("simulate", *few, "--sweep", "scheduling-policy=fcfs,srpt", "--html", files["bars"])
    quire("simulate", *few, "--find-capacity", "--seeds", 1, "--sweep", "num-blocks=200,400", "--html", files["capacity"])
    quire("simulate", "--compare", one, two, "--html", files["compared"])
    return files


def test_the_page_of_a_simulation(pages):
    text = pages["one"].read_text()
    for title in ["Times by arrival", "To the first token (TTFT)", "Per further token (TPOT)", "To the last token (E2E)", "Output tokens per second",
                  "Requests", "Objectives met, by arrival", "Queue and batch", "K/V pool", "Prefix hits", "Preemptions", "Prefix hits by depth"]:
        assert f"<b>{title}</b>" in text, title
    assert "By tenant" in text and "By priority" in text and "--shared-prefix-len" in text and "scheduler: num_blocks" in text


def test_a_sweep_has_a_plot_for_each_figure(pages):
    text = pages["sweep"].read_text()
    assert text.count("<svg") == 13 and text.count("scheduling-policy srpt</span>") == 13 and 'class="bar ' not in text
    assert 'class="bar ' in pages["bars"].read_text()
    assert "num-blocks" in pages["capacity"].read_text() and "rate: median of the seeds" in pages["capacity"].read_text()


@pytest.mark.parametrize("name", ["one", "over", "sweep", "bars", "capacity", "compared"])
def test_a_page_is_one_file_that_asks_for_nothing(pages, name):
    page = Page()
    text = pages[name].read_text()
    page.feed(text)
    assert page.open == [] and not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not any({"src", "href"} & attrs.keys() for _, attrs in page.tags)
    assert not re.search(r"\b(nan|inf)\b", text) and len(text) < 600_000


def test_names_are_text(tmp_path):
    trace, out, results = tmp_path / "<b><script>.csv", tmp_path / "out.html", tmp_path / "<b>.json"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,10,5\n2023-11-16 18:15:47,20,5\n")
    quire("simulate", "--trace", trace, "--json", results)
    quire("simulate", "--trace", trace, "--overlay", results, "--html", out)
    text = out.read_text()
    assert "&lt;b&gt;&lt;script&gt;" in text and "&lt;b&gt;.json" in text and "<script" not in text and "<b><" not in text


# ---- --compare ----


def test_compare_pairs_requests_and_names_what_differs(tmp_path):
    a, b, out = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "out.json"
    quire("simulate", "--requests", 50, "--rate", 8, "--json", a)
    quire("simulate", "--requests", 50, "--rate", 8, "--cost-decode-us", 30000, "--json", b)
    said = quire("simulate", "--compare", a, b, "--json", out).stdout.decode()
    of = json.loads(out.read_text())["comparison"]
    assert of["paired_requests"] == of["common_requests"] == 50 and of["paired_times"]["E2E"]["slower_in_b"] == 50
    first, second = json.loads(a.read_text()), json.loads(b.read_text())
    for key, ours in [("TTFT p99 ms", "ttft_ns"), ("E2E p99 ms", "e2e_ns")]:
        assert of["figures"][key]["a"] * 1e6 == pytest.approx(first[ours]["p99"])
        assert of["figures"][key]["ratio"] == pytest.approx(second[ours]["p99"] / first[ours]["p99"])
    assert of["settings"]["cost: decode_ns"]["b"] == "30000000" and "scheduler: num_blocks" not in of["settings"]
    assert re.search(r"^cost: decode_ns +\d+ +30000000", said, re.M) and "of 50 pairs of the same request" in said
    differences = sorted(y[3] - x[3] for x, y in zip(first["records"], second["records"]))
    assert of["paired_times"]["E2E"]["median_difference_ns"] == differences[25]
    same = quire("simulate", "--compare", a, a).stdout.decode()
    assert "setting" not in same and re.search(r"^TTFT mean ms .* 1.000$", same, re.M)


@pytest.mark.parametrize("flags, status, said", [
    (["{a}"], 2, "--compare"),
    (["{a}", "{a}", "--rate", "3"], 2, "--rate: changes nothing with --compare"),
    (["{a}", "{a}", "--demo"], 2, "--demo: changes nothing with --compare"),
    (["{a}", "missing.json"], 1, "missing.json: no such file"),
    (["{a}", "{cut}"], 1, "cut.json: at byte"),
    (["{wrong}", "{a}"], 1, "wrong.json: key 'records': record 3: 13 fields were expected"),
    (["{a}", "{a}", "--json", "{a}"], 1, "a.json: is not a comparison of quire simulate"),
])
def test_compare_refuses(tmp_path, flags, status, said):
    a = tmp_path / "a.json"
    quire("simulate", "--requests", 5, "--json", a)
    (tmp_path / "cut.json").write_bytes(a.read_bytes()[:900])
    root = json.loads(a.read_text())
    root["records"][2] = [1, 2]
    (tmp_path / "wrong.json").write_text(json.dumps(root))
    done = quire("simulate", "--compare", *[flag.format(a=a, cut=tmp_path / "cut.json", wrong=tmp_path / "wrong.json") for flag in flags],
                 check=False)
    assert done.returncode == status and said in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr.decode()


# ---- --perfetto ----


def test_the_trace_has_the_steps_and_the_requests(tmp_path):
    out, results = tmp_path / "trace.json", tmp_path / "out.json"
    quire("simulate", "--demo", "--every", 0, "--perfetto", out, "--json", results)
    events, figures = json.loads(out.read_text())["traceEvents"], json.loads(results.read_text())
    steps = [event for event in events if event["ph"] == "X"]
    assert len(steps) == figures["steps"] and sum(event["args"]["decode_tokens"] for event in steps) == figures["decode_tokens"]
    assert sum(event["dur"] for event in steps) * 1000 == pytest.approx(figures["busy_ns"])
    assert sum(event["name"] == "preempted" for event in events) == figures["preemptions"] > 0
    decode = {event["id"]: event["ts"] for event in events if event["ph"] == "b" and event["name"] == "decode"}
    assert [round(decode[i + 1] * 1000) for i in range(len(decode))] == [record[2] for record in figures["records"]]


# ---- --eviction-bound ----


@pytest.mark.parametrize("policy", ["lru", "lfu", "arc", "gdf"])
def test_no_policy_hits_more_than_the_bound(tmp_path, policy):
    out = tmp_path / "out.json"
    flags = ["--requests", 300, "--rate", 6, "--shared-prefix-len", 160, "--shared-prefixes", 60, "--prompt-len", 60, "--output-len", 40]
    hits = {}
    for blocks in (150, 300, 20000):
        said = quire("simulate", *flags, "--eviction-policy", policy, "--num-blocks", blocks, "--eviction-bound", "--json", out).stdout.decode()
        of = json.loads(out.read_text())
        hits[blocks] = of["prefix_hit_tokens"]
        assert of["prefix_hit_tokens"] <= of["prefix_hit_tokens_bound"] <= of["prefix_hit_tokens_unbounded"], blocks
        assert "if evictions knew the future" in said
        assert 0 < of["prompt_work_saved"] <= of["prompt_work_saved_bound"] < of["prompt_work"], blocks
    assert hits[150] < hits[20000] == of["prefix_hit_tokens_bound"] == of["prefix_hit_tokens_unbounded"]


def test_the_bound_knows_the_answers_that_conversations_return(tmp_path):
    out = tmp_path / "out.json"
    quire("simulate", "--users", 10, "--turns", 4, "--requests", 80, "--num-blocks", 20000, "--eviction-bound", "--json", out)
    of = json.loads(out.read_text())
    assert of["prefix_hit_tokens"] == of["prefix_hit_tokens_bound"] > 0.5 * of["prefix_queried_tokens"]


@pytest.mark.parametrize("more", [{"sliding_window": 256}, {"sliding_window": 256, "layer_types": ["full_attention", "sliding_attention"] * 16}])
def test_the_bound_is_refused_where_a_model_has_a_window(tmp_path, more):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_2_7B, "architectures": ["MistralForCausalLM"], "model_type": "mistral", **more}))
    flags = ["simulate", "--machine", "a100", "--model", tmp_path, "--requests", 20]
    done = quire(*flags, "--eviction-bound", check=False)
    assert done.returncode == 2 and done.stdout == b""
    assert "--eviction-bound: is not known of a --model with a sliding window" in done.stderr.decode()
    quire(*flags)  # which runs without it
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B))
    assert "if evictions knew the future" in quire(*flags, "--eviction-bound").stdout.decode()


# ---- in a browser ----

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
CONTRAST = pathlib.Path(__file__).parent / "page_contrast.js"


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromium-driver are not installed")
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ["--headless=new", "--disable-dev-shm-usage"] + (["--no-sandbox"] if os.geteuid() == 0 else []):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
@pytest.mark.parametrize("name", ["one", "over", "sweep", "bars", "capacity", "compared"])
def test_a_page_is_readable(pages, browser, name, width, theme):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    browser.get(f"file://{pages[name]}")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    seen = browser.execute_script(CONTRAST.read_text())
    assert seen["bad"] == [] and seen["texts"] > 30
    # Each line and bar stands out from its panel (WCAG 2.2, 1.4.11), and so does the text of a plot.
    faint = browser.execute_script("""
        const parts = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = (rgb) => rgb.slice(0, 3).map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
          .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
        const ratio = (a, b) => { const [x, y] = [light(parts(a)), light(parts(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
        const panel = getComputedStyle(document.querySelector('figure')).backgroundColor;
        const faint = [...document.querySelectorAll('path.line, path.bar')].filter((one) => ratio(getComputedStyle(one).stroke, panel) < 3);
        const pale = [...document.querySelectorAll('svg text')].filter((one) => ratio(getComputedStyle(one).fill, panel) < 4.5);
        return [faint.length, pale.length, document.querySelectorAll('path.line, path.bar').length];""")
    assert faint[:2] == [0, 0] and faint[2] > 0


@pytest.mark.parametrize("name", ["one", "over", "sweep", "compared"])
def test_no_two_panels_of_a_page_touch(pages, browser, name):
    browser.get(f"file://{pages[name]}")
    gaps = browser.execute_script("""
        const boxes = [...document.querySelectorAll('.panel, figure, .figures div')].map((one) => one.getBoundingClientRect());
        const above = (a, b) => a.left < b.right && b.left < a.right && a.top < b.top;
        return boxes.map((a) => Math.min(...boxes.filter((b) => above(a, b)).map((b) => b.top - a.bottom))).filter(Number.isFinite);""")
    assert len(gaps) >= 2 and min(gaps) >= 8, gaps


def test_a_page_needs_no_mouse(pages, browser):
    """Tab reaches the numbers of each plot, and Enter opens them."""
    from selenium.webdriver.common.keys import Keys
    browser.get(f"file://{pages['one']}")
    figures = browser.execute_script("return document.querySelectorAll('figure').length")
    active = browser.switch_to.active_element
    for _ in range(3):
        active.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
    assert active.tag_name == "summary"
    outline = browser.execute_script("const of = getComputedStyle(document.activeElement); return [of.outlineStyle, parseFloat(of.outlineWidth)]")
    assert outline[0] != "none" and outline[1] >= 2
    active.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.activeElement.parentElement.open && document.activeElement.parentElement.querySelectorAll('td').length") > 4
    assert browser.execute_script("return document.querySelectorAll('figure summary').length") == figures
