#include <algorithm>

#include "sample/processor.h"

namespace quire::sample {
namespace {

/// Forbids all tokens but those of a list.
class AllowedTokens final : public LogitsProcessor {
 public:
  void apply(const SamplingParams& params, uint32_t /*position*/, std::span<const uint32_t> /*mask*/,
             std::span<float> logits) const override {
    auto from = logits.begin();
    for (const TokenId id : params.allowed_tokens) {
      std::fill(from, logits.begin() + id, kForbidden);
      from = logits.begin() + id + 1;
    }
    std::fill(from, logits.end(), kForbidden);
  }
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_allowed_tokens(const ProcessorInputs& in) {
  return in.params.allowed_tokens.empty() ? nullptr : std::make_unique<AllowedTokens>();
}

}  // namespace quire::sample
