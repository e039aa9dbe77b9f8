"""The live view of the page at /, in a headless Chromium, against what /metrics says."""
import contextlib
import json
import re
import shutil
import time
import urllib.request

import pytest
from browser import KEY, TIGHT, Clients, Keys, Page, answer, lists, look, numbers, pytestmark, webdriver  # noqa: F401  (skips where there is no browser)
from server import MODEL, QuireServer


@pytest.fixture(scope="module")
def tight():
    with QuireServer("--live", *TIGHT) as server:
        yield server


@pytest.fixture
def page(tight, tmp_path):
    with Page(tight, tmp_path) as made:
        yield made


def test_a_wait_is_explained_and_a_preemption_and_an_eviction_are_seen(page, tight):
    before = tight.metrics()["vllm:num_preemptions_total"]
    look(page)
    page.until(lambda: "Waiting for the first step" in page.one("#look .when").text and page.one("#look .hint").is_displayed())
    seen = {"wait": False, "progress": False, "preempted": False, "evicted": False, "swapped": False}
    with Clients(tight, 16) as clients:
        def all_seen():
            waits, runs, news = lists(page)
            for needed, reserve, free, missing in re.findall(r"#\d+.* first in line, for blocks: it needs (\d+), and (\d+) must stay free; "
                                                             r"(\d+) (?:is|are) available, so (\d+) more must be released. "
                                                             r"Held by #\d+: \d+", waits):
                assert int(missing) == int(needed) + int(reserve) - int(free)
                seen["wait"] = True
            seen["progress"] |= bool(re.search(r"\d+ of at most 200 · .*\d+ blocks", runs))
            seen["preempted"] |= "is preempted: " in news
            seen["swapped"] |= "moves to the host." in news or "back from the host." in news
            seen["evicted"] |= bool(re.search(r"chose \d+ cached blocks? to evict", news))
            return all(seen.values())
        try:
            page.until(all_seen)
        finally:
            print(seen)
    assert not clients.failed
    page.until(lambda: numbers(page).get("Running") == "0")
    page.until(lambda: "Nobody runs." in lists(page)[1])
    now = numbers(page)
    assert now["Blocks held"].startswith("0 of 96") and not page.one("#look .hint").is_displayed()
    assert int(now["Cached"]) + int(now["Free"]) == 96
    assert now["Room for"] == f"{96 * 16:,} tokens"
    mean = int(re.fullmatch(r"(\d+) of (\d+) tokens", now["Or for requests"])[2])
    assert now["Or for requests"] == f"{96 // -(-mean // 16)} of {mean} tokens" and 200 < mean < 300
    said = tight.metrics()
    assert int(now["Preemptions seen"].replace(",", "")) == said["vllm:num_preemptions_total"] - before > 0
    assert said["vllm:kv_cache_usage_perc"] == said["vllm:num_requests_running"] == said["vllm:num_requests_waiting"] == 0
    assert page.complaints() == []
    assert page.hosts() <= {tight.url, "data:", "blob:", "chrome:"}


def said_of_blocks(page, blocks):
    """What the map says of each block from 0 on, in the step shown."""
    canvas = page.one("#look canvas")
    page.js("arguments[0].dispatchEvent(new PointerEvent('pointerleave'))", canvas)
    out = []
    for block in range(blocks):
        canvas.send_keys(Keys.ARROW_RIGHT)
        out.append(page.one("#look .info").text)
        assert out[-1].startswith(f"Block {block}: ")
    return out


def line_of_news(page, wanted):
    return next(one for one in page.all("#look .look-lists section:nth-child(3) li") if wanted in one.text)


def pause_at(page, wanted):
    """Pauses the view while one of its news has these words: where steps are fast, it may be gone before the click."""
    for _ in range(30):
        page.until(lambda: wanted in lists(page)[2])
        page.one("#look [aria-label='Pause the view']").click()
        if wanted in lists(page)[2]:
            return
        page.one("#look [aria-label^='Live: ']").click()
    raise AssertionError(f"never paused at {wanted!r}")


