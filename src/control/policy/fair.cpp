#include <algorithm>
#include <map>
#include <optional>

#include "control/policy/policy.h"
#include "control/sequence.h"

namespace quire::control {
namespace {

/// The tenant that was served least (virtual token counter of Sheng et al. 2023). A prompt token that must be
/// computed counts 1, when its sequence is first admitted; a generated token counts 2. A tenant that returns
/// starts no lower than the least served of the waiting tenants.
class Fair final : public SchedulingPolicy {
 public:
  int64_t rank(const Sequence& seq) const override { return tenants_.at(seq.spec.tenant).served; }
  Standing standing(const Sequence& /*seq*/, int64_t rank) const override { return {Ground::kShare, rank}; }
  void queued(const Sequence& seq) override {
    const int64_t floor = least_waiting();
    if (tenants_.size() > kForgetAbove) {
      std::erase_if(tenants_, [&](const auto& t) { return t.second.known == 0 && t.second.served <= floor; });
    }
    Tenant& tenant = tenants_[seq.spec.tenant];
    if (tenant.waiting++ == 0) tenant.served = std::max(tenant.served, floor);
    if (seq.preemptions == 0) ++tenant.known;
  }
  void dequeued(const Sequence& seq) override {
    Tenant& tenant = tenants_.at(seq.spec.tenant);
    --tenant.waiting;
    last_ = tenant.served;
  }
  void computes(const Sequence& seq, uint32_t tokens) override {
    int64_t& served = tenants_.at(seq.spec.tenant).served;
    // Its first chunk ever: counts everything that will be computed of its prompt, but not recomputation
    // after a preemption.
    const bool is_first = seq.preemptions == 0 && seq.next() == seq.cached_tokens;
    if (is_first) served += seq.prompt_length - seq.computed;
    if (tokens == seq.remaining() && seq.spec.max_tokens > 0) served += 2;  // one token is generated
  }
  void ended(const Sequence& seq) override { --tenants_.at(seq.spec.tenant).known; }

 private:
  static constexpr size_t kForgetAbove = 1024;
  struct Tenant {
    int64_t served = 0;
    uint32_t waiting = 0;
    uint32_t known = 0;  // its sequences that have not ended
  };
  /// If none waits: what the tenant that left the queue last had been served.
  int64_t least_waiting() const {
    std::optional<int64_t> least;
    for (const auto& [id, tenant] : tenants_) {
      if (tenant.waiting > 0) least = std::min(least.value_or(tenant.served), tenant.served);
    }
    return least.value_or(last_);
  }
  std::map<uint64_t, Tenant> tenants_;
  int64_t last_ = 0;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_fair(const PolicyInputs& /*in*/) { return std::make_unique<Fair>(); }

}  // namespace quire::control
