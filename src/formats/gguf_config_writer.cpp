// A model's config as the keys of a GGUF file.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "formats/gguf_config.h"
#include "formats/gguf_rope.h"
#include "model/families.h"

namespace quire::formats {
namespace {

class Writer {
 public:
  Writer(GgufMetadata& out, const GgufFamily& gguf, const model::ModelConfig& config,
         const std::filesystem::path& where)
      : out_(out), gguf_(gguf), family_(gguf.family()), config_(config), where_(where) {}

  void all() {
    sizes();
    windows();
    layers_without_rope();
    if (config_.activation != (family_.gemma ? model::Activation::kGeluTanh : model::Activation::kSilu)) {
      throw refuse("the activation");
    }
    if (family_.gemma) gemma();
    if (family_.multipliers) multipliers();
    if (family_.moe != model::MoeRule::kNone) experts();
    add_gguf_rope(out_, gguf_, config_, where_);
  }

 private:
  std::string name(std::string_view key) const { return fmt::format("{}.{}", gguf_.arch, key); }
  void size(std::string_view key, uint32_t value) { out_.add(name(key), value); }
  void real(std::string_view key, double value) { out_.add(name(key), static_cast<float>(value)); }
  Error refuse(std::string_view what) const {
    return file_error(where_, fmt::format("GGUF has no key for {} of {}", what, config_.architecture));
  }

  void sizes() {
    size("vocab_size", config_.vocab_size);
    size("context_length", config_.max_positions);
    size("embedding_length", config_.hidden_size);
    size("block_count", config_.num_layers);
    size("feed_forward_length", config_.ffn_size);
    size("attention.head_count", config_.num_heads);
    size("attention.head_count_kv", config_.num_kv_heads);
    size("attention.key_length", config_.head_dim);
    size("attention.value_length", config_.head_dim);
    real("attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
  }

  /// Whether every period-th layer has full attention and the others have the window.
  bool has_period(uint32_t period, uint32_t window) const {
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      if (config_.windows[layer] != ((layer + 1) % period == 0 ? 0 : window)) return false;
    }
    return true;
  }

  void windows() {
    const uint32_t window = *std::max_element(config_.windows.begin(), config_.windows.end());
    const bool by_pattern = family_.windows == model::WindowRule::kAllButEveryNth;
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      const bool local = config_.layer_rope(layer) == model::LayerRope::kLocal;
      if (local && config_.windows[layer] == 0) throw refuse("a local RoPE without a window");
    }
    if (window == 0) {
      if (gguf_.default_window > 0) throw refuse("layers without windows");
      // For llama.cpp the zero distinguishes Phi-4 from Phi-3.
      if (family_.longrope) size("attention.sliding_window", 0);
      return;
    }
    if (!gguf_.windows) throw refuse("the sliding windows");
    size("attention.sliding_window", window);
    if (!by_pattern) {
      const auto [least, most] = std::minmax_element(config_.windows.begin(), config_.windows.end());
      if (*least != *most) throw refuse("sliding windows that differ");
      return;
    }
    if (has_period(family_.window_pattern, window)) return;
    for (uint32_t period = 1; period <= config_.num_layers + 1; ++period) {
      if (!has_period(period, window)) continue;
      size("attention.sliding_window_pattern", period);
      return;
    }
    throw refuse("the pattern of sliding windows");
  }

  void layers_without_rope() {
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      const bool none = gguf_.no_rope_interval > 0 && (layer + 1) % gguf_.no_rope_interval == 0;
      if ((config_.layer_rope(layer) == model::LayerRope::kNone) != none) throw refuse("no_rope_layers");
    }
  }

  void gemma() {
    if (config_.logit_soft_cap > 0.0) real("final_logit_softcapping", config_.logit_soft_cap);
    if (config_.attention_soft_cap > 0.0) real("attn_logit_softcapping", config_.attention_soft_cap);
    const bool always_capped = family_.attention_soft_cap_key;
    if (always_capped && (config_.logit_soft_cap == 0.0 || config_.attention_soft_cap == 0.0)) {
      throw refuse("the absence of soft caps");
    }
    const bool wide = config_.num_layers == gguf_.wide_scale_layers;
    const uint32_t scalar = wide ? config_.hidden_size / config_.num_heads : config_.head_dim;
    constexpr double kTolerance = 1e-6;
    if (std::fabs(config_.attention_scale * std::sqrt(scalar) - 1.0) > kTolerance) {
      throw refuse(fmt::format("query_pre_attn_scalar other than {}", scalar));
    }
  }

  void multipliers() {
    real("attention.scale", config_.attention_scale);
    real("embedding_scale", config_.embedding_scale);
    real("residual_scale", config_.residual_scale);
    real("logit_scale", 1.0 / config_.logit_scale);
  }

  void experts() {
    if (!config_.moe.normalize) throw refuse("norm_topk_prob = false");
    size("expert_count", config_.moe.num_experts);
    size("expert_used_count", config_.moe.top);
    if (family_.moe == model::MoeRule::kQwen3) size("expert_feed_forward_length", config_.moe.ffn_size);
  }

  GgufMetadata& out_;
  const GgufFamily& gguf_;
  const model::Family& family_;
  const model::ModelConfig& config_;
  const std::filesystem::path& where_;
};

}  // namespace

void add_gguf_config(GgufMetadata& out, const GgufFamily& family, const model::ModelConfig& config,
                     const std::filesystem::path& where) {
  Writer(out, family, config, where).all();
}

}  // namespace quire::formats
