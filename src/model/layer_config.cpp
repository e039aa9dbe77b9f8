#include "model/layer_config.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "model/limits.h"

namespace quire::model {
namespace {

constexpr int64_t kMaxWindow = 1 << 26;
constexpr int64_t kMaxExperts = 1 << 12;
constexpr uint64_t kMaxExpertsInAll = 1 << 16;  // four times the largest known; each is a few names in a list

/// The list under `key`, nullptr if there is none. Throws if it has not one entry a layer.
const json::array* layer_list(const JsonObject& config, std::string_view key, uint32_t num_layers) {
  const json::value* value = config.find(key);
  if (value == nullptr) return nullptr;
  const json::array* list = value->if_array();
  if (list == nullptr || list->size() != num_layers) {
    throw config.error(key, fmt::format("a list of {} entries, one a layer, was expected", num_layers));
  }
  return list;
}

/// The layers without RoPE: those that the list has 0 for, or else every "no_rope_layer_interval"-th.
std::vector<bool> layers_with_rope(const JsonObject& config, const Family& family, uint32_t num_layers) {
  std::vector<bool> out(num_layers, true);
  if (!family.no_rope_layers) return out;
  const json::array* list = layer_list(config, "no_rope_layers", num_layers);
  const auto interval = static_cast<uint32_t>(config.integer_or("no_rope_layer_interval", 4, 1, INT32_MAX));
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    if (list == nullptr) {
      out[layer] = (layer + 1) % interval != 0;
      continue;
    }
    const json::value& flag = (*list)[layer];
    if (!flag.is_int64() || flag.get_int64() < 0 || flag.get_int64() > 1) {
      throw config.error("no_rope_layers", fmt::format("layer {} is neither 0 nor 1", layer));
    }
    out[layer] = flag.get_int64() == 1;
  }
  return out;
}

uint32_t window_size(const JsonObject& config, const Family& family) {
  // To SmolLM3 the flag matters only where layer_types is absent: its masks go by that.
  const bool by_flag = family.windows == WindowRule::kFromLayerUpon ||
                       family.windows == WindowRule::kEveryLayerIfUsed ||
                       (family.windows == WindowRule::kLayersWithoutRope && !config.has("layer_types"));
  if (family.windows == WindowRule::kNone) return 0;
  if (by_flag && !config.boolean_or("use_sliding_window", false)) return 0;
  const json::value* raw = config.raw().if_contains("sliding_window");
  if (raw != nullptr && raw->is_null()) return 0;
  return static_cast<uint32_t>(config.integer_or("sliding_window", family.default_window, 1, kMaxWindow));
}

/// Which layers slide where "layer_types" says nothing.
std::vector<bool> sliding_by_rule(const JsonObject& config, const Family& family,
                                  const std::vector<bool>& with_rope) {
  const auto num_layers = static_cast<uint32_t>(with_rope.size());
  std::vector<bool> out(num_layers, false);
  uint32_t first = 0;
  uint32_t pattern = 0;
  if (family.windows == WindowRule::kFromLayerUpon) {
    first = static_cast<uint32_t>(config.integer_or("max_window_layers", 28, 0, INT32_MAX));
  } else if (family.windows == WindowRule::kAllButEveryNth) {
    // The pattern of Gemma 2 is no key of its.
    pattern = family.local_rope ? static_cast<uint32_t>(config.integer_or(
                                      "sliding_window_pattern", family.window_pattern, 1, INT32_MAX))
                                : family.window_pattern;
  }
  for (uint32_t layer = first; layer < num_layers; ++layer) {
    switch (family.windows) {
      case WindowRule::kNone:
        break;
      case WindowRule::kAllButEveryNth:
        out[layer] = (layer + 1) % pattern != 0;
        break;
      case WindowRule::kLayersWithoutRope:
        out[layer] = !with_rope[layer];
        break;
      default:
        out[layer] = true;
    }
  }
  return out;
}

std::vector<bool> sliding_layers(const JsonObject& config, const Family& family,
                                 const std::vector<bool>& with_rope) {
  const auto num_layers = static_cast<uint32_t>(with_rope.size());
  const json::array* types = layer_list(config, "layer_types", num_layers);
  if (types == nullptr) return sliding_by_rule(config, family, with_rope);
  std::vector<bool> out(num_layers, false);
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    const json::string* type = (*types)[layer].if_string();
    out[layer] = type != nullptr && *type == "sliding_attention";
    if (!out[layer] && (type == nullptr || *type != "full_attention")) {
      throw config.error("layer_types",
                         fmt::format("layer {} is neither 'full_attention' nor 'sliding_attention'", layer));
    }
    if (out[layer] && family.windows == WindowRule::kNone) {
      throw config.error("layer_types", fmt::format("{} has no sliding attention", family.architecture));
    }
  }
  if (!family.one_mask) return out;
  std::vector<bool> all = sliding_by_rule(config, family, with_rope);
  if (window_size(config, family) == 0) all.assign(num_layers, false);
  if (out != all) {
    log_warning(config
                    .error("layer_types",
                           fmt::format("{} ignores it: all layers use sliding_window", family.architecture))
                    .what());
  }
  return all;
}

