"""A simulated device that says the answers of a file: conversations with tools, as an agent has them."""
import json
import subprocess
import urllib.error
import urllib.request

import openai
import pytest

from server import MODEL, QUIRE, QuireServer
from test_tools import TEMPLATE

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": parameters,
                                                                        "required": list(parameters), "additionalProperties": False}}}
         for name, parameters in (("get_weather", {"city": {"type": "string"}}), ("add", {"a": {"type": "integer"}, "b": {"type": "integer"}}))]
DO = {"get_weather": lambda city: {"city": city, "degrees": 12}, "add": lambda a, b: a + b}


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CONVERSATION = ["I will look.\n" + call("get_weather", city="Zürich \"HB\"") + "\n" + call("get_weather", city="Oslo"),
                call("add", a=12, b=-30), "Together -18 degrees, said the fox. \U0001f98a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    (folder / "hermes.jinja").write_text(TEMPLATE)
    return folder


def serve(folder, answers, *flags):
    (folder / "answers").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return QuireServer("--device", "sim", "--sim-speed", 100, "--sim-answers", folder / "answers", "--chat-template", folder / "hermes.jinja", *flags)


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def over_http(server, **body):
    """Streams are put together here, from the bytes."""
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    if not body.get("stream"):
        choice = json.loads(text)["choices"][0]
        return choice["message"], choice["finish_reason"]
    message, finish = {"role": "assistant", "content": None}, None
    events = text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    for event in events[:-2]:
        choice = json.loads(event.removeprefix("data: "))["choices"][0]
        delta = choice["delta"]
        if delta.get("content"):
            message["content"] = (message["content"] or "") + delta["content"]
        for piece in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if piece["index"] == len(calls):
                calls.append({"id": piece["id"], "type": piece["type"], "function": {"name": piece["function"]["name"], "arguments": ""}})
            calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments", "")
        finish = choice["finish_reason"] or finish
    return message, finish


def over_client(server, stream=False, **body):
    client = connect(server)
    if stream:
        with client.chat.completions.stream(model="", **body) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(model="", **body).choices[0]
    return json.loads(choice.message.model_dump_json(exclude_unset=True, exclude={"parsed", "refusal"})), choice.finish_reason


def converse(ask):
    """As an agent does: calls what it is told to, and goes on until there is nothing more to call."""
    messages = [{"role": "user", "content": "How warm is it?"}]
    finish = "tool_calls"
    while finish == "tool_calls":
        message, finish = ask(messages=messages, tools=TOOLS)
        messages.append(message)
        for each in message.get("tool_calls") or []:
            result = DO[each["function"]["name"]](**json.loads(each["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": each["id"], "content": json.dumps(result)})
    assert finish == "stop"
    return messages


def test_a_conversation_with_two_tools(folder):
    said = []
    with serve(folder, CONVERSATION) as server:
        for ask in (over_http, over_client):
            for stream in (False, True):
                said.append(converse(lambda **body: ask(server, stream=stream, **body)))
    for messages in said:
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
        assert messages[1]["content"] == "I will look."
        called = [[(each["function"]["name"], json.loads(each["function"]["arguments"])) for each in messages[at]["tool_calls"]] for at in (1, 4)]
        assert called == [[("get_weather", {"city": "Zürich \"HB\""}), ("get_weather", {"city": "Oslo"})], [("add", {"a": 12, "b": -30})]]
        assert len({each["id"] for at in (1, 4) for each in messages[at]["tool_calls"]}) == 3
        assert messages[5]["content"] == "-18" and messages[6]["content"] == CONVERSATION[2] and not messages[4].get("content")


def test_answers_come_in_order_and_begin_again(folder):
    with serve(folder, ["one", "two", "", "four"], "--num-blocks", 40, "--max-model-len", 64) as server:
        client = connect(server)

        def ask(**more):
            return [choice.message.content for choice in client.chat.completions.create(model="", messages=[{"role": "user", "content": "x"}], **more).choices]

        assert ask(n=2) == ["one", "two"] and ask(extra_body={"ignore_eos": True}) == [""] and ask(seed=1, temperature=0) == ["four"] and ask() == ["one"]
        completed = client.completions.create(model="", prompt=["a", "b"]).choices
        assert sorted(choice.text for choice in completed) == ["", "two"]
        cut = client.completions.create(model="", prompt="a", max_tokens=1).choices[0]
        assert cut.finish_reason == "length" and "four".startswith(cut.text)
        assert client.completions.create(model="", prompt="a", max_tokens=0, echo=True, logprobs=1).choices[0].text == "a"
        assert ask() == ["one"]


def test_a_grammar_holds_also_for_what_is_dictated(folder):
    fox, bear = call("add", a=1, b=2), call("bear")
    with serve(folder, [fox, "no", fox, bear, "<tool_call>\n{", "yes"]) as server:
        client = connect(server)

        def ask(**more):
            return client.chat.completions.create(model="", messages=[{"role": "user", "content": "x"}], tools=TOOLS, **more).choices[0]

        def refused(**more):
            with pytest.raises(openai.BadRequestError) as error:
                ask(**more)
            return error.value.body["message"]

        assert ask(tool_choice="required").message.tool_calls[0].function.arguments == '{"a": 1, "b": 2}'
        assert "the grammar leaves no token for position" in refused(tool_choice="required")
        server.wait_for("line 2: the grammar of the request forbids token 1 of this answer")
        assert "the grammar leaves no token" in refused(tool_choice={"type": "function", "function": {"name": "get_weather"}})
        assert ask().message.content == bear  # there is no such tool
        assert "the grammar leaves no token" in refused(tool_choice="required")  # it ends too early
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="", prompt="x", extra_body={"guided_choice": ["no"]})
        assert ask(tool_choice="none").message.content == fox


@pytest.mark.parametrize("text, said", [("", "holds no answer"), ('"a"\n\n5\n', "line 3: not a JSON string"), ('"a"\n"b\n', "line 2: at byte"), (None, "answers")])
def test_a_file_without_answers_is_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "answers").write_text(text)
    done = subprocess.run([QUIRE, "serve", MODEL, "--port", "0", "--device", "sim", "--sim-answers", tmp_path / "answers"], capture_output=True, text=True)
    assert done.returncode == 1 and str(tmp_path / "answers") in done.stderr and said in done.stderr


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_of_the_client_comes_back_as_it_is(folder, stream):
    """With `parsed` and `parsed_arguments`, which the client adds."""
    with serve(folder, CONVERSATION) as server:
        client = connect(server)
        messages = [{"role": "user", "content": "How warm is it?"}]
        for _ in range(3):
            if stream:
                with client.chat.completions.stream(model="", messages=messages, tools=TOOLS) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(model="", messages=messages, tools=TOOLS).choices[0].message
            messages.append(message.model_dump())
            messages += [{"role": "tool", "tool_call_id": each.id, "content": "3"} for each in message.tool_calls or []]
        assert message.content == CONVERSATION[2]


