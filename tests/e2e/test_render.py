"""quire render shows the prompt that a server makes of the same messages."""
import json
import urllib.request

import pytest

from server import MODEL, QuireServer
from test_cli import quire

# It knows system, user and assistant, as Qwen2.5's does, and nothing of other roles.
PLAIN = """{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}<{{ m.role }}>{{ m.content }}
{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    for file in MODEL.iterdir():
        if not file.name.startswith("chat_template"):
            (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(PLAIN)
    return folder


@pytest.fixture(scope="module")
def server(model):
    with QuireServer(model=model) as running:
        yield running


def rendered(model, tmp_path, messages, *flags, check=True):
    (tmp_path / "messages.json").write_text(json.dumps(messages))
    return quire("render", model, "--messages", tmp_path / "messages.json", *flags, check=check)


@pytest.mark.parametrize("messages", [
    [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "A fox?"}],
    [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
    [{"role": "user", "content": "x"}, {"role": "assistant", "content": None}, {"role": "user", "content": "y"}],
])
def test_it_is_the_prompt_of_the_server(model, server, tmp_path, messages):
    text = rendered(model, tmp_path, messages).stdout.decode()
    for message in messages:
        parts = message["content"] if isinstance(message["content"], list) else [{"text": message["content"] or ""}]
        assert "\n".join(part["text"] for part in parts) in text
    ids = json.loads(quire("tokenize", model, "-p", text, "--no-special").stdout)
    request = urllib.request.Request(server.url + "/tokenize", json.dumps({"messages": messages}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["tokens"] == ids


@pytest.mark.parametrize("messages, said", [
    ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}}]}], "does not show tool calls"),
    ([{"role": "function", "content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([], "must hold at least one message"),
])
def test_what_a_server_refuses_it_refuses(model, tmp_path, messages, said):
    done = rendered(model, tmp_path, messages, check=False)
    message = done.stderr.decode()
    assert done.returncode == 1 and done.stdout == b"" and said in message and message.count("\n") == 1, message
