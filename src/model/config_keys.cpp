#include "model/config_keys.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 23> kCommon = {"vocab_size",
                                                      "hidden_size",
                                                      "intermediate_size",
                                                      "num_hidden_layers",
                                                      "num_attention_heads",
                                                      "num_key_value_heads",
                                                      "head_dim",
                                                      "hidden_act",
                                                      "max_position_embeddings",
                                                      "rms_norm_eps",
                                                      "rope_theta",
                                                      "rope_scaling",
                                                      "rope_parameters",
                                                      "partial_rotary_factor",
                                                      "layer_types",
                                                      "tie_word_embeddings",
                                                      "dtype",
                                                      "torch_dtype",
                                                      "architectures",
                                                      "model_type",
                                                      "bos_token_id",
                                                      "eos_token_id",
                                                      "text_config"};

// They concern training, other programs, or the tokenizer; logits do not depend on them.
constexpr std::array kNeutral = {"_attn_implementation",
                                 "_commit_hash",
                                 "_name_or_path",
                                 "_sliding_window_pattern",
                                 "attention_dropout",
                                 "auto_map",
                                 "boi_token_index",
                                 "boi_token_id",
                                 "cache_implementation",
                                 "chunk_size_feed_forward",
                                 "classifier_dropout",
                                 "cross_attention_hidden_size",
                                 "do_sample",
                                 "embd_pdrop",
                                 "embedding_dropout",
                                 "eoi_token_index",
                                 "eoi_token_id",
                                 "hidden_dropout",
                                 "id2label",
                                 "image_token_index",
                                 "image_token_id",
                                 "initializer_range",
                                 "is_decoder",
                                 "keys_to_ignore_at_inference",
                                 "label2id",
                                 "max_length",
                                 "max_window_layers",
                                 "min_length",
                                 "mm_tokens_per_image",
                                 "num_beams",
                                 "num_return_sequences",
                                 "output_attentions",
                                 "output_hidden_states",
                                 "output_router_logits",
                                 "pad_token_id",
                                 "prefix",
                                 "problem_type",
                                 "pruned_heads",
                                 "repetition_penalty",
                                 "resid_pdrop",
                                 "return_dict",
                                 "return_dict_in_generate",
                                 "router_aux_loss_coef",
                                 "router_jitter_noise",
                                 "sep_token_id",
                                 "task_specific_params",
                                 "temperature",
                                 "tokenizer_class",
                                 "top_k",
                                 "top_p",
                                 "transformers_version",
                                 "transformers.js_config",
                                 "unsloth_fixed",
                                 "unsloth_version",
                                 "use_cache",
                                 "vision_config"};

struct Demand {
  enum Kind : uint8_t { kAbsent, kFalse, kOne };
  std::string_view key;
  Kind kind;
  std::string_view complaint;
};

constexpr std::array kDemands = {
    Demand{"quantization_config", Demand::kAbsent, "quantized checkpoints are not supported"},
    Demand{"compression_config", Demand::kAbsent, "quantized checkpoints are not supported"},
    Demand{"clip_qkv", Demand::kAbsent, "clipping of q, k and v is not supported"},
    Demand{"rope_interleaved", Demand::kFalse, "is not supported"},
    Demand{"use_mrope", Demand::kFalse, "is not supported"},
    Demand{"alibi", Demand::kFalse, "is not supported"},
    Demand{"is_encoder_decoder", Demand::kFalse, "is not supported"},
    Demand{"add_cross_attention", Demand::kFalse, "is not supported"},
    Demand{"use_bidirectional_attention", Demand::kFalse, "attention that looks ahead is not supported"},
    Demand{"pretraining_tp", Demand::kOne, "only 1 is supported"},
};

bool known(std::string_view key, const Family& family) {
  const auto has = [&](const auto& keys) { return std::find(keys.begin(), keys.end(), key) != keys.end(); };
  return has(kCommon) || has(kNeutral) || has(family.keys) ||
         std::any_of(kDemands.begin(), kDemands.end(), [&](const Demand& d) { return d.key == key; });
}

}  // namespace

std::span<const std::string_view> keys_of_all_families() { return kCommon; }

void check_keys(const JsonObject& config, const Family& family) {
  for (const Demand& demand : kDemands) {
    if (!config.has(demand.key)) continue;
    const bool met = demand.kind == Demand::kFalse ? !config.boolean(demand.key)
                     : demand.kind == Demand::kOne ? config.number(demand.key) == 1.0
                                                   : false;
    if (!met) throw config.error(demand.key, demand.complaint);
  }
  std::vector<std::string> strange;
  for (const auto& member : config.raw()) {
    const json::value& value = member.value();
    if (value.is_null() || (value.is_bool() && !value.get_bool())) continue;
    if (!known(member.key(), family)) strange.emplace_back(member.key());
  }
  if (strange.empty()) return;
  std::sort(strange.begin(), strange.end());
  constexpr size_t kNamed = 8;
  const size_t named = std::min(strange.size(), kNamed);
  log_warning(fmt::format("{}: {} ignores keys that it does not know: {}{}", config.where().string(),
                          family.architecture,
                          fmt::join(strange.begin(), strange.begin() + static_cast<ptrdiff_t>(named), ", "),
                          strange.size() > named ? ", ..." : ""));
}

}  // namespace quire
