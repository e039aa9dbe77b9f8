"""What the page at / asks of a real server and makes of its answers: settings, calls of tools, reasoning, errors, copying."""
import json
import re

import pytest
from browser import Keys, Page, answer, kept, pytestmark  # noqa: F401  (skips where there is no browser)
from server import QuireServer

from test_tools import TEMPLATE, TOOLS

SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "warm": {"type": "boolean"}},
          "required": ["city", "warm"], "additionalProperties": False}


@pytest.fixture(scope="module")
def server():
    with QuireServer() as running:
        yield running


@pytest.fixture(scope="module")
def with_tools(tmp_path_factory):
    """Its template knows of tools, and lets the model reason first where nothing forbids it."""
    path = tmp_path_factory.mktemp("page") / "hermes.jinja"
    path.write_text(TEMPLATE.replace("if enable_thinking", "if enable_thinking is not defined and not tools"))
    with QuireServer("--chat-template", str(path)) as running:
        yield running


@pytest.fixture
def page(server, tmp_path):
    with Page(server, tmp_path) as made:
        yield made.open()


def begin(page, **settings):
    page.js("document.getElementById('new-conversation').click()")
    page.one("#open-settings").click()
    page.one("#settings-form button[type=reset]").click()
    for name, value in settings.items():
        page.js("const box = document.getElementById('set-' + arguments[0]); box.value = arguments[1]; "
                "box.dispatchEvent(new Event('input', {bubbles: true}))", name, value)
    page.one("#close-settings").click()


def said(page):
    return [one["content"] for one in kept(page) if one["role"] == "assistant"][-1]


def test_a_seed_gives_the_same_answer_again_and_another_seed_another(page):
    answers = []
    for seed in ["7", "7", "8"]:
        begin(page, seed=seed, temperature="1", max_tokens="40")
        page.say("Tell me a story.")
        answers.append(page.texts()[0])
    assert answers[0] == answers[1] != answers[2]
    begin(page, temperature="1", max_tokens="40")
    page.say("Tell me a story.")
    page.press(".message.assistant", "Regenerate")
    page.idle()
    assert page.one(".branches").text.split()[1] == "2" and page.texts()[0] not in answers


def test_a_schema_is_kept_to(page):
    begin(page, schema=json.dumps(SCHEMA), max_tokens="100", seed="1")
    page.say("Where is it warm?")
    got = json.loads(said(page))
    assert got["city"] in ["Oslo", "Rome"] and got["warm"] in [True, False] and len(got) == 2


def test_system_prompt_and_stop_strings_count(page):
    begin(page, temperature="0", max_tokens="30")
    page.say("Hello.")
    plain, tokens = page.texts()[0], page.one(".stats").text
    begin(page, temperature="0", max_tokens="30", system="You tell of bears in winter.")
    page.say("Hello.")
    with_system = page.one(".stats").text
    count = [int(re.match(r"([\d,]+) tokens in", text)[1].replace(",", "")) for text in [tokens, with_system]]
    assert count[1] > count[0] + 5
    word = plain.split()[4]
    begin(page, temperature="0", max_tokens="30", stop=word)
    page.say("Hello.")
    assert page.texts()[0] == plain[:plain.index(word)].strip()


def test_log_probabilities_are_those_of_the_server(page):
    begin(page, temperature="0", max_tokens="12")
    page.one("#open-settings").click()
    page.one("#set-logprobs").click()
    page.one("#close-settings").click()
    page.say("Tell me a story.")
    page.press(".message.assistant", "Probabilities")
    tokens = kept(page)[-1]["logprobs"]
    shown = page.js("return [...document.querySelectorAll('.token')].map((one) => one.getAttribute('aria-label'))")
    assert len(shown) == len(tokens) == 12
    for text, (_, logprob, others) in zip(shown, tokens):
        assert logprob == max(value for _, value in others), "greedy"
        assert re.search(r"(< 0\.01|[\d.]+) %$", text)
    assert "".join(one[0] for one in tokens).split() == said(page).split()


def test_a_call_of_a_tool_and_its_result_go_to_the_server(with_tools, tmp_path):
    with Page(with_tools, tmp_path) as page:
        page.open()
        begin(page, tools=json.dumps(TOOLS[:1]), tool_choice="required", seed="1", max_tokens="150")
        page.say("What is the weather?")
        calls = kept(page)[-1]["calls"]
        assert calls[0]["name"] == "get_weather" and json.loads(calls[0]["arguments"])["city"] in ["Paris", "Oslo"]
        shown = page.one(".call").text
        assert "get_weather" in shown and '"city"' in shown
        page.js("const box = document.getElementById('set-tool_choice'); box.value = 'none'; box.dispatchEvent(new Event('input', {bubbles: true}))")
        page.one(".call textarea").send_keys("12 degrees", Keys.CONTROL, Keys.ENTER)
        page.until(lambda: len(page.all(".message.tool")) == len(calls))
        page.idle()
        assert page.texts("tool")[0] == "12 degrees"
        _, asked, *_, last = kept(page)
        assert last["state"] == "done" and last["promptTokens"] > asked["promptTokens"] + 10, "call and result are in the prompt"


def test_reasoning_is_folded(with_tools, tmp_path):
    with Page(with_tools, tmp_path) as page:
        page.open()
        begin(page, temperature="0", max_tokens="30")
        page.say("Think.")
        reasoning = kept(page)[-1]["reasoning"]
        assert len(reasoning) > 20 and page.one(".assistant .thought").is_displayed() and not page.one(".assistant .thought-body").is_displayed()
        page.one(".assistant .thought summary").send_keys(Keys.ENTER)
        page.until(lambda: page.one(".assistant .thought-body").text.split() == reasoning.split())


def test_an_error_says_what_to_do(page):
    bodies = ['{"error": {"message": "it is the moon"}}', "<html>a proxy</html>", "null", '{"error": null}']
    for status, does in [
            (400, "Change the setting"), (403, "Open the page under the server's own address"), (404, "Choose another"),
            (413, "Begin a new one"), (418, "Try again"), (422, "Change the setting"), (429, "try again"), (500, "Try again"),
            (503, "Try again in a moment")]:
        for body in bodies:
            page.js("document.getElementById('new-conversation').click()")
            page.script({"status": status, "body": body})
            page.say("Now?")
            problem = page.one(".assistant .problem").text
            assert does in problem and ("it is the moon" in problem) == (body == bodies[0]) and "proxy" not in problem, (status, body)
            page.script(answer("well"))
            page.press(".assistant .problem", "Try again")
            page.until(lambda: page.texts() == ["well"])


def test_a_conversation_that_is_too_long_is_told_so(page):
    begin(page, max_tokens="5000")
    page.say("Hello.")
    problem = page.one(".assistant .problem").text
    assert "too long" in problem and "lower Max tokens" in problem and "512 tokens" in problem
    begin(page, max_tokens="5", temperature="0")
    page.say("Hello.")
    assert not page.one(".assistant .problem").is_displayed()


def test_code_and_answers_are_copied(page):
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    code = "def f():\n    return '\u202e'  # \"quoted\" & <b>"
    page.script(answer(f"Text.\n\n```python\n{code}\n```\n"))
    page.say("Code.")
    for selector, name, text in [(".code-head", "Copy code", code), (".assistant .tools", "Copy", f"Text.\n\n```python\n{code}\n```\n")]:
        page.press(selector, name)
        page.until(lambda: page.js("return document.getElementById('announce').textContent").strip() == "Copied")
        assert page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))") == text
        page.js("document.getElementById('announce').textContent = ''")
