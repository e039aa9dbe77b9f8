#include "tests/control/property/naive_model.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "control/kv/windows.h"

namespace quire::test {
NaiveModel::NaiveModel(const control::SchedulerConfig& config)
    : config_(config), groups_(static_cast<uint32_t>(config.kv_windows.size())) {
  for (BlockId block = 0; block < config.num_blocks; ++block) free_.insert(block);
  for (BlockId block = 0; block < config.num_host_blocks; ++block) free_host_.insert(block);
}

// ---- blocks ----

void NaiveModel::allocate(BlockId block, SeqId by) {
  if (block >= config_.num_blocks)
    return fail("sequence {} is given block {}, which does not exist", by, block);
  if (is_held(block)) {
    return fail("block {} is given to sequence {}, but sequence {} holds it", block, by,
                *holders_[block].begin());
  }
  if (free_.erase(block) == 0) {
    if (!free_.empty()) fail("block {} is evicted though {} are free", block, free_.size());
    const Contents old = published_.at(block);
    const auto after = index_.upper_bound(old);
    if (config_.kv_windows[old.group] == 0 && after != index_.end() && after->first.group == old.group &&
        after->first.salt == old.salt && after->first.prefix.starts_with(old.prefix)) {
      fail("block {} is evicted before block {}, which comes after it in its chain", block, after->second);
    }
    index_.erase(old);
    published_.erase(block);
    cached_.erase(block);
    ++counts_.evictions;
  }
  holders_[block].insert(by);
}

void NaiveModel::retain(BlockId block, SeqId by) {
  if (!is_held(block) && cached_.erase(block) == 0) {
    return fail("sequence {} takes block {}, which nobody holds and which is not cached", by, block);
  }
  holders_[block].insert(by);
}

void NaiveModel::release(BlockId block, SeqId by) {
  auto& holders = holders_[block];
  const auto one = holders.find(by);
  if (one == holders.end()) return fail("sequence {} gives back block {} and does not hold it", by, block);
  holders.erase(one);
  if (!holders.empty()) return;
  holders_.erase(block);
  (published_.contains(block) ? cached_ : free_).insert(block);
}

void NaiveModel::leave_behind(Sequence& seq, uint32_t computed) {
  for (uint32_t group = 0; group < groups_; ++group) {
    const uint32_t window = config_.kv_windows[group];
    if (window == 0) continue;
    for (uint32_t row = 0; row < seq.table[group].size(); ++row) {
      BlockId& block = seq.table[group][row];
      // The last computed token is at computed - 1 and reads from computed - window on.
      if (block == kNoBlock || uint64_t{row + 1} * config_.block_size + window > computed) continue;
      release(std::exchange(block, kNoBlock), seq.id());
      ++counts_.left_behind;
    }
  }
}

void NaiveModel::clear(Sequence& seq) {
  for (Column& column : seq.table) {
    for (const BlockId block : column) {
      if (block != kNoBlock) release(block, seq.id());
    }
    column.clear();
  }
  seq.changed.clear();
  seq.computed = seq.in_flight = 0;
}

NaiveModel::Contents NaiveModel::contents(const Sequence& seq, uint32_t group, uint32_t row) const {
  return {group, seq.spec.salt, seq.text.substr(0, size_t{row + 1} * config_.block_size)};
}

std::set<std::pair<uint32_t, uint32_t>> NaiveModel::publish(Sequence& seq, uint32_t from, uint32_t to) {
  std::set<std::pair<uint32_t, uint32_t>> replaced;
  if (!config_.enable_prefix_caching) return replaced;
  for (uint32_t row = from / config_.block_size; row < to / config_.block_size; ++row) {
    for (uint32_t group = 0; group < groups_; ++group) {
      BlockId& own = seq.table[group][row];
      if (own == kNoBlock) continue;
      const auto [known, is_new] = index_.emplace(contents(seq, group, row), own);
      if (is_new) {
        published_.emplace(own, known->first);
      } else if (known->second != own) {
        retain(known->second, seq.id());
        release(std::exchange(own, known->second), seq.id());
        replaced.emplace(group, row);
        ++counts_.deduplicated;
      }
    }
  }
  return replaced;
}

// ---- in and out ----

void NaiveModel::add(const control::SeqSpec& spec, std::span<const TokenId> tokens) {
  Sequence& seq = sequences_[spec.id];
  seq.spec = spec;
  seq.order = arrivals_++;
  for (const TokenId token : tokens) seq.text += static_cast<char>('a' + token);
  seq.prompt = seq.total = static_cast<uint32_t>(spec.prompt.size());
  if (spec.wants.any()) seq.lacks = seq.prompt - 1;
  if (spec.wants.logprobs >= 0) seq.lacks = std::min(seq.prompt - 1, spec.wants.first_row);
  seq.table.resize(groups_);
  join_queue(seq);
}

void NaiveModel::join_queue(Sequence& seq) {
  int64_t least = INT64_MAX;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.waiting > 0) least = std::min(least, tenant.served);
  }
  if (waiting_.empty()) least = served_last_;
  Tenant& own = tenants_[seq.spec.tenant];
  if (own.waiting++ == 0) own.served = std::max(own.served, least);
  waiting_.emplace(seq.order, &seq);
}

