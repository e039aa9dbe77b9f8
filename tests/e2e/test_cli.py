"""The commands as a person or a script calls them."""
import json
import math
import os
import pathlib
import re
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIRE = os.environ.get("QUIRE_BIN", str(ROOT / "build/release/quire"))
DATA = pathlib.Path(os.environ.get("QUIRE_DATA", ROOT / "../shared/data"))
DEMO = ROOT / "models/llama-quire-stories-5m"


def quire(*args, check=True, **more):
    done = subprocess.run([QUIRE, *map(str, args)], capture_output=True, timeout=120, **more)
    if check:
        assert done.returncode == 0, done.stderr.decode()
    return done


def needs(path):
    if not (DATA / path).exists():
        pytest.skip(f"no test data: {DATA / path} is absent (set QUIRE_DATA)")
    return DATA / path


def read_tensor(path, name):
    """The values of one f32 tensor of a safetensors file, and its shape."""
    raw = pathlib.Path(path).read_bytes()
    header_size = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8:8 + header_size])[name]
    assert entry["dtype"] == "F32"
    begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
    return struct.unpack(f"<{(end - begin) // 4}f", raw[begin:end]), entry["shape"]


@pytest.fixture(scope="module")
def stories260k(tmp_path_factory):
    source = needs("stories260k")
    out = tmp_path_factory.mktemp("stories") / "stories260k"
    quire("convert", source / "stories260K.bin", out, "--tokenizer", source / "tok512.bin")
    return out


def test_no_line_of_help_has_more_than_100_columns():
    listed = re.findall(r"^  ([a-z-]+)  +", quire("--help").stdout.decode(), re.M)
    assert {"serve", "simulate", "bench"} <= set(listed)
    nested = [("bench", name) for name in re.findall(r"^  ([a-z-]+)  +", quire("bench", "--help").stdout.decode(), re.M)]
    assert nested
    for command in [(name,) for name in listed] + nested:
        lines = quire(*command, "--help").stdout.decode().splitlines()
        assert lines and [line for line in lines if len(line) > 100] == [], command


def test_help_names_every_command():
    text = quire("--help").stdout.decode()
    for command in "serve run chat bench simulate inspect plan perplexity logits tokenize detokenize render convert make-model".split():
        assert f"  {command}" in text
        assert quire(command, "--help").stdout


def perplexity(*flags, model=DEMO, text=ROOT / "LICENSE"):
    return json.loads(quire("perplexity", model, text, "--max-tokens", 2000, *flags).stdout)