def test_an_eviction_is_seen_in_the_map(page, tight):
    look(page)
    with Clients(tight, 8):
        pause_at(page, "to evict: ")
    evicted = line_of_news(page, "to evict: ").find_elements("css selector", "[data-ref^=block]")[0]
    block = int(evicted.text)
    evicted.click()
    assert f"Block {block}" in [one.text for one in page.all("#look h3")]
    history = page.js("return [...document.querySelectorAll('#look .life li')].map((one) => [...one.children].map((part) => part.textContent))")
    at = next(i for i in range(1, len(history)) if "cached" in history[i - 1][1] and "held by" in history[i][1])
    step = re.search(r"steps? ([\d,]+)", history[at][0])[1]
    page.all("#look .life li")[at].find_element("css selector", "[data-ref]").click()
    assert page.one("#look .when").text == f"Step {step}"
    assert "held by #" in said_of_blocks(page, block + 1)[-1]
    page.one("#look [aria-label='One step back']").click()
    assert "cached" in said_of_blocks(page, block + 1)[-1]


def test_a_preemption_is_seen_in_the_map(page, tight):
    look(page)
    with Clients(tight, 16):
        pause_at(page, "is preempted: ")
    step, request = line_of_news(page, "is preempted: ").find_elements("css selector", "[data-ref]")[:2]
    number = request.text
    request.click()
    line_of_news(page, "is preempted: ").find_elements("css selector", "[data-ref]")[0].click()
    assert re.search("(swapped out|preempted), holds 0 blocks", page.one("#look .facts").text)
    after = said_of_blocks(page, 96)
    page.one("#look [aria-label='One step back']").click()
    held = int(re.search(r"holds (\d+) blocks", page.one("#look .facts").text)[1])
    before = said_of_blocks(page, 96)
    name = re.compile(rf"{number}(?!\d)")
    assert held > 0
    assert sum(1 for one in before if name.search(one)) >= held - 3, "of a shared block not all holders are named"
    assert not any(name.search(one) for one in after)


def numbers_of_metrics(server):
    said = server.metrics()
    return (said["vllm:num_requests_running"], said["vllm:num_requests_waiting"], round(said["vllm:kv_cache_usage_perc"] * 64))


def test_the_numbers_are_those_of_the_metrics_while_requests_run(tmp_path):
    # A simulated device that takes its time: a step lasts long enough to read both.
    with QuireServer("--live", "--device", "sim", "--sim-speed", "0.05", "--num-blocks", "64", "--max-num-seqs", "4") as server:
        with Page(server, tmp_path) as page:
            look(page)
            page.until(lambda: page.one("#look .tight").is_displayed())  # it is told of all from here on
            compared = set()
            # Of several lengths, so that each holds another number of blocks.
            with Clients(server, 7, tokens=20, more=5):
                def same():
                    before = numbers_of_metrics(server)
                    now = numbers(page)
                    if before == numbers_of_metrics(server) and now:
                        shown = (int(now["Running"]), int(now["Waiting"]), int(now["Blocks held"].split()[0]))
                        if shown == before and shown[2] > 0:
                            compared.add(shown)
                    return len(compared) >= 5
                page.until(same)
                page.until(lambda: re.search(r"\d+ of at most \d+ · [\d.]+ tokens/s · \d+ blocks", lists(page)[1]))
            assert any(running == 4 and waiting == 3 for running, waiting, _ in compared)
            page.until(lambda: numbers(page)["Running"] == "0")
            said = server.metrics()
            hits = 100 * said["vllm:prefix_cache_hits_total"] / said["vllm:prefix_cache_queries_total"]
            assert numbers(page)["Prefix hits"] == f"{round(hits)} % of tokens"
            assert hits > 10


# In each frame that the browser draws: [of the numbers, who runs and who waits; of the lists, the same].
MOMENTS = """
const done = arguments[0], seen = [];
const waiting = (line) => {
  const who = /^(.*?)(?: each)? waits? /.exec(line.textContent)?.[1] ?? '';
  return (who.match(/#\\d+/g) ?? []).length + Number(/ and (\\d+) others?$/.exec(who)?.[1] ?? 0);
};
const watch = () => {
  const said = Object.fromEntries([...document.querySelectorAll('#look .numbers div')].map((one) => [one.firstChild.textContent, one.lastChild.textContent]));
  const lines = [...document.querySelectorAll('#look .look-lists section:first-child li')];
  seen.push([[said.Running, said.Waiting].map(Number),
             [document.querySelectorAll('#look .runs .ref').length, lines.reduce((sum, one) => sum + waiting(one), 0)]]);
  if (seen.length === 400) done(seen);
  else requestAnimationFrame(watch);
};
watch();
"""


