#include "control/policy/policy.h"
#include "control/sequence.h"

namespace quire::control {
namespace {

/// First come, first served.
class Fcfs final : public SchedulingPolicy {
 public:
  int64_t rank(const Sequence& /*seq*/) const override { return 0; }
  Standing standing(const Sequence& /*seq*/, int64_t /*rank*/) const override { return {}; }
  size_t horizon() const override { return 1; }
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_fcfs(const PolicyInputs& /*in*/) { return std::make_unique<Fcfs>(); }

}  // namespace quire::control
