#include "control/policy.h"

#include <algorithm>
#include <map>
#include <optional>

#include "control/prefix_cache.h"
#include "control/sequence.h"

namespace quire {
namespace {

class Fcfs final : public SchedulingPolicy {
 public:
  int64_t rank(const Sequence& /*seq*/) const override { return 0; }
  size_t horizon() const override { return 1; }
};

class Srpt final : public SchedulingPolicy {
 public:
  explicit Srpt(const CostHints& costs) : costs_(costs) {}
  int64_t rank(const Sequence& seq) const override {
    const uint32_t guess = seq.spec.expected_tokens.value_or(static_cast<uint32_t>(mean_ >> kBits));
    const int64_t length = std::min(guess == 0 ? seq.spec.max_tokens : guess, seq.spec.max_tokens);
    const int64_t left = std::max<int64_t>(length - seq.generated(), 1);
    return int64_t{seq.total() - seq.swapped} * costs_.prefill_token + left * costs_.decode_token;
  }
  void ended(const Sequence& seq) override {
    const int64_t length = int64_t{seq.generated()} << kBits;
    mean_ = mean_ == 0 ? length : mean_ + (length - mean_) / 16;
  }

 private:
  static constexpr int kBits = 10;  // of the fraction
  CostHints costs_;
  int64_t mean_ = 0;  // of the generated tokens
};

class Slo final : public SchedulingPolicy {
 public:
  explicit Slo(const CostHints& costs) : costs_(costs) {}
  int64_t rank(const Sequence& seq) const override {
    if (seq.generated() > 0) return INT64_MIN;
    return seq.spec.arrived + seq.spec.ttft_deadline - seq.total() * costs_.prefill_token;
  }

 private:
  CostHints costs_;
};

class Priority final : public SchedulingPolicy {
 public:
  explicit Priority(Nanos aging)
      : aging_(std::min<Nanos>(aging, 9'000'000'000'000)) {}  // fits x kMostPriority
  // (priority - waited / aging) in units of time; that all wait together drops out.
  int64_t rank(const Sequence& seq) const override { return seq.spec.priority * aging_ + seq.spec.arrived; }

 private:
  Nanos aging_;
};

class Fair final : public SchedulingPolicy {
 public:
  int64_t rank(const Sequence& seq) const override { return tenants_.at(seq.spec.tenant).served; }
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
    // Its first chunk ever: all that will be computed of its prompt, but not again after a preemption.
    const bool is_first = seq.preemptions == 0 && seq.computed == seq.cached_tokens;
    if (is_first) served += seq.prompt_length - seq.computed;
    if (tokens == seq.remaining()) served += 2;  // one is generated
  }
  void ended(const Sequence& seq) override { --tenants_.at(seq.spec.tenant).known; }

 private:
  static constexpr size_t kForgetAbove = 1024;
  struct Tenant {
    int64_t served = 0;
    uint32_t waiting = 0;
    uint32_t known = 0;  // its sequences that have not ended
  };
  /// If nobody waits: what the tenant that left the queue last had got.
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

class Lpm final : public SchedulingPolicy {
 public:
  explicit Lpm(const PrefixCache& cache) : cache_(cache) {}
  int64_t rank(const Sequence& seq) const override {
    if (seq.passed >= kMostPassed) return INT64_MIN;
    cache_.match(seq.tokens, seq.spec.salt, found_);
    return -int64_t{found_.num_rows};
  }
  size_t horizon() const override { return 64; }

 private:
  static constexpr uint32_t kMostPassed = 32;
  const PrefixCache& cache_;
  mutable Prefix found_;
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_policy(SchedulingKind kind, const CostHints& costs, Nanos aging,
                                              const PrefixCache& cache) {
  if (kind == SchedulingKind::kSrpt) return std::make_unique<Srpt>(costs);
  if (kind == SchedulingKind::kSlo) return std::make_unique<Slo>(costs);
  if (kind == SchedulingKind::kPriority) return std::make_unique<Priority>(aging);
  if (kind == SchedulingKind::kFair) return std::make_unique<Fair>();
  if (kind == SchedulingKind::kLpm) return std::make_unique<Lpm>(cache);
  return std::make_unique<Fcfs>();
}

}  // namespace quire
