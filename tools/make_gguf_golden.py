#!/usr/bin/env python3
"""Tiny random models as llama.cpp's own converter writes them, with the logits of Hugging Face transformers.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch transformers sentencepiece pyyaml tqdm
    git clone https://github.com/ggml-org/llama.cpp /tmp/llama.cpp
    /tmp/venv/bin/python tools/make_gguf_golden.py /tmp/llama.cpp tests/model/gguf_fixtures [NAME...]

Writes per model a folder with model.gguf (bf16, no vocabulary) and expected.safetensors as make_golden.py has
it. The shapes are such that GGUF can say all of them: what llama.cpp takes for granted is as it is in the
models that were published. The output is committed; the tests need neither llama.cpp nor this script. Made
with the converter of April 2026.
"""
import json
import sys
import tempfile
from pathlib import Path

import make_golden
from make_golden import GEMMA3_ROPE, GRANITE, MIXTRAL, MOE, rope

SMALL = dict(vocab_size=41, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=20)
GEMMA = dict(head_dim=8, query_pre_attn_scalar=8, sliding_window=9, tie_word_embeddings=True)
LONGROPE = rope(rope_type="longrope", partial_rotary_factor=0.5, short_factor=[1.1], long_factor=[2.2],
                original_max_position_embeddings=16)

# The converter takes this length for granted.
LLAMA3_ROPE = rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8192)

MODELS = {
    "llama": ("Llama", {**SMALL, "num_hidden_layers": 2, "rope_parameters": LLAMA3_ROPE,
                        "attention_bias": True, "tie_word_embeddings": True}, True),
    "qwen2": ("Qwen2", {**SMALL, "num_hidden_layers": 2, "rope_parameters": make_golden.YARN}, True),
    "qwen3": ("Qwen3", {**SMALL, "num_hidden_layers": 2, "head_dim": 6}, True),
    "phi3": ("Phi3", {**SMALL, "num_hidden_layers": 2, "sliding_window": 23, "rope_parameters": LONGROPE,
                      "original_max_position_embeddings": 16}, True),
    "smollm3": ("SmolLM3", {**SMALL, "num_hidden_layers": 5}, True),
    "gemma2": ("Gemma2", {**SMALL, **GEMMA, "num_hidden_layers": 3, "attn_logit_softcapping": 3.0,
                          "final_logit_softcapping": 2.0}, True),
    "gemma3": ("Gemma3", {**SMALL, **GEMMA, "num_hidden_layers": 7, "rope_parameters": GEMMA3_ROPE}, True),
    "granite": ("Granite", {**SMALL, **GRANITE, "num_hidden_layers": 2}, True),
    "olmo2": ("Olmo2", {**SMALL, "num_hidden_layers": 2}, True),
    "mixtral": ("Mixtral", {**SMALL, **MIXTRAL, "num_hidden_layers": 2, "intermediate_size": 12}, True),
    "qwen3-moe": ("Qwen3Moe", {**SMALL, **MOE, "head_dim": 6, "num_hidden_layers": 2, "norm_topk_prob": True,
                               "moe_intermediate_size": 10}, True),
}


def convert(llama_cpp, directory, out):
    sys.path.insert(0, str(llama_cpp))
    sys.path.insert(1, str(llama_cpp / "gguf-py"))
    import convert_hf_to_gguf as converter
    import gguf

    config_file = directory / "config.json"
    config = json.loads(config_file.read_text())
    scaling = config.get("rope_scaling") or {}
    if "partial_rotary_factor" in scaling:  # where Phi 4's config has it, and the converter looks for it
        config["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    config_file.write_text(json.dumps(config))
    # Gemma 3 is cut to the tokens of its tokenizer.
    vocab = {f"t{i}": i for i in range(config["vocab_size"])}
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
    # As published, not as transformers 5 rewrites it: the converter does not find all of RoPE there.
    converter.ModelBase.load_hparams = staticmethod(lambda *_, **__: json.loads(config_file.read_text()))
    kind = converter.ModelBase.from_model_architecture(config["architectures"][0])
    kind.set_vocab = lambda self: self._set_vocab_none()
    model = kind(directory, gguf.LlamaFileType.MOSTLY_BF16, out, eager=True, model_name=directory.name)
    model.write()


def main():
    make_golden.torch.set_num_threads(1)
    llama_cpp, target = Path(sys.argv[1]), Path(sys.argv[2])
    make_golden.MODELS = MODELS
    for name in sys.argv[3:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            make_golden.write(name, Path(scratch))
            made = Path(scratch) / name
            (target / name).mkdir(parents=True, exist_ok=True)
            with make_golden.torch.inference_mode():
                convert(llama_cpp, made, target / name / "model.gguf")
            (made / "expected.safetensors").rename(target / name / "expected.safetensors")


if __name__ == "__main__":
    main()