def test_numbers_and_lists_are_of_the_same_moment(page, tight):
    look(page)
    with Clients(tight, 16):
        page.until(lambda: re.search(r"#\d+", lists(page)[0]))
        seen = page.driver.execute_async_script(MOMENTS)
    assert [(said, listed) for said, listed in seen if said != listed] == []
    assert len({tuple(said) for said, _ in seen}) > 5 and any(waiting > 1 for (_, waiting), _ in seen)


# The page's own observers are told first: what is not drawn again by then is stretched on the screen.
STRETCHED = """
window.looked = 0; window.stretched = [];
const look = () => {
  for (const one of document.querySelectorAll('#look figure > canvas')) {
    const wanted = Math.round(one.getBoundingClientRect().width * devicePixelRatio);
    window.looked += 1;
    if (Math.abs(one.width - wanted) > 1) window.stretched.push(`${one.ariaLabel}: ${one.width} of ${wanted}`);
  }
};
const observer = new ResizeObserver(look);
for (const one of ['#look', '#look .charts']) observer.observe(document.querySelector(one));
"""


def test_nothing_is_stretched_when_the_window_changes(page, tight):
    look(page)
    with Clients(tight, 4):
        page.until(lambda: re.search(r"#\d+", lists(page)[1]))
        page.js(STRETCHED)
        for width in [1000, 1300, 420, 700, 2560]:
            before = page.js("return window.looked")
            page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": False})
            page.until(lambda: page.js("return window.looked") > before)
            time.sleep(0.3)
    assert page.js("return window.stretched") == []
    assert page.complaints() == []


def test_make_it_tight_is_offered_where_it_can_be(tmp_path):
    """Before the first step, on a pool that 24 answers fill; not where there is room for all of them."""
    for blocks, offered in [("96", True), ("1000", False)]:
        with QuireServer("--live", "--num-blocks", blocks) as server, Page(server, tmp_path) as page:
            look(page)
            if offered:
                page.until(lambda: page.one("#look .tight button").is_displayed())
                assert page.one("#look .when").text == "Waiting for the first step"
                page.one("#look .tight button").click()
            else:
                page.until(lambda: page.js("return document.querySelector('#look .legend').children.length") > 0)
                page.one("#views [data-view=both]").click()
                page.say("Hello.", wait=False)
            page.until(lambda: numbers(page).get("Blocks held"))
            assert page.one("#look .tight").is_displayed() == offered


def test_make_it_tight(page, tight):
    """With the pool of ./dev demo --page."""
    look(page)
    button = page.one("#look .tight button")
    page.until(lambda: button.text == "Make it tight")
    button.click()
    page.until(lambda: int(numbers(page).get("Preemptions seen", "0")) > 0)
    page.until(lambda: numbers(page)["Evictions seen"] != "0 blocks")
    page.until(lambda: int(numbers(page)["Of them shared"]) > 0)
    page.until(lambda: re.search(r"[1-9]\d* answers so far", page.one("#look .tight").text))
    button.click()
    assert button.text == "Make it tight"
    page.until(lambda: numbers(page)["Running"] == "0")
    assert page.complaints() == []


# The names that the page gives to what it shows.
NAMES = """
const texts = (selector) => [...document.querySelectorAll('#look ' + selector)].filter((one) => one.checkVisibility())
  .map((one) => [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data).join(' ').trim());
return [...texts('.numbers dt'), ...texts('h3'), ...texts('figcaption'), ...texts('.look-time button'), ...texts('section > .legend li')];
"""


def test_each_thing_that_is_seen_is_explained(page, tight):
    look(page)
    with Clients(tight, 16):
        page.until(lambda: "Or for requests" in numbers(page))
    page.one("#look summary").click()
    explained = [part for one in page.all("#look .seen dt") for part in one.text.lower().split(", ")]
    shown = page.js(NAMES)
    assert {"Budget", "Host blocks", "Preemptions seen", "What just happened", "New tokens", "Pause", "free"} <= set(shown) and len(shown) > 25
    words = {"Of them shared": "shared", "K/V blocks": "blocks"}
    missing = [one for one in shown if not any(words.get(one, one).lower().startswith(name) or f": its {name}" in one for name in explained)]
    assert missing == []


