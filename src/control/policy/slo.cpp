#include "control/policy/policy.h"
#include "control/sequence.h"

namespace quire::control {
namespace {

/// The least slack to the deadline of its first token; a sequence that has started comes before all.
class Slo final : public SchedulingPolicy {
 public:
  explicit Slo(const CostHints& costs) : costs_(costs) {}
  int64_t rank(const Sequence& seq) const override {
    if (seq.generated() > 0) return INT64_MIN;
    return seq.spec.arrived + seq.spec.ttft_deadline - seq.total() * costs_.prefill_token;
  }
  Standing standing(const Sequence& /*seq*/, int64_t rank) const override {
    return rank == INT64_MIN ? Standing{Ground::kStarted} : Standing{Ground::kDeadline, rank};
  }

 private:
  CostHints costs_;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_slo(const PolicyInputs& in) { return std::make_unique<Slo>(in.costs); }

}  // namespace quire::control
