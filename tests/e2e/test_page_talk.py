"""The chat of the page at /, in a headless Chromium. Where the answer's text matters, the page's fetch is answered by the test."""
import json
import os
import pathlib
import re
import time
import urllib.request

import pytest
from browser import KEY, Keys, Page, answer, delta, end, import_long, kept, pytestmark  # noqa: F401  (skips where there is no browser)
from server import QuireServer


@pytest.fixture(scope="module")
def server():
    with QuireServer() as running:
        with urllib.request.urlopen(running.url + "/", timeout=10) as found:
            assert "default-src 'none'" in found.headers["Content-Security-Policy"]
        yield running


@pytest.fixture
def page(server, tmp_path):
    with Page(server, tmp_path) as made:
        yield made.open()


def test_three_turns(page):
    page.set("max_tokens", "100")
    page.set("temperature", "0")
    for turn in range(3):
        page.say(f"Tell me of a fox, part {turn}.")
        assert len(page.texts("user")) == len(page.texts()) == turn + 1
    assert all(page.texts())
    stats = page.all(".stats")[-1].text
    for part in ["100 tokens out", "tokens/s", "TTFT", "limit of tokens"]:
        assert part in stats
    said = page.texts()
    page.driver.refresh()
    page.until(lambda: page.all(".conversation"))
    page.one(".conversation").click()
    page.until(lambda: page.all(".message"))
    assert page.texts() == said
    assert page.complaints() == []


def test_stop_keeps_the_text(page):
    page.script(answer("one ", "two ", hold=True) | {"events": [delta(content="one "), delta(content="two ")]})
    page.say("Count.", wait=False)
    page.until(lambda: page.texts() == ["one two"])
    assert page.one("#stop").is_displayed()
    page.one("#entry").send_keys(Keys.ESCAPE)
    page.idle()
    assert page.texts() == ["one two"] and "stopped" in page.one(".stats").text
    page.script(answer("three"))
    page.press(".message.assistant", "Continue")
    page.until(lambda: page.texts() == ["one two three"])
    assert page.asked()[-1]["continue_final_message"] is True
    assert page.asked()[-1]["messages"][-1] == {"role": "assistant", "content": "one two "}


def test_regenerate_and_branches(page):
    page.script(answer("first"), answer("second"), answer("third"))
    page.say("Which?")
    for _ in range(2):
        page.press(".message.assistant", "Regenerate")
        page.idle()
    assert page.texts() == ["third"] and page.one(".branches").text.split() == ["‹", "3", "/", "3", "›"]
    page.one("button[aria-label='Previous branch']").click()
    assert page.texts() == ["second"] and "2 / 3" in page.one(".branches").text
    page.script(answer("after the second"))
    page.say("And then?")
    assert [one["content"] for one in page.asked()[-1]["messages"]] == ["Which?", "second", "And then?"]
    page.one("button[aria-label='Next branch']").click()
    assert page.texts() == ["third"]


def test_edit_makes_a_branch(page):
    page.script(answer("to the first"), answer("to the second"))
    page.say("first wording")
    page.press(".message.user", "Edit")
    box = page.one("textarea.edit")
    box.clear()
    box.send_keys("second wording", Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.texts() == ["to the second"])
    assert page.asked()[-1]["messages"] == [{"role": "user", "content": "second wording"}]
    page.one(".message.user button[aria-label='Previous branch']").click()
    assert page.texts("user") == ["first wording"] and page.texts() == ["to the first"]


def test_settings_are_sent_and_checked(page):
    page.script(answer("{}"))
    page.set("system", "Be brief.")
    page.set("top_k", "5")
    page.set("stop", "END")
    page.set("schema", '{"type": "object"}')
    page.set("temperature", "9")
    page.say("Go.", wait=False)
    assert page.one("#set-temperature").get_attribute("aria-invalid") == "true"
    assert page.one("#entry").get_attribute("value") == "Go."  # nothing is lost
    page.set("temperature", "0.5")
    page.say("")
    body = page.asked()[-1]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["top_k"], body["stop"]) == (0.5, 5, ["END"])
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert body["stream_options"] == {"include_usage": True}