def test_what_is_seen_is_explained_with_links_that_lead_somewhere(page):
    look(page)
    page.js("document.querySelector('#look summary').click()")  # by no pointer: what is above it may just appear
    entries = page.js("return [...document.querySelectorAll('#look .seen dd')].map((one) => [one.textContent, one.querySelector('a').href])")
    assert len(entries) > 12
    for text, href in entries:
        assert text[0].isupper() and text.count(". ") == 0 and text.endswith(".md).")
        with urllib.request.urlopen(href) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert answer.read().startswith(b"# ")


def test_the_past_is_shown_as_it_was_and_a_request_has_a_life(page, tight):
    look(page)
    with Clients(tight, 8):
        page.until(lambda: re.search(r"#\d+", lists(page)[1]))
        page.until(lambda: page.js("return Number(document.querySelector('#look input').max)") > 200)
        page.one("#look [aria-label='Pause the view']").click()
        paused = page.one("#look .when").text
        before = page.js("return document.querySelector('#look canvas').toDataURL()")
        held = numbers(page)["Blocks held"]
        time.sleep(0.5)
        assert page.one("#look .when").text == paused, "it stands still"
        for _ in range(20):
            page.one("#look [aria-label='One step back']").click()
        assert page.one("#look .when").text != paused
        for _ in range(20):
            page.one("#look [aria-label='One step forward']").click()
        assert page.one("#look .when").text == paused
        assert numbers(page)["Blocks held"] == held
        page.js("document.querySelector('#look canvas').dispatchEvent(new PointerEvent('pointerleave'))")
        assert page.js("return document.querySelector('#look canvas').toDataURL()") == before, "backwards and forwards again"
        page.js("document.querySelector('#look .runs .ref').click()")
        story = page.js("return document.querySelector('#look .life').innerText")
        assert "prefill" in story and "decode" in story
        page.one("#look [aria-label^='Live']").click()
        page.until(lambda: page.one("#look .when").text != paused)


def test_blocks_are_read_by_keyboard(page, tight):
    look(page)
    with Clients(tight, 4):
        page.until(lambda: re.search(r"#\d+", lists(page)[1]))
        canvas = page.one("#look canvas")
        canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER)
        page.until(lambda: page.one("#look .info").text.startswith("Block 1: "))
        page.until(lambda: "Block 1" in [one.text for one in page.all("#look h3")])
        page.until(lambda: re.search(r"(from|up to) step [\d,]+|all the time", page.one("#look .life").text, re.S))
        canvas.send_keys(Keys.ESCAPE)
        page.until(lambda: not page.all("#look .life") or not page.one("#look .life").is_displayed())
        page.until(lambda: page.js("return Number(document.querySelector('#look input').max)") > 50)
        canvas.send_keys(Keys.HOME)
        page.until(lambda: page.js("return document.querySelector('#look input').value") == "0")
        page.one("#look [aria-label='One step back']").send_keys(Keys.END)
        page.until(lambda: page.all("#look [aria-label='Pause the view']"))


def test_what_is_drawn_piece_by_piece_is_what_is_drawn_at_once(page, tight):
    look(page)
    with Clients(tight, 8):
        page.until(lambda: page.js("return Number(document.querySelector('#look input').max)") > 300)
        page.one("#look [aria-label='Pause the view']").click()
        drawn = "return [...document.querySelectorAll('#look canvas[tabindex]')].map((one) => one.toDataURL())"
        page.js("for (const one of document.querySelectorAll('#look canvas')) one.dispatchEvent(new PointerEvent('pointerleave'))")
        pieces = page.js(drawn)
        theme = "return getComputedStyle(document.body).backgroundColor"
        light = page.js(theme)
        for scheme in ["dark", "light"]:
            page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            page.until(lambda: (page.js(theme) == light) == (scheme == "light"))
            page.until(lambda: (page.js(drawn) == pieces) == (scheme == "light"))


