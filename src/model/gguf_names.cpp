#include "model/gguf_names.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace quire {
namespace {

constexpr std::string_view kGgufLayer = "blk.";
constexpr std::string_view kHfLayer = "model.layers.";
constexpr std::string_view kQuery = "attn_q";
constexpr std::string_view kKey = "attn_k";

constexpr std::array kModelTensors = {
    GgufName{"token_embd", "model.embed_tokens"},
    GgufName{"output_norm", "model.norm"},
    GgufName{"output", "lm_head"},
};

// Those with the block structure that Llama began; Qwen 3 has all of them.
constexpr std::array kLayerTensors = {
    GgufName{"attn_norm", "input_layernorm"},    GgufName{kQuery, "self_attn.q_proj"},
    GgufName{kKey, "self_attn.k_proj"},          GgufName{"attn_v", "self_attn.v_proj"},
    GgufName{"attn_output", "self_attn.o_proj"}, GgufName{"attn_q_norm", "self_attn.q_norm"},
    GgufName{"attn_k_norm", "self_attn.k_norm"}, GgufName{"ffn_norm", "post_attention_layernorm"},
    GgufName{"ffn_gate", "mlp.gate_proj"},       GgufName{"ffn_up", "mlp.up_proj"},
    GgufName{"ffn_down", "mlp.down_proj"},
};

// The first of an `arch` is what a file of it is taken for; gguf_config.cpp says when it is another.
constexpr std::array kFamilies = {
    GgufFamily{"llama", "LlamaForCausalLM", "llama", kModelTensors, kLayerTensors, true},
    GgufFamily{"llama", "MistralForCausalLM", "mistral", kModelTensors, kLayerTensors, true},
    GgufFamily{"qwen2", "Qwen2ForCausalLM", "qwen2", kModelTensors, kLayerTensors, false},
    GgufFamily{"qwen3", "Qwen3ForCausalLM", "qwen3", kModelTensors, kLayerTensors, false},
};

constexpr std::array<std::string_view, 2> kSuffixes = {".weight", ".bias"};

using Side = std::string_view GgufName::*;

struct Translated {
  std::string text;
  const GgufName* pair;
};

std::optional<Translated> translate(std::span<const GgufName> names, std::string_view text, Side from,
                                    Side to) {
  for (const std::string_view suffix : kSuffixes) {
    if (!text.ends_with(suffix)) continue;
    const std::string_view stem = text.substr(0, text.size() - suffix.size());
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const GgufName& n) { return n.*from == stem; });
    if (found != names.end()) return Translated{fmt::format("{}{}", (*found).*to, suffix), &*found};
  }
  return std::nullopt;
}

std::optional<Translated> translate(const GgufFamily& family, std::string_view text, Side from, Side to,
                                    std::string_view layer_from, std::string_view layer_to) {
  if (!text.starts_with(layer_from)) return translate(family.tensors, text, from, to);
  const std::string_view rest = text.substr(layer_from.size());
  const size_t dot = rest.find('.');
  const bool is_number = dot != rest.npos && dot > 0 &&
                         std::all_of(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(dot),
                                     [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return std::nullopt;
  auto below = translate(family.layer_tensors, rest.substr(dot + 1), from, to);
  if (below) below->text = fmt::format("{}{}.{}", layer_to, rest.substr(0, dot), below->text);
  return below;
}

}  // namespace

std::span<const GgufFamily> gguf_families() { return kFamilies; }

const GgufFamily& gguf_family(const Gguf& file) {
  constexpr std::string_view kKeyOfArch = "general.architecture";
  const std::string_view arch = file.string(kKeyOfArch);
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (family.arch == arch) return family;
    if (known.ends_with(family.arch)) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.arch);
  }
  throw file.error(kKeyOfArch, fmt::format("'{}' is not supported ({})", arch.substr(0, 64), known));
}

const GgufFamily* find_gguf_family(std::string_view architecture) {
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const GgufFamily& f) { return f.architecture == architecture; });
  return found == kFamilies.end() ? nullptr : found;
}

std::optional<HfTensorName> hf_tensor_name(const GgufFamily& family, std::string_view gguf_name) {
  auto found = translate(family, gguf_name, &GgufName::gguf, &GgufName::hf, kGgufLayer, kHfLayer);
  if (!found) return std::nullopt;
  return HfTensorName{std::move(found->text), found->pair->gguf == kQuery, found->pair->gguf == kKey};
}

std::optional<std::string> gguf_tensor_name(const GgufFamily& family, std::string_view hf_name) {
  auto found = translate(family, hf_name, &GgufName::hf, &GgufName::gguf, kHfLayer, kGgufLayer);
  if (!found) return std::nullopt;
  return std::move(found->text);
}

}  // namespace quire
