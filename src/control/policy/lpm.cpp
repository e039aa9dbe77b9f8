#include "control/kv/prefix_cache.h"
#include "control/policy/policy.h"
#include "control/sequence.h"

namespace quire::control {
namespace {

/// The longest cached prefix (Zheng et al. 2024) among the 64 earliest arrivals; a sequence that 32 others
/// have passed comes before all.
class Lpm final : public SchedulingPolicy {
 public:
  explicit Lpm(const PrefixCache& cache) : cache_(cache) {}
  int64_t rank(const Sequence& seq) const override {
    if (seq.passed >= kMostPassed) return INT64_MIN;
    cache_.match(std::span(seq.tokens).first(seq.sharable() + 1), seq.spec.salt, found_);
    return -int64_t{found_.num_rows};
  }
  Standing standing(const Sequence& /*seq*/, int64_t rank) const override {
    return rank == INT64_MIN ? Standing{Ground::kPassed} : Standing{Ground::kCached, -rank};
  }
  size_t horizon() const override { return 64; }

 private:
  static constexpr uint32_t kMostPassed = 32;
  const PrefixCache& cache_;
  mutable Prefix found_;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_lpm(const PolicyInputs& in) { return std::make_unique<Lpm>(in.cache); }

}  // namespace quire::control