# Of each chart, the pixel column that is dark from top to bottom; null if there is none.
CURSORS = """
return [...document.querySelectorAll('#look .charts figure > canvas')].map((canvas) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
  for (let x = 0; x < width; ++x) {
    let dark = 0;
    for (let y = 0; y < height; ++y) dark += data[4 * (y * width + x) + 3] > 150 && data[4 * (y * width + x)] < 80 ? 1 : 0;
    if (dark > 0.75 * height) return x;
  }
  return null;
});"""


def test_the_charts_show_where_one_is_and_lead_back(page, tight):
    look(page)
    with Clients(tight, 8):
        page.until(lambda: page.js("return Number(document.querySelector('#look input').max)") > 300)
        time.sleep(3)
        assert page.js(CURSORS) == [None] * 4
        page.one("#look [aria-label='Pause the view']").click()
        newest = page.js(CURSORS)
        assert None not in newest
        page.one("#look [aria-label='Step']").send_keys(Keys.HOME)
        page.until(lambda: all(now < before for now, before in zip(page.js(CURSORS), newest)))
        canvas = page.all("#look .charts figure > canvas")[0]
        steps = []
        for seconds in (2, 1):  # before the right end; from left to right it is a minute
            x = canvas.size["width"] / 2 - 10 - seconds * (canvas.size["width"] - 68) / 60
            webdriver.ActionChains(page.driver).move_to_element_with_offset(canvas, round(x), 0).click().perform()
            steps.append(int(re.sub(r"\D", "", page.one("#look .when").text)))
        assert 0 < steps[0] < steps[1]
    assert page.complaints() == []


