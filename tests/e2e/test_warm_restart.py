"""The prefix cache in a file: what one server leaves, the next begins with; what is wrong with it costs time only."""
import json
import re
import shutil
import subprocess

import openai
import pytest

from server import MODEL, MODEL_NAME, QUIRE, QuireServer

END = b"\nthe end of a quire_prefix_cache\n"  # of every file
STORY = "Once upon a time there was a little fox who lived in a big forest. Every day the fox went to the river and "
STORY += "looked at the fish. One day a big fish came up and said hello to the fox. The fox was very happy and said "


def complete(server, prompt, **options):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    extra = {"return_token_ids": True, "ignore_eos": True, **options.pop("extra", {})}
    return client.completions.create(model=MODEL_NAME, prompt=prompt, extra_body=extra,
                                     **{"max_tokens": 60, "temperature": 0, **options})


def cached(answer):
    return answer.usage.prompt_tokens_details.cached_tokens


def serve(path, *flags, blocks=64):
    return QuireServer("--prefix-cache-file", path, "--num-blocks", blocks, *flags)


@pytest.fixture
def kept(tmp_path):
    """A file, and the answer that it was made with."""
    path = tmp_path / "prefixes"
    with serve(path) as server:
        answer = complete(server, STORY)
        assert "does not exist yet" in server.output()
    return path, answer.choices[0]


def test_the_next_server_goes_on(kept):
    path, first = kept
    with serve(path) as server:
        again = complete(server, STORY)
        assert again.choices[0].token_ids == first.token_ids
        assert cached(again) == (len(first.prompt_token_ids) - 1) // 16 * 16 > 0
        # From the middle of the former answer: its own K/V is there, and the next token is the same.
        for length in (1, 20, 37):
            rest = complete(server, first.prompt_token_ids + first.token_ids[:length], max_tokens=60 - length)
            assert rest.choices[0].token_ids == first.token_ids[length:]
            assert cached(rest) == (len(first.prompt_token_ids) + length - 1) // 16 * 16
        other = complete(server, STORY, extra={"cache_salt": "another"})
        assert cached(other) == 0 and other.choices[0].token_ids == first.token_ids


@pytest.mark.parametrize("flags,fact", [
    (["--dtype", "f32"], "dtype"), (["--isa", "reference"], "isa"), (["--quantization", "int8"], "weights"),
    (["--kv-cache-dtype", "f32"], "kv_cache_dtype"), (["--block-size", 32], "it has blocks of 16 tokens, and here they have 32"),
    (["--sliding-window", 40], "windows")])
def test_what_others_made_is_refused(kept, flags, fact):
    path, first = kept
    with serve(path, *flags) as server:
        assert "the prefix cache starts empty" in server.output() and fact in server.output()
        assert cached(complete(server, STORY)) == 0


@pytest.mark.parametrize("file,old,new,fact", [
    ("config.json", b'"rms_norm_eps": 1e-05', b'"rms_norm_eps": 1e-06', "model"),
    ("tokenizer.json", b'"added_tokens"', b' "added_tokens"', "tokenizer")])
def test_another_model_or_tokenizer_does_not_take_it(kept, tmp_path, file, old, new, fact):
    path, first = kept
    model = tmp_path / MODEL_NAME
    shutil.copytree(MODEL, model)
    text = (model / file).read_bytes()
    assert old in text
    (model / file).write_bytes(text.replace(old, new, 1))
    with QuireServer("--prefix-cache-file", path, "--num-blocks", 64, model=model) as server:
        assert "the prefix cache starts empty" in server.output() and fact in server.output()
        assert cached(complete(server, STORY)) == 0


def test_a_server_that_caches_nothing_leaves_it_as_it_is(kept):
    path, first = kept
    whole = path.read_bytes()
    with serve(path, "--dtype", "f32") as server:
        assert "the prefix cache starts empty" in server.output()
        server.stop()
        assert f"{path} stays as it is: nothing is cached" in server.output()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("version", [0, 1, 99])
def test_other_kernels_do_not_take_it(kept, version):
    path, first = kept
    whole = path.read_bytes()
    path.write_bytes(re.sub(rb'"kernel_version":\d+', b'"kernel_version":%d' % version, whole, count=1))
    assert path.read_bytes() != whole
    with serve(path) as server:
        assert "the prefix cache starts empty" in server.output() and "kernel_version" in server.output()


