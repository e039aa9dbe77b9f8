#!/usr/bin/env python3
"""Collects seeds for one fuzz target: fuzz_seeds.py NAME DIR.

From the repository's own model and from QUIRE_DATA (default ../shared/data) where it is there; large files are
cut down to what a fuzzer can mutate: vocabularies to their first entries, tensors to their headers.
"""

import base64
import hashlib
import json
import os
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("QUIRE_DATA", ROOT / "../shared/data"))
MODEL = next((ROOT / "models").iterdir())


def model_dirs():
    yield MODEL
    yield from sorted(path.parent for path in DATA.glob("golden-models/*/config.json"))


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def safetensors():
    """Headers with the first tensors, their bytes as zeros; shapes cut to stay small."""
    for model in model_dirs():
        for path in sorted(model.glob("*.safetensors")):
            with path.open("rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            tensors = [(k, v) for k, v in header.items() if k != "__metadata__"][:3]
            end, small = 0, {}
            for name, info in tensors:
                size = 4 if info["dtype"] == "F32" else 2
                small[name] = {"dtype": info["dtype"], "shape": [2, 3], "data_offsets": [end, end + 6 * size]}
                end += 6 * size
            text = compact(small)
            yield struct.pack("<Q", len(text)) + text + bytes(end)


def gguf():
    """A tiny model of each architecture, with values of every type and tensors of every format."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def file(keys, tensors):
        """keys: name -> (type, bytes); tensors: name -> (dimensions, type, bytes)"""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
        head += b"".join(text(name) + struct.pack("<I", kind) + value for name, (kind, value) in keys.items())
        data = b""
        for name, (dims, kind, size) in tensors.items():
            head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
            data += bytes(-(-size // 32) * 32)
        return head + bytes(-len(head) % 32) + data

    def size(value):
        return 4, struct.pack("<I", value)

    for arch in ("llama", "qwen2", "qwen3"):
        keys = {"general.architecture": (8, text(arch)), f"{arch}.context_length": size(64),
                f"{arch}.embedding_length": size(8), f"{arch}.block_count": size(1), f"{arch}.feed_forward_length": size(8),
                f"{arch}.attention.head_count": size(2), f"{arch}.attention.layer_norm_rms_epsilon": (6, struct.pack("<f", 1e-5)),
                "general.sampling.temp": (6, struct.pack("<f", 0.5)), "tokenizer.ggml.eos_token_id": size(2),
                "tokenizer.ggml.tokens": (9, struct.pack("<IQ", 8, 2) + text("<|eot_id|>") + text("b")),
                "tokenizer.ggml.token_type": (9, struct.pack("<IQii", 5, 2, 3, 1))}
        matrix = ([8, 8], 0, 256)
        tensors = {"token_embd.weight": matrix, "output_norm.weight": ([8], 0, 32), "rope_freqs.weight": ([2], 0, 8)}
        for name in "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down".split():
            tensors[f"blk.0.{name}.weight"] = matrix
            tensors[f"blk.0.{name}.bias"] = ([8], 1, 16)
        tensors |= {f"blk.0.{name}.weight": ([8], 0, 32) for name in ("attn_norm", "ffn_norm")}
        yield file(keys, tensors)
    scalars = {f"k{kind}": (kind, bytes(width)) for kind, width in
               {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}.items()}
    nested = {"nested": (9, struct.pack("<IQIQhIQ", 9, 2, 3, 1, 7, 7, 0)), "general.alignment": size(64)}
    yield file(scalars | nested, {})
    formats = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 12: (256, 144), 13: (256, 176),
               14: (256, 210), 20: (32, 18), 30: (1, 2)}
    yield file({}, {f"t{kind}": ([values, 2], kind, 2 * width) for kind, (values, width) in formats.items()})


def config():
    for model in model_dirs():
        for name in ("config.json", "generation_config.json"):
            if (model / name).exists():
                yield (model / name).read_bytes()


def tokenizer_json():
    for path in [MODEL / "tokenizer.json", *sorted(DATA.glob("tokenizer-hf-json/*.json"))]:
        if not path.exists():
            continue
        whole = json.loads(path.read_text())
        model = whole["model"]
        keep = 300
        if isinstance(model["vocab"], dict):
            vocab = sorted(model["vocab"].items(), key=lambda entry: entry[1])[:keep]
            model["vocab"] = dict(vocab)
            whole["added_tokens"] = [t for t in whole.get("added_tokens", []) if t["id"] < keep]
        else:
            model["vocab"] = model["vocab"][:keep]
            vocab = [(text, 0) for text, _ in model["vocab"]]
        known = {text for text, _ in vocab}
        merges = []
        for merge in model.get("merges", []):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            if left in known and right in known and left + right in known:
                merges.append(merge)
        if "merges" in model:
            model["merges"] = merges[:100]
        yield compact(whole)


def varint(value):
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def proto_fields(data):
    """(number, type, value, whole field) of a protobuf message."""
    def read_varint(pos):
        value = shift = 0
        while True:
            value |= (data[pos] & 0x7F) << shift
            shift, pos = shift + 7, pos + 1
            if data[pos - 1] < 0x80:
                return value, pos

    pos = 0
    while pos < len(data):
        begin = pos
        tag, pos = read_varint(pos)
        if tag & 7 == 0:
            value, pos = read_varint(pos)
        else:
            size, pos = (4, pos) if tag & 7 == 5 else read_varint(pos)
            value, pos = data[pos:pos + size], pos + size
        yield tag >> 3, tag & 7, value, data[begin:pos]


def cut_sentencepiece(data, keep):
    """Its special and byte pieces, the first of the others, and what concerns all."""
    out = b""
    for number, _, value, field in proto_fields(data):
        if number == 1:
            kind = next((v for n, _, v, _ in proto_fields(value) if n == 3), 1)
            keep -= kind == 1
            if kind == 1 and keep < 0:
                continue
        elif number not in (2, 3):
            continue
        elif len(field) > 4000:
            continue
        out += field
    return out


def proto(number, kind, value):
    return varint(number << 3 | kind) + (varint(len(value)) + value if kind == 2 else value)


def small_sentencepiece(model, pieces, normalizer=b"", trainer=b""):
    """pieces: (text, score, type)"""
    out = b""
    for text, score, kind in pieces:
        piece = proto(1, 2, text.encode()) + proto(2, 5, struct.pack("<f", score)) + proto(3, 0, bytes([kind]))
        out += proto(1, 2, piece)
    return out + proto(2, 2, proto(3, 0, bytes([model])) + trainer) + proto(3, 2, normalizer)


def charsmap(rules):
    """A double array of rules for single bytes: each has a block of its own for its leaf."""
    units, texts = [0] * 256 * (2 + len(rules)), b""
    units[0] = 256 << 10
    for i, (byte, text) in enumerate(rules):
        at, base = 256 ^ byte, 512 + 256 * i
        units[at] = (at ^ base) << 10 | 0x100 | byte
        units[base] = 0x80000000 | len(texts)
        texts += text + b"\0"
    # What is not taken is a leaf, which no byte finds.
    units = [unit or 0x80000000 for unit in units[:-256 + 1]]
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + texts


def ranks(tokens):
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(tokens))


def tokenizer_model():
    for name in ("trained_bpe.model", "trained_unigram.model"):
        yield cut_sentencepiece((ROOT / "tests/tokenize/fixtures" / name).read_bytes(), 80)
    path = DATA / "tokenizer-llama2" / "tokenizer.model"
    if path.exists():
        yield cut_sentencepiece(path.read_bytes(), 60)
    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("\u2581", -9, 1), ("a", -3, 1), ("b", -4, 1),
              ("ab", -1, 1), ("\u2581a", -2, 1), ("aa", -1, 5), ("<x>", 0, 4), ("\u00e9b", -3, 1)]
    for model in (1, 2, 4):
        yield small_sentencepiece(model, pieces)
    yield small_sentencepiece(1, pieces, proto(2, 2, charsmap([(0x41, b"a"), (0x09, b" ")])))
    yield small_sentencepiece(2, pieces, proto(3, 0, b"\0") + proto(4, 0, b"\0"), proto(24, 0, b"\1"))
    byte_tokens = [bytes([byte]) for byte in range(256)]
    yield ranks(byte_tokens)
    yield ranks(byte_tokens + [b"ab", b"bb", b"aaaa", b" th", b"\xc3\xa9"])


def chat_templates():
    for path in [MODEL / "chat_template.jinja", *sorted(DATA.glob("chat-templates/llama.cpp-templates/*.jinja"))]:
        if path.exists():
            yield path.read_bytes()


CONVERSATION = compact(
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi", "tool_calls": []},
        ],
        "tools": None,
        "add_generation_prompt": True,
        "bos_token": "<s>",
    }
)


def template_render():
    for template in chat_templates():
        yield template + b"\0" + CONVERSATION
    path = DATA / "chat-templates/hf_jinja_unit_cases.json"
    if path.exists():
        cases = json.loads(path.read_text())
        for case in cases if isinstance(cases, list) else next(iter(cases.values())):
            if isinstance(case, dict) and isinstance(case.get("template"), str):
                yield case["template"].encode() + b"\0" + compact(case.get("context", {}))


def bodies():
    yield compact({"model": "letters", "prompt": "abc", "max_tokens": 4, "temperature": 0.5, "logprobs": 2, "n": 2})
    yield compact({"prompt": [1, 2, 3], "stop": ["x", "yz"], "seed": 7, "echo": True, "logit_bias": {"5": -3.5}})
    yield compact({"prompt": ["a", "b"], "stream": True, "stream_options": {"include_usage": True}})
    yield compact({"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 3, "top_logprobs": 2,
                   "logprobs": True, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "presence_penalty": 1})
    yield compact({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "tools": [],
                   "response_format": {"type": "text"}, "chat_template_kwargs": {"a": 1}})
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}, "c": {"anyOf": [{"enum": ["x", 1, None]}, {"type": "string", "pattern": "^a+$",
              "maxLength": 20}]}}, "required": ["a"], "additionalProperties": False, "$defs": {"b": {"type": "integer", "minimum": 1, "multipleOf": 5}}}
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 5}"}}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "strict": True, "parameters": schema}}
    for choice in ("auto", "none", "required", {"type": "function", "function": {"name": "f"}}):
        yield compact({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                                    {"role": "tool", "tool_call_id": "call_1", "content": "5"}],
                       "tools": [tool], "tool_choice": choice, "parallel_tool_calls": False, "prompt_logprobs": 1})
    yield compact({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "reasoning_content": "b", "content": "c"}], "reasoning_effort": "low",
                   "include_reasoning": False, "thinking_token_budget": 3, "chat_template_kwargs": {"enable_thinking": True},
                   "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}})
    grammar = "root ::= \"a\" b{1,3} # c\nb ::= [^x-z\\n] | (root)?\n"
    for wanted in ({"json": schema}, {"json": json.dumps(schema)}, {"regex": "^(?:a|[b-d]{2,})+\\.\\u{1f98a}?$"}, {"choice": ["a", "b c"]}, {"grammar": grammar},
                   {"json_object": True}):
        yield compact({"prompt": "a", "structured_outputs": wanted, "min_tokens": 1, "bad_words": ["x"], "allowed_token_ids": [1, 2]})
    yield compact({"prompt": "a", "guided_regex": "[a-z]{2,3}", "truncate_prompt_tokens": 4, "prompt_logprobs": 2, "max_tokens": 0})
    yield compact({"prompt": "a", "grammar": grammar, "echo": True, "logprobs": 1, "logprob_token_ids": [3, 1, 3]})
    yield compact({"prompt": "a", "json_schema": schema, "logprob_token_ids": [1, 2]})
    yield compact({"tokens": [1, 2, 3]})
    yield compact({"prompt": "a b", "add_special_tokens": False, "return_token_strs": True})


def http():
    for path in ("/health", "/v1/models", "/v1/models/letters", "/metrics", "/nothing%20here?x=1"):
        yield f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        for body in bodies():
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            yield f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    yield b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n0\r\n\r\n"
    yield b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    # Framing beyond what a connection's buffer takes; and a body of many chunks within it.
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    for begin, piece in (b"", b"0"), (b"2;e=", b"e"), (b"2\r\n{}\r\n0\r\nt: ", b"t"), (b"2\r\n{}\r\n0\r\n", b"a: b\r\n"):
        yield chunked + begin + piece * (200_000 // len(piece))
        yield chunked + begin + piece * (10_000 // len(piece)) + b"\r\n\r\n"
    yield chunked + b'c\r\n{"prompt": "\r\n' + b"1;e\r\na\r\n" * 8000 + b'2\r\n"}\r\n0\r\nt: 1\r\n\r\n'
    yield b"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Headers: a, b\r\n\r\n"
    yield b"GET /health HTTP/1.0\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n"


def decision_log():
    """One sequence that comes in, computes a step and ends; tests/fuzz/regressions has a whole run."""
    add = b"a" + bytes([0, 3, 1, 2, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1]) + b"n"
    decided = bytes([1, 0, 3, 2])
    plan = b"p" + bytes([1, 0]) + bytes([2, 0, 0, 0, 5, 0, 0, 3, 6, 0, 0, 0, 6, 0, 1, 0])
    commit = b"c" + bytes([1, 2, 1, 9])
    end = bytes([14, 0, 1, 0, 8, 0, 0, 0, 8, 0, 1, 0])
    yield add + decided + plan + commit + end
    yield b"b" + bytes([5]) + add + decided + plan + b"b" + bytes([100]) + commit + end
    yield add + decided + plan + b"x" + bytes([0]) + end + b"e" + bytes([1])
    # A later part: two blocks are cached, one behind the other, and another part follows.
    cached = b"i" + bytes([2]) + bytes([0, 0, 1, 2, 3, 4, 8, 0]) + bytes([1, 0, 5, 6, 7, 8, 3, 4])
    yield cached + add + decided + plan + commit + end + b"n" + bytes([1])


PARTS = b"\n--\n"  # tests/fuzz/parts.h


def whole_decision_log():
    """With their first lines: of a usual pool, and of sizes that no such log can have."""
    scheduler = {"num_blocks": 12, "block_size": 4, "kv_windows": [0, 8], "max_num_seqs": 4, "max_num_batched_tokens": 16,
                 "context_cost": 0, "max_model_len": 60, "max_waiting": 1024, "watermark_bp": 100, "scheduling": "fcfs",
                 "batching": "continuous", "victim": "last", "preemption": "swap", "eviction": "queue-lru",
                 "num_host_blocks": 6, "priority_aging": 5000000000, "prefill_token": 1, "decode_token": 1, "swap_block": 1}
    huge = {"num_blocks": 1 << 26, "num_host_blocks": 1 << 26, "max_num_seqs": 1 << 16, "max_num_batched_tokens": 1 << 30,
            "scheduling": "fair", "eviction": "arc"}
    for changes in ({}, huge, {"block_size": 2**32 - 1}, {"kv_windows": [0] * 64, "eviction": "s3fifo"}):
        yield compact({"quire_run": 4, "scheduler": scheduler | changes}) + b"\n"
    yield compact({"quire_run": 4, "part": 3, "steps_before": 0, "scheduler": scheduler}) + b"\n"


def decision_logs():
    records = list(decision_log())
    yield from records
    for header in whole_decision_log():
        yield from (header + each for each in records)


def one_tensor(name):
    text = compact({name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})
    return struct.pack("<Q", len(text)) + text + bytes(24)


def safetensors_index():
    files = (one_tensor("a"), one_tensor("b"))
    for places in ({"a": "1.safetensors", "b": "2.safetensors"}, {"a": "1.safetensors", "b": "1.safetensors"},
                   {"a": "../1.safetensors"}, {"a": 1}, {}):
        yield PARTS.join((compact({"metadata": {"total_size": 48}, "weight_map": places}), *files))
    yield PARTS.join((compact({"weight_map": []}), *files))


def llama2c():
    """Tiny models of each version, and a vocabulary of the special and byte tokens and a few pieces."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + [" a", "b", " ab", " A", "c", "at"]
    tokenizer = struct.pack("<I", 6)
    for i, piece in enumerate(pieces):
        tokenizer += struct.pack("<fI", -float(i), len(piece)) + piece.encode()
    vocab, dim, hidden = len(pieces), 4, 4
    sizes = (dim, hidden, 1, 2, 1, vocab, 8)  # n_layers, n_heads, n_kv_heads, ..., max_seq_len
    norms, matrices, embedding = 3 * dim, 2 * dim * dim + 2 * (dim // 2) * dim + 3 * dim * hidden, vocab * dim
    all_floats = 4 * (norms + matrices + embedding)
    yield PARTS.join((tokenizer, struct.pack("<7i", *sizes) + bytes(all_floats + 4 * 8 * 2)))
    with_head = (*sizes[:5], -vocab, sizes[6])
    yield PARTS.join((tokenizer, struct.pack("<7i", *with_head) + bytes(all_floats + 4 * 8 * 2 + 4 * embedding)))
    for version, extra in ((1, b"\1"), (2, b"\1" + struct.pack("<i", 4))):
        head = (struct.pack("<Ii", 0x616B3432, version) + struct.pack("<7i", *sizes) + extra).ljust(256, b"\0")
        quantized = matrices + embedding
        data = all_floats if version == 1 else 4 * norms + quantized + quantized // 4 * 4
        yield PARTS.join((tokenizer, head + bytes(data)))


def tokenizer_config():
    token = {"content": "<x>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    template = "{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}"
    newer = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": token, "legacy": False,
             "added_tokens_decoder": {"0": token, "900": token | {"content": "a", "normalized": True}},
             "chat_template": template, "clean_up_tokenization_spaces": False, "model_max_length": 1e30}
    older = {"bos_token": "<s>", "additional_special_tokens": ["<y>", token], "unk_token": None,
             "chat_template": [{"name": "default", "template": template}, {"name": "tool_use", "template": "{{ tools }}"}]}
    yield compact(newer)
    yield PARTS.join((compact(older), compact({"<x>": 901, "<y>": 902}), compact({"pad_token": token})))
    yield PARTS.join((b"{}", compact({"<x>": -1})))
    for path in [MODEL / "tokenizer_config.json", *sorted(DATA.glob("golden-models/*/tokenizer_config.json"))]:
        if path.exists() and path.stat().st_size < 8000:
            yield path.read_bytes()


def prefix_file():
    """Three nodes of four tokens in two K/V groups. The fuzz target puts the checksum of the index right; those of the
    blocks it does not: tests/fuzz/regressions has a file whose blocks are whole."""
    header = compact({"quire_prefix_cache": 1, "key": {"model": "a"}, "block_size": 4, "block_bytes": 64, "nodes": 3,
                      "index_checksum": "0" * 16}) + b"\n"
    index = b"".join(struct.pack("<IQ4iQQ", parent, 7, 1, 2, 3, 4 + i, 1, i) for i, parent in enumerate((2**32 - 1, 0, 1)))
    padded = (header + index).ljust(4096, b"\0")
    yield padded + bytes(64 * 5)
    yield padded + bytes(64)
    yield (header.replace(b'"nodes":3', b'"nodes":0')).ljust(4096, b"\0")


def pack_cache():
    """One matrix, or two; the fuzz target puts the checksum of the line at the end right."""
    def file(data, matrices, facts):
        line = compact({"quire_packed_weights": 1, "facts": facts, "matrices": matrices})
        return data + line + b"quirepk\n" + struct.pack("<QQ", len(line), 0)

    matrix = {"n": 32, "k": 8, "format": "f32", "finite": True, "sum": "0" * 16}
    yield file(bytes(4096), [matrix], {"model": "a"})
    yield file(bytes(8192), [matrix, matrix | {"format": "int8"}], {"model": "a"})
    yield file(b"", [], {"model": "a"})
    yield file(b"", [matrix | {"n": 0}], {"model": "b"})


def trace():
    yield (b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\r\n"
           b"2023-11-16 18:15:50,4,1\n\n2024-02-29 00:00:00.9+00:00,16,1\n")
    yield b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    yield b"".join(compact(line) + b"\n" for line in (
        {"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]},
        {"timestamp": 3052, "input_length": 5, "output_length": 26, "hash_ids": [46]}))
    yield (b"\xef\xbb\xbfTimestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
           b"4.5,GPT-4,1087,0,1087,API log\n")
    yield b"TIMESTAMP,ContextTokens,GeneratedTokens,priority,tenant,ttft_deadline_ms\n1.5,3,4,-2,a fox,900\n0,3,4,1,\"a, hen\",1\n"
    yield compact([{"id": "x", "conversations": [{"from": "human", "value": "say hi"}, {"from": "gpt", "value": "hi"},
                                                 {"from": "human", "value": "again"}, {"from": "gpt", "value": "hi, again"}]}, {}])
    for header in whole_decision_log():
        yield from (header + each for each in decision_log())


PHASE = {"step": 9e6, "decode_step": 1.5e6, "decode": 1e5, "chunk": 3e5, "decode_context": 300, "chunk_square": 40, "chunk_prefix": 90,
         "logit_row": 7e4, "sampled_row": 0, "moved_block": 2e5, "copy": 3e4, "token": [4e4, 1e5, 2.5e5]}
COUNTS = ("decoding", "decode_context", "chunks", "prefill_tokens", "chunk_squares", "chunk_prefix", "logit_rows", "sampled_rows",
          "moved_blocks", "copies")


def cost_file():
    yield compact({"quire_cost": 2, "model": "fox", "machine": "2 cores", "device": "bf16", "build": "1", "steps": 90, "left_out": 3,
                   "errors": [{"kind": "decode", "steps": 9, "median": 0.01, "p90": 0.1, "bias": -0.01}], "knots": [0, 8, 200],
                   "device_ns": PHASE, "host_ns": PHASE, "most": {name: 1000 for name in COUNTS},
                   "least": {name: 3 for name in COUNTS}, "kinds": ["decode", "swap"], "deviations": [0.9, 1, 1.1]})


def step_log():
    columns = ["step", "started", "budget", "open", *COUNTS, "plan", "submit", "wait", "compute", "sample", "commit", "deliver", "idle", "whole"]
    row = b"[7,1,192,1,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n"
    yield row * 3
    yield compact({"step_log": 3, "columns": columns, "model": "fox", "machine": "2 cores", "threads": 2, "warning": "w"}) + b"\n" + row * 2


def schemas():
    from schemas import Generator
    for seed in range(100):
        yield compact(Generator(seed).document())
    yield compact({"format": {"type": "triggered_tags", "triggers": ["<a"], "at_least_one": True, "tags": [
        {"begin": "<a>", "content": {"type": "json_schema", "json_schema": {"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}}}, "end": "</a>"}]}})


def grammar_texts():
    from regexes import Regexes
    from grammars import grammar
    for seed in range(60):
        yield Regexes(seed).document().encode()
        yield grammar(seed).text().encode()


SEEDS = {
    "safetensors": safetensors,
    "gguf": gguf,
    "config": config,
    "tokenizer.json": tokenizer_json,
    "tokenizer.model": tokenizer_model,
    "template": chat_templates,
    "template-render": template_render,
    "http": http,
    "json-body": bodies,
    "schema": schemas,
    "grammar-text": grammar_texts,
    "decision-log": decision_logs,
    "safetensors-index": safetensors_index,
    "llama2c": llama2c,
    "tokenizer-config": tokenizer_config,
    "prefix-file": prefix_file,
    "pack-cache": pack_cache,
    "trace": trace,
    "cost-file": cost_file,
    "step-log": step_log,
}


def main():
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    name, out = sys.argv[1], Path(sys.argv[2])
    count = 0
    for seed in SEEDS[name]():
        (out / ("seed-" + hashlib.sha256(seed).hexdigest()[:16])).write_bytes(seed)
        count += 1
    print(f"{count} seeds for {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