def test_perplexity_follows_from_the_logits(tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little fox.")
    ids = json.loads(quire("tokenize", DEMO, "-p", text.read_text()).stdout)
    (tmp_path / "ids.json").write_text(json.dumps({"input_ids": [ids]}))
    quire("logits", DEMO, "--ids-file", tmp_path / "ids.json", "-o", tmp_path / "out.safetensors", "--dtype", "f32")
    values, (_, length, vocab) = read_tensor(tmp_path / "out.safetensors", "logits")
    nats = 0.0
    for row, token in enumerate(ids[1:]):
        logits = values[row * vocab:(row + 1) * vocab]
        most = max(logits)
        nats += math.log(sum(math.exp(each - most) for each in logits)) + most - logits[token]
    said = perplexity("--dtype", "f32", text=text)
    assert said["tokens"] == length - 1
    assert said["nats_per_token"] == pytest.approx(nats / (length - 1), abs=1e-4)
    assert said["perplexity"] == pytest.approx(math.exp(nats / (length - 1)), rel=1e-4)


def test_quantized_weights_foresee_nearly_as_well():
    plain = perplexity()["nats_per_token"]
    for flags, most in [(["--quantization", "int8"], 0.01), (["--quantization", "int4"], 0.08)]:
        loss = perplexity(*flags)["nats_per_token"] - plain
        assert 1e-5 < abs(loss) < most, flags


def test_number_formats_that_are_none():
    for flags, said in [(["--quantization", "int3"], "--quantization: 'int3' is not one of auto, none, int8, int4"),
                        (["--dtype", "int8"], "--dtype: 'int8' is not one of auto, f32, f16, bf16")]:
        run = quire("run", DEMO, "-p", "x", *flags, check=False)
        assert run.returncode == 2 and said in run.stderr.decode()
    run = quire("inspect", DEMO, "--kv-cache-dtype", "i3", check=False)
    assert run.returncode == 2 and "not one of auto, f32, f16, bf16, int8" in run.stderr.decode()


def test_kv_cache_dtype_costs_something_that_shows():
    plain, small = perplexity(), perplexity("--kv-cache-dtype", "int8")
    assert plain["tokens"] == small["tokens"] and plain["perplexity"] != small["perplexity"]
    assert abs(small["perplexity"] / plain["perplexity"] - 1) < 0.05
    assert perplexity("--kv-cache-dtype", "auto") == plain
    rows = quire("bench", "latency", DEMO, "--prompt", 16, "--batch", "1,2", "--context", 16, "--steps", 1, "--repeats", 1,
                 "--kv-cache-dtype", "int8").stdout.decode().splitlines()
    assert len(rows) == 4
    for command in (["perplexity", DEMO, ROOT / "LICENSE"], ["bench", "latency", DEMO]):
        wrong = quire(*command, "--kv-cache-dtype", "fp8", check=False)
        assert wrong.returncode == 2 and "--kv-cache-dtype: 'fp8' is not one of auto, f32, f16, bf16, int8" in wrong.stderr.decode()


def test_stories260k_continues_as_the_reference(stories260k):
    expected = needs("stories260k/expected_greedy_200.txt").read_bytes()
    run = quire("run", stories260k, "-p", "", "--max-tokens", 200, "--temperature", 0, "--ignore-eos")
    assert run.stdout == expected


def test_stories260k_continues_a_prompt_as_the_reference(stories260k):
    golden = json.loads(needs("stories260k/golden_greedy_prompt.json").read_text())
    run = quire("run", stories260k, "-p", golden["prompt"], "--max-tokens", 100, "--temperature", 0, "--ignore-eos")
    assert (golden["prompt"] + run.stdout.decode()).startswith(golden["text"])


def test_tokenize_gives_one_array_a_line(stories260k, tmp_path):
    golden = json.loads(needs("stories260k/golden_greedy_prompt.json").read_text())
    lines = tmp_path / "lines.json"
    lines.write_text(json.dumps([golden["prompt"], ""]))
    ids = [json.loads(line) for line in quire("tokenize", stories260k, "--lines", lines).stdout.splitlines()]
    assert ids[0] == golden["token_ids_in"][:len(ids[0])]
    assert ids[1] == [1]
    bare = [json.loads(line) for line in quire("tokenize", stories260k, "--lines", lines, "--no-special").stdout.splitlines()]
    assert bare == [ids[0][1:], []]
    back = quire("detokenize", stories260k, "--skip-special", input=json.dumps(ids[0]).encode()).stdout.decode()
    assert back.strip() == golden["prompt"]


def test_logits_of_stories260k(stories260k, tmp_path):
    golden = json.loads(needs("stories260k/golden_greedy_200.json").read_text())
    ids, out = tmp_path / "ids.json", tmp_path / "out.safetensors"
    ids.write_text(json.dumps({"input_ids": [golden["token_ids_in"]]}))
    for chunk in ([], ["--chunk", 7]):
        quire("logits", stories260k, "--ids-file", ids, "-o", out, *chunk)
        values, shape = read_tensor(out, "logits")
        assert shape == [1, 200, 512]
        for position, step in enumerate(golden["logits"]):
            row = values[position * 512:(position + 1) * 512]
            for token, logit in step["top5"]:
                assert abs(row[token] - logit) < 1e-3


@pytest.mark.parametrize("name", ["llama3-tied", "llama-linear-rope", "mistral-window", "qwen2", "qwen3"])
@pytest.mark.parametrize("chunk", [0, 7])
def test_logits_of_golden_models(name, chunk, tmp_path):
    model = needs(f"golden-models/{name}")
    raw = (model / "expected.safetensors").read_bytes()
    header_size = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8:8 + header_size])["input_ids"]
    begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
    flat = struct.unpack(f"<{(end - begin) // 8}q", raw[begin:end])
    length = entry["shape"][1]
    ids, out = tmp_path / "ids.json", tmp_path / "out.safetensors"
    ids.write_text(json.dumps({"input_ids": [flat[at:at + length] for at in range(0, len(flat), length)]}))
    quire("logits", model, "--ids-file", ids, "-o", out, *(["--chunk", chunk] if chunk else []))
    got, shape = read_tensor(out, "logits")
    expected, expected_shape = read_tensor(model / "expected.safetensors", "logits")
    assert shape == expected_shape
    assert max(abs(a - b) for a, b in zip(got, expected)) < 2e-4