def test_tools_and_reasoning(page):
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": '}}
    rest = {"index": 0, "function": {"arguments": '"Oslo"}'}}
    page.script({"events": [delta(reasoning_content="I should look."), delta(tool_calls=[call]), delta(tool_calls=[rest])] + end("tool_calls")},
                answer("12 degrees."))
    page.set("tools", '[{"type": "function", "function": {"name": "get_weather"}}]')
    page.say("Weather in Oslo?")
    assert "get_weather" in page.one(".call").text and '"city": "Oslo"' in page.one(".call pre").text
    assert not page.one(".assistant .thought").get_attribute("open")
    page.one(".assistant .thought summary").click()
    page.until(lambda: "I should look." in page.one(".assistant .thought").text)
    page.one(".call textarea").send_keys("12 C")
    page.press(".calls", "Send the result")
    page.until(lambda: page.texts()[-1:] == ["12 degrees."])
    sent = page.asked()[-1]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "12 C"}


def test_export_and_import(page, tmp_path):
    page.script(answer("hello ", "**there**", every=20))
    page.say("Greet me.")
    said = re.sub(r" ms\b.*", "", page.one(".stats").text)
    assert "2 tokens out" in said and "tokens/s" in said
    page.one("#export").click()
    file = tmp_path / "quire-conversation.json"
    data = page.downloaded(file)
    assert [one["content"] for one in data["conversations"][0]["messages"]] == ["Greet me.", "hello **there**"]
    page.one("#delete").click()
    page.one("#ask-ok").click()
    page.until(lambda: not page.all(".message"))
    assert page.all(".conversation") == []
    page.one("#import-file").send_keys(str(file))
    page.until(lambda: page.texts() == ["hello there"])
    assert page.one(".stats").text.startswith(said)
    for bad, why in [("{", "not JSON"), ("{}", "not exported by this page"),
                     (json.dumps({**data, "conversations": [{"messages": [{"id": "a", "role": "root", "content": ""}]}]}), "role"),
                     (json.dumps({**data, "conversations": [{"messages": [
                         {"id": "a", "parent": "b", "role": "user", "content": ""}]}]}), "does not stand before")]:
        wrong = tmp_path / "wrong.json"
        wrong.write_text(bad)
        page.one("#import-file").send_keys(str(wrong))
        page.until(lambda why=why: why in page.one("#notices").text)
    assert page.texts() == ["hello there"]


