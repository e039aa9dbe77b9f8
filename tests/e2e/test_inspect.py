"""What `quire inspect` says of a model."""
import json
import re

import pytest

from test_cli import DEMO, quire


def test_inspect_says_what_fits():
    text = quire("inspect", DEMO, "--memory", "1GiB").stdout.decode()
    assert "5,475,584" in text and "3,072 bytes a token" in text and "512" in text


def test_inspect_needs_no_weights(tmp_path):
    (tmp_path / "config.json").write_bytes((DEMO / "config.json").read_bytes())
    whole = quire("inspect", DEMO, "--memory", "1GiB").stdout.decode().splitlines()[1:]
    for place in (tmp_path, tmp_path / "config.json"):
        text = quire("inspect", place, "--memory", "1GiB").stdout.decode()
        assert "absent: no .safetensors file is here; all of this is from config.json" in text
        left = [line for line in whole if not re.match("templates|parameters", line)]
        assert left and all(line in text.splitlines() for line in left)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "absent: model.safetensors is a Git LFS pointer" in quire("inspect", tmp_path).stdout.decode()
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    assert quire("inspect", tmp_path, check=False).returncode == 1  # damaged, not absent


def test_inspect_says_what_quantization_leaves(tmp_path):
    bytes_of = {}
    for name in ("none", "int8", "int4"):
        text = quire("inspect", DEMO, "--quantization", name, "--memory", "64MiB").stdout.decode()
        number, unit = re.search(r"^quantization +([0-9.]+) (\wiB) in memory as \w+; the embeddings", text, re.M).groups()
        bytes_of[name] = float(number) * {"KiB": 2**10, "MiB": 2**20}[unit]
        assert re.search(r"^fits +in 64.0 MiB: the weights and [1-9][0-9,]* tokens", text, re.M)
    assert bytes_of["none"] > 1.7 * bytes_of["int8"] > 2.8 * bytes_of["int4"]
    # Not given, it is the same as "none" here: the file is not quantized.
    fits = [re.search("^fits .*", quire("inspect", DEMO, *flags, "--memory", "64MiB").stdout.decode(), re.M)[0]
            for flags in ([], ["--quantization", "none"], ["--quantization", "auto"])]
    assert fits[0] == fits[1] == fits[2]
    # What a pack cache holds is what is in memory.
    for name in ("int8", "int4"):
        folder = tmp_path / name
        folder.mkdir()
        quire("run", DEMO, "-p", "x", "--max-tokens", 1, "--quantization", name, "--pack-cache", folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        assert abs(size / bytes_of[name] - 1) < 0.05


def test_inspect_takes_this_machines_free_memory():
    assert re.search(r"^fits +in [0-9.]+ \wiB, what is free here: ", quire("inspect", DEMO).stdout.decode(), re.M)
    for flags, said in [(["--quantization", "int3"], "--quantization: 'int3' is not one of auto, none, int8, int4"),
                        (["--max-model-len", "513"], "--max-model-len: 513 is more than the 512 positions"),
                        (["--families", "--memory", "1GiB"], "--memory: changes nothing with --families"),
                        (["--families", "--device", "cuda"], "--device: changes nothing with --families"),
                        (["--max-num-seqs", "8"], "--max-num-seqs: changes nothing without --device cuda"),
                        (["--device", "cuda", "--memory", "1GiB"], "--memory: changes nothing with --device cuda")]:
        done = quire("inspect", DEMO, *flags, check=False)
        assert done.returncode == 2 and said in done.stderr.decode()


def test_inspect_says_what_a_gpu_holds(tmp_path):
    """From config.json alone: buffers that live at the same time lie apart."""
    (tmp_path / "config.json").write_bytes((DEMO / "config.json").read_bytes())
    config = json.loads((DEMO / "config.json").read_text())
    flags = ["--device", "cuda", "--max-num-seqs", 3, "--max-num-batched-tokens", 100]
    text = quire("inspect", tmp_path, *flags).stdout.decode()
    assert re.search(r"^weights +[0-9.]+ MiB on the device as \w+$", text, re.M)
    assert re.search(r"^activations .* a step of 100 tokens in 3 sequences of up to 512; if no buffers shared", text, re.M)

    def size(name, text):
        size, unit = re.search(rf"^{name} +([0-9.]+) ([KMG]iB) ", text, re.M).groups()
        return float(size) * 1024 ** " KMG".index(unit[0])
    assert size("workspace", text) == 32 * 1024**2
    quantized = {name: quire("inspect", tmp_path, *flags, "--quantization", name).stdout.decode() for name in ("int8", "int4")}
    assert all(f"on the device as {name}, embeddings as bf16" in quantized[name] for name in quantized)
    assert size("weights", text) > 1.4 * size("weights", quantized["int8"]) > 1.8 * size("weights", quantized["int4"])
    more = quire("inspect", tmp_path, "--device", "cuda", "--max-num-seqs", 300).stdout.decode()
    # 20 bytes for each sequence and token of the vocabulary, and what does not depend on the sequences.
    assert size("sampling", more) - size("sampling", text) > 297 * 20 * config["vocab_size"]
    parts = ("weights", "workspace", "sampling", "activations")
    assert size("peak", more) == pytest.approx(sum(size(part, more) for part in parts), abs=0.3 * 1024**2)  # each rounded to 0.1 MiB
    rows = [re.split(r"  +", line.strip()) for line in text.split("\n\n")[1].splitlines()]
    assert rows[0] == ["buffer", "lives", "bytes", "offset"]
    places = {name: (int(offset.replace(",", "")), int(size.replace(",", ""))) for name, _, size, offset in rows[1:]}
    width = 4 if config["torch_dtype"] == "float32" else 2
    assert places["gate and up"][1] == 128 * 2 * config["intermediate_size"] * width  # rows are padded to 64
    always = {name for name, lives, *_ in rows[1:] if lives == "always"}
    apart = lambda a, b: a[0] + a[1] <= b[0] or b[0] + b[1] <= a[0]
    assert {"residual", "logits", "input"} <= always
    assert all(apart(places[one], places[other]) for one in always for other in places if one != other)
    assert not apart(places["gate and up"], places["qkv"])
    assert quire("inspect", tmp_path, *flags, "--max-model-len", 64).stdout.decode() != text