void NaiveModel::end(Sequence& seq) {
  if (seq.slot) {
    clear(seq);
    by_slot_.erase(*seq.slot);
    gone_.insert(*seq.slot);
    std::erase(running_, &seq);
  } else {
    leave_queue(seq);
  }
  sequences_.erase(SeqId{seq.id()});
}

void NaiveModel::leave_queue(Sequence& seq) {
  waiting_.erase(seq.order);
  Tenant& own = tenants_.at(seq.spec.tenant);
  --own.waiting;
  served_last_ = own.served;
  for (const Column& column : seq.host) {
    for (const BlockId block : column) {
      if (block != kNoBlock) free_host_.insert(block);
    }
  }
  seq.host.clear();
  seq.swapped = 0;
}

void NaiveModel::abort(SeqId id) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) end(found->second);
}

void NaiveModel::reset() {
  for (const BlockId block : cached_) {
    index_.erase(published_.at(block));
    published_.erase(block);
    free_.insert(block);
    ++counts_.forgotten;
  }
  cached_.clear();
}

void NaiveModel::commit(const control::StepPlan& plan, const std::vector<control::SeqEvent>& events) {
  std::map<SeqId, control::FinishReason> ends;
  for (const control::SeqEvent& event : events) {
    if (event.finish) ends.emplace(event.id, *event.finish);
  }
  for (const control::PromptStep& part : plan.prompts) {
    const control::SeqStep& step = plan.seqs[part.seq];
    const auto found = sequences_.find(owners_.at({step.slot, step.generation}));
    if (found == sequences_.end()) continue;
    Sequence& seq = found->second;
    --seq.yields;
    seq.lacks = part.end_row;
    if (step.first_position + step.tokens.size() == seq.prompt) seq.lacks.reset();
  }
  for (const control::SeqStep& step : plan.seqs) {
    const auto found = sequences_.find(owners_.at({step.slot, step.generation}));
    if (found == sequences_.end()) continue;  // it has ended
    Sequence& seq = found->second;
    const bool samples = step.rows != control::LogitRows::kNone;
    const bool runs_on = seq.slot == step.slot && seq.generation == step.generation;
    const auto ending = ends.find(seq.id());
    if (!runs_on && !samples && ending == ends.end()) continue;  // it was preempted, and that was for nothing
    if (ending == ends.end() || ending->second != control::FinishReason::kError) {
      if (runs_on) {
        const auto count = static_cast<uint32_t>(step.tokens.size());
        const uint32_t before = seq.computed;
        seq.computed += count;
        seq.in_flight -= count;
        seq.changed.merge(publish(seq, before, seq.computed));
        leave_behind(seq, seq.computed);
      }
      if (samples) {
        ++seq.total;
        --seq.pending;
      }
    }
    if (ending != ends.end()) end(seq);
  }
}

void NaiveModel::compare(const control::StepStats& stats) {
  uint64_t shared = 0;
  uint64_t saved = 0;
  for (const auto& [block, holders] : holders_) {
    shared += holders.size() > 1 ? 1 : 0;
    saved += holders.size() - 1;
  }
  uint64_t unused = 0;
  for (const Sequence* seq : running_) {
    unused += groups_ * (seq->table[0].size() * config_.block_size - seq->computed);
  }
  const auto same = [&](const char* what, uint64_t counted, uint64_t expected) {
    if (counted != expected) fail("the scheduler counts {} {}, there are {}", counted, what, expected);
  };
  same("running sequences", stats.running, running_.size());
  same("waiting sequences", stats.waiting, waiting_.size());
  same("referenced blocks", stats.blocks_referenced, holders_.size());
  same("cached blocks", stats.blocks_cached, cached_.size());
  same("free blocks", stats.blocks_total - stats.blocks_referenced - stats.blocks_cached, free_.size());
  same("shared blocks", stats.blocks_shared, shared);
  same("blocks saved by sharing", stats.blocks_saved, saved);
  same("unused places", stats.slots_unused, unused);
  same("host blocks in use", stats.host_blocks_used, config_.num_host_blocks - free_host_.size());
  same("evictions", stats.total_evictions, counts_.evictions);
}

}  // namespace quire::test
