"""GGUF files as a person has them: run, tokenized, rendered and converted."""
import json
import struct

import pytest

from test_cli import DEMO, ROOT, needs, quire


def greedy(model, prompt="Once upon a time", tokens=40, *flags):
    return quire("run", model, "-p", prompt, "--max-tokens", tokens, "--temperature", 0, *flags).stdout


def ids(model, texts, tmp_path, *flags):
    lines = tmp_path / "lines.json"
    lines.write_text(json.dumps(texts))
    return [json.loads(line) for line in quire("tokenize", model, "--lines", lines, *flags).stdout.splitlines()]


def tensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], raw[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]])
            for name, e in header.items()}


@pytest.fixture(scope="module")
def demo_gguf(tmp_path_factory):
    out = tmp_path_factory.mktemp("gguf") / "demo.gguf"
    quire("convert", DEMO, out)
    return out


def test_the_demo_model_there_and_back(demo_gguf, tmp_path):
    assert greedy(demo_gguf) == greedy(DEMO)
    back = tmp_path / "back"
    quire("convert", demo_gguf, back)
    assert tensors(back / "model.safetensors") == tensors(DEMO / "model.safetensors")
    assert greedy(back) == greedy(DEMO)
    assert json.loads((back / "tokenizer.json").read_text()) == json.loads((DEMO / "tokenizer.json").read_text())


@pytest.mark.parametrize("outtype", ["f32", "f16", "q8_0"])
def test_outtypes_run_as_their_hugging_face_form(outtype, tmp_path):
    gguf = tmp_path / f"demo-{outtype}.gguf"
    quire("convert", DEMO, gguf, "--outtype", outtype)
    quire("convert", gguf, tmp_path / "back")
    # The directory has what the blocks expand to.
    assert greedy(gguf, "Once upon a time", 40, "--quantization", "none") == greedy(tmp_path / "back") != b""


def test_quantized_weights_stay_as_they_are(tmp_path):
    gguf = tmp_path / "demo.gguf"
    quire("convert", DEMO, gguf, "--outtype", "q8_0")
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little fox. It lived in the wood and had a friend.")
    nats = {}
    for quantization, said in [("auto", "Q8_0 weights"), ("none", "bf16 weights"), ("int8", "int8 weights")]:
        flags = ["--quantization", quantization]
        nats[quantization] = json.loads(quire("perplexity", gguf, text, *flags).stdout)["nats_per_token"]
        run = quire("run", gguf, "-p", "Once", "-v", "--max-tokens", 2, "--num-blocks", 8, *flags)
        assert said in run.stderr.decode()
    assert 1e-6 < abs(nats["auto"] - nats["none"]) < 0.05  # of some twenty tokens; 0.003 at most levels, 0.025 with tiles


def test_the_demo_model_speaks_the_same(demo_gguf, tmp_path):
    texts = ["Once upon a time", " two  spaces\n\nand 12345 é 🦙", "<|start_header_id|>user", ""]
    assert ids(demo_gguf, texts, tmp_path) == ids(DEMO, texts, tmp_path)
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": "Hi!"}]))
    rendered = quire("render", demo_gguf, "--messages", messages).stdout
    assert rendered == quire("render", DEMO, "--messages", messages).stdout
    assert b"<|start_header_id|>user" in rendered


def test_inspect_names_the_formats(demo_gguf):
    text = quire("inspect", demo_gguf).stdout.decode()
    assert "LlamaForCausalLM (llama)" in text
    assert "as BF16, F32)" in text


def test_other_peoples_file_runs_as_its_hugging_face_form(tmp_path):
    gguf = needs("gguf-llama-tiny-random/llama-2-tiny-random.gguf")
    quire("convert", gguf, tmp_path / "hf")
    texts = ["Hello, my name is", " leading", "ünï\tcode 日本 🦙\n", ""]
    assert ids(gguf, texts, tmp_path) == ids(tmp_path / "hf", texts, tmp_path)
    assert greedy(gguf, texts[0], 60, "--ignore-eos") == greedy(tmp_path / "hf", texts[0], 60, "--ignore-eos")


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "granite", "llama", "mixtral", "olmo2", "phi3", "qwen2",
                                  "qwen3", "qwen3-moe", "smollm3"])
def test_files_of_llama_cpps_converter_become_directories_and_files_again(name, tmp_path):
    original = ROOT / "tests" / "model" / "gguf_fixtures" / name / "model.gguf"
    quire("convert", original, tmp_path / "first")
    quire("convert", tmp_path / "first", tmp_path / "again.gguf")
    quire("convert", tmp_path / "again.gguf", tmp_path / "second")
    assert tensors(tmp_path / "first" / "model.safetensors") == tensors(tmp_path / "second" / "model.safetensors")
    assert json.loads((tmp_path / "first" / "config.json").read_text()) == \
        json.loads((tmp_path / "second" / "config.json").read_text())
    said = quire("inspect", original).stdout.decode()
    assert "ForCausalLM" in said and "BF16, F32" in said


