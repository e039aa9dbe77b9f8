#include "formats/gguf_names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace quire::formats {
namespace {

constexpr std::string_view kGgufLayer = "blk.";
constexpr std::array<std::string_view, 2> kSuffixes = {".weight", ".bias"};
constexpr std::string_view kExpertsSuffix = "_exps";

constexpr std::array kFamilies = {
    GgufFamily{.arch = "llama",
               .architecture = "MixtralForCausalLM",
               .telling_key = "expert_count",
               .neighbour_rope = true,
               .windows = true},
    // llama.cpp's converter omits the window; a file that has one is Mistral's.
    GgufFamily{.arch = "llama",
               .architecture = "MistralForCausalLM",
               .telling_key = "attention.sliding_window",
               .neighbour_rope = true,
               .windows = true},
    GgufFamily{.arch = "llama", .architecture = "LlamaForCausalLM", .neighbour_rope = true},
    GgufFamily{.arch = "qwen2", .architecture = "Qwen2ForCausalLM"},
    GgufFamily{.arch = "qwen3", .architecture = "Qwen3ForCausalLM"},
    GgufFamily{.arch = "qwen3moe", .architecture = "Qwen3MoeForCausalLM"},
    GgufFamily{.arch = "phi3", .architecture = "Phi3ForCausalLM", .windows = true},
    GgufFamily{.arch = "smollm3",
               .architecture = "SmolLM3ForCausalLM",
               .neighbour_rope = true,
               .no_rope_interval = 4},
    GgufFamily{.arch = "gemma2",
               .architecture = "Gemma2ForCausalLM",
               .windows = true,
               .default_window = 4096,
               .wide_scale_layers = 46},
    GgufFamily{
        .arch = "gemma3", .architecture = "Gemma3ForCausalLM", .windows = true, .wide_scale_layers = 62},
    GgufFamily{.arch = "gemma3",
               .architecture = "Gemma3ForConditionalGeneration",
               .windows = true,
               .wide_scale_layers = 62},
    GgufFamily{.arch = "granite", .architecture = "GraniteForCausalLM", .neighbour_rope = true},
    GgufFamily{.arch = "olmo2", .architecture = "Olmo2ForCausalLM"},
};

/// "12.attn_q.weight" as 12 and "attn_q.weight"; nullopt if it is not so.
struct Numbered {
  uint32_t index = 0;
  std::string_view rest;
};
std::optional<Numbered> numbered(std::string_view text) {
  Numbered out;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out.index);
  const auto digits = static_cast<size_t>(end - text.data());
  if (failed != std::errc() || digits == text.size() || text[digits] != '.') return std::nullopt;
  if (digits > 1 && text.front() == '0') return std::nullopt;
  out.rest = text.substr(digits + 1);
  return out;
}

struct Parts {
  std::string_view stem;
  std::string_view suffix;
};
std::optional<Parts> without_suffix(std::string_view name) {
  for (const std::string_view suffix : kSuffixes) {
    if (name.ends_with(suffix)) return Parts{name.substr(0, name.size() - suffix.size()), suffix};
  }
  return std::nullopt;
}

using Pair = GgufTensorNames::Pair;

const Pair* find_pair(const std::vector<Pair>& pairs, std::string_view stem, std::string Pair::*side) {
  const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return p.*side == stem; });
  return found == pairs.end() ? nullptr : &*found;
}

}  // namespace

std::span<const GgufFamily> gguf_families() { return kFamilies; }

const GgufFamily& gguf_family(const Gguf& file) {
  constexpr std::string_view kKeyOfArch = "general.architecture";
  const std::string_view arch = file.string(kKeyOfArch);
  std::string known;
  std::string_view last;
  for (const GgufFamily& family : kFamilies) {
    const std::string telling = fmt::format("{}.{}", family.arch, family.telling_key);
    if (family.arch == arch &&
        (family.telling_key.empty() || file.integer_or(telling, 0, 0, UINT32_MAX) > 0)) {
      return family;
    }
    if (last == family.arch) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.arch);
    last = family.arch;
  }
  throw file.error(kKeyOfArch, fmt::format("'{}' is not supported ({})", arch.substr(0, 64), known));
}

const GgufFamily* find_gguf_family(std::string_view architecture) {
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const GgufFamily& f) { return f.architecture == architecture; });
  return found == kFamilies.end() ? nullptr : found;
}

