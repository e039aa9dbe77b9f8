#include "record/evictions.h"

#include <algorithm>
#include <utility>

namespace quire::record {
namespace {

/// `before`: the key of the block before, or the salt.
uint64_t key_of(std::span<const TokenId> block, uint64_t before) {
  return std::max<uint64_t>(control::PrefixCache::xxh3(block, before), 1);
}

}  // namespace

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
    Tracked& seq =
        added_.emplace(add->spec.id, Tracked{.index = num_added_++, .salt = add->spec.salt}).second;
    append(seq, add->spec.prompt);
  } else if (const auto* commit = std::get_if<RunCommit>(&event)) {
    take(*commit, state);
  } else if (const auto* cached = std::get_if<RunCached>(&event)) {
    take(*cached);
  }
}

void EvictionBook::take(const RunCached& cached) {
  std::vector<uint64_t> keys;
  for (const PrefixNode& node : cached.nodes) {
    const uint64_t before = node.parent == PrefixNode::kRoot ? node.salt : keys[node.parent];
    keys.push_back(key_of(node.tokens, before));
    if (node.blocks.front() != kNoBlock) contents_[node.blocks.front()] = keys.back();
  }
}

void EvictionBook::append(Tracked& seq, std::span<const TokenId> tokens) const {
  seq.length += tokens.size();
  const auto add_key = [&](std::span<const TokenId> block) {
    seq.keys.push_back(key_of(block, seq.keys.empty() ? seq.salt : seq.keys.back()));
  };
  if (!seq.tail.empty()) {
    const size_t more = std::min<size_t>(tokens.size(), block_size_ - seq.tail.size());
    seq.tail.insert(seq.tail.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(more));
    tokens = tokens.subspan(more);
    if (seq.tail.size() < block_size_) return;
    add_key(seq.tail);
    seq.tail.clear();
  }
  for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    add_key(tokens.first(block_size_));
  }
  seq.tail.assign(tokens.begin(), tokens.end());
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
    Tracked* found = sequences_.find(parts[i].id);
    if (found == nullptr || commit.results[i].failed) continue;
    Tracked& seq = *found;
    if (state.runs_on(parts[i])) {
      const uint32_t before = seq.computed;
      seq.computed += parts[i].tokens;
      publish(seq, before / block_size_, seq.computed / block_size_);
    }
    if (commit.results[i].token) append(seq, std::span(&*commit.results[i].token, 1));
  }
}

/// Counts what the prefix index would have had without evictions.
void EvictionBook::admit(Tracked& seq, uint32_t computed) {
  seq.running = true;
  seq.computed = std::min(computed, static_cast<uint32_t>(seq.length));
  const size_t end = std::min(seq.keys.size(), (seq.length - 1) / block_size_);
  for (size_t row = seq.computed / block_size_; row < end; ++row) {
    if (evicted_.erase(seq.keys[row])) ++needed_by_[seq.index];
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
    if (contents_.at(decision.a) == 0) return;
    const uint64_t key = std::exchange(contents_[decision.a], 0);
    if (!resetting_) evicted_.insert(key);
    return;
  }
  if (decision.kind == control::DecisionKind::kAdd && added_ && added_->first == decision.seq) {
    sequences_.try_emplace(decision.seq, std::move(added_->second));
    added_.reset();
    return;
  }
  if (decision.kind == control::DecisionKind::kChunk || decision.kind == control::DecisionKind::kSkip) return;
  Tracked* found = sequences_.find(decision.seq);
  if (found == nullptr) return;
  Tracked& seq = *found;
  switch (decision.kind) {
    case control::DecisionKind::kAllocate:
      if (contents_.at(decision.a) != 0) contents_[decision.a] = 0;
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
      sequences_.erase(decision.seq);
      break;
    default:
      break;
  }
}

}  // namespace quire::record