def test_what_gguf_cannot_say_is_not_written(tmp_path):
    run = quire("convert", ROOT / "tests" / "model" / "fixtures" / "smollm3-odd", tmp_path / "x.gguf", check=False)
    assert run.returncode == 1
    assert b"config.json: GGUF has no key for no_rope_layers of SmolLM3ForCausalLM" in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_vocabularies_give_the_expected_ids(name, tmp_path):
    folder = needs("tokenizer-llama-cpp")
    texts = (folder / "ggml-vocab-all.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = [[int(i) for i in line.split()] for line in
                (folder / f"ggml-vocab-{name}.gguf.out").read_text().splitlines()]
    got = ids(folder / f"ggml-vocab-{name}.gguf", texts[:len(expected)], tmp_path, "--no-special")
    assert len(got) == len(expected) >= 46
    assert got == expected


@pytest.mark.parametrize("args, said", [
    (["convert", DEMO, "out-without-suffix"], "a directory becomes a file whose name ends in .gguf"),
    (["convert", DEMO, "x.gguf", "--outtype", "q4_0"], "--outtype: 'q4_0' is not one of auto, f32, f16, bf16, q8_0"),
    (["run", "broken.gguf"], "broken.gguf: at byte 0: no GGUF file"),
    (["tokenize", "broken.gguf", "-p", "x"], "broken.gguf: at byte 0: no GGUF file"),
])
def test_errors_name_the_cause(args, said, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGML" + bytes(60))
    run = quire(*args, check=False, cwd=tmp_path)
    assert run.returncode == (2 if said.startswith("--") else 1)
    assert run.stderr.decode().count("\n") == 1
    assert said in run.stderr.decode()


def test_a_vocabulary_without_merges_is_an_error(demo_gguf, tmp_path):
    path = tmp_path / "no-merges.gguf"
    content = demo_gguf.read_bytes()
    for key in (b"tokenizer.ggml.merges", b"tokenizer.huggingface.json"):
        content = content.replace(key, key[:-1] + b"_")
    path.write_bytes(content)
    for args in (["tokenize", path, "-p", "x"], ["convert", path, tmp_path / "hf"]):
        run = quire(*args, check=False)
        assert run.returncode == 1
        assert "no-merges.gguf: key 'tokenizer.ggml.merges': missing" in run.stderr.decode()


def test_nothing_is_written_over_unasked(demo_gguf, tmp_path):
    """Neither way, nor from another kind of file; what is in an empty directory is nothing."""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    (tmp_path / "taken.gguf").write_text("mine")
    llama2c = needs("stories260k/stories260K.bin")
    for source, out, what in ((demo_gguf, taken, "directory"), (DEMO, tmp_path / "taken.gguf", "file"),
                              (llama2c, taken, "directory")):
        run = quire("convert", source, out, check=False)
        assert run.returncode == 1
        assert f"{out}: the {what} exists already" in run.stderr.decode() and b"--overwrite" in run.stderr
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert (tmp_path / "taken.gguf").read_text() == "mine"
    quire("convert", demo_gguf, taken, "--overwrite")
    quire("convert", DEMO, tmp_path / "taken.gguf", "--overwrite")
    assert greedy(taken) == greedy(tmp_path / "taken.gguf") == greedy(DEMO)
    (tmp_path / "empty").mkdir()
    quire("convert", demo_gguf, tmp_path / "empty")


def test_warnings_are_said_once(demo_gguf, tmp_path):
    ids_file = tmp_path / "ids.json"
    ids_file.write_text('{"input_ids": [[1, 2, 3]]}')
    strange = tmp_path / "strange.gguf"
    strange.write_bytes(demo_gguf.read_bytes().replace(b"llama.vocab_size", b"llama.vocab_sizf"))
    directory = tmp_path / "strange"
    directory.mkdir()
    for path in DEMO.iterdir():
        if path.is_file():
            (directory / path.name).write_bytes(path.read_bytes())
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "mystery": False}))
    for model, key in ((strange, "vocab_sizf"), (directory, "mystery")):
        for args in (["logits", model, "--ids-file", ids_file, "-o", tmp_path / "out"], ["inspect", model],
                     ["convert", model, tmp_path / f"{key}.gguf" if model == directory else tmp_path / "hf"]):
            assert quire(*args).stderr.decode().count(key) == 1, args


def test_every_truncation_is_an_error(demo_gguf, tmp_path):
    raw = demo_gguf.read_bytes()
    for size in [1, 5, 23, 24, 100, 5000, 200000, len(raw) // 2, len(raw) - 33]:
        part = tmp_path / f"{size}.gguf"
        part.write_bytes(raw[:size])
        run = quire("inspect", part, check=False)
        assert run.returncode == 1 and str(part) in run.stderr.decode()
