#include "formats/gguf_rope.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "model/rope_table.h"

namespace quire::formats {
namespace {

constexpr std::string_view kLlama3Tensor = "rope_freqs.weight";
constexpr std::string_view kLongTensor = "rope_factors_long.weight";
constexpr std::string_view kShortTensor = "rope_factors_short.weight";
constexpr double kFactorTolerance = 1e-4;     // relative; the files have f32, computed in f32
constexpr double kAttentionTolerance = 1e-6;  // relative, of an f32

/// What the llama.cpp of a yarn file multiplies the attention by on its own.
double yarn_magnitude(double factor) { return 0.1 * std::log(factor) + 1.0; }

std::vector<float> llama3_factors(const model::RopeConfig& rope, uint32_t rotary) {
  model::RopeConfig plain = rope;
  plain.scaling = model::RopeScaling::kNone;
  const std::vector<double> unscaled = model::rope_frequencies(plain, rotary, 0).inverse;
  const std::vector<double> scaled = model::rope_frequencies(rope, rotary, 0).inverse;
  std::vector<float> out;
  for (size_t i = 0; i < scaled.size(); ++i) out.push_back(static_cast<float>(unscaled[i] / scaled[i]));
  return out;
}

Error tensor_error(const Gguf& file, const GgufTensor& tensor, std::string_view what) {
  return file_error(file.path(), fmt::format("tensor '{}': {}", tensor.name, what));
}

std::vector<float> factors_in(const Gguf& file, const GgufTensor& tensor, uint32_t rotary) {
  if (tensor.type->id != kGgmlF32 || tensor.shape != std::vector<int64_t>{rotary / 2}) {
    throw tensor_error(file, tensor, fmt::format("{} factors of type F32 were expected", rotary / 2));
  }
  std::vector<float> out(rotary / 2);
  dequantize(*tensor.type, tensor.data, out.size(), out.data());
  return out;
}

/// GGUF has the factors that follow from Llama 3's parameters, but not the parameters: they are recovered by
/// trying those of known models.
json::value llama3_scaling(const Gguf& file, const GgufTensor& tensor, double theta, uint32_t rotary) {
  const std::vector<float> given = factors_in(file, tensor, rotary);
  if (std::all_of(given.begin(), given.end(), [](float f) { return f == 1.0F; })) return nullptr;
  model::RopeConfig rope;
  rope.theta = theta;
  rope.scaling = model::RopeScaling::kLlama3;
  rope.factor = *std::max_element(given.begin(), given.end());
  if (!(rope.factor > 1.0) || !std::isfinite(rope.factor)) {
    throw tensor_error(file, tensor, "the factors do not stretch");
  }
  for (const double high : {4.0, 2.0, 8.0, 16.0}) {
    for (double original = 16; original <= 1 << 20; original *= 2) {
      rope.high_freq_factor = high;
      rope.original_max_positions = original;
      const std::vector<float> expected = llama3_factors(rope, rotary);
      const bool same = std::equal(given.begin(), given.end(), expected.begin(), [](float a, float b) {
        return std::fabs(a - b) <= kFactorTolerance * std::fabs(b);
      });
      if (!same) continue;
      return json::object{{"rope_type", "llama3"},
                          {"factor", rope.factor},
                          {"low_freq_factor", rope.low_freq_factor},
                          {"high_freq_factor", high},
                          {"original_max_position_embeddings", static_cast<int64_t>(original)}};
    }
  }
  throw tensor_error(file, tensor, "factors that are not those of Llama 3's scaling are not supported");
}

json::array longrope_factors(const Gguf& file, const GgufTensor& tensor, uint32_t rotary) {
  json::array out;
  for (const float factor : factors_in(file, tensor, rotary)) {
    if (!(factor > 0.0F) || !std::isfinite(factor)) {
      throw tensor_error(file, tensor, "numbers above 0 were expected");
    }
    // The decimal that was written: 1.1, not 1.10000002.
    std::array<char, 64> text;
    const auto written = std::to_chars(text.data(), text.data() + text.size(), factor);
    double decimal = 0.0;
    std::from_chars(text.data(), written.ptr, decimal);
    out.push_back(decimal);
  }
  return out;
}

json::value longrope_scaling(const Gguf& file, GgufKeys& keys, uint32_t rotary) {
  const GgufTensor* long_tensor = file.find(kLongTensor);
  const GgufTensor* short_tensor = file.find(kShortTensor);
  if (long_tensor == nullptr && short_tensor == nullptr) return nullptr;
  if (keys.number_or("rope.scaling.factor", 1.0) != 1.0) {
    throw keys.error("rope.scaling.factor", "is not supported with longrope");
  }
  json::object out = {{"type", "longrope"},
                      {"long_factor", longrope_factors(file, file.at(kLongTensor), rotary)},
                      {"short_factor", longrope_factors(file, file.at(kShortTensor), rotary)}};
  const double attention = keys.factor_or("rope.scaling.attn_factor", 1.0);
  model::RopeConfig rope;
  rope.scaling = model::RopeScaling::kLongrope;
  rope.original_max_positions = static_cast<double>(keys.size("rope.scaling.original_context_length", 2));
  rope.factor = static_cast<double>(keys.size("context_length")) / rope.original_max_positions;
  const double usual = model::rope_frequencies(rope, 0, 0).attention_factor;
  if (std::fabs(attention - usual) > kAttentionTolerance * usual) out["attention_factor"] = attention;
  return out;
}

json::value yarn_scaling(GgufKeys& keys, double factor, double attention) {
  json::object yarn = {{"rope_type", "yarn"}, {"factor", factor}};
  const int64_t original = keys.size_or("rope.scaling.original_context_length", 0, 0);
  if (original > 0) yarn["original_max_position_embeddings"] = original;
  for (const auto& [key, name] : {std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
                                  std::pair("rope.scaling.yarn_beta_slow", "beta_slow")}) {
    if (keys.has(key)) yarn[name] = keys.number(key);
  }
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    if (keys.number_or(key, 1.0) != 1.0) throw keys.error(key, "only 1 is supported");
  }
  // llama.cpp multiplies its own factor by this one, Hugging Face takes it instead.
  if (attention != 1.0) yarn["attention_factor"] = attention * yarn_magnitude(factor);
  return yarn;
}

json::value scaling(const Gguf& file, const model::Family& family, GgufKeys& keys, double theta,
                    uint32_t rotary) {
  constexpr const char* kType = "rope.scaling.type";
  constexpr const char* kAttention = "rope.scaling.attn_factor";
  const char* factor_key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const double factor = keys.factor_or(factor_key, 1.0);
  std::string_view type = keys.string_or(kType, "linear");
  keys.has("rope.scaling.original_context_length");  // of no effect without a scaling
  if (family.longrope) {
    json::value longrope = longrope_scaling(file, keys, rotary);
    if (!longrope.is_null()) return longrope;
  }
  const double attention = keys.factor_or(kAttention, 1.0);
  if (type == "linear" && factor == 1.0) type = "none";
  if (attention != 1.0 && type != "yarn") {
    throw keys.error(kAttention, fmt::format("is not supported without yarn scaling"));
  }
  const GgufTensor* factors = family.longrope ? nullptr : file.find(kLlama3Tensor);
  if (type == "none") return factors == nullptr ? nullptr : llama3_scaling(file, *factors, theta, rotary);
  if (factors != nullptr) {
    throw keys.error(kType,
                     fmt::format("'{}' together with tensor '{}' is not supported", type, kLlama3Tensor));
  }
  if (type == "linear") return json::object{{"rope_type", "linear"}, {"factor", factor}};
  if (type == "yarn" && !family.local_rope && !family.longrope) return yarn_scaling(keys, factor, attention);
  throw keys.error(kType, fmt::format("'{}' is not supported here", type.substr(0, 64)));
}

}  // namespace

