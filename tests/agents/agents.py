#!/usr/bin/env python3
"""A conversation with two tools as agents hold it, whole and streamed: agents.py [openai] [langchain] [pydantic-ai] [litellm]

Each asks, calls what the answer wants, hands the results back, and goes on until an answer calls nothing. The model's words are those
of CONVERSATION, in the form of Hermes; the server is build/release/quire (or QUIRE_BIN) with --device sim.
"""
import asyncio
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from server import QuireServer  # noqa: E402

TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\nTools:' }}{%- for tool in tools %}{{- ' ' + tool.function.name }}{%- endfor %}{{- '. Call: <tool_call>{"name": ...}</tool_call><|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
QUESTION = "How much warmer is it in Oslo than in Bergen?"
FIRST = [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Bergen"})]
SECOND = [("add", {"a": 12, "b": -7})]
LAST = "It is 5 degrees warmer in Oslo."


def words(calls):
    return "\n".join(f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in calls)


CONVERSATION = ["I look at the weather first.\n" + words(FIRST), words(SECOND), LAST]
called = []


def get_weather(city: str) -> str:
    """The weather in a city now."""
    called.append(("get_weather", {"city": city}))
    return json.dumps({"degrees": {"Oslo": 12, "Bergen": 7}[city]})


def add(a: int, b: int) -> str:
    """The sum of two numbers."""
    called.append(("add", {"a": a, "b": b}))
    return str(a + b)


DO = {"get_weather": get_weather, "add": add}
TOOLS = [{"type": "function", "function": {"name": name, "description": DO[name].__doc__, "parameters": {
    "type": "object", "properties": parameters, "required": list(parameters)}}}
    for name, parameters in (("get_weather", {"city": {"type": "string"}}), ("add", {"a": {"type": "integer"}, "b": {"type": "integer"}}))]


def converse(ask):
    """`ask`: messages to the next one, as OpenAI writes them."""
    messages = [{"role": "user", "content": QUESTION}]
    while True:
        message = ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for each in message["tool_calls"]:
            result = DO[each["function"]["name"]](**json.loads(each["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": each["id"], "content": result})


def with_openai(url, stream):
    import openai
    client = openai.OpenAI(base_url=url, api_key="none")

    def ask(messages):
        if not stream:
            return client.chat.completions.create(model="", messages=messages, tools=TOOLS).choices[0].message.model_dump(exclude_none=True)
        with client.chat.completions.stream(model="", messages=messages, tools=TOOLS) as events:
            return events.get_final_completion().choices[0].message.to_dict()

    return converse(ask)


def with_litellm(url, stream):
    import litellm

    def ask(messages):
        answer = litellm.completion(model="openai/demo", api_base=url, api_key="none", messages=messages, tools=TOOLS, stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        return answer.choices[0].message.model_dump(exclude_none=True)

    return converse(ask)


def with_langchain(url, stream):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    tools = {name: tool(function) for name, function in DO.items()}
    model = ChatOpenAI(base_url=url, api_key="none", model="demo").bind_tools(list(tools.values()))
    messages = [HumanMessage(QUESTION)]
    while True:
        if stream:
            message = None
            for piece in model.stream(messages):
                message = piece if message is None else message + piece
        else:
            message = model.invoke(messages)
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            messages.append(ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"]))


def with_pydantic_ai(url, stream):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(OpenAIChatModel("demo", provider=OpenAIProvider(base_url=url, api_key="none")), tools=[get_weather, add])
    if not stream:
        return agent.run_sync(QUESTION).output

    async def streamed():
        async with agent.run_stream_events(QUESTION) as events:
            return [event async for event in events][-1].result.output

    return asyncio.run(streamed())


AGENTS = {"openai": with_openai, "langchain": with_langchain, "pydantic-ai": with_pydantic_ai, "litellm": with_litellm}


def main():
    names = sys.argv[1:] or list(AGENTS)
    for name in names:
        if name not in AGENTS:
            sys.exit(f"{name}: not one of {', '.join(AGENTS)}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "hermes.jinja").write_text(TEMPLATE)
        (folder / "answers").write_text("".join(json.dumps(answer) + "\n" for answer in CONVERSATION))
        flags = ["--device", "sim", "--sim-speed", 100, "--sim-answers", folder / "answers", "--chat-template", folder / "hermes.jinja",
                 "--served-model-name", "demo", "--max-model-len", 512]
        with QuireServer(*flags) as server:
            for name in names:
                for stream in (False, True):
                    called.clear()
                    said = AGENTS[name](server.url + "/v1", stream)
                    fine = said == LAST and sorted(map(str, called)) == sorted(map(str, FIRST + SECOND)) and called[-1] == SECOND[0]
                    print(f"{name}, {'streamed' if stream else 'whole'}: {'as it should be' if fine else f'{called} {said!r}'}", flush=True)
                    if not fine:
                        sys.exit(1)


if __name__ == "__main__":
    main()
