#include "model/rope_config.h"

#include <string_view>

#include <fmt/format.h>

namespace quire {
namespace {

double positive(const JsonObject& object, std::string_view key, double otherwise) {
  const double value = object.number_or(key, otherwise);
  if (!(value > 0.0) || value > 1e12) throw object.error(key, fmt::format("{} is out of range", value));
  return value;
}

double required_factor(const JsonObject& scaling) {
  const double factor = scaling.number("factor");
  if (!(factor >= 1.0) || factor > 1e6) {
    throw scaling.error("factor", fmt::format("{} is out of range [1, 1e6]", factor));
  }
  return factor;
}

void refuse_partial_rotary(const JsonObject& object) {
  if (object.number_or("partial_rotary_factor", 1.0) != 1.0) {
    throw object.error("partial_rotary_factor", "only 1.0 is supported");
  }
}

void read_llama3(const JsonObject& scaling, RopeConfig& rope) {
  rope.low_freq_factor = positive(scaling, "low_freq_factor", 1.0);
  rope.high_freq_factor = positive(scaling, "high_freq_factor", 4.0);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    throw scaling.error("high_freq_factor", "must be larger than low_freq_factor");
  }
  if (!scaling.has("original_max_position_embeddings")) {
    throw scaling.error("original_max_position_embeddings", "missing");
  }
}

void read_yarn(const JsonObject& scaling, RopeConfig& rope) {
  rope.beta_fast = positive(scaling, "beta_fast", 32.0);
  rope.beta_slow = positive(scaling, "beta_slow", 1.0);
  if (rope.theta == 1.0) throw scaling.error("rope_theta", "yarn needs one that is not 1");
  for (const auto& [key, place] :
       {std::pair("attention_factor", &rope.attention_factor), std::pair("mscale", &rope.mscale),
        std::pair("mscale_all_dim", &rope.mscale_all_dim)}) {
    if (scaling.has(key)) *place = positive(scaling, key, 1.0);
  }
  rope.truncate = scaling.boolean_or("truncate", true);
}

}  // namespace

RopeConfig read_rope_config(const JsonObject& config, uint32_t max_positions) {
  constexpr double kDefaultTheta = 10000.0;
  refuse_partial_rotary(config);
  RopeConfig rope;
  rope.theta = positive(config, "rope_theta", kDefaultTheta);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) return rope;

  const JsonObject scaling = config.object(key);
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (scaling.has(layer_type)) throw scaling.error(layer_type, "RoPE by layer type is not supported");
  }
  refuse_partial_rotary(scaling);
  rope.theta = positive(scaling, "rope_theta", rope.theta);
  const char* type_key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.string_or(type_key, "default");
  if (type == "default") return rope;

  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else {
    throw scaling.error(type_key, fmt::format("'{}' is not supported (default, linear, llama3, yarn)", type));
  }
  rope.factor = required_factor(scaling);
  rope.original_max_positions = positive(scaling, "original_max_position_embeddings", max_positions);
  if (rope.scaling == RopeScaling::kLlama3) read_llama3(scaling, rope);
  if (rope.scaling == RopeScaling::kYarn) read_yarn(scaling, rope);
  return rope;
}

}  // namespace quire
