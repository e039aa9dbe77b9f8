#include "formats/gguf_keys.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"

namespace quire::formats {
namespace {

// Keys below "ARCH." that other programs need and that follow from the other keys.
constexpr std::array<std::string_view, 5> kIgnoredKeys = {"vocab_size", "tensor_data_layout",
                                                          "attention.value_length", "rope.scaling.finetuned",
                                                          "attention.layer_norm_epsilon"};

/// A key that affects what a model computes, with its neutral value: any other value is refused unless the
/// family supports the key.
struct NeutralKey {
  std::string_view key;
  double neutral;
};
constexpr std::array kNeutralKeys = {
    NeutralKey{"attention.causal", 1},
    NeutralKey{"attention.clamp_kqv", 0},
    NeutralKey{"attention.max_alibi_bias", 0},
    NeutralKey{"attention.output_scale", 0},
    NeutralKey{"attention.scale", 0},
    NeutralKey{"attention.shared_kv_layers", 0},
    NeutralKey{"attention.sliding_window", 0},
    NeutralKey{"attention.temperature_scale", 0},
    NeutralKey{"attn_logit_softcapping", 0},
    NeutralKey{"embedding_length_per_layer_input", 0},
    NeutralKey{"embedding_scale", 1},
    NeutralKey{"expert_count", 0},
    NeutralKey{"expert_group_count", 0},
    NeutralKey{"expert_shared_count", 0},
    NeutralKey{"expert_shared_feed_forward_length", 0},
    NeutralKey{"expert_used_count", 0},
    NeutralKey{"expert_weights_scale", 0},
    NeutralKey{"final_logit_softcapping", 0},
    NeutralKey{"leading_dense_block_count", 0},
    NeutralKey{"logit_scale", 1},
    NeutralKey{"moe_every_n_layers", 0},
    NeutralKey{"nextn_predict_layers", 0},
    NeutralKey{"pooling_type", 0},
    NeutralKey{"residual_scale", 1},
    NeutralKey{"rope.scaling.yarn_log_multiplier", 0},
    NeutralKey{"use_parallel_residual", 0},
};

/// Refused if present, unless the family supports them.
constexpr std::array<std::string_view, 6> kForeignKeys = {
    "attention.key_length_swa", "attention.sliding_window_pattern", "attention.value_length_swa",
    "expert_gating_func",       "rope.dimension_count_swa",         "rope.freq_base_swa"};

}  // namespace

GgufKeys::GgufKeys(const Gguf& file, const GgufFamily& family)
    : file_(file), prefix_(fmt::format("{}.", family.arch)) {}

int64_t GgufKeys::size(std::string_view key, int64_t min, int64_t max) {
  const std::string name = full(key);
  if (!file_.is_array(name)) return file_.integer(name, min, max);
  const std::vector<int64_t> all = file_.integers(name);
  if (all.empty() || std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) != all.end()) {
    throw file_.error(name, "layers that differ are not supported");
  }
  if (all.front() < min || all.front() > max) {
    throw file_.error(name, fmt::format("{} is out of range [{}, {}]", all.front(), min, max));
  }
  return all.front();
}

double GgufKeys::factor_or(std::string_view key, double otherwise) {
  const double value = number_or(key, 0.0);
  if (value < 0.0) throw error(key, fmt::format("{} is out of range", value));
  return value == 0.0 ? otherwise : value;
}

void GgufKeys::check_others() {
  for (const NeutralKey& neutral : kNeutralKeys) {
    const std::string name = fmt::format("{}{}", prefix_, neutral.key);
    if (!file_.has(name) || !asked_.insert(name).second) continue;
    double value = 0.0;
    try {
      value = file_.number(name);
    } catch (const Error&) {
      value = file_.boolean(name) ? 1.0 : 0.0;
    }
    if (value != neutral.neutral) throw file_.error(name, fmt::format("{} is not supported", value));
  }
  for (const std::string_view key : kForeignKeys) {
    const std::string name = fmt::format("{}{}", prefix_, key);
    if (file_.has(name) && !asked_.contains(name)) {
      throw file_.error(name, "is not supported with this architecture");
    }
  }
  for (const std::string_view key : kIgnoredKeys) full(key);
  std::vector<std::string_view> unknown;
  for (const std::string_view key : file_.keys()) {
    if (key.starts_with(prefix_) && !asked_.contains(key)) unknown.push_back(key);
  }
  if (unknown.empty()) return;
  log_warning(
      fmt::format("{}: unknown keys are ignored: {}", file_.path().string(), fmt::join(unknown, ", ")));
}

}  // namespace quire::formats