HOSTILE = "\n\n".join([
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>", "[press](javascript:window.pwned=1) [ok](https://example.org/)",
    "![spy](https://evil.example/x.png) <iframe src='https://evil.example'></iframe>", "<style>body{display:none}</style>",
    "<form action='https://evil.example'><input name=q></form>", "\x1b[31mred\x1b[0m \u202egnirts\u202c",
    "[ref][1] <a href='java\tscript:window.pwned=1'>x</a> <svg onload='window.pwned=1'>", "[1]: javascript:window.pwned=1",
    "$\\href{javascript:window.pwned=1}{x}$ and $x^2$", "```html\n<script>window.pwned = 1</script>\n```", "# Not an h1",
    "| a | b |\n|---|---|\n| 1 | <img src=x onerror=window.pwned=1> |"])


def test_hostile_output(page):
    page.hosts()
    page.script(answer(*HOSTILE))
    page.say("Attack.")
    assert page.js("return window.pwned") is None
    assert page.all(".message img, .message script, .message iframe, .message style, .message form, .message svg, .message [onerror]") == []
    assert [(link.get_attribute("href"), link.get_attribute("rel")) for link in page.all(".message a")] == [
        ("https://example.org/", "noopener noreferrer"), ("https://evil.example/x.png", "noopener noreferrer")]
    text = page.texts()[0]
    assert "<script>window.pwned = 1</script>" in text and "␛[31mred␛[0m" in text
    assert len(page.all("h1")) == 1 and page.all(".message table") and page.all(".message math")
    assert page.hosts() <= {page.server.url}
    assert page.complaints() == []


# Of words of an element: whether the first stands left of the last.
FORWARDS = """
const [selector, first, last] = arguments, one = [...document.querySelectorAll(selector)].at(-1);
const left = (words) => {
  const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const at = node.data.indexOf(words), range = document.createRange();
    if (at < 0) continue;
    range.setStart(node, at);
    range.setEnd(node, at + words.length);
    return range.getBoundingClientRect().left;
  }
  throw new Error(`${selector} has no "${words}"`);
};
return left(first) < left(last);
"""


def test_what_turns_text_around_ends_with_its_paragraph_and_is_named_in_code(page):
    page.script(answer("aa \u202ebb cc \u2067dd\n\nee ff\n\n`if \u202egg`\n\n```c\nif (\u202ehh)\n```\n"))
    page.say("\u202eii jj \u2067kk")
    assert not page.js(FORWARDS, ".assistant .body", "bb", "cc"), "it does turn its own paragraph"
    assert page.js(FORWARDS, ".assistant .body", "ee", "ff")
    assert page.js(FORWARDS, ".assistant .stats", "tokens in", "token out")
    assert [one.text for one in page.all(".assistant code")] == ["if ⟨U+202E⟩gg", "if (⟨U+202E⟩hh)"]
    assert page.one("#title").rect["x"] < page.one("#rename").rect["x"]
    page.one("#delete").click()
    assert page.js(FORWARDS, "#ask-text", "jj", "ii") and page.js(FORWARDS, "#ask-text", "branches", "removed")
    page.one("#ask-cancel").click()


def test_a_megabyte_in_one_line(page):
    page.script(answer("x" * 500_000, "y" * 500_000, *(["z"] * 50), every=20))
    page.say("Long.", wait=False)
    page.until(lambda: page.all(".assistant") and page.js("return document.querySelector('.assistant .body').textContent.length") > 400_000)
    delay = page.driver.execute_async_script(
        "const done = arguments[0]; const from = performance.now(); setTimeout(() => done(performance.now() - from), 0)")
    assert delay < 2000
    page.one("#entry").send_keys("typed")
    page.idle()
    assert page.one("#entry").get_attribute("value") == "typed"


def test_probabilities(page):
    tokens = [{"token": text, "logprob": value, "top_logprobs": [{"token": text, "logprob": value}, {"token": "other", "logprob": -3}]}
              for text, value in [("sure", -0.01), (" maybe", -5)]]
    page.script({"events": [{"choices": [{"index": 0, "delta": {"content": one["token"]}, "logprobs": {"content": [one]}}]} for one in tokens]
                 + end()})
    page.one("#open-settings").click()
    page.one("#set-logprobs").click()
    page.say("Sure?")
    assert page.asked()[-1]["logprobs"] is True
    page.press(".message.assistant", "Probabilities")
    shades = [one.get_attribute("class") for one in page.all(".token")]
    assert shades == ["token shade-0", "token shade-5"]
    page.js("document.querySelector('.token').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    tip = page.one("#alternatives")
    assert tip.is_displayed() and "other" in tip.text and "0.67 %" in tip.text


def test_errors_in_words(page):
    page.script({"status": 429, "headers": {"Retry-After": "3"}, "body": json.dumps({"error": {"message": "queue full"}})})
    page.say("Now?")
    problem = page.all(".assistant .problem")[-1].text
    assert "busy" in problem and "3 s" in problem and "queue full" in problem
    page.script(answer("done"))
    page.press(".problem", "Try again")
    page.until(lambda: page.texts() == ["done"])
    page.script({"events": [delta(content="half of"), delta(content=" it")], "cut": True, "every": 100})
    page.js("window.down = true")
    page.say("More.")
    assert page.texts()[-1] == "half of it" and "Cut off" in page.all(".assistant .problem")[-1].text
    assert "looks for the server" in page.one("#notices").text
    page.js("window.down = false")
    page.until(lambda: "server is back" in page.one("#notices").text)


def test_cut_off_by_a_reload(page):
    page.script({"events": [delta(content="so far")], "hold": True})
    page.say("Begin.", wait=False)
    page.until(lambda: page.texts() == ["so far"])
    page.until(lambda: kept(page)[-1]["content"] == "so far")  # it is saved twice a second
    page.open()
    page.until(lambda: page.all(".conversation"))
    page.one(".conversation").click()
    page.until(lambda: page.texts() == ["so far"])
    assert "Cut off" in page.all(".assistant .problem")[-1].text


def test_ten_thousand_messages(page, tmp_path):
    import_long(page, tmp_path)
    assert "message 9999" in page.texts()[-1]
    slowest = page.driver.execute_async_script("""
      const done = arguments[0], scroller = document.getElementById('scroller');
      let slowest = 0, at = 0, most = 0, last = performance.now();
      const step = (now) => {
        slowest = Math.max(slowest, now - last); last = now;
        most = Math.max(most, document.querySelectorAll('.message').length);
        if (at++ === 60) return done([slowest, most]);
        scroller.scrollTop = scroller.scrollHeight * ((at * 37) % 60) / 60;
        requestAnimationFrame(step);
      };
      requestAnimationFrame(step);""")
    assert slowest[0] < 500 and slowest[1] < 100
    page.js("document.getElementById('scroller').scrollTop = 0")
    page.until(lambda: page.texts("user")[0].startswith("message 0"))
    # While the reader is above, an answer below moves nothing.
    before = page.js("return document.querySelector('.message').getBoundingClientRect().top")
    entry = page.one("#entry")
    entry.click()
    begin = time.monotonic()
    entry.send_keys("a sentence that is typed while the list is long")
    assert time.monotonic() - begin < 5
    assert page.js("return document.querySelector('.message').getBoundingClientRect().top") == before


BELOW = "const s = document.getElementById('scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight"


def test_the_list_stays_where_the_reader_is(page):
    page.script(answer(*[f"line {at}\n\n" for at in range(150)], every=15))
    page.say("Many lines.", wait=False)
    page.until(lambda: page.js("const s = document.getElementById('scroller'); return s.scrollHeight > s.clientHeight + 300"))
    assert page.js(BELOW) < 60
    page.js("document.getElementById('scroller').scrollTop = 40")
    page.idle()
    assert page.js("return document.getElementById('scroller').scrollTop") == 40
    page.until(lambda: page.one("#to-end").is_displayed())


# Moves the list after the page has made an answer longer and before it looks where the list is: at once, so the browser tells later.
MOVE_BETWEEN = """
const [to, done] = arguments, scroller = document.getElementById('scroller');
import('/page/talk/virtual.js').then(({ VirtualList }) => {
  const { layout } = VirtualList.prototype;
  VirtualList.prototype.layout = function () {
    VirtualList.prototype.layout = layout;
    scroller.scrollTop = to < 0 ? scroller.scrollTop + to : to;
    const wanted = scroller.scrollTop;
    layout.call(this);
    done([wanted, scroller.scrollTop]);
  };
});
"""


@pytest.mark.parametrize("to", [40, -20])
def test_a_reader_who_scrolls_while_an_answer_is_drawn_is_not_moved_back(page, to):
    """Nor by little."""
    page.script(answer(*[f"line {at}\n\n" for at in range(400)], every=15))
    page.say("Many lines.", wait=False)
    page.until(lambda: page.js("const s = document.getElementById('scroller'); return s.scrollHeight > s.clientHeight + 300"))
    wanted, got = page.driver.execute_async_script(MOVE_BETWEEN, to)
    assert wanted == got
    page.until(lambda: page.one("#to-end").is_displayed())
    assert page.js("return document.getElementById('scroller').scrollTop") == wanted
    page.one("#to-end").click()
    page.until(lambda: page.js(BELOW) < 2)
    page.one("#stop").click()
    page.idle()
    assert page.js(BELOW) < 2 and not page.one("#to-end").is_displayed()


def test_401_asks_for_the_key(tmp_path):
    with QuireServer(env={**os.environ, "QUIRE_API_KEY": KEY}) as locked:
        with Page(locked, tmp_path) as page:
            page.open()
            for attempt in ["wrong", KEY]:
                page.until(lambda: page.all("#ask[open]"))
                page.one("#ask-input").send_keys(attempt, Keys.ENTER)
                page.until(lambda: not page.all("#ask[open]") or "does not know" in page.one("#ask-text").text)
            page.until(lambda: page.one("#model").is_enabled())
            assert page.js("return Object.values(sessionStorage)") == [KEY]
            assert page.js("return Object.values(localStorage)") == []


def test_names_roles_and_landmarks(page):
    page.script(answer("```python\nprint(1)\n```"))
    page.say("Code.")
    page.one("#open-settings").click()
    nameless = page.js("""
      const name = (one) => one.getAttribute('aria-label') || one.textContent.trim() || [...(one.labels ?? [])].map((l) => l.textContent.trim()).join('');
      return [...document.querySelectorAll('button, input, select, textarea')].filter((one) => !name(one)).map((one) => one.outerHTML)""")
    unlabelled = page.js("""return [...document.querySelectorAll('input, select, textarea')].filter(
      (one) => !one.labels.length && !one.getAttribute('aria-label')).map((one) => one.outerHTML)""")
    assert nameless == [] and unlabelled == []
    for selector in ["h1", "main", "header", "nav[aria-label]", "aside[aria-label]"]:
        assert len(page.all(selector)) == 1, selector
    assert page.one("#announce").get_attribute("aria-live") == "polite" and "answered" in page.js("return announce.textContent")
    assert page.all("[style*='color']") == []
    ids = page.js("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    page.one("#scroller").send_keys("?")
    assert page.one("#help").is_displayed()


def test_narrow_and_wide_windows(page):
    page.script(answer("A wide table:\n\n|" + "column|" * 20 + "\n|" + "---|" * 20 + "\n|" + "value|" * 20))
    page.say("Table.")
    for width in [360, 420, 768, 1400, 2560]:
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False})
        page.until(lambda width=width: page.js("return innerWidth") == width)
        assert page.js("return document.documentElement.scrollWidth") <= width
        assert page.js("return document.getElementById('desk').scrollWidth <= document.getElementById('desk').clientWidth")
        assert page.one("#entry").is_displayed() and page.one("#send").is_displayed()


def test_the_message_box_is_as_high_as_its_text_in_each_window(page):
    """Also if the window or the view was another when it was last seen."""
    over = "const box = document.getElementById('entry'); return [box.offsetHeight, box.scrollHeight - box.clientHeight]"
    for width, view in [(1400, "look"), (2560, "both"), (2560, "look"), (1400, "both"), (420, "look"), (360, "talk"), (2560, "talk"), (420, "talk")]:
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 1300, "deviceScaleFactor": 1, "mobile": False})
        page.until(lambda width=width: page.js("return innerWidth") == width)
        page.one(f"#views [data-view={view}]").click()
        if view != "look":
            page.until(lambda: page.js("return document.getElementById('entry').checkVisibility()"))
            height, hidden = page.driver.execute_async_script(
                f"requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]((() => {{ {over} }})())))")
            assert 40 <= height <= 46 and hidden <= 0, (width, view, height, hidden)


def test_files_name_no_other_host():
    room = pathlib.Path(__file__).resolve().parents[2] / "src/page"
    for file in [room / "index.html", room / "page.css", room / "main.js", *(room / "talk").glob("*.js")]:
        assert not re.search(r"(?:src|href|url\(|import|fetch)[^\n]{0,20}https?://\w", file.read_text()), file
