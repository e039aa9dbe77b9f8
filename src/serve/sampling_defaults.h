#pragma once

#include <cstdint>
#include <optional>

namespace quire {

/// What a request gets that leaves the field out: the model's generation_config.json, as in vLLM. Empty: the
/// neutral value of SamplingParams.
struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int32_t> top_k;
};

}  // namespace quire
