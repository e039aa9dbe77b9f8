"""Talk and Look of the page at / at once, while others load the server: the same answers as the API gives."""
import json
import re
import signal
import time
import urllib.request

import pytest
from browser import TIGHT, Clients, Keys, Page, kept, lists, numbers, pytestmark  # noqa: F401  (skips where there is no browser)
from server import QuireServer

CLIENTS = 16
SETTINGS = {"temperature": "0", "max_tokens": "48"}


@pytest.fixture(scope="module")
def tight():
    with QuireServer("--live", *TIGHT) as server:
        yield server


@pytest.fixture
def page(tight, tmp_path):
    with Page(tight, tmp_path) as made:
        made.open()
        for name, value in SETTINGS.items():
            made.set(name, value)
        made.one("#close-settings").click()
        yield made


def answer_of_the_api(server, messages, max_tokens=48):
    body = {"messages": messages, "temperature": 0, "max_tokens": max_tokens}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as found:
        data = json.load(found)
    choice = data["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], data["usage"]["completion_tokens"]


def check_the_last_answer(page, server):
    """It is complete, shown, and what the API gives for the messages before it."""
    *before, last = [one for one in kept(page) if one["state"] == "done"]
    said = [{"role": one["role"], "content": one["content"]} for one in before]
    assert (last["content"], last["finish"], last["tokens"]) == answer_of_the_api(server, said)
    assert page.texts()[-1].split() == last["content"].split()
    return last


def test_three_turns_under_load_are_those_of_the_api(page, tight):
    page.one("#views [data-view=both]").click()
    page.until(lambda: page.all("#look canvas"))
    with Clients(tight, CLIENTS) as clients:
        page.until(lambda: tight.metrics()["vllm:num_requests_running"] > 4)
        for turn in range(3):
            page.say(f"Tell me of an owl, part {turn}.")
            assert len(page.texts("user")) == len(page.texts()) == turn + 1
            assert check_the_last_answer(page, tight)["tokens"] > 10
            now = tight.metrics()
            assert now["vllm:num_requests_running"] + now["vllm:num_requests_waiting"] > 4, "the others are still there"
            assert re.search(r"#\d+", lists(page)[1])
    assert not clients.failed
    assert page.complaints() == []


# Presses Stop as soon as a few words are there, which the test could not: an answer may take a tenth of a second.
STOP_SOON = """
const watch = new MutationObserver(() => {
  if (!(document.querySelector('.assistant .body')?.textContent.length > 20) || document.getElementById('stop').hidden) return;
  watch.disconnect();
  document.getElementById('stop').click();
});
watch.observe(document.getElementById('items'), {subtree: true, childList: true, characterData: true});
"""


def stop_an_answer(page, server, question):
    """Asks and stops, anew if the answer was complete sooner, until the server has ended one early: that answer."""
    aborted = "vllm:request_success_total:abort"
    for _ in range(10):
        page.js("document.getElementById('new-conversation').click()")
        before = server.metrics().get(aborted, 0)
        page.js(STOP_SOON)
        page.say(question)
        last = max(kept(page), key=lambda one: one["created"])
        end = time.monotonic() + 5
        while last["state"] == "stopped" and time.monotonic() < end:
            if server.metrics().get(aborted, 0) == before + 1:
                return last
            time.sleep(0.05)
    raise AssertionError("the server ended no answer early")


def test_stop_and_regenerate_under_load(page, tight):
    question = "Tell me a long story of a fox."
    page.set("max_tokens", "200")
    page.one("#close-settings").click()
    with Clients(tight, CLIENTS) as clients:
        page.until(lambda: tight.metrics()["vllm:num_requests_running"] > 4)
        stopped = stop_an_answer(page, tight, question)
        whole, *_ = answer_of_the_api(tight, [{"role": "user", "content": question}], 200)
        assert whole.startswith(stopped["content"]) and 20 < len(stopped["content"]) < len(whole)
        assert page.texts()[0].split() == stopped["content"].split() and "stopped" in page.one(".assistant .stats").text
        page.press(".message.assistant", "Regenerate")
        page.idle()
        again = max(kept(page), key=lambda one: one["created"])
        assert (again["state"], again["content"]) == ("done", whole)
        assert page.one(".branches").text.split() == ["‹", "2", "/", "2", "›"]
        page.one("button[aria-label='Previous branch']").click()
        assert page.texts()[0].split() == stopped["content"].split()
    assert not clients.failed
    assert page.complaints() == []


def kill_within_an_answer(page, server, question):
    """Asks, and holds the server to see whether it has not ended the answer yet; anew if it has."""
    for _ in range(10):
        page.js("document.getElementById('new-conversation').click()")
        page.say(question, wait=False)
        page.until(lambda: page.texts() and len(page.texts()[0]) > 20)
        server.process.send_signal(signal.SIGSTOP)
        before = None
        while (now := page.texts()[0]) != before:  # until what it sent is read
            before = now
            time.sleep(0.5)
        if page.one("#scroller").get_attribute("aria-busy") == "true":
            server.process.kill()
            return
        server.process.send_signal(signal.SIGCONT)
    raise AssertionError("each answer was complete before the server could be killed")


def test_the_server_is_killed_in_an_answer_and_comes_back(tmp_path):
    """The text stays, the answer is continued where it was cut, and it ends as the API ends it."""
    ask = [{"role": "user", "content": "Tell me a long story of a bear."}]
    with QuireServer("--live", *TIGHT) as server:
        port = server.port
        with Page(server, tmp_path) as page:
            page.open()
            page.set("temperature", "0")
            page.set("max_tokens", "250")
            page.one("#close-settings").click()
            with Clients(server, CLIENTS):
                kill_within_an_answer(page, server, ask[0]["content"])
                page.one("#entry").send_keys("typed meanwhile")
                page.idle()
            so_far = max(kept(page), key=lambda one: one["created"])
            assert so_far["state"] == "cut" and len(so_far["content"]) > 20
            assert "looks for the server" in page.one("#notices").text
            time.sleep(1)
            with QuireServer("--live", *TIGHT, port=port) as back:
                page.until(lambda: "server is back" in page.one("#notices").text)
                assert page.one("#entry").get_attribute("value") == "typed meanwhile"
                assert page.texts()[0].split() == so_far["content"].split()
                page.press(".message.assistant", "Continue")
                page.idle()
                whole = next(one for one in kept(page) if one["id"] == so_far["id"])
                assert whole["state"] == "done" and whole["content"].startswith(so_far["content"])
                assert whole["content"] == answer_of_the_api(back, ask, 250)[0]


def test_an_operator_sees_all_and_another_key_its_own(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("boss:the-key-of-an-operator\none:a-key-for-the-page\n")
    keys.chmod(0o600)
    with QuireServer("--api-key-file", str(keys), "--operators", "boss", *TIGHT) as server:
        for key, sees_all in [("the-key-of-an-operator", True), ("a-key-for-the-page", False)]:
            with Page(server, tmp_path) as page:
                page.open()
                page.until(lambda: page.all("#ask[open]"))
                page.one("#ask-input").send_keys(key, Keys.ENTER)
                page.until(lambda: page.one("#model").is_enabled())
                page.one("#views [data-view=look]").click()
                page.until(lambda: page.all("#look canvas"))
                page.until(lambda: page.js("return document.querySelector('#look .legend').children.length") > 0)  # it is told from here on
                with Clients(server, 4, "the-key-of-an-operator"), Clients(server, 1, "a-key-for-the-page"):
                    page.until(lambda: len(re.findall(r"#\d+", lists(page)[1])) == (5 if sees_all else 1))
                assert ("Blocks held" in numbers(page)) == sees_all
                assert ("not yours" in page.one("#look .legend").text) != sees_all