def test_demo_model_renders_and_answers_as_transformers(tmp_path):
    cases = json.loads((DEMO / "expected_greedy_f32.json").read_text())
    for case in cases:
        messages = tmp_path / "messages.json"
        messages.write_text(json.dumps(case["messages"]))
        assert quire("render", DEMO, "--messages", messages).stdout.decode() == case["prompt"]
    lines = tmp_path / "lines.json"
    lines.write_text(json.dumps([case["prompt"] for case in cases]))
    ids = [json.loads(line) for line in quire("tokenize", DEMO, "--lines", lines, "--no-special").stdout.splitlines()]
    assert ids == [case["prompt_ids"] for case in cases]


def test_named_chat_templates(tmp_path):
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((DEMO / file).read_bytes())
    for file in DEMO.glob("*.safetensors*"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "chat_template.jinja").write_text("default{{ tools is none }}")
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools {{ tools|length }}")
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("a\n{% for %}")
    (tmp_path / "own.jinja").write_text("own{{ bos_token }}")
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "x"}]')
    (tmp_path / "tools.json").write_text('{"tools": [{}, {}]}')

    def render(*more, check=True):
        return quire("render", tmp_path, "--messages", tmp_path / "m.json", *more, check=check)

    assert render().stdout == b"defaultTrue"
    assert render("--context", tmp_path / "tools.json").stdout == b"tools 2"
    assert render("--context", tmp_path / "tools.json", "--template", "default").stdout == b"defaultFalse"
    assert render("--template", tmp_path / "own.jinja").stdout.startswith(b"own<")
    unknown = render("--template", "nope", check=False)
    assert unknown.returncode == 1 and b"'nope' is neither" in unknown.stderr
    assert b"(default, rag, tool_use)" in unknown.stderr
    broken = render("--template", "rag", check=False)
    assert broken.returncode == 1 and b"rag.jinja: line 2, column 8: " in broken.stderr
    listed = quire("inspect", tmp_path).stdout.decode()
    assert re.search(r"templates +default, rag, tool_use; broken: .*rag.jinja: line 2, column 8: ", listed)
    quire("convert", tmp_path, tmp_path / "m.gguf")
    listed = quire("inspect", tmp_path / "m.gguf").stdout.decode()
    assert re.search(r"templates +default, rag, tool_use; broken: .*m.gguf: key "
                     r"'tokenizer.chat_template.rag': line 2, column 8: ", listed)


def test_inspect_lists_families():
    text = quire("inspect", "--families").stdout.decode()
    assert "Gemma3ForCausalLM (gemma3_text)" in text and "num_experts_per_tok" in text and "rope_theta" in text
    assert "GGUF      qwen3moe" in text


def test_chat_reads_a_conversation():
    run = quire("chat", DEMO, "--temperature", 0, "--max-tokens", 20, input=b"Tell me a story about a bridge.\n/new\nTell me a story about a bridge.\n")
    first, second = run.stdout.decode().strip().split("\n")[:2] if run.stdout.count(b"\n") == 2 else (run.stdout, run.stdout)
    assert first == second and first


def test_make_model_runs(tmp_path):
    quire("make-model", "tiny", tmp_path / "tiny")
    assert quire("run", tmp_path / "tiny", "-p", "hello", "--max-tokens", 4, "--temperature", 0, "--ignore-eos").stdout


