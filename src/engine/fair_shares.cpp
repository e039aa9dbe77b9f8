#include "engine/fair_shares.h"

#include <algorithm>
#include <optional>
#include <set>

#include "control/sequence.h"

namespace quire::engine {
namespace {

constexpr size_t kForgetAbove = 1024;  // tenants

/// A prompt token that had to be computed counts 1, a generated one 2.
int64_t tokens_of(const control::Sequence& seq) {
  const int64_t generated = seq.spec.max_tokens > 0 ? int64_t{seq.generated()} + seq.pending : 0;
  return int64_t{seq.prompt_length} - *seq.cached_tokens + 2 * generated;
}

}  // namespace

void FairShares::see(const control::Scheduler& scheduler) {
  for (const control::Sequence* seq : scheduler.running()) count(*seq);
  for (const control::Sequence* seq : scheduler.waiting()) count(*seq);
}

void FairShares::count(const control::Sequence& seq) {
  if (!seq.cached_tokens) return;  // it was never admitted
  const auto [found, is_new] = counted_.try_emplace(seq.spec.id, Counted{.tenant = seq.spec.tenant});
  int64_t& served = served_[seq.spec.tenant];
  if (is_new) last_ = served;
  served += tokens_of(seq) - found->second.tokens;
  found->second.tokens = tokens_of(seq);
}

void FairShares::arrives(uint64_t tenant, const control::Scheduler& scheduler) {
  std::optional<int64_t> least;
  bool waits = false;
  for (const control::Sequence* seq : scheduler.waiting()) {
    waits |= seq->spec.tenant == tenant;
    least = std::min(least.value_or(INT64_MAX), served(seq->spec.tenant));
  }
  const int64_t floor = least.value_or(last_);
  if (served_.size() > kForgetAbove) forget_tenants(floor);
  int64_t& served = served_[tenant];
  if (!waits) served = std::max(served, floor);
}

/// Those without sequences that would start at the floor when they return.
void FairShares::forget_tenants(int64_t floor) {
  std::set<uint64_t> known;
  for (const auto& [id, counted] : counted_) known.insert(counted.tenant);
  std::erase_if(served_,
                [&](const auto& each) { return each.second <= floor && !known.contains(each.first); });
}

void FairShares::expect(SeqId seq, uint32_t tokens) {
  const auto found = counted_.find(seq);
  if (found != counted_.end()) found->second.expected = tokens;
}

void FairShares::forget(SeqId seq) {
  const auto found = counted_.find(seq);
  if (found == counted_.end()) return;
  served_[found->second.tenant] += 2 * int64_t{found->second.expected};
  counted_.erase(found);
}

int64_t FairShares::served(uint64_t tenant) const {
  const auto found = served_.find(tenant);
  return found == served_.end() ? 0 : found->second;
}

}  // namespace quire::engine
