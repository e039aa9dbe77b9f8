#include "sample/processor.h"

namespace quire::sample {
namespace {

/// Forbids the tokens that end the answer until it has min_tokens.
class MinTokens final : public LogitsProcessor {
 public:
  explicit MinTokens(uint64_t from) : from_(from) {}
  void apply(const SamplingParams& params, uint32_t position, std::span<const uint32_t> /*mask*/,
             std::span<float> logits) const override {
    if (position >= from_) return;
    for (const TokenId id : params.end_tokens) logits[static_cast<size_t>(id)] = kForbidden;
  }

 private:
  uint64_t from_;  // the position at which the answer may end
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_min_tokens(const ProcessorInputs& in) {
  if (in.params.min_tokens == 0 || in.params.end_tokens.empty()) return nullptr;
  return std::make_unique<MinTokens>(uint64_t{in.prompt_length} + in.params.min_tokens);
}

}  // namespace quire::sample