def test_nothing_but_a_prefix_cache_is_overwritten(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"hello\n" * 100)
    for place, said in ((text, "is not a prefix cache"), (tmp_path, "is no file"), (tmp_path / "no" / "file", "its folder does not exist")):
        done = subprocess.run([QUIRE, "run", MODEL, "-p", "Once", "--max-tokens", "2", "--prefix-cache-file", place],
                              capture_output=True, timeout=60)
        assert done.returncode == 1 and said in done.stderr.decode() and str(place) in done.stderr.decode()
    assert text.read_bytes() == b"hello\n" * 100 and sorted(tmp_path.iterdir()) == [text]


def test_damage_costs_only_what_it_hits(kept):
    path, first = kept
    whole = path.read_bytes()
    line = whole.index(b"\n")
    header = json.loads(whole[:line])
    size = header["block_bytes"]
    assert whole.endswith(END)
    blocks = len(whole) - len(END) - header["nodes"] * size  # where the first begins
    prompt_blocks = (len(first.prompt_token_ids) - 1) // 16
    assert header["nodes"] > prompt_blocks >= 2

    def flipped(at):
        return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]

    cases = {
        "without the mark at the end": (whole[:-1], prompt_blocks, "starts with"),
        "cut in the last block": (whole[:-len(END) - 1], prompt_blocks, "1 blocks are damaged"),
        "cut after the first": (whole[:blocks + size + 5], 1, "are damaged"),
        "a bit of the second block": (flipped(blocks + size + 100), 1, "1 blocks are damaged"),
        "a bit of the first block": (flipped(blocks), 0, "1 blocks are damaged"),
        "a bit of the index": (flipped(line + 30), 0, "the index is damaged"),
        "cut in the index": (whole[:line + 20], 0, "starts empty"),
        "cut in the header": (whole[:20], 0, "starts empty"),
        "empty": (b"", 0, "starts empty"),
    }
    for name, (content, hits, message) in cases.items():
        path.write_bytes(content)
        with serve(path) as server:
            answer = complete(server, STORY)
            assert message in server.output(), name
            assert answer.choices[0].token_ids == first.token_ids, name
            assert cached(answer) == hits * 16, name
        assert path.stat().st_size == len(whole), name  # it is whole again


@pytest.mark.parametrize("damage", ["noise in the first 4 KiB", "zeros in the first 4 KiB", "another first byte", "no first line"])
def test_a_damaged_beginning_costs_the_cache_only(kept, damage):
    path, first = kept
    whole = path.read_bytes()
    line = whole.index(b"\n") + 1
    noise = bytes((i * 37 + 11) % 251 + 1 for i in range(4096))
    path.write_bytes({"noise in the first 4 KiB": noise + whole[4096:], "zeros in the first 4 KiB": bytes(4096) + whole[4096:],
                      "another first byte": b"X" + whole[1:], "no first line": whole[line:]}[damage])
    with serve(path) as server:
        answer = complete(server, STORY)
        assert "W " in server.output() and "the prefix cache starts empty" in server.output()
        assert answer.choices[0].token_ids == first.token_ids and cached(answer) == 0
    with serve(path) as server:  # it is whole again
        assert cached(complete(server, STORY)) > 0


def test_what_has_neither_a_prefix_caches_beginning_nor_its_end_is_kept(kept, tmp_path):
    path, _ = kept
    whole = path.read_bytes()
    contents = [b"x", b"hello\n" * 1000, (MODEL / "config.json").read_bytes(), (MODEL / "model.safetensors").read_bytes(),
                b"\0" * 70_000 + b"a disk's image", b"noise" * 1000 + whole[5000:-1]]
    for content in contents:
        path.write_bytes(content)
        done = subprocess.run([QUIRE, "run", MODEL, "-p", "Once", "--max-tokens", "2", "--prefix-cache-file", path],
                              capture_output=True, timeout=60)
        assert done.returncode == 1 and "is not a prefix cache and is not overwritten" in done.stderr.decode()
        assert path.read_bytes() == content


def test_what_takes_the_files_place_while_a_server_runs_is_kept(tmp_path):
    path = tmp_path / "prefixes"
    with serve(path) as server:
        complete(server, STORY)
        path.write_text("somebody's notes")
        server.stop()
        assert "is not a prefix cache and is not overwritten" in server.output()
    assert path.read_text() == "somebody's notes" and sorted(tmp_path.iterdir()) == [path]


def test_a_small_pool_keeps_the_beginnings(kept):
    path, first = kept
    with serve(path, blocks=6) as server:
        answer = complete(server, STORY, max_tokens=8)
        assert answer.choices[0].token_ids == first.token_ids[:8]
        assert cached(answer) > 0
