#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire::model {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Long waves are stretched, short ones kept, those between blended.
double llama3_scaled(double inverse, const RopeConfig& config) {
  const double wavelength = kTwoPi / inverse;
  if (wavelength > config.original_max_positions / config.low_freq_factor) return inverse / config.factor;
  if (wavelength < config.original_max_positions / config.high_freq_factor) return inverse;
  const double smooth = (config.original_max_positions / wavelength - config.low_freq_factor) /
                        (config.high_freq_factor - config.low_freq_factor);
  return (1.0 - smooth) * inverse / config.factor + smooth * inverse;
}

// The dimension whose wave turns so often within the original context.
double yarn_dimension(double rotations, const RopeConfig& config, uint32_t rotary) {
  return rotary * std::log(config.original_max_positions / (rotations * kTwoPi)) /
         (2.0 * std::log(config.theta));
}

void scale_yarn(const RopeConfig& config, uint32_t rotary, std::vector<double>& inverse) {
  double low = yarn_dimension(config.beta_fast, config, rotary);
  double high = yarn_dimension(config.beta_slow, config, rotary);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / config.factor * stretched + inverse[i] * (1.0 - stretched);
  }
}

double yarn_attention_factor(const RopeConfig& config) {
  if (config.attention_factor) return *config.attention_factor;
  const auto magnitude = [&](double mscale) {
    return config.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(config.factor) + 1.0;
  };
  if (config.mscale && config.mscale_all_dim) {
    return magnitude(*config.mscale) / magnitude(*config.mscale_all_dim);
  }
  return magnitude(1.0);
}

double longrope_attention_factor(const RopeConfig& config) {
  if (config.attention_factor) return *config.attention_factor;
  if (config.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(config.factor) / std::log(config.original_max_positions));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config, uint32_t rotary, uint32_t longest) {
  RopeFrequencies out;
  for (uint32_t i = 0; i < rotary; i += 2) {
    out.inverse.push_back(1.0 / std::pow(config.theta, static_cast<double>(i) / rotary));
  }
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& inverse : out.inverse) inverse /= config.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& inverse : out.inverse) inverse = llama3_scaled(inverse, config);
      break;
    case RopeScaling::kYarn:
      scale_yarn(config, rotary, out.inverse);
      out.attention_factor = yarn_attention_factor(config);
      break;
    case RopeScaling::kLongrope: {
      const bool leaves = longest > config.original_max_positions;
      const std::vector<double>& factors = leaves ? config.long_factors : config.short_factors;
      for (size_t i = 0; i < factors.size(); ++i) out.inverse[i] /= factors[i];
      out.attention_factor = longrope_attention_factor(config);
      break;
    }
  }
  return out;
}

RopeTable::RopeTable(const RopeConfig& config, uint32_t rotary, uint32_t max_positions)
    : frequencies_(rope_frequencies(config, rotary, max_positions)), max_positions_(max_positions) {}

const float* RopeTable::at_least(uint32_t positions) {
  if (positions <= positions_) return table_.as<float>();
  constexpr uint64_t kFirstPositions = 1024;
  const uint64_t grown = std::max<uint64_t>({positions, uint64_t{2} * positions_, kFirstPositions});
  const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(grown, max_positions_));
  const size_t half = frequencies_.inverse.size();
  Buffer table(size_t{wanted} * 2 * half * sizeof(float));
  auto* row = table.as<float>();
  for (uint32_t position = 0; position < wanted; ++position, row += 2 * half) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * frequencies_.inverse[i];
      row[i] = static_cast<float>(std::cos(angle) * frequencies_.attention_factor);
      row[half + i] = static_cast<float>(std::sin(angle) * frequencies_.attention_factor);
    }
  }
  table_ = std::move(table);
  positions_ = wanted;
  return table_.as<float>();
}

}  // namespace quire::model
