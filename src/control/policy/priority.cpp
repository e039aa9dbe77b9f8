#include <algorithm>

#include "control/policy/policy.h"
#include "control/sequence.h"

namespace quire::control {
namespace {

/// SeqSpec::priority, lowest first. Waiting for `aging` (at most 9,000 s) counts as one level, so no sequence
/// starves.
class Priority final : public SchedulingPolicy {
 public:
  explicit Priority(Nanos aging)
      : aging_(std::min<Nanos>(aging, 9'000'000'000'000)) {}  // times kMostPriority it fits into 64 bits
  // (priority - waited / aging) in units of time; the current time is the same for all and cancels.
  int64_t rank(const Sequence& seq) const override { return seq.spec.priority * aging_ + seq.spec.arrived; }
  Standing standing(const Sequence& seq, int64_t /*rank*/) const override {
    return {Ground::kPriority, seq.spec.priority};
  }

 private:
  Nanos aging_;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_priority(const PolicyInputs& in) {
  return std::make_unique<Priority>(in.aging);
}

}  // namespace quire::control
