#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/ids.h"

namespace quire::engine {

/// How many sequences of each tenant wait. One waits from its arrival until the scheduler admits it, and
/// again after a preemption. Two threads: those who submit, and the engine's. Allocates only in find() and
/// add(), so that the end of a sequence is counted where there is no memory.
class TenantQueues {
 public:
  /// One of which there are sequences.
  class Tenant {
    friend class TenantQueues;
    uint64_t id_ = 0;
    uint32_t waiting_ = 0;  // under the engine's mutex, as is `known_`
    uint32_t known_ = 0;    // sequences that have not ended
    // What settle() will add to these.
    int64_t more_waiting_ = 0;
    int64_t more_known_ = 0;
    Tenant* next_changed_ = nullptr;
    bool changed_ = false;
  };

  // Under the engine's mutex.
  uint32_t count(uint64_t tenant) const;
  /// The record of a tenant, made if there is none: arrive() must follow. It stays where it is until all of
  /// its sequences have ended.
  Tenant& find(uint64_t tenant);
  /// So many are in the inbox.
  static void arrive(Tenant& tenant, uint32_t sequences) noexcept;
  /// Takes in what the engine's thread has noted below. On that thread.
  void settle() noexcept;

  // The engine's thread, without the mutex: noted, and counted by settle().
  /// So many have left the inbox; add() tells which of them wait on.
  void leave_inbox(Tenant& tenant, uint32_t sequences) noexcept;
  void add(SeqId seq, Tenant& tenant);
  /// It has ended. Unknown ones are ignored.
  void remove(SeqId seq) noexcept;
  void admit(SeqId seq) noexcept { move(seq, false); }
  void preempt(SeqId seq) noexcept { move(seq, true); }

 private:
  struct Place {
    Tenant* tenant = nullptr;
    bool waits = true;
  };
  void note(Tenant& tenant, int64_t waiting, int64_t known) noexcept;
  void move(SeqId seq, bool waits) noexcept;

  std::unordered_map<SeqId, Place> places_;
  std::unordered_map<uint64_t, Tenant> tenants_;
  Tenant* changed_ = nullptr;  // the first of those to be settled
};

}  // namespace quire::engine