void read_experts(const JsonObject& config, const Family& family, ModelConfig& out) {
  if (family.moe == MoeRule::kNone) return;
  const auto size = [&](std::string_view key, int64_t otherwise, int64_t max) {
    return static_cast<uint32_t>(config.integer_or(key, otherwise, 1, max));
  };
  MoeConfig& moe = out.moe;
  if (family.moe == MoeRule::kMixtral) {
    moe.num_experts = size("num_local_experts", 8, kMaxExperts);
    moe.top = size("num_experts_per_tok", 2, kMaxExperts);
    moe.ffn_size = out.ffn_size;
    moe.normalize = true;
  } else {
    moe.num_experts = size(config.has("num_experts") ? "num_experts" : "num_local_experts", 128, kMaxExperts);
    moe.top = size("num_experts_per_tok", 8, kMaxExperts);
    moe.ffn_size = size("moe_intermediate_size", 768, kMaxFfn);
    moe.normalize = config.boolean_or("norm_topk_prob", false);
    const uint32_t step = size("decoder_sparse_step", 1, INT32_MAX);
    for (uint32_t layer = 0; layer < out.num_layers; ++layer) moe.layers.push_back((layer + 1) % step == 0);
    if (const json::value* dense = config.find("mlp_only_layers")) {
      if (!dense->is_array()) throw config.error("mlp_only_layers", "a list of layers was expected");
      for (const json::value& layer : dense->get_array()) {
        if (!layer.is_int64() || layer.get_int64() < 0) {
          throw config.error("mlp_only_layers", "a list of layers was expected");
        }
        if (layer.get_int64() < out.num_layers) moe.layers[static_cast<size_t>(layer.get_int64())] = false;
      }
    }
  }
  if (uint64_t{moe.num_experts} * out.num_layers > kMaxExpertsInAll) {
    throw config.error("num_hidden_layers", fmt::format("{} layers of {} experts are out of range",
                                                        out.num_layers, moe.num_experts));
  }
  if (moe.top > moe.num_experts) {
    throw config.error("num_experts_per_tok", fmt::format("{} of {} experts", moe.top, moe.num_experts));
  }
}

}  // namespace

void read_layers(const JsonObject& config, const Family& family, ModelConfig& out) {
  const std::vector<bool> with_rope = layers_with_rope(config, family, out.num_layers);
  const std::vector<bool> sliding = sliding_layers(config, family, with_rope);
  const uint32_t window = window_size(config, family);
  out.windows.assign(out.num_layers, 0);
  for (uint32_t layer = 0; layer < out.num_layers; ++layer) {
    if (sliding[layer]) out.windows[layer] = window;
    const bool local = family.local_rope && sliding[layer];
    out.layer_ropes.push_back(!with_rope[layer] ? LayerRope::kNone
                              : local           ? LayerRope::kLocal
                                                : LayerRope::kMain);
  }
  read_experts(config, family, out);
}

}  // namespace quire::model
