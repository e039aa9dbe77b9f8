#include "engine/tenant_queues.h"

#include <utility>

namespace quire::engine {

uint32_t TenantQueues::count(uint64_t tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.waiting_;
}

TenantQueues::Tenant& TenantQueues::find(uint64_t tenant) {
  Tenant& out = tenants_[tenant];
  out.id_ = tenant;
  return out;
}

void TenantQueues::arrive(Tenant& tenant, uint32_t sequences) noexcept {
  tenant.waiting_ += sequences;
  tenant.known_ += sequences;
}

void TenantQueues::settle() noexcept {
  while (changed_ != nullptr) {
    Tenant& tenant = *std::exchange(changed_, changed_->next_changed_);
    tenant.changed_ = false;
    tenant.waiting_ = static_cast<uint32_t>(tenant.waiting_ + std::exchange(tenant.more_waiting_, 0));
    tenant.known_ = static_cast<uint32_t>(tenant.known_ + std::exchange(tenant.more_known_, 0));
    if (tenant.known_ == 0) tenants_.erase(uint64_t{tenant.id_});
  }
}

void TenantQueues::leave_inbox(Tenant& tenant, uint32_t sequences) noexcept {
  note(tenant, -int64_t{sequences}, -int64_t{sequences});
}

void TenantQueues::add(SeqId seq, Tenant& tenant) {
  places_[seq] = {&tenant};
  note(tenant, 1, 1);
}

void TenantQueues::remove(SeqId seq) noexcept {
  const auto found = places_.find(seq);
  if (found == places_.end()) return;
  note(*found->second.tenant, found->second.waits ? -1 : 0, -1);
  places_.erase(found);
}

void TenantQueues::move(SeqId seq, bool waits) noexcept {
  const auto found = places_.find(seq);
  if (found == places_.end() || found->second.waits == waits) return;
  found->second.waits = waits;
  note(*found->second.tenant, waits ? 1 : -1, 0);
}

void TenantQueues::note(Tenant& tenant, int64_t waiting, int64_t known) noexcept {
  tenant.more_waiting_ += waiting;
  tenant.more_known_ += known;
  if (std::exchange(tenant.changed_, true)) return;
  tenant.next_changed_ = std::exchange(changed_, &tenant);
}

}  // namespace quire::engine
