#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/ids.h"

namespace quire::engine {

/// How many sequences of each tenant wait. A sequence waits from its arrival until the scheduler admits it,
/// and again after a preemption. Used by the threads that submit, and by the engine thread. Allocates only in
/// find() and add(), so that the end of a sequence is counted even without memory.
class TenantQueues {
 public:
  /// A tenant that has sequences.
  class Tenant {
    friend class TenantQueues;
    uint64_t id_ = 0;
    uint32_t waiting_ = 0;  // guarded by the engine's mutex, as is `known_`
    uint32_t known_ = 0;    // sequences that have not ended
    // What settle() will add to the two.
    int64_t more_waiting_ = 0;
    int64_t more_known_ = 0;
    Tenant* next_changed_ = nullptr;
    bool changed_ = false;
  };

  // REQUIRES: the engine's mutex is held.
  uint32_t count(uint64_t tenant) const;
  /// The entry of a tenant, created if there is none: arrive() must follow. Its address stays valid until all
  /// of its sequences have ended.
  Tenant& find(uint64_t tenant);
  /// `sequences` more are in the inbox.
  static void arrive(Tenant& tenant, uint32_t sequences) noexcept;
  /// Applies the changes that the engine thread has noted with the calls below. On the engine thread.
  void settle() noexcept;

  // On the engine thread, without the mutex; the changes are counted by settle().
  /// `sequences` have left the inbox; add() says which of them keep waiting.
  void leave_inbox(Tenant& tenant, uint32_t sequences) noexcept;
  void add(SeqId seq, Tenant& tenant);
  /// The sequence has ended. Unknown ids are ignored.
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
  Tenant* changed_ = nullptr;  // the first of a list to be settled
};

}  // namespace quire::engine
