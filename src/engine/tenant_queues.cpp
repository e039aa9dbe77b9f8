#include "engine/tenant_queues.h"

namespace quire {

uint32_t TenantQueues::count(uint64_t tenant) const {
  const auto found = waiting_.find(tenant);
  return found == waiting_.end() ? 0 : found->second;
}

void TenantQueues::settle() {
  for (const auto& [tenant, change] : changes_) {
    uint32_t& count = waiting_[tenant];
    count = static_cast<uint32_t>(count + change);
  }
  // Afterwards, as an early change may take to 0 what a later one adds to.
  for (const auto& [tenant, change] : changes_) {
    const auto found = waiting_.find(tenant);
    if (found != waiting_.end() && found->second == 0) waiting_.erase(found);
  }
  changes_.clear();
}

void TenantQueues::add(SeqId seq, uint64_t tenant) {
  places_[seq] = {tenant};
  note(tenant, 1);
}

void TenantQueues::remove(SeqId seq) {
  const auto found = places_.find(seq);
  if (found == places_.end()) return;
  if (found->second.waits) note(found->second.tenant, -1);
  places_.erase(found);
}

void TenantQueues::move(SeqId seq, bool waits) {
  const auto found = places_.find(seq);
  if (found == places_.end() || found->second.waits == waits) return;
  found->second.waits = waits;
  note(found->second.tenant, waits ? 1 : -1);
}

}  // namespace quire
