#include "engine/fair_shares.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

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
  std::optional<int64_t> least;
  for (const control::Sequence* seq : scheduler.waiting()) {
    least = std::min(least.value_or(INT64_MAX), served(seq->spec.tenant));
  }
  floor_ = least.value_or(last_);
  if (served_.size() > kForgetAbove) forget_tenants(scheduler);
}

void FairShares::count(const control::Sequence& seq) {
  if (!seq.cached_tokens) return;  // it was never admitted
  const auto [found, is_new] = counted_.try_emplace(seq.spec.id, Counted{.tenant = seq.spec.tenant});
  int64_t& served = served_[seq.spec.tenant];
  if (is_new) last_ = served;
  served += tokens_of(seq) - found->second.tokens;
  found->second.tokens = tokens_of(seq);
}

/// For a tenant that waits the floor changes nothing: it is one of those of whom the floor is the least.
int64_t FairShares::starts_at(uint64_t tenant) const { return std::max(served(tenant), floor_); }

/// Those without sequences that would start at the floor when they return.
void FairShares::forget_tenants(const control::Scheduler& scheduler) {
  std::unordered_set<uint64_t> known;
  for (const auto& [id, counted] : counted_) known.insert(counted.tenant);
  for (const control::Sequence* seq : scheduler.waiting()) known.insert(seq->spec.tenant);
  std::erase_if(served_,
                [&](const auto& each) { return each.second <= floor_ && !known.contains(each.first); });
}

void FairShares::expect(SeqId seq, uint32_t tokens) {
  const auto found = counted_.find(seq);
  if (found != counted_.end()) found->second.at_end = found->second.tokens + 2 * int64_t{tokens};
}

void FairShares::forget(SeqId seq) {
  const auto found = counted_.find(seq);
  if (found == counted_.end()) return;
  const Counted& ended = found->second;
  served_[ended.tenant] += std::max<int64_t>(ended.at_end - ended.tokens, 0);
  counted_.erase(found);
}

int64_t FairShares::served(uint64_t tenant) const {
  const auto found = served_.find(tenant);
  return found == served_.end() ? 0 : found->second;
}

}  // namespace quire::engine
