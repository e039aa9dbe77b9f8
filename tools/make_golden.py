#!/usr/bin/env python3
"""Tiny random models with the logits that Hugging Face transformers computes for them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch transformers
    /tmp/venv/bin/python tools/make_golden.py tests/model/fixtures [NAME...]

Writes per model a folder with config.json, model.safetensors (bf16) and expected.safetensors: input_ids
[2, 40] int64, logits [2, 40, vocab] f32, greedy [2, 16] int64, computed in f32 with eager attention. Seeds
are tried until no choice along the way (of a token, of an expert) is so near that rounding could change it, and what is written is
loaded again and must give the same logits.
The output is committed; the tests need neither PyTorch nor this script. Made with transformers 5.23.
"""
import json
import math
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

ROWS, LENGTH, GREEDY = 2, 40, 16
TOKEN_GAP, EXPERT_GAP = 0.005, 0.0002
RELOAD_TOLERANCE = 1e-5

# Odd widths and vocabularies; one K/V head; and a third that each family fills with what is its own.
ODD = dict(vocab_size=61, hidden_size=36, num_attention_heads=3, num_key_value_heads=3, intermediate_size=37,
           num_hidden_layers=2)
ONE_KV = dict(vocab_size=67, hidden_size=32, num_attention_heads=4, num_key_value_heads=1, intermediate_size=44,
              num_hidden_layers=3)
THIRD = dict(vocab_size=53, hidden_size=24, num_attention_heads=6, num_key_value_heads=2, intermediate_size=40,
             num_hidden_layers=4)


def rope(theta=10000.0, **more):
    return {"rope_theta": theta, "rope_type": "default", **more}


LLAMA3_ROPE = rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)
YARN = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
LINEAR = rope(rope_type="linear", factor=4.0)


def longrope(original):
    pairs = 4  # of a head of 8
    return rope(rope_type="longrope", short_factor=[1.0 + 0.1 * i for i in range(pairs)],
                long_factor=[1.5 + 0.7 * i for i in range(pairs)], original_max_position_embeddings=original)


MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=20)
MIXTRAL = dict(num_local_experts=5, num_experts_per_tok=2)
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=3.0)
GEMMA = dict(query_pre_attn_scalar=24, tie_word_embeddings=True)
GEMMA3_ROPE = {"full_attention": rope(1e6, rope_type="linear", factor=8.0), "sliding_attention": rope()}

