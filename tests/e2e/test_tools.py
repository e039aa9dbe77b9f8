"""Tool calls and reasoning over HTTP: the official client, streamed and whole."""
import json

import openai
import pytest

from server import QuireServer

# Teaches calls as Hermes does, in few words: the demo model has 512 tokens of context.
TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\nTools:' }}{%- for tool in tools %}{{- ' ' + tool.function.name }}{%- endfor %}{{- '. Call: <tool_call>{"name": ...}</tool_call><|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking %}{{- '<think>\\n' }}{%- endif %}{%- endif %}{#- </think> -#}"""

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False, "$defs": {"city": {"enum": ["Paris", "Oslo"]}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
MESSAGES = [{"role": "user", "content": "What is the weather?"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "hermes.jinja"
    path.write_text(TEMPLATE)
    with QuireServer("--chat-template", str(path)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none")


def ask(client, messages=MESSAGES, **more):
    more.setdefault("tools", TOOLS)
    return client.chat.completions.create(model="", messages=messages, temperature=1.0, seed=more.pop("seed", 1),
                                          max_tokens=more.pop("max_tokens", 250), **more)


def check_arguments(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "now":
        assert arguments == {}
    else:
        assert call.function.name == "get_weather"
        assert arguments["city"] in ("Paris", "Oslo") and 1 <= arguments["days"] <= 9 and len(arguments) == 2


@pytest.mark.parametrize("seed", range(6))
def test_required_calls_are_valid_and_streamed_is_whole(client, seed):
    options = {"tool_choice": "required", "parallel_tool_calls": seed % 2 == 1, "seed": seed}
    whole = ask(client, **options).choices[0]
    if whole.finish_reason == "length":
        assert seed % 2 == 1  # as many calls as there was room for
    else:
        assert whole.finish_reason == "tool_calls"
        assert whole.message.content is None
        for call in whole.message.tool_calls:
            check_arguments(call)
        assert seed % 2 == 1 or len(whole.message.tool_calls) == 1
    content, calls, finish = "", [], None
    for chunk in ask(client, stream=True, **options):
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            if piece.index == len(calls):
                assert piece.id and piece.type == "function" and piece.function.name
                calls.append([piece.function.name, ""])
            calls[piece.index][1] += piece.function.arguments
        finish = choice.finish_reason or finish
    assert finish == whole.finish_reason
    assert content == (whole.message.content or "")
    assert calls == [[call.function.name, call.function.arguments] for call in whole.message.tool_calls]


def test_a_conversation_with_two_tools(client):
    messages = list(MESSAGES)
    for name in ("now", "get_weather"):
        answer = ask(client, messages, tool_choice={"type": "function", "function": {"name": name}}).choices[0]
        assert [call.function.name for call in answer.message.tool_calls] == [name]
        check_arguments(answer.message.tool_calls[0])
        messages.append(answer.message)
        messages.append({"role": "tool", "tool_call_id": answer.message.tool_calls[0].id, "content": "12"})
    last = ask(client, messages, tool_choice="none", max_tokens=20).choices[0]
    assert last.message.content and last.message.tool_calls is None


def test_without_a_call_the_answer_is_as_without_parsing(client):
    free = ask(client, max_tokens=40).choices[0]
    assert free.message.tool_calls is None and free.message.content
    text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, max_tokens=40, stream=True))
    assert text == free.message.content


def test_reasoning_is_told_apart_and_bounded(client):
    extra = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 8}
    answer = ask(client, tools=[], extra_body=extra, max_tokens=40).choices[0].message
    assert answer.reasoning_content and answer.reasoning == answer.reasoning_content
    assert "</think>" not in answer.content and "</think>" not in answer.reasoning_content
    hidden = ask(client, tools=[], extra_body={**extra, "include_reasoning": False}, max_tokens=40).choices[0].message
    assert hidden.content == answer.content and not hasattr(hidden, "reasoning_content")
    effort = ask(client, tools=[], reasoning_effort="none", extra_body={"thinking_token_budget": 8}, max_tokens=10)
    assert not hasattr(effort.choices[0].message, "reasoning_content")
    both = ask(client, tools=[], reasoning_effort="none", extra_body=extra, max_tokens=40).choices[0].message
    assert both.reasoning_content == answer.reasoning_content, "the template's variable goes before the effort"
    reasoning, content = "", ""
    for chunk in ask(client, tools=[], extra_body=extra, max_tokens=40, stream=True):
        reasoning += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
        content += chunk.choices[0].delta.content or ""
    assert (reasoning, content) == (answer.reasoning_content, answer.content)


def test_a_schema_and_calls_hold_after_the_thought(client):
    thinks = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 10}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}
    answer = ask(client, tools=[], response_format=schema, extra_body=thinks).choices[0]
    assert answer.finish_reason == "stop" and json.loads(answer.message.content) in ("yes", "no")
    assert answer.message.reasoning_content
    called = ask(client, tool_choice="required", parallel_tool_calls=False, extra_body=thinks).choices[0]
    assert called.finish_reason == "tool_calls" and called.message.reasoning_content
    check_arguments(called.message.tool_calls[0])


def test_an_answer_follows_its_schema_or_calls(client):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
        "type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"], "additionalProperties": False}}}
    kinds = {"stop": 0, "tool_calls": 0}
    for seed in range(12):
        answer = ask(client, seed=seed, response_format=schema, parallel_tool_calls=False).choices[0]
        if answer.finish_reason == "length":
            continue
        kinds[answer.finish_reason] += 1
        if answer.finish_reason == "stop":
            assert set(json.loads(answer.message.content)) == {"rain"} and not answer.message.tool_calls
        else:
            assert answer.message.content is None and json.loads(answer.message.tool_calls[0].function.arguments) is not None
    assert kinds["stop"] + kinds["tool_calls"] >= 6
    called = ask(client, response_format=schema, tool_choice="required", parallel_tool_calls=False).choices[0]
    assert called.message.content is None
    check_arguments(called.message.tool_calls[0])
    biased = ask(client, response_format=schema, tool_choice="none").choices[0].message
    assert set(json.loads(biased.content)) == {"rain"}


@pytest.mark.parametrize("more, param, words", [
    ({"tools": [], "tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"tool_choice": "required", "extra_body": {"use_beam_search": True}, "max_tokens": 9}, "tools", "use_beam_search"),
    ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {
        "properties": {"a": {"not": {}}}}}}]}, "tools", "calls of f cannot be enforced: its parameters at '#/properties/a/not'"),
    ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, "tools[0].function.name", "letters, digits"),
    ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(10_000)]}, "tools", "at most 1024"),
    ({"tools": [], "reasoning_effort": "very"}, "reasoning_effort", "must be one of"),
])
def test_bad_wishes_are_refused(client, more, param, words):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **more)
    assert refused.value.body["param"] == param and words in refused.value.body["message"]


def test_what_a_template_does_not_read_is_refused():
    with QuireServer() as plain:
        client = openai.OpenAI(base_url=plain.url + "/v1", api_key="none")
        for more, param in (({"tools": TOOLS}, "tools"), ({"tools": [], "reasoning_effort": "high"}, "reasoning_effort"),
                            ({"tools": [], "extra_body": {"thinking_token_budget": 5}}, "thinking_token_budget")):
            with pytest.raises(openai.BadRequestError) as refused:
                ask(client, **more)
            assert refused.value.body["param"] == param and "not" in refused.value.body["message"]
        assert ask(client, tool_choice="none", max_tokens=5).choices[0].message.content