def test_a_second_of_the_charts_is_the_sum_of_its_steps(page):
    page.open()
    seconds, left = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/page/look/history.js').then(({ History }) => {
          const history = new History();
          const pool = { held: 5, shared: 1, cached: 2 };
          const steps = [{ began_us: 10.1e6, prefill: 0, decode: 4, budget: 16, took: 100, ...pool },
                         { began_us: 10.9e6, prefill: 8, decode: 4, budget: 16, took: 300, ...pool },
                         { began_us: 12.5e6, prefill: 0, decode: 3, budget: 16, took: 50, ...pool, held: 7 },
                         { began_us: 13.5e6, prefill: 0, decode: 0, budget: 16, after: true, ...pool, held: 0, cached: 9 }];
          for (const step of steps) history.addStep(step);
          for (const step of steps.slice(0, 3)) history.addTime(step);
          history.addPreemption(steps[2]);
          history.at(14.2e6);
          const seconds = structuredClone(history.seconds);
          history.at(312e6);
          done([seconds, [history.seconds.length, history.at(12e6) === undefined, history.at(13e6).cached]]);
        });""")
    names = ["steps", "tokens", "used", "mostUsed", "timed", "took", "mostTook", "held", "cached", "preemptions"]
    assert [[one[name] for name in names] for one in seconds] == [
        [2, 8, 100, 75, 2, 400, 300, 5, 2, 0],
        [0, 0, 0, 0, 0, 0, 0, 5, 2, 0],
        [1, 3, 18.75, 18.75, 1, 50, 50, 7, 2, 1],
        [0, 0, 0, 0, 0, 0, 0, 0, 9, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 9, 0],
    ]
    assert left == [300, True, 9], "five minutes are kept"


@pytest.fixture
def two_groups(tmp_path):
    """The demo model with every second layer on a sliding window. It writes nonsense, and its blocks form two K/V groups."""
    made = tmp_path / "two-groups"
    shutil.copytree(MODEL, made)
    config = json.loads((made / "config.json").read_text())
    layers = config["num_hidden_layers"]
    config |= {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1] * layers,
               "use_sliding_window": True, "sliding_window": 32,
               "layer_types": [("full_attention", "sliding_attention")[i % 2] for i in range(layers)]}
    (made / "config.json").write_text(json.dumps(config))
    with QuireServer("--live", "--num-blocks", "200", model=made) as server:
        yield server


def test_the_blocks_of_each_group_are_told_apart(two_groups, tmp_path):
    with Page(two_groups, tmp_path) as page:
        look(page)
        choice = "return [...document.querySelectorAll('#look .groups button')].map((one) => one.textContent)"
        with Clients(two_groups, 1):
            # The request has some 250 tokens at the end, the window has 32: it touches at most 4 blocks of 16 tokens.
            page.until(lambda: re.search(r"everything [1-9]\d held", " ".join(page.js(choice))))
            page.one("#look [aria-label='Pause the view']").click()
        back = page.one("#look [aria-label='One step back']")
        page.until(lambda: re.search(r"everything [1-9]\d held", " ".join(page.js(choice))) or back.click())
        every, full, window = page.js(choice)
        held = [int(re.search(r"(\d+) held", text)[1]) for text in (full, window)]
        cached = [int(re.search(r"(\d+) cached", text)[1]) for text in (full, window)]
        now = numbers(page)
        page.js("document.querySelector('#look .runs .ref').click()")
        story = page.one("#look .facts").text
        assert every == "All groups"
        assert full.startswith("Group 0: everything ") and window.startswith("Group 1: the last 32 tokens ")
        assert held[0] >= 10 and 2 <= held[1] <= 4
        assert now["Blocks held"].startswith(f"{sum(held)} of 200") and now["Cached"] == str(sum(cached))
        assert f"holds {sum(held)} blocks ({held[0]} and {held[1]} in the K/V groups)" in story
        page.js("document.querySelector('#look [aria-label=\"Clear the selection\"]').click()")
        drawn = "return document.querySelector('#look canvas').toDataURL()"
        both = page.js(drawn)
        pictures = {both}
        for button in page.all("#look .groups button")[1:]:
            button.click()
            assert button.get_attribute("aria-pressed") == "true"
            pictures.add(page.js(drawn))
        assert len(pictures) == 3, "each group stands out by itself"
        page.all("#look .groups button")[0].click()
        assert page.js(drawn) == both
        canvas = page.one("#look canvas")
        named = set()
        for _ in range(12):
            canvas.send_keys(Keys.ARROW_RIGHT)
            named |= set(re.findall(r"In K/V group \d, which keeps .*\.", page.one("#look .info").text))
        assert named == {"In K/V group 0, which keeps everything.", "In K/V group 1, which keeps the last 32 tokens."}
        assert page.complaints() == []


def test_a_key_sees_its_own_alone(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"one:{KEY}\ntwo:another-key-of-the-page\n")
    keys.chmod(0o600)
    with QuireServer("--api-key-file", str(keys), *TIGHT) as server:
        with Page(server, tmp_path) as page:
            page.open()
            page.until(lambda: page.all("#ask[open]"))
            page.one("#ask-input").send_keys(KEY, Keys.ENTER)
            page.until(lambda: page.one("#model").is_enabled())
            page.one("#views [data-view=look]").click()
            page.until(lambda: page.all("#look canvas"))
            with Clients(server, 4, "another-key-of-the-page"), Clients(server, 1, KEY):
                page.until(lambda: len(re.findall(r"#\d+", lists(page)[1])) == 1)
                for _ in range(10):
                    assert len(re.findall(r"#\d+", lists(page)[1])) <= 1
                    assert not {"Blocks held", "Cached", "Free", "Budget"} & numbers(page).keys()
                    time.sleep(0.1)
                assert "not yours" in page.one("#look .legend").text


def test_without_the_flag_it_says_so(tmp_path):
    with QuireServer() as server:
        with Page(server, tmp_path) as page:
            look(page)
            page.until(lambda: "--live" in page.one("#look .notice").text and not page.one("#look .hint").is_displayed())


def test_the_server_may_come_back(tmp_path):
    with contextlib.ExitStack() as until_the_end:
        with QuireServer("--live", *TIGHT) as server:
            page = until_the_end.enter_context(Page(server, tmp_path))
            port = server.port
            page.open()
            page.script(answer("kept"))
            page.say("Say something.")
            page.one("#views [data-view=both]").click()
            page.until(lambda: page.all("#look canvas"))
        page.until(lambda: "Trying again" in page.one("#look .notice").text)
        with QuireServer("--live", *TIGHT, port=port) as again:
            page.until(lambda: not page.one("#look .notice").is_displayed())
            assert page.texts() == ["kept"]
            with Clients(again, 2):
                page.until(lambda: re.search(r"#\d+", lists(page)[1]))
