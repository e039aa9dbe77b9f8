#include <algorithm>

#include "sample/processor.h"

namespace quire::sample {

void forbid_unset(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t word = 0; word * 32 < logits.size(); ++word) {
    if (mask[word] == UINT32_MAX) continue;
    const size_t end = std::min(logits.size(), (word + 1) * 32);
    for (size_t i = word * 32; i < end; ++i) {
      if ((mask[word] >> (i % 32) & 1U) == 0) logits[i] = kForbidden;
    }
  }
}

namespace {

class TokenMask final : public LogitsProcessor {
 public:
  void apply(const SamplingParams& /*params*/, uint32_t /*position*/, std::span<const uint32_t> mask,
             std::span<float> logits) const override {
    forbid_unset(mask, logits);
  }
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_token_mask(const ProcessorInputs& in) {
  return in.params.mask == kNoMask ? nullptr : std::make_unique<TokenMask>();
}

}  // namespace quire::sample