@pytest.mark.parametrize("args, said", [
    (["serve", "no/such/dir"], "no/such/dir"),
    (["run", DEMO, "-p", "x", "--max-model-len", "100000"], "512 positions"),
    (["run", DEMO, "-p", "x", "--isa", "avx9"], "avx9"),
    (["run", DEMO, "-p", "x", "--dtype", "int3"], "int3"),
    (["run", DEMO, "-p", "x", "--block-size", "17"], "17"),
    (["run", DEMO, "-p", "x", "--kv-cache-memory", "lots"], "lots"),
    (["run", DEMO, "-p", "x", "--num-blocks", "2", "--max-model-len", "500"], "500"),
    (["run", DEMO, "-p", "x", "--temperature", "-1"], "--temperature"),
    (["serve", DEMO, "--max-num-batched-tokens", "3"], "--max-num-batched-tokens"),
    (["tokenize", "/dev/null"], "/dev/null"),
    (["make-model", "gigantic", "out"], "shape: 'gigantic' is not one of tiny, llama-3.2-1b"),
    (["run", DEMO, "-p", "x", "--temperature", "nan"], "--temperature: nan is not a finite number"),
    (["run", DEMO, "-p", "x", "--top-p", "nan"], "--top-p: nan is not a finite number"),
    (["run", DEMO, "-p", "x", "--min-p", "nan"], "--min-p: nan is not a finite number"),
    (["run", DEMO, "-p", "x", "--repetition-penalty", "nan"], "--repetition-penalty: nan is not a finite number"),
    (["run", DEMO, "-p", "x", "--watermark", "nan"], "--watermark: nan is not a finite number"),
    (["serve", DEMO, "--device", "sim", "--sim-speed", "nan"], "--sim-speed: nan is not a finite number"),
    (["simulate", "--scheduling-policy", "priority", "--priority-aging", "nan"], "--priority-aging: nan is not a finite number"),
    (["simulate", "--scheduling-policy", "priority", "--priority-aging", "9001"], "--priority-aging: 9001 is not a number from 0.001 to 9000"),
    (["simulate", "--demo", "--decision-log", "/dev/full"], "/dev/full: cannot be written"),
    (["run", DEMO, "-p", "x", "-n", "3", "--best-of", "2"], "--best-of: 2 is less than -n (3)"),
    (["run", DEMO, "-p", "x", "--length-penalty", "2"], "--length-penalty: needs --beam-search"),
    (["run", DEMO, "-p", "x", "--beam-search", "--best-of", "11"], "--best-of: 11 is more than 10, the widest beam"),
    (["run", DEMO, "-p", "x", "--beam-search", "--stop", "x"], "--stop: is not supported with --beam-search"),
    (["run", DEMO, "-p", "x", "--max-tokens", "0"], "--max-tokens: 0 is not a number from 1 up"),
    (["run", DEMO, "-p", "x", "--num-blocks", "0"], "--num-blocks: 0 is not a number from 1 up"),
    (["serve", DEMO, "--port", "99999"], "--port: 99999 is not a number from 0 to 65535"),
    (["serve", DEMO, "--max-waiting", "4294967295"], "--max-waiting"),
    (["serve", DEMO, "--device", "tpu"], "--device"),
    (["serve", DEMO, "--device", "sim", "--cost-decode-us", "1"], "a further decode takes 100000 ns"),
    (["simulate", "--prompt-len", "many"], "--prompt-len: 'many' is not one of N, uniform:LOW:HIGH"),
    (["simulate", "--rate", "fast"], "--rate: 'fast' is not a number"),
    (["simulate", "--trace", "README.md"], "README.md: line 1: neither the header"),
    (["simulate", "--trace", "/dev/null"], "/dev/null: not a regular file"),
    (["simulate", "--trace", "no/such/trace"], "no/such/trace"),
    (["simulate", "--max-num-batched-tokens", "3"], "--max-num-batched-tokens: 3 is less than the 64 of --max-num-seqs"),
    (["simulate", "--num-blocks", "0"], "--num-blocks"),
    (["simulate", "--scheduling-policy", "lifo"], "'lifo' is not one of fcfs"),
    (["simulate", "--preemption-mode", "swap", "--swap-space", "1KiB"], "--swap-space: 1KiB makes 0 blocks"),
    (["simulate", "--decision-log", "no/such/folder"], "no/such/folder"),
    (["simulate", "--watermark", "101"], "--watermark"),
    (["simulate", "--tenants", "0"], "--tenants"),
    (["simulate", "--ttft-deadline-ms", "soon"], "--ttft-deadline-ms: 'soon' is not one of N"),
    (["frobnicate", DEMO], "quire: there is no command 'frobnicate'; quire --help lists them"),
    (["run", DEMO, "--frobnicate"], "--frobnicate"),
    (["run", DEMO, "-p", "x", "--stop", ""], "--stop: the text is empty"),
    (["serve", DEMO, "--api-key-file", ""], "--api-key-file: the text is empty"),
    (["serve", DEMO, "--decision-log-max", ""], "--decision-log-max: the text is empty"),
    (["simulate", "--cost", ""], "--cost: the text is empty"),
    (["simulate", "--json=", "--demo"], "quire: --json= has no value behind the '='"),
    (["simulate", "--num-blocks", "4000000000"], "--num-blocks: 4000000000 is not a number from 1 to 2147483647"),
    (["simulate", "--sweep", "rate=0.5..2:0.5"], "--sweep: '0.5..2:0.5': a range is of whole numbers"),
    (["detokenize", DEMO, "-i", "[1, 5000]"], "5000 is not a token id; they go from 0 to 4095"),
    (["detokenize", DEMO, "-i", "[-1]"], "-1 is not a token id"),
])
def test_errors_are_one_line_that_names_the_cause(args, said):
    done = quire(*args, check=False)
    assert done.returncode not in (0, -6, -11)
    message = done.stderr.decode()
    assert said in message
    assert "terminate" not in message and "Traceback" not in message
    lines = [line for line in message.splitlines() if not re.match(r"[IWD] \d\d:", line)]
    assert len(lines) == 1 and lines[0].startswith("quire: ")
    assert done.returncode == (2 if re.match(r"quire: ([\w -]+: )?there is no |quire: (-|shape: )", lines[0]) else 1)


