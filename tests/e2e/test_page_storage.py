"""What the page at / does where the browser keeps nothing, or has no room left: it says so, goes on, and loses nothing unseen."""
import json
import os

import pytest
from browser import Page, answer, kept, pytestmark  # noqa: F401  (skips where there is no browser)
from server import QuireServer
from test_page_manners import fill_talk

REFUSED = [
    "Object.defineProperty(window, 'indexedDB', {get() { throw new DOMException('access is denied', 'SecurityError'); }})",
    "Object.defineProperty(window, 'indexedDB', {value: undefined})",
    "IDBFactory.prototype.open = () => { throw new DOMException('not in this mode', 'InvalidStateError'); }",
    """for (const store of ['localStorage', 'sessionStorage', 'indexedDB']) {
         Object.defineProperty(window, store, {get() { throw new DOMException('denied', 'SecurityError'); }}); }""",
]
# As where there is no room: at once, or when what was put is written.
FULL = {
    "at once": "const put = IDBObjectStore.prototype.put; window.room = false;"
               "IDBObjectStore.prototype.put = function (value) {"
               "  if (!window.room) throw new DOMException('full', 'QuotaExceededError'); return put.call(this, value); }",
    "at the end": "const put = IDBObjectStore.prototype.put; window.room = false;"
                  "const error = Object.getOwnPropertyDescriptor(IDBTransaction.prototype, 'error').get, full = new WeakSet();"
                  "Object.defineProperty(IDBTransaction.prototype, 'error', {get() {"
                  "  return full.has(this) ? new DOMException('full', 'QuotaExceededError') : error.call(this); }});"
                  "IDBObjectStore.prototype.put = function (value) {"
                  "  const request = put.call(this, value);"
                  "  if (!window.room) request.addEventListener('success', () => { full.add(this.transaction); this.transaction.abort(); });"
                  "  return request; }",
}


@pytest.fixture(scope="module")
def server():
    with QuireServer() as running:
        yield running


@pytest.fixture
def page(server, tmp_path):
    with Page(server, tmp_path) as made:
        yield made


def begin_with(page, script):
    page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    page.open()


def talk(page, question, reply):
    page.script(answer(reply))
    page.say(question)
    assert page.texts()[-1] == reply


def warns_before_it_closes(page):
    return page.js("const event = new Event('beforeunload', {cancelable: true}); window.dispatchEvent(event); return event.defaultPrevented")


def states(page):
    return page.js("return [...document.querySelectorAll('.conversation small')].map((one) => one.textContent)")


def exported(page, tmp_path):
    page.one("#export-all").click()
    file = tmp_path / "quire-conversations.json"
    return [[message["content"] for message in one["messages"]] for one in page.downloaded(file)["conversations"]]


def two_conversations_in_memory(page, tmp_path):
    """They can be left, searched, opened again and exported."""
    talk(page, "first question", "first answer")
    assert states(page) == ["not saved"]
    page.one("#new-conversation").click()
    talk(page, "second question", "second answer")
    assert states(page) == ["not saved"] * 2 and warns_before_it_closes(page)
    page.one("#search").send_keys("first answer")
    titles = "return [...document.querySelectorAll('.conversation bdi')].map((one) => one.textContent)"
    page.until(lambda: page.js(titles) == ["first question"])
    page.one(".conversation").click()
    page.until(lambda: page.texts() == ["first answer"])
    talk(page, "third question", "third answer")
    page.one("#search").clear()
    page.one("#search").send_keys(" ")
    page.until(lambda: len(page.all(".conversation")) == 2)
    assert sorted(exported(page, tmp_path)) == [
        ["first question", "first answer", "third question", "third answer"], ["second question", "second answer"]]


@pytest.mark.parametrize("script", REFUSED)
def test_a_browser_that_keeps_nothing(page, tmp_path, script):
    begin_with(page, script)
    said = page.one("#notices").text
    assert "does not let the page keep anything" in said and "lost when this tab is closed" in said and "export" in said
    assert not warns_before_it_closes(page), "there is nothing yet to lose"
    page.press("#notices", "Dismiss")
    two_conversations_in_memory(page, tmp_path)
    assert page.one("#notices").text == "", "it was said, and the list says it too"
    for _ in range(2):
        page.one("#delete").click()
        page.one("#ask-ok").click()
        page.until(lambda: not page.all(".message"))
        if page.all(".conversation"):
            page.one(".conversation").click()
            page.until(lambda: page.all(".message"))
    assert not warns_before_it_closes(page)
    assert page.complaints() == []


