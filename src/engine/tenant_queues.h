#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire {

/// How many sequences of each tenant wait. One waits from its arrival until the scheduler admits it, and
/// again after a preemption. Two threads: those who submit, and the engine's.
class TenantQueues {
 public:
  // Under the engine's mutex.
  uint32_t count(uint64_t tenant) const;
  /// The same, to be changed; stays where it is until settle().
  uint32_t& waiting(uint64_t tenant) { return waiting_[tenant]; }
  /// Takes in what the engine's thread has noted below. On that thread.
  void settle();

  // The engine's thread, without the mutex: noted, and counted by settle().
  /// So many have left the inbox; add() tells which of them wait on.
  void leave_inbox(uint64_t tenant, uint32_t sequences) { note(tenant, -static_cast<int64_t>(sequences)); }
  void add(SeqId seq, uint64_t tenant);
  /// It has ended. Unknown ones are ignored.
  void remove(SeqId seq);
  void admit(SeqId seq) { move(seq, false); }
  void preempt(SeqId seq) { move(seq, true); }

 private:
  struct Place {
    uint64_t tenant = 0;
    bool waits = true;
  };
  void note(uint64_t tenant, int64_t change) { changes_.emplace_back(tenant, change); }
  void move(SeqId seq, bool waits);

  std::unordered_map<SeqId, Place> places_;
  std::vector<std::pair<uint64_t, int64_t>> changes_;
  std::unordered_map<uint64_t, uint32_t> waiting_;
};

}  // namespace quire