@pytest.mark.parametrize("stream", [False, True])
def test_without_parallel_calls_there_is_one(folder, stream):
    with serve(folder, CONVERSATION) as server:
        message, finish = over_http(server, stream=stream, messages=[{"role": "user", "content": "u"}], tools=TOOLS, parallel_tool_calls=False)
    assert finish == "tool_calls" and [each["function"]["name"] for each in message["tool_calls"]] == ["get_weather"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Zürich \"HB\""}


def test_a_stop_string_waits_for_min_tokens(folder):
    with serve(folder, ["One. Two. Three. Four."]) as server:
        def ask(**more):
            return connect(server).chat.completions.create(model="", messages=[{"role": "user", "content": "u"}], stop=["."], **more)
        assert ask().choices[0].message.content == "One"
        answer = ask(max_tokens=60, extra_body={"min_tokens": 8})
        assert answer.usage.completion_tokens >= 8 and answer.choices[0].message.content.startswith("One. ")


def test_an_answer_goes_on_in_an_open_thought(folder):
    with serve(folder, ["more of it</think>\n\nDone."], "--reasoning-parser", "think") as server:
        message = connect(server).chat.completions.create(
            model="", messages=[{"role": "user", "content": "u"}, {"role": "assistant", "content": "<think>\nI am"}],
            extra_body={"continue_final_message": True, "add_generation_prompt": False}).choices[0].message
    assert message.reasoning_content == "more of it" and message.content == "Done."
