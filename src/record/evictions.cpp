#include "record/evictions.h"

#include <algorithm>
#include <utility>

namespace quire::record {

EvictionBook::EvictionBook(const control::SchedulerConfig& config)
    : knows_(config.enable_prefix_caching && config.kv_windows == std::vector<uint32_t>{0}),
      block_size_(config.block_size) {}

void EvictionBook::take(const RunEvent& event, const RunState& state) {
  if (!knows_) return;
  if (const auto* decision = std::get_if<control::Decision>(&event)) return take(*decision);
  if (std::holds_alternative<control::Cause>(event)) return;
  added_.reset();
  resetting_ = std::holds_alternative<RunReset>(event);
  if (const auto* add = std::get_if<RunAdd>(&event)) {
    added_.emplace(add->spec.id,
                   Tracked{.index = num_added_++, .salt = add->spec.salt, .tokens = add->spec.prompt});
  } else if (const auto* commit = std::get_if<RunCommit>(&event)) {
    take(*commit, state);
  }
}

void EvictionBook::add_keys(Tracked& seq) const {
  for (size_t row = seq.keys.size(); (row + 1) * block_size_ <= seq.tokens.size(); ++row) {
    const uint64_t before = row == 0 ? seq.salt : seq.keys.back();
    seq.keys.push_back(
        control::PrefixCache::xxh3(std::span(seq.tokens).subspan(row * block_size_, block_size_), before));
  }
}

void EvictionBook::publish(const Tracked& seq, size_t from, size_t to) {
  for (size_t row = from; row < std::min({to, seq.blocks.size(), seq.keys.size()}); ++row) {
    contents_[seq.blocks[row]] = seq.keys[row];
    evicted_.erase(seq.keys[row]);
  }
}

void EvictionBook::take(const RunCommit& commit, const RunState& state) {
  const std::vector<PlannedPart>& parts = state.parts_of(commit);
  for (size_t i = 0; i < std::min(commit.results.size(), parts.size()); ++i) {
    const auto found = sequences_.find(parts[i].id);
    if (found == sequences_.end() || commit.results[i].failed) continue;
    Tracked& seq = found->second;
    if (state.runs_on(parts[i])) {
      const uint32_t before = seq.computed;
      seq.computed += parts[i].tokens;
      publish(seq, before / block_size_, seq.computed / block_size_);
    }
    if (!commit.results[i].token) continue;
    seq.tokens.push_back(*commit.results[i].token);
    add_keys(seq);
  }
}

/// Counts what the prefix index would have had without evictions.
void EvictionBook::admit(Tracked& seq, uint32_t computed) {
  seq.running = true;
  seq.computed = std::min(computed, static_cast<uint32_t>(seq.tokens.size()));
  const size_t end = std::min(seq.keys.size(), (seq.tokens.size() - 1) / block_size_);
  for (size_t row = seq.computed / block_size_; row < end; ++row) {
    if (evicted_.erase(seq.keys[row]) > 0) ++needed_by_[seq.index];
  }
  publish(seq, 0, seq.computed / block_size_);  // blocks moved back from the host are new
}

/// The last of its table first, except a block that another block replaces.
void EvictionBook::release(Tracked& seq, BlockId block) {
  const auto own = std::find(seq.blocks.rbegin(), seq.blocks.rend(), block);
  if (own == seq.blocks.rend()) return;
  if (seq.stand_in) {
    *own = *std::exchange(seq.stand_in, std::nullopt);
  } else {
    seq.blocks.erase(std::next(own).base());
  }
}

void EvictionBook::take(const control::Decision& decision) {
  if (decision.kind == control::DecisionKind::kEvict) {
    const auto found = contents_.find(decision.a);
    if (found == contents_.end()) return;
    if (!resetting_) evicted_.insert(found->second);
    contents_.erase(found);
    return;
  }
  if (decision.kind == control::DecisionKind::kAdd && added_ && added_->first == decision.seq) {
    const auto [place, is_new] = sequences_.try_emplace(decision.seq, std::move(added_->second));
    if (is_new) add_keys(place->second);
    added_.reset();
    return;
  }
  const auto found = sequences_.find(decision.seq);
  if (found == sequences_.end()) return;
  Tracked& seq = found->second;
  switch (decision.kind) {
    case control::DecisionKind::kAllocate:
      contents_.erase(decision.a);
      seq.blocks.push_back(decision.a);
      break;
    case control::DecisionKind::kShare:
      if (seq.running) {
        seq.stand_in = decision.a;
      } else {
        seq.blocks.push_back(decision.a);
      }
      break;
    case control::DecisionKind::kRelease:
      release(seq, decision.a);
      break;
    case control::DecisionKind::kAdmit:
      admit(seq, decision.b);
      break;
    case control::DecisionKind::kPreempt:
      seq.running = false;
      seq.computed = 0;
      break;
    case control::DecisionKind::kFinish:
      sequences_.erase(found);
      break;
    default:
      break;
  }
}

}  // namespace quire::record