@pytest.mark.parametrize("flag,name", [("--decision-log", "decision log"), ("--step-trace", "step trace")])
def test_a_log_that_cannot_be_written_is_told_and_stops_nobody(flag, name):
    done = quire("run", DEMO, "-p", "Once", "--max-tokens", "4", flag, "/dev/full")
    assert f"/dev/full: cannot be written any more: the {name} is cut off" in done.stderr.decode()
    assert done.stdout


@pytest.mark.parametrize("args", [
    ["run", DEMO, "-p", "x", "--step-trace"],
    ["run", DEMO, "-p", "x", "--decision-log"],
    ["simulate", "--decision-log"],
    ["simulate", "--json"],
    ["bench", "serve", "--url", "http://127.0.0.1:1", "--html"],
    ["bench", "ops", "--json"],
    ["logits", DEMO, "--ids-file", "no-such-file", "-o"],
    ["make-model", "tiny"],
    ["convert", DEMO],
])
def test_outputs_that_cannot_be_written_are_told_before_the_work(args, tmp_path):
    (tmp_path / "file").write_text("x")
    for place in ("absent/out.gguf", "file/out.gguf"):
        if args[0] == "make-model" and place.startswith("absent"):
            continue  # which makes the folders that it needs
        done = quire(*args, tmp_path / place, check=False)
        message = done.stderr.decode()
        assert done.returncode == 1 and done.stdout == b"" and message.count("\n") == 1, message
        assert f"{tmp_path / place}: cannot be written: " in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_command_that_fails_leaves_no_file(tmp_path):
    log, out = tmp_path / "run.log", tmp_path / "out"
    for args in (["simulate", "--max-num-batched-tokens", 3, "--decision-log", log, "--json", out],
                 ["bench", "serve", "--url", "http://127.0.0.1:1", "--html", out],
                 ["run", DEMO, "-p", "x", "--max-model-len", 100000, "--decision-log", log, "--step-trace", out],
                 ["explain", DEMO / "config.json", "--html", out],
                 ["logits", DEMO, "--ids-file", "no-such-file", "-o", out]):
        done = quire(*args, check=False)
        assert done.returncode != 0 and list(tmp_path.iterdir()) == [], args


@pytest.mark.parametrize("longest", [1, 2, 17, 100, 127])
def test_short_sequences_are_enough_to_start(longest):
    assert quire("run", DEMO, "-p", "", "--max-model-len", longest + 1, "--temperature", 0).returncode == 0