@pytest.mark.parametrize("script", FULL.values(), ids=FULL)
def test_no_room_left(page, tmp_path, script):
    begin_with(page, script)
    talk(page, "zero", "nothing")
    said = page.one("#notices").text
    assert "no room left" in said and "delete old conversations" in said and "lost when this tab is closed" in said
    page.press("#notices", "Dismiss")
    page.one("#delete").click()
    page.one("#ask-ok").click()
    page.until(lambda: not page.all(".message"))
    two_conversations_in_memory(page, tmp_path)
    assert kept(page) == []
    # Then there is room again.
    page.js("window.room = true")
    page.until(lambda: "not saved" not in states(page))
    assert "Everything is saved again." in page.one("#notices").text and not warns_before_it_closes(page)
    assert sorted(one["content"] for one in kept(page)) == sorted(
        f"{which} {what}" for which in ["first", "second", "third"] for what in ["question", "answer"])
    page.open()
    page.until(lambda: len(page.all(".conversation")) == 2)
    assert page.complaints() == []


def without_ids(conversation):
    """A conversation of an exported file; messages are named by their place in it, and when it was imported is left out."""
    places = {one["id"]: at for at, one in enumerate(conversation["messages"])} | {"": ""}
    messages = [one | {"id": places[one["id"]], "parent": places[one["parent"]]} for one in conversation["messages"]]
    chosen = {places[parent]: places[child] for parent, child in conversation["chosen"].items()}
    return {**conversation, "messages": messages, "chosen": chosen, "updated": None}


def test_all_of_a_conversation_is_exported_and_imported(page, tmp_path):
    """Branches, calls, reasoning, log probabilities, figures, what went wrong, and the settings."""
    page.open()
    page.set("seed", "7")
    page.set("system", "Be brief.")
    page.one("#close-settings").click()
    fill_talk(page)
    page.one("#export").click()
    file = tmp_path / "quire-conversation.json"
    first = page.downloaded(file)
    [conversation] = first["conversations"]
    named = set().union(*conversation["messages"])
    assert {"calls", "callId", "toolName", "reasoning", "logprobs", "problem", "finish", "model", "promptTokens", "tokens", "timed", "ttft",
            "took", "estimated"} <= named
    assert len({one["parent"] for one in conversation["messages"]}) < len(conversation["messages"]), "it has branches"
    file.unlink()
    page.driver.execute_async_script("const request = indexedDB.deleteDatabase('quire'); request.onsuccess = () => arguments[0]()")
    page.open()
    assert page.all(".conversation") == page.all(".message") == []
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(first))
    page.one("#import-file").send_keys(str(copy))
    page.until(lambda: page.all(".message"))
    assert [page.one(f"#set-{name}").get_attribute("value") for name in ["seed", "system"]] == ["7", "Be brief."]
    page.one("#export").click()
    again = page.downloaded(file)
    assert [without_ids(one) for one in again["conversations"]] == [without_ids(conversation)]
    assert page.complaints() == []


def test_the_browsers_own_quota(page):
    origin = page.server.url
    page.driver.execute_cdp_cmd("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": 100_000})
    page.open()
    talk(page, "small", "fits")
    assert states(page) != ["not saved"]
    page.one("#new-conversation").click()
    # Of no pattern, since the browser compresses what it keeps.
    page.js("""const bytes = new Uint8Array(250_000);
      for (let at = 0; at < bytes.length; at += 50_000) crypto.getRandomValues(bytes.subarray(at, at + 50_000));
      const content = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
      window.script.push({events: [{choices: [{index: 0, delta: {content}, finish_reason: 'stop'}]}, '[DONE]']})""")
    page.say("large")
    page.until(lambda: "no room left" in page.one("#notices").text)
    assert page.js("return document.querySelector('.assistant .body').textContent.length") == 500_000
    assert states(page)[0] == "not saved" != states(page)[1]
    # Room is made by deleting; here, by the quota.
    page.driver.execute_cdp_cmd("Storage.overrideQuotaForOrigin", {"origin": origin})
    page.until(lambda: "not saved" not in states(page))
    assert max(len(one["content"]) for one in kept(page)) == 500_000
    assert page.complaints() == []


def test_a_key_is_asked_for_once_where_the_tab_keeps_nothing(tmp_path):
    with QuireServer(env={**os.environ, "QUIRE_API_KEY": "the-key-of-this-test"}) as locked:
        with Page(locked, tmp_path) as page:
            begin_with(page, REFUSED[-1])
            page.until(lambda: page.all("#ask[open]"))
            page.one("#ask-input").send_keys("the-key-of-this-test\n")
            page.until(lambda: page.one("#model").is_enabled())
            page.set("max_tokens", "4")
            page.say("Hello?")
            assert page.texts()[0] and not page.all("#ask[open]")
