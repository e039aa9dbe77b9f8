"""Who may use the server: keys from a file, the environment and the command line, hosts, web pages."""
import hashlib
import http.client
import json
import subprocess

import pytest

from server import MODEL, QUIRE, QuireServer


def ask(server, path="/v1/models", method="GET", body=None, **headers):
    """Status, headers and text; `_` in a header's name stands for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def status(server, key):
    return ask(server, Authorization=f"Bearer {key}")[0]


def refusal(*flags):
    """What serve says when it does not start."""
    done = subprocess.run([QUIRE, "serve", str(MODEL), "--device", "sim", "--port", "0", *map(str, flags)],
                          capture_output=True, timeout=60)
    assert done.returncode != 0
    return done.stderr.decode()


def test_keys_of_a_file(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"# our people\nann:ann-secret\n\nbob:sha256:{hashlib.sha256(b'bob-secret').hexdigest()}\n")
    keys.chmod(0o600)
    with QuireServer("--device", "sim", "--api-key-file", keys, "-v") as server:
        assert [status(server, key) for key in ("ann-secret", "bob-secret", "eve", "")] == [200, 200, 401, 401]
        assert ask(server, "/health")[0] == 200
        said = server.output()
        assert "key ann" in said and "key bob" in said, "requests are logged by the name of their key"
        assert "secret" not in said and "other users can read" not in said
    keys.chmod(0o644)
    with QuireServer("--device", "sim", "--api-key-file", keys) as server:
        assert "other users can read the keys" in server.output()


def test_a_broken_file_of_keys(tmp_path):
    keys = tmp_path / "keys"
    for text, said in ("ann:k\nbob:k2:rpm=60\n", "line 2: an unknown column"), ("secret\n", "line 1: neither NAME:KEY"), \
            ("", "it contains no key"), ("ann:k\nbob:k\n", "line 2: this key is already on line 1"):
        keys.write_text(text)
        keys.chmod(0o600)
        error = refusal("--api-key-file", keys)
        assert error.startswith("quire: ") and f"{keys}: {said}" in error and error.count("\n") == 1
        assert "secret" not in error
    assert "No such file or directory" in refusal("--api-key-file", tmp_path / "none")
    for path in (tmp_path, "/dev/null"):  # whose mode nobody should change
        assert f"{path}: not a regular file" in refusal("--api-key-file", path)


def test_a_key_of_the_environment(monkeypatch):
    monkeypatch.setenv("QUIRE_API_KEY", "env-secret")
    with QuireServer("--device", "sim") as server:
        assert [status(server, key) for key in ("env-secret", "eve")] == [200, 401]
        assert "--api-key" not in server.output() and "env-secret" not in server.output()
    assert "the same API key as" in refusal("--api-key", "env-secret")
    monkeypatch.setenv("QUIRE_API_KEY", "")
    assert "QUIRE_API_KEY: the key is empty" in refusal()


def test_a_key_of_the_command_line_warns():
    with QuireServer("--device", "sim", "--api-key", "flag-secret") as server:
        assert [status(server, key) for key in ("flag-secret", "eve")] == [200, 401]
        said = server.output()
        assert "every user of this machine can see the key" in said and "flag-secret" not in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_beyond_loopback_without_a_key_warns(host):
    warning = f"--host {host}: anyone who can reach this machine may use the server"
    with QuireServer("--device", "sim", "--host", host) as server:
        assert warning in server.output()
        assert ask(server, "/health", Host="10.1.2.3:8000")[0] == 200
        assert ask(server, "/metrics", Host="llm.example")[0] == 200
    with QuireServer("--device", "sim", "--host", host, "--api-key", "k") as server:
        assert warning not in server.output()


def test_an_empty_host_is_refused():
    assert "--host: the address is empty" in refusal("--host", "")


def test_web_pages_are_refused_unless_listed():
    with QuireServer("--device", "sim") as server:
        own = f"http://localhost:{server.port}"
        assert ask(server, Host=own[7:], Origin=own)[0] == 200
        code, headers, text = ask(server, Origin="https://evil.example")
        assert code == 403 and "access-control-allow-origin" not in headers
        assert json.loads(text)["error"]["code"] == "origin_not_allowed"
        assert ask(server, Host="evil.example")[0] == 403
        assert "warn" not in server.output().lower()
    with QuireServer("--device", "sim", "--allowed-origins", "https://a.example,https://b.example", "--allowed-hosts",
                     "llm.example") as server:
        code, headers, _ = ask(server, Origin="https://b.example", Host="llm.example")
        assert code == 200 and headers["access-control-allow-origin"] == "https://b.example"
        assert ask(server, Origin="https://c.example")[0] == 403
    assert "--allowed-origins: 'a.example' is not an origin" in refusal("--allowed-origins", "a.example")
    assert "--allowed-hosts: 'http://a' is not a host" in refusal("--allowed-hosts", "http://a")


def test_a_body_that_is_not_json_is_refused():
    with QuireServer("--device", "sim") as server:
        body = json.dumps({"prompt": "a", "max_tokens": 1})
        post = dict(path="/v1/completions/", method="POST", body=body)
        assert ask(server, **post, Content_Type="application/json")[0] == 200
        # As curl -d sends it.
        code, _, text = ask(server, **post, Content_Type="application/x-www-form-urlencoded")
        assert code == 415 and "send Content-Type: application/json" in json.loads(text)["error"]["message"]
        assert ask(server, **post)[0] == 415
        code, _, text = ask(server, **post, Content_Type="application/json", Content_Encoding="gzip")
        assert code == 415 and "gzip" in text
