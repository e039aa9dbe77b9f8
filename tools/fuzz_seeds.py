#!/usr/bin/env python3
"""Collects seeds for one fuzz target: fuzz_seeds.py NAME DIR.

From the repository's own model and from QUIRE_DATA (default ../shared/data) where it is there; large files are
cut down to what a fuzzer can mutate: vocabularies to their first entries, tensors to their headers.
"""

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
    yield compact({"tokens": [1, 2, 3]})
    yield compact({"prompt": "a b", "add_special_tokens": False, "return_token_strs": True})


def http():
    for path in ("/health", "/v1/models", "/v1/models/letters", "/metrics", "/nothing%20here?x=1"):
        yield f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        for body in bodies():
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            yield f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    yield b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n0\r\n\r\n"
    yield b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    yield b"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Headers: a, b\r\n\r\n"
    yield b"GET /health HTTP/1.0\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n"


SEEDS = {
    "safetensors": safetensors,
    "config": config,
    "tokenizer.json": tokenizer_json,
    "template": chat_templates,
    "template-render": template_render,
    "http": http,
    "json-body": bodies,
}


def main():
    name, out = sys.argv[1], Path(sys.argv[2])
    count = 0
    for seed in SEEDS[name]():
        (out / ("seed-" + hashlib.sha256(seed).hexdigest()[:16])).write_bytes(seed)
        count += 1
    print(f"{count} seeds for {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