bool is_gguf_rope_tensor(const GgufFamily& family, std::string_view name) {
  if (family.family().longrope) return name == kLongTensor || name == kShortTensor;
  return !family.family().gemma && name == kLlama3Tensor;
}

void read_gguf_rope(const Gguf& file, const GgufFamily& gguf, GgufKeys& keys, json::object& config) {
  const model::Family& family = gguf.family();
  const int64_t head_dim = config.at("head_dim").as_int64();
  const int64_t rotary = keys.size_or("rope.dimension_count", head_dim);
  if (rotary != head_dim) {
    if (!family.partial_rotary || rotary > head_dim || rotary % 2 != 0) {
      throw keys.error("rope.dimension_count",
                       fmt::format("{} of {} dimensions are not supported", rotary, head_dim));
    }
    double part = static_cast<double>(rotary) / static_cast<double>(head_dim);
    // The fraction times head_dim, rounded down, must give the dimensions again.
    if (static_cast<int64_t>(part * static_cast<double>(head_dim)) != rotary)
      part = std::nextafter(part, 1.0);
    config["partial_rotary_factor"] = part;
  }
  const double theta = keys.number_or("rope.freq_base", 10000.0);
  if (!(theta > 0.0)) throw keys.error("rope.freq_base", fmt::format("{} is out of range", theta));
  config["rope_theta"] = theta;
  config["rope_scaling"] = scaling(file, family, keys, theta, static_cast<uint32_t>(rotary));
  if (family.longrope && keys.has("rope.scaling.original_context_length")) {
    config["original_max_position_embeddings"] = keys.size("rope.scaling.original_context_length");
  }
  if (family.local_rope) {
    const double local = keys.number_or("rope.freq_base_swa", 10000.0);
    if (!(local > 0.0)) throw keys.error("rope.freq_base_swa", fmt::format("{} is out of range", local));
    config["rope_local_base_freq"] = local;
  }
}

