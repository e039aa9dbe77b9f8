#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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
  /// A request of this tenant arrives, before it is queued; after see(). One that returns starts no lower
  /// than the least served of the waiting tenants.
  void arrives(uint64_t tenant, const control::Scheduler& scheduler);
  /// The tokens that a sequence that was seen may still generate.
  void expect(SeqId seq, uint32_t tokens);
  void forget(SeqId seq);
  /// 0 for a tenant that is not known.
  int64_t served(uint64_t tenant) const;

 private:
  struct Counted {
    uint64_t tenant = 0;
    int64_t tokens = 0;
    uint32_t expected = 0;
  };
  void count(const control::Sequence& seq);
  void forget_tenants(int64_t floor);

  std::map<uint64_t, int64_t> served_;
  std::unordered_map<SeqId, Counted> counted_;  // sequences that were admitted
  int64_t last_ = 0;  // what the tenant had been served whose sequence was admitted last
};

}  // namespace quire::engine
