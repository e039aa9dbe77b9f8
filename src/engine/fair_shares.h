#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/ids.h"
#include "control/scheduler.h"

namespace quire::engine {

/// How much each tenant was served, as the policy `fair` counts it (control/policy/fair.cpp), found out from
/// what a scheduler shows of its sequences. What ends is taken to have generated what was expected of it.
/// Not thread-safe.
class FairShares {
 public:
  /// Counts what has been computed since the last call.
  void see(const control::Scheduler& scheduler);
  /// What a tenant was served once a request of it that arrives now is queued; after see(). One that returns
  /// starts no lower than the least served of the waiting tenants.
  int64_t starts_at(uint64_t tenant) const;
  /// A request of this tenant is queued; after see().
  void arrives(uint64_t tenant) { served_[tenant] = starts_at(tenant); }
  /// The tokens that a sequence that see() has just seen may still generate.
  void expect(SeqId seq, uint32_t tokens);
  void forget(SeqId seq);
  /// 0 for a tenant that is not known.
  int64_t served(uint64_t tenant) const;

 private:
  struct Counted {
    uint64_t tenant = 0;
    int64_t tokens = 0;
    int64_t at_end = 0;  // what `tokens` is expected to be then
  };
  void count(const control::Sequence& seq);
  void forget_tenants(const control::Scheduler& scheduler);

  std::unordered_map<uint64_t, int64_t> served_;
  std::unordered_map<SeqId, Counted> counted_;  // sequences that were admitted
  int64_t last_ = 0;   // what the tenant had been served whose sequence was admitted last
  int64_t floor_ = 0;  // what the least served of the waiting tenants was served; if none waits, last_
};

}  // namespace quire::engine