def test_a_full_disk_is_told():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([QUIRE, "run", DEMO, "-p", "Once", "--max-tokens", "4"],
                              stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 1
    assert "standard output cannot be written" in done.stderr.decode()


def test_ragged_rows_of_ids_are_named(tmp_path):
    ids = tmp_path / "a-rather-long-name-of-a-file-with-ids.json"
    ids.write_text(json.dumps({"input_ids": [[1, 2, 3], [1, 2]]}))
    done = quire("logits", DEMO, "--ids-file", ids, "-o", tmp_path / "out", check=False)
    assert done.returncode == 1
    assert f"{ids}: key 'input_ids': rows differ in length" in done.stderr.decode()


def test_logits_go_down_a_pipe_and_through_a_link(tmp_path):
    ids, out = tmp_path / "ids.json", tmp_path / "out.safetensors"
    ids.write_text(json.dumps({"input_ids": [[1, 2, 3]]}))
    quire("logits", DEMO, "--ids-file", ids, "-o", out)
    assert quire("logits", DEMO, "--ids-file", ids, "-o", "/dev/stdout").stdout == out.read_bytes()
    assert pathlib.Path("/dev/stdout").is_symlink()
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    quire("logits", DEMO, "--ids-file", ids, "-o", link)
    assert link.is_symlink() and target.read_bytes() == out.read_bytes()


def copy_of_demo(to):
    for file in DEMO.iterdir():
        (to / file.name).write_bytes(file.read_bytes())


def test_weights_may_lie_anywhere_in_their_file(tmp_path):
    """Tied embeddings, which are packed and then read again, in a file whose tensors are not aligned."""
    copy_of_demo(tmp_path)
    target = tmp_path / "model.safetensors"
    raw = target.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    target.write_bytes(struct.pack("<Q", size + 1) + raw[8:8 + size] + b" " + raw[8 + size:])
    options = ["-p", "Once upon a time", "--max-tokens", 40, "--temperature", 0]
    expected = quire("run", DEMO, *options).stdout
    assert expected and quire("run", tmp_path, *options).stdout == expected


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_broken_chat_template_is_told_at_once(tmp_path, where):
    copy_of_demo(tmp_path)
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    broken = "{{ bos_token }}\n{% for m in messages %}{{ m.content + }}{% endfor %}"
    if where == "chat_template.jinja":
        (tmp_path / where).write_text(broken)
    else:
        config = json.loads((tmp_path / where).read_text())
        (tmp_path / where).write_text(json.dumps(config | {"chat_template": broken}))
    (tmp_path / "hello.json").write_text('[{"role": "user", "content": "Hello"}]')
    for args in (["chat", tmp_path], ["render", tmp_path, "--messages", tmp_path / "hello.json"],
                 ["serve", tmp_path, "--port", 0, "--chat-template", "default"]):
        done = quire(*args, check=False, input=b"")
        message = done.stderr.decode()
        assert done.returncode == 1
        assert str(tmp_path) in message and f"{where}: " in message and "line 2, column 39: " in message
    # What needs no template does not mind.
    assert quire("run", tmp_path, "-p", "Once", "--max-tokens", 4).stdout


@pytest.mark.parametrize("damage", ["truncate_weights", "append_to_weights", "break_config", "break_tokenizer",
                                    "huge_header"])
def test_broken_models_are_refused(tmp_path, damage):
    copy_of_demo(tmp_path)
    if damage == "truncate_weights":
        target = tmp_path / "model.safetensors"
        target.write_bytes(target.read_bytes()[:5_000_000])
    elif damage == "append_to_weights":
        target = tmp_path / "model.safetensors"
        target.write_bytes(target.read_bytes() + b"\0")
    elif damage == "huge_header":
        target = tmp_path / "model.safetensors"
        target.write_bytes(b"\xff" * 8 + target.read_bytes()[8:])
    elif damage == "break_config":
        target = tmp_path / "config.json"
        target.write_text(target.read_text().replace('"hidden_size": 256', '"hidden_size": -256'))
    else:
        target = tmp_path / "tokenizer.json"
        target.write_text(target.read_text()[:1000])
    done = quire("run", tmp_path, "-p", "x", "--max-tokens", "1", check=False)
    assert done.returncode == 1
    assert target.name in done.stderr.decode()
