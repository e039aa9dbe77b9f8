#include "model/rope_config.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace quire::model {
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

void read_partial_rotary(const JsonObject& object, const Family& family, RopeConfig& rope) {
  if (!object.has("partial_rotary_factor")) return;
  const double partial = object.number("partial_rotary_factor");
  if (partial == 1.0) return;
  if (!family.partial_rotary || !(partial > 0.0) || partial > 1.0) {
    throw object.error("partial_rotary_factor",
                       family.partial_rotary ? "is out of range (0, 1]" : "only 1.0 is supported");
  }
  rope.partial = partial;
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
  if (rope.theta == 1.0) throw scaling.error("rope_theta", "yarn needs a value other than 1");
  for (const auto& [key, place] :
       {std::pair("attention_factor", &rope.attention_factor), std::pair("mscale", &rope.mscale),
        std::pair("mscale_all_dim", &rope.mscale_all_dim)}) {
    if (scaling.has(key)) *place = positive(scaling, key, 1.0);
  }
  rope.truncate = scaling.boolean_or("truncate", true);
}

/// One positive number a rotated pair.
std::vector<double> read_factors(const JsonObject& scaling, std::string_view key, uint32_t count) {
  const json::value* value = scaling.find(key);
  const json::array* list = value == nullptr ? nullptr : value->if_array();
  if (list == nullptr || list->size() != count) {
    throw scaling.error(key, fmt::format("a list of {} numbers was expected", count));
  }
  std::vector<double> out;
  for (const json::value& entry : *list) {
    json::error_code failed;
    const auto factor = entry.to_number<double>(failed);
    if (failed || !(factor > 0.0) || factor > 1e6) {
      throw scaling.error(key, "numbers in (0, 1e6] were expected");
    }
    out.push_back(factor);
  }
  return out;
}

void read_longrope(const JsonObject& scaling, const JsonObject& config, const ModelConfig& model,
                   RopeConfig& rope) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  constexpr double kPhi3Positions = 4096.0;
  rope.scaling = RopeScaling::kLongrope;
  const JsonObject& says = scaling.has(kOriginal) ? scaling : config;
  rope.original_max_positions = positive(says, kOriginal, kPhi3Positions);
  if (rope.original_max_positions <= 1.0) throw says.error(kOriginal, "longrope needs a value above 1");
  rope.factor = positive(scaling, "factor", model.max_positions / rope.original_max_positions);
  if (scaling.has("attention_factor")) {
    rope.attention_factor = positive(scaling, "attention_factor", 1.0);
  }
  const uint32_t pairs = model.rotary(rope) / 2;
  rope.short_factors = read_factors(scaling, "short_factor", pairs);
  rope.long_factors = read_factors(scaling, "long_factor", pairs);
}

/// One set of parameters into `rope`, which has the defaults.
void read_scaling(const JsonObject& scaling, const JsonObject& config, const Family& family,
                  const ModelConfig& model, RopeConfig& rope) {
  read_partial_rotary(scaling, family, rope);
  rope.theta = positive(scaling, "rope_theta", rope.theta);
  const char* type_key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.string_or(type_key, "default");
  if (type == "default") return;
  if (family.longrope) {  // which went by other names before
    if (type != "longrope" && type != "su" && type != "yarn") {
      throw scaling.error(type_key, fmt::format("'{}' is not supported (default, longrope)", type));
    }
    read_longrope(scaling, config, model, rope);
    return;
  }
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
  rope.original_max_positions = positive(scaling, "original_max_position_embeddings", model.max_positions);
  if (rope.scaling == RopeScaling::kLlama3) read_llama3(scaling, rope);
  if (rope.scaling == RopeScaling::kYarn) read_yarn(scaling, rope);
}

}  // namespace

void read_rope_config(const JsonObject& config, const Family& family, ModelConfig& out) {
  out.rope.theta = positive(config, "rope_theta", family.default_theta);
  read_partial_rotary(config, family, out.rope);
  if (family.local_rope) {
    out.local_rope.emplace();
    out.local_rope->theta = positive(config, "rope_local_base_freq", out.local_rope->theta);
  }
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (config.has(key)) {
    const JsonObject scaling = config.object(key);
    const bool by_type = scaling.has("full_attention") || scaling.has("sliding_attention");
    if (!by_type) {
      // Transformers puts these keys beside a "rope_type": "default", and so reads no other name of the type.
      if (family.local_rope && !scaling.has("rope_type") &&
          scaling.string_or("type", "default") != "default") {
        throw scaling.error("type", fmt::format("{} reads only 'rope_type'", family.architecture));
      }
      read_scaling(scaling, config, family, out, out.rope);
    } else if (family.local_rope) {
      if (scaling.has("full_attention")) {
        read_scaling(scaling.object("full_attention"), config, family, out, out.rope);
      }
      if (scaling.has("sliding_attention")) {
        read_scaling(scaling.object("sliding_attention"), config, family, out, *out.local_rope);
      }
    } else {
      throw scaling.error(scaling.has("full_attention") ? "full_attention" : "sliding_attention",
                          "RoPE by layer type is not supported");
    }
  }
  if (out.rotary(out.rope) % 2 != 0 || out.rotary(out.rope) == 0) {
    throw config.error(
        "partial_rotary_factor",
        fmt::format("{} rotated elements of a head is not an even number", out.rotary(out.rope)));
  }
}

}  // namespace quire::model
