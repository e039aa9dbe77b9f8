#include "model/config_keys.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"

namespace quire::model {
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

// They concern training, other programs, or the tokenizer; logits do not depend on them. (pretraining_tp:
// transformers then adds up the parts of a matmul one after the other, which is the same but for rounding.)
constexpr std::array kNeutral = {"_attn_implementation",
                                 "_attn_implementation_autoset",
                                 "_commit_hash",
                                 "_experts_implementation",
                                 "_flash_attn_2_enabled",
                                 "_name_or_path",
                                 "_sliding_window_pattern",
                                 "_use_flash_attention_2",
                                 "attention_dropout",
                                 "auto_map",
                                 "bad_words_ids",
                                 "begin_suppress_tokens",
                                 "boi_token_id",
                                 "boi_token_index",
                                 "cache_implementation",
                                 "chunk_size_feed_forward",
                                 "classifier_dropout",
                                 "cross_attention_hidden_size",
                                 "decoder_start_token_id",
                                 "diversity_penalty",
                                 "do_sample",
                                 "early_stopping",
                                 "embd_pdrop",
                                 "embedding_dropout",
                                 "encoder_no_repeat_ngram_size",
                                 "eoi_token_id",
                                 "eoi_token_index",
                                 "exponential_decay_length_penalty",
                                 "finetuning_task",
                                 "forced_bos_token_id",
                                 "forced_eos_token_id",
                                 "gradient_checkpointing",
                                 "hidden_dropout",
                                 "id2label",
                                 "image_token_id",
                                 "image_token_index",
                                 "initializer_range",
                                 "is_decoder",
                                 "is_llama_config",
                                 "keys_to_ignore_at_inference",
                                 "label2id",
                                 "length_penalty",
                                 "max_length",
                                 "max_window_layers",
                                 "min_length",
                                 "mm_tokens_per_image",
                                 "model_max_length",
                                 "no_repeat_ngram_size",
                                 "num_beam_groups",
                                 "num_beams",
                                 "num_return_sequences",
                                 "output_attentions",
                                 "output_hidden_states",
                                 "output_router_logits",
                                 "output_scores",
                                 "pad_token_id",
                                 "prefix",
                                 "pretraining_tp",
                                 "problem_type",
                                 "pruned_heads",
                                 "remove_invalid_values",
                                 "repetition_penalty",
                                 "resid_pdrop",
                                 "return_dict",
                                 "return_dict_in_generate",
                                 "router_aux_loss_coef",
                                 "router_jitter_noise",
                                 "sep_token_id",
                                 "suppress_tokens",
                                 "task_specific_params",
                                 "temperature",
                                 "tf_legacy_loss",
                                 "tie_encoder_decoder",
                                 "tokenizer_class",
                                 "top_k",
                                 "top_p",
                                 "torchscript",
                                 "transformers.js_config",
                                 "transformers_version",
                                 "typical_p",
                                 "unsloth_fixed",
                                 "unsloth_version",
                                 "use_bfloat16",
                                 "use_cache",
                                 "use_flash_attention",
                                 "use_flash_attention_2",
                                 "use_flash_attn",
                                 "use_memory_efficient_attention",
                                 "use_return_dict",
                                 "vision_config"};

// Parts that a model may have. False says that it has none, as all do whose family does not read the key.
constexpr std::array kParts = {"add_bias_linear",
                               "attention_bias",
                               "attention_out_bias",
                               "attn_bias",
                               "bias",
                               "lm_head_bias",
                               "mlp_bias",
                               "norm_bias",
                               "o_bias",
                               "parallel_attn",
                               "qkv_bias",
                               "use_bias",
                               "use_parallel_residual",
                               "use_sliding_window"};

struct Demand {
  enum Kind : uint8_t { kAbsent, kFalse, kTrue };
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
    Demand{"use_bidirectional_attention", Demand::kFalse, "bidirectional attention is not supported"},
    Demand{"is_causal", Demand::kTrue, "bidirectional attention is not supported"},
};

bool known(std::string_view key, const json::value& value, const Family& family) {
  const auto has = [&](const auto& keys) { return std::find(keys.begin(), keys.end(), key) != keys.end(); };
  const bool is_false = value.is_bool() && !value.get_bool();
  return (is_false && has(kParts)) || has(kCommon) || has(kNeutral) || has(family.keys) ||
         std::any_of(kDemands.begin(), kDemands.end(), [&](const Demand& d) { return d.key == key; });
}

}  // namespace

std::span<const std::string_view> keys_of_all_families() { return kCommon; }

void check_keys(const JsonObject& config, const Family& family) {
  for (const Demand& demand : kDemands) {
    if (!config.has(demand.key)) continue;
    const bool met = demand.kind == Demand::kFalse  ? !config.boolean(demand.key)
                     : demand.kind == Demand::kTrue ? config.boolean(demand.key)
                                                    : false;
    if (!met) throw config.error(demand.key, demand.complaint);
  }
  std::vector<std::string> strange;
  for (const auto& member : config.raw()) {
    const json::value& value = member.value();
    if (value.is_null()) continue;  // equivalent to absent for the code that reads the key
    if (!known(member.key(), value, family)) strange.emplace_back(member.key());
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

}  // namespace quire::model
