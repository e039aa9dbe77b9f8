#include <algorithm>
#include <limits>

#include "sample/processor.h"

namespace quire::sample {
namespace {

class LogitBias final : public LogitsProcessor {
 public:
  void apply(const SamplingParams& params, uint32_t /*position*/, std::span<const uint32_t> /*mask*/,
             std::span<float> logits) const override {
    constexpr float kMax = std::numeric_limits<float>::max();
    for (const auto& [id, bias] : params.logit_bias) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = std::clamp(logit + bias, -kMax, kMax);
    }
  }
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_logit_bias(const ProcessorInputs& in) {
  return in.params.logit_bias.empty() ? nullptr : std::make_unique<LogitBias>();
}

}  // namespace quire::sample
