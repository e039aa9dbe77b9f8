#include <algorithm>

#include "control/policy/policy.h"
#include "control/sequence.h"

namespace quire::control {
namespace {

/// The shortest remaining time, by CostHints. The length of an answer is SeqSpec::expected_tokens, or else
/// the mean of the last answers.
class Srpt final : public SchedulingPolicy {
 public:
  explicit Srpt(const CostHints& costs) : costs_(costs) {}
  int64_t rank(const Sequence& seq) const override {
    const uint32_t guess = seq.spec.expected_tokens.value_or(static_cast<uint32_t>(mean_ >> kBits));
    const int64_t length = std::min(guess == 0 ? seq.spec.max_tokens : guess, seq.spec.max_tokens);
    const int64_t left = std::max<int64_t>(length - seq.generated(), 1);
    return int64_t{seq.total() - seq.swapped} * costs_.prefill_token + left * costs_.decode_token;
  }
  Standing standing(const Sequence& /*seq*/, int64_t rank) const override { return {Ground::kWork, rank}; }
  void ended(const Sequence& seq) override {
    const int64_t length = int64_t{seq.generated()} << kBits;
    mean_ = mean_ == 0 ? length : mean_ + (length - mean_) / 16;
  }

 private:
  static constexpr int kBits = 10;  // of the fraction
  CostHints costs_;
  int64_t mean_ = 0;  // of the generated tokens
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_srpt(const PolicyInputs& in) {
  return std::make_unique<Srpt>(in.costs);
}

}  // namespace quire::control