# name: (class, config, published form)
MODELS = {
    "llama-odd": ("Llama", {**ODD, "head_dim": 10, "rope_parameters": LLAMA3_ROPE}, True),
    "llama-one-kv": ("Llama", {**ONE_KV, "attention_bias": True, "mlp_bias": True}, False),
    "llama-yarn": ("Llama", {**THIRD, "rope_parameters": YARN, "tie_word_embeddings": True}, False),
    "mistral-odd": ("Mistral", {**ODD, "sliding_window": 7}, False),
    "mistral-one-kv": ("Mistral", {**ONE_KV, "sliding_window": 33}, True),
    "mistral-full": ("Mistral", {**THIRD, "head_dim": 6, "sliding_window": None}, True),
    "qwen2-odd": ("Qwen2", {**ODD, "tie_word_embeddings": True}, True),
    "qwen2-one-kv": ("Qwen2", {**ONE_KV, "rope_parameters": LINEAR}, False),
    "qwen2-windows": ("Qwen2", {**THIRD, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
                      True),
    "qwen3-odd": ("Qwen3", {**ODD, "head_dim": 10}, True),
    "qwen3-one-kv": ("Qwen3", {**ONE_KV, "head_dim": 12, "attention_bias": True}, False),
    "qwen3-windows": ("Qwen3", {**THIRD, "head_dim": 8, "use_sliding_window": True, "sliding_window": 17,
                                "max_window_layers": 2}, False),
    "phi3-odd": ("Phi3", {**ODD, "sliding_window": 11,
                          "rope_parameters": rope(partial_rotary_factor=0.5)}, False),
    "phi3-longrope-short": ("Phi3", {**ONE_KV, "rope_parameters": longrope(64),
                                     "original_max_position_embeddings": 64}, True),
    "phi3-longrope-long": ("Phi3", {**ONE_KV, "rope_parameters": longrope(16),
                                    "original_max_position_embeddings": 16}, True),
    "smollm3-odd": ("SmolLM3", {**ODD, "no_rope_layer_interval": 2}, True),
    "smollm3-one-kv": ("SmolLM3", {**ONE_KV, "no_rope_layers": [0, 1, 0], "tie_word_embeddings": False}, False),
    "smollm3-windows": ("SmolLM3", {**THIRD, "use_sliding_window": True, "sliding_window": 12,
                                    "no_rope_layer_interval": 2}, False),
    "gemma2-odd": ("Gemma2", {**ODD, **GEMMA, "head_dim": 10, "sliding_window": 9}, True),
    "gemma2-one-kv": ("Gemma2", {**ONE_KV, **GEMMA, "head_dim": 16, "sliding_window": 20,
                                 "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}, False),
    "gemma2-uncapped": ("Gemma2", {**THIRD, **GEMMA, "head_dim": 8, "sliding_window": 5,
                                   "attn_logit_softcapping": None, "final_logit_softcapping": None}, True),
    "gemma3-odd": ("Gemma3", {**ODD, **GEMMA, "head_dim": 10, "sliding_window": 9, "sliding_window_pattern": 2,
                              "rope_parameters": GEMMA3_ROPE}, True),
    "gemma3-one-kv": ("Gemma3", {**ONE_KV, **GEMMA, "head_dim": 16, "sliding_window": 20,
                                 "final_logit_softcapping": 4.0, "rope_parameters": GEMMA3_ROPE,
                                 "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
                      False),
    "gemma3-nested": ("Gemma3", {**THIRD, **GEMMA, "head_dim": 8, "sliding_window": 6,
                                 "sliding_window_pattern": 3}, True),
    "granite-odd": ("Granite", {**ODD, **GRANITE}, True),
    "granite-one-kv": ("Granite", {**ONE_KV, **GRANITE, "attention_bias": True, "mlp_bias": True}, False),
    "granite-tied": ("Granite", {**THIRD, **GRANITE, "tie_word_embeddings": True,
                                 "rope_parameters": LLAMA3_ROPE}, False),
    "olmo2-odd": ("Olmo2", {**ODD}, True),
    "olmo2-one-kv": ("Olmo2", {**ONE_KV, "attention_bias": True}, False),
    "olmo2-tied": ("Olmo2", {**THIRD, "tie_word_embeddings": True, "rope_parameters": YARN}, False),
    "mixtral-odd": ("Mixtral", {**ODD, **MIXTRAL, "intermediate_size": 18}, True),
    "mixtral-one-kv": ("Mixtral", {**ONE_KV, **MIXTRAL, "num_experts_per_tok": 3, "intermediate_size": 12}, False),
    "mixtral-window": ("Mixtral", {**THIRD, **MIXTRAL, "sliding_window": 10, "intermediate_size": 10}, True),
    "qwen3-moe-odd": ("Qwen3Moe", {**ODD, **MOE, "norm_topk_prob": True}, True),
    "qwen3-moe-one-kv": ("Qwen3Moe", {**ONE_KV, **MOE, "head_dim": 12, "num_experts_per_tok": 4,
                                      "moe_intermediate_size": 10, "mlp_only_layers": [1]}, False),
    "qwen3-moe-sparse-step": ("Qwen3Moe", {**THIRD, **MOE, "decoder_sparse_step": 2, "norm_topk_prob": True,
                                           "moe_intermediate_size": 14, "use_sliding_window": True,
                                           "sliding_window": 13}, False),
}


def make_model(name, seed):
    kind, settings, _ = MODELS[name]
    config_class = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))
    config = config_class(max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                          attn_implementation="eager", experts_implementation="eager", dtype="float32",
                          **settings)
    model = getattr(transformers, kind + "ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for key, tensor in sorted(model.state_dict().items()):
        if "norm" in key:
            mean = 0.0 if kind.startswith("Gemma") else 1.0
            values = mean + 0.2 * torch.randn(tensor.shape, generator=generator)
        elif key.endswith("bias"):
            values = 0.2 * torch.randn(tensor.shape, generator=generator)
        else:
            values = torch.randn(tensor.shape, generator=generator) * (1.3 / math.sqrt(tensor.shape[-1]))
        tensor.copy_(values.bfloat16().float())
    model.tie_weights()
    return model


class ExpertGap:
    """The smallest distance between the last expert chosen and the first that is not."""

    def __init__(self, model):
        self.smallest = math.inf
        for key, module in model.named_modules():
            if type(module).__name__.endswith("TopKRouter"):
                module.register_forward_hook(self.look)

    def look(self, module, _, output):
        p = torch.softmax(output[0].float(), -1).sort(-1, descending=True).values
        self.smallest = min(self.smallest, (p[:, module.top_k - 1] - p[:, module.top_k]).min().item())


@torch.no_grad()
def expected_of(model, seed):
    gap = ExpertGap(model)
    generator = torch.Generator().manual_seed(seed + 1000)
    ids = torch.randint(0, model.config.vocab_size, (ROWS, LENGTH), generator=generator)
    logits = model(ids, use_cache=False).logits
    text = ids
    token_gap = math.inf
    for _ in range(GREEDY):
        last = model(text, use_cache=False).logits[:, -1]
        best = last.topk(2).values
        token_gap = min(token_gap, (best[:, 0] - best[:, 1]).min().item())
        text = torch.cat([text, last.argmax(-1, keepdim=True)], 1)
    good = token_gap >= TOKEN_GAP and gap.smallest >= EXPERT_GAP
    return good, {"input_ids": ids, "logits": logits.float().contiguous(), "greedy": text[:, LENGTH:].contiguous()}


def published_form(config, kind):
    """As most models are published: rope_theta and rope_scaling, torch_dtype, no layer_types."""
    parameters = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    if kind == "Gemma3":
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
        parameters = parameters["full_attention"]
    config["rope_theta"] = parameters.pop("rope_theta")
    if parameters.get("partial_rotary_factor") == 1.0:
        parameters.pop("partial_rotary_factor")
    if parameters.get("rope_type") == "default":
        config["rope_scaling"] = None
    else:
        if parameters["rope_type"] == "longrope":
            parameters.pop("original_max_position_embeddings", None)
        if kind != "Gemma3":  # in which transformers reads the new name only
            parameters["type"] = parameters.pop("rope_type")
        config["rope_scaling"] = parameters


def nested(config, tensors):
    """As Google published Gemma 3: the text model inside one that sees too."""
    dtype = config.pop("torch_dtype")
    config.pop("architectures")
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        config.pop(key, None)
    tensors = {"language_model." + key: value for key, value in tensors.items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(4, dtype=torch.bfloat16)
    return {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [2, 3],
            "text_config": config, "torch_dtype": dtype, "vision_config": {"model_type": "siglip_vision_model"}}, tensors


@torch.no_grad()
def check(directory, expected):
    """What transformers computes from the directory as it was rewritten is what is expected of it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    difference = (model(expected["input_ids"], use_cache=False).logits - expected["logits"]).abs().max().item()
    if not difference <= RELOAD_TOLERANCE:
        raise SystemExit(f"{directory}: transformers computes other logits from it, by {difference}")


def write_model(directory, config, tensors):
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def write(name, out_dir):
    kind, _, published = MODELS[name]
    for seed in range(100):
        model = make_model(name, seed)
        good, expected = expected_of(model, seed)
        if good:
            break
    else:
        raise SystemExit(f"{name}: no seed gives clear choices")
    model.config.dtype = torch.bfloat16
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        config = json.loads((Path(scratch) / "config.json").read_text())
        tensors = {}
        for shard in sorted(Path(scratch).glob("*.safetensors")):
            tensors.update(load_file(shard))
    config["dtype"] = "bfloat16"
    for key in ("_attn_implementation", "_experts_implementation", "use_cache", "transformers_version"):
        config.pop(key, None)
    tensors = {key: value.bfloat16().contiguous() for key, value in tensors.items()}
    if published:
        published_form(config, kind)
    target = out_dir / name
    target.mkdir(parents=True, exist_ok=True)
    write_model(target, config, tensors)
    check(target, expected)
    if name.endswith("nested"):
        write_model(target, *nested(config, tensors))
    save_file(expected, target / "expected.safetensors")
    size = sum(file.stat().st_size for file in target.iterdir())
    print(f"{name}: seed {seed}, {size / 1024:.0f} KiB, largest logit {expected['logits'].abs().max():.2f}")


def main():
    torch.set_num_threads(1)
    out_dir = Path(sys.argv[1])
    for name in sys.argv[2:] or MODELS:
        write(name, out_dir)


if __name__ == "__main__":
    main()