GgufTensorNames::GgufTensorNames(const GgufFamily& family) : family_(family.family()) {
  const model::ModelTensors& tensors = *family_.tensors;
  const model::LayerTensors& t = tensors.layer;
  const model::TensorRoot& root = tensors.roots.front();
  model_ = {{"token_embd", fmt::format("{}{}", root.prefix, tensors.embedding), GgufRole::kPlain},
            {"output_norm", fmt::format("{}{}", root.prefix, tensors.final_norm), GgufRole::kNorm},
            {"output", std::string(root.head), GgufRole::kPlain}};
  const auto add = [&](std::string_view gguf, std::string_view hf, GgufRole role) {
    if (!hf.empty()) layer_.push_back({std::string(gguf), std::string(hf), role});
  };
  const auto add_all = [&](std::initializer_list<std::pair<std::string_view, GgufRole>> names,
                           std::span<const std::string_view> parts) {
    for (size_t i = 0; i < parts.size(); ++i) add(names.begin()[i].first, parts[i], names.begin()[i].second);
  };
  add("attn_norm", t.attention_norm, GgufRole::kNorm);
  if (t.qkv.size() == 1) {
    add("attn_qkv", t.qkv.front(), GgufRole::kPlain);
  } else {
    add_all({{"attn_q", GgufRole::kQuery}, {"attn_k", GgufRole::kKey}, {"attn_v", GgufRole::kPlain}}, t.qkv);
  }
  add("attn_output", t.o, GgufRole::kPlain);
  if (family_.qk_norm != model::QkNorm::kNone) {
    add("attn_q_norm", t.q_norm, GgufRole::kNorm);
    add("attn_k_norm", t.k_norm, GgufRole::kNorm);
  }
  add("post_attention_norm", t.post_attention_norm, GgufRole::kNorm);
  add("ffn_norm", t.ffn_norm, GgufRole::kNorm);
  add("post_ffw_norm", t.post_ffn_norm, GgufRole::kNorm);
  if (t.gate_up.size() == 1) {
    add("ffn_up", t.gate_up.front(), GgufRole::kPlain);  // gate above up
  } else {
    add_all({{"ffn_gate", GgufRole::kPlain}, {"ffn_up", GgufRole::kPlain}}, t.gate_up);
  }
  add("ffn_down", t.down, GgufRole::kPlain);
  add("ffn_gate_inp", t.router, GgufRole::kPlain);
  add_all({{"ffn_gate_exps", GgufRole::kExperts}, {"ffn_up_exps", GgufRole::kExperts}}, t.expert_gate_up);
  add("ffn_down_exps", t.expert_down, GgufRole::kExperts);
}

std::optional<HfTensorName> GgufTensorNames::hf(std::string_view gguf_name) const {
  const auto parts = without_suffix(gguf_name);
  if (!parts) return std::nullopt;
  if (!parts->stem.starts_with(kGgufLayer)) {
    const Pair* pair = find_pair(model_, parts->stem, &Pair::gguf);
    if (pair == nullptr) return std::nullopt;
    return HfTensorName{fmt::format("{}{}", pair->hf, parts->suffix), {}, pair->role};
  }
  const auto layer = numbered(parts->stem.substr(kGgufLayer.size()));
  if (!layer) return std::nullopt;
  const model::ModelTensors& tensors = *family_.tensors;
  const std::string prefix =
      fmt::format("{}{}{}.", tensors.roots.front().prefix, tensors.layer_prefix, layer->index);
  const auto expert_prefix = [&] { return fmt::format("{}{}", prefix, tensors.layer.expert_prefix); };
  if (const Pair* pair = find_pair(layer_, layer->rest, &Pair::gguf)) {
    if (pair->role != GgufRole::kExperts) {
      return HfTensorName{fmt::format("{}{}{}", prefix, pair->hf, parts->suffix), {}, pair->role};
    }
    return HfTensorName{expert_prefix(), fmt::format(".{}{}", pair->hf, parts->suffix), pair->role};
  }
  const size_t dot = layer->rest.find('.');
  if (dot == layer->rest.npos) return std::nullopt;
  const std::string merged = fmt::format("{}{}", layer->rest.substr(0, dot), kExpertsSuffix);
  const Pair* pair = find_pair(layer_, merged, &Pair::gguf);
  const auto expert = numbered(fmt::format("{}.", layer->rest.substr(dot + 1)));
  if (pair == nullptr || !expert || !expert->rest.empty()) return std::nullopt;
  return HfTensorName{fmt::format("{}{}.{}{}", expert_prefix(), expert->index, pair->hf, parts->suffix), {}};
}

std::optional<GgufTensorName> GgufTensorNames::gguf(std::string_view hf_name) const {
  const auto parts = without_suffix(hf_name);
  if (!parts) return std::nullopt;
  const model::ModelTensors& tensors = *family_.tensors;
  for (const model::TensorRoot& root : tensors.roots) {
    if (parts->stem == root.head) return GgufTensorName{fmt::format("output{}", parts->suffix)};
    if (!parts->stem.starts_with(root.prefix)) continue;
    const std::string_view below = parts->stem.substr(root.prefix.size());
    if (!below.starts_with(tensors.layer_prefix)) {
      const Pair* pair =
          find_pair(model_, fmt::format("{}{}", tensors.roots.front().prefix, below), &Pair::hf);
      if (pair == nullptr) continue;
      return GgufTensorName{fmt::format("{}{}", pair->gguf, parts->suffix), pair->role};
    }
    const auto layer = numbered(below.substr(tensors.layer_prefix.size()));
    if (!layer) continue;
    const auto named = [&](const Pair& pair, uint32_t expert) {
      return GgufTensorName{fmt::format("{}{}.{}{}", kGgufLayer, layer->index, pair.gguf, parts->suffix),
                            pair.role, expert};
    };
    const Pair* pair = find_pair(layer_, layer->rest, &Pair::hf);
    if (pair != nullptr && pair->role != GgufRole::kExperts) return named(*pair, 0);
    const std::string_view experts = tensors.layer.expert_prefix;
    if (experts.empty() || !layer->rest.starts_with(experts)) continue;
    const auto expert = numbered(layer->rest.substr(experts.size()));
    if (!expert) continue;
    pair = find_pair(layer_, expert->rest, &Pair::hf);
    if (pair != nullptr && pair->role == GgufRole::kExperts) return named(*pair, expert->index);
  }
  return std::nullopt;
}

}  // namespace quire::formats
