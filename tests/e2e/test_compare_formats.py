"""bench/compare_formats.py, on the demo model and a text that this model wrote."""
import json
import subprocess
import sys
import urllib.request

import pytest

from server import MODEL, QUIRE, ROOT, QuireServer
from test_cli import quire

TOKENS = 600


def compare(model, text, *flags):
    command = [sys.executable, ROOT / "bench/compare_formats.py", model, text, "--quire", QUIRE, *map(str, flags)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    body = {"prompt": "Once upon a time", "n": 12, "max_tokens": 150, "temperature": 0.7, "seed": 3, "ignore_eos": True}
    with QuireServer() as server:
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            path.write_text("\n".join(choice["text"] for choice in json.load(answer)["choices"]))
    return path


def test_a_table_of_formats(text, tmp_path):
    done = compare(MODEL, text, "--formats", "bf16,bf16+kv8,int8,int4", "--items", 15, "--tokens", TOKENS, "--json", tmp_path / "rows")
    assert done.returncode == 0, done.stderr
    plain, kv8, int8, int4 = rows = json.loads((tmp_path / "rows").read_text())
    assert [line.split()[1] for line in done.stdout.splitlines()[2:]] == [row["format"] for row in rows]
    # The format that the others are compared with agrees with itself, and its perplexity is that of the command.
    assert (plain["same_answers"], plain["greedy_agreement"], plain["change"]) == (1, 1, 0)
    for row, flags in ((plain, []), (int4, ["--quantization", "int4"]), (kv8, ["--kv-cache-dtype", "int8"])):
        said = json.loads(quire("perplexity", MODEL, text, "--dtype", "bf16", "--max-tokens", TOKENS, *flags).stdout)
        assert row["tokens"] == said["tokens"] and row["perplexity"] == pytest.approx(said["perplexity"], rel=1e-5)
    # On its own text the model is far above chance, which is a quarter; how far depends on the few items, and so on the bits with which
    # this machine wrote the text.
    for row in rows:
        assert row["accuracy"] >= 0.6 and row["same_answers"] >= 0.8 and row["greedy_agreement"] > 0.8 and row["items"] == 15
        assert row["change"] == pytest.approx(row["perplexity"] / plain["perplexity"] - 1)
        assert all(speed > 0 for speed in row["decode_tokens_per_s"].values())
    assert int4["greedy_agreement"] < 1 and int4["change"] > 0 < int4["change_error"]
    assert int4["weight_bytes"] < 0.6 * int8["weight_bytes"] < 0.4 * plain["weight_bytes"]
    assert kv8["kv_bytes_per_token"] < 0.6 * plain["kv_bytes_per_token"] == 0.6 * 3072


def test_what_is_wrong_is_said_in_a_line(text, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    few = ["--items", 2, "--tokens", 2]
    for said, arguments in (("--formats: there is no format 'int3'", [MODEL, text, "--formats", "bf16,int3"]),
                            ("stories.txt: has ", [MODEL, text, "--tokens", 100000]),
                            (f"{tmp_path}/none: No such file", [MODEL, tmp_path / "none"]),
                            (f"{tmp_path}/bytes: is not UTF-8", [MODEL, tmp_path / "bytes"]),
                            ("quire serve ended: ", [tmp_path / "no-model", text]),
                            ("nowhere: No such file", [MODEL, text, "--quire", "nowhere"]),
                            ("--json: ", [MODEL, text, "--formats", "bf16", *few, "--json", tmp_path / "no/rows"])):
        done = compare(*arguments)
        assert done.returncode == 1 and said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr, done.stderr