void add_gguf_rope(GgufMetadata& out, const GgufFamily& family, const model::ModelConfig& config,
                   const std::filesystem::path& where) {
  const auto name = [&](std::string_view key) { return fmt::format("{}.rope.{}", family.arch, key); };
  const auto real = [&](std::string_view key, double value) {
    out.add(name(key), static_cast<float>(value));
  };
  const auto refuse = [&](std::string_view what) {
    return file_error(where, fmt::format("GGUF has no key for {} of {}", what, config.architecture));
  };
  const model::RopeConfig& rope = config.rope;
  out.add(name("dimension_count"), config.rotary(rope));
  real("freq_base", rope.theta);
  if (config.local_rope) {
    if (config.local_rope->scaling != model::RopeScaling::kNone)
      throw refuse("the scaling of the local RoPE");
    real("freq_base_swa", config.local_rope->theta);
  }
  const auto original = static_cast<uint32_t>(rope.original_max_positions);
  switch (rope.scaling) {
    case model::RopeScaling::kNone:
      // llama.cpp's loader needs the key by which it chooses factors, even if there are none.
      if (family.family().longrope) out.add(name("scaling.original_context_length"), config.max_positions);
      break;
    case model::RopeScaling::kLinear:
      out.add(name("scaling.type"), "linear");
      real("scaling.factor", rope.factor);
      break;
    case model::RopeScaling::kLlama3:  // a tensor
      if (family.family().gemma) throw refuse("llama3's RoPE");
      break;
    case model::RopeScaling::kYarn:
      if (rope.mscale || rope.mscale_all_dim || !rope.truncate) {
        throw refuse("yarn's mscale, mscale_all_dim and truncate");
      }
      if (config.local_rope) throw refuse("yarn beside a local RoPE");
      out.add(name("scaling.type"), "yarn");
      real("scaling.factor", rope.factor);
      out.add(name("scaling.original_context_length"), original);
      if (rope.beta_fast != model::RopeConfig().beta_fast) real("scaling.yarn_beta_fast", rope.beta_fast);
      if (rope.beta_slow != model::RopeConfig().beta_slow) real("scaling.yarn_beta_slow", rope.beta_slow);
      if (rope.attention_factor) {
        real("scaling.attn_factor", *rope.attention_factor / yarn_magnitude(rope.factor));
      }
      break;
    case model::RopeScaling::kLongrope:
      out.add(name("scaling.original_context_length"), original);
      real("scaling.attn_factor", model::rope_frequencies(rope, config.rotary(rope), 0).attention_factor);
      break;
  }
}

std::vector<GgufRopeTensor> gguf_rope_tensors(const model::ModelConfig& config) {
  const model::RopeConfig& rope = config.rope;
  if (rope.scaling == model::RopeScaling::kLlama3) {
    return {{kLlama3Tensor, llama3_factors(rope, config.rotary(rope))}};
  }
  if (rope.scaling != model::RopeScaling::kLongrope) return {};
  return {{kLongTensor, {rope.long_factors.begin(), rope.long_factors.end()}},
          {kShortTensor, {rope.short_factors.begin(), rope.short_factors.end()}}};
}

}  // namespace quire::formats
