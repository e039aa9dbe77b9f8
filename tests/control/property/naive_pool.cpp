#include "tests/control/property/naive_pool.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/kv_windows.h"

namespace quire::test {
namespace {

uint32_t rows_for(uint32_t tokens, uint32_t block_size) { return (tokens + block_size - 1) / block_size; }

}  // namespace

NaivePool::NaivePool(const SchedulerConfig& config)
    : config_(config), groups_(static_cast<uint32_t>(config.kv_windows.size())) {
  for (BlockId block = 0; block < config.num_blocks; ++block) free_.insert(block);
  for (BlockId block = 0; block < config.num_host_blocks; ++block) free_host_.insert(block);
}

template <typename... Args>
void NaivePool::fail(const char* format, const Args&... args) {
  if (error_.empty()) error_ = fmt::format(fmt::runtime(format), args...);
}

// ---- blocks ----

void NaivePool::allocate(BlockId block, SeqId by) {
  if (block >= config_.num_blocks)
    return fail("sequence {} is given block {}, which does not exist", by, block);
  if (is_held(block)) {
    return fail("block {} is given to sequence {}, but sequence {} holds it", block, by,
                *holders_[block].begin());
  }
  if (free_.erase(block) == 0) {
    // Where a plan preempts, blocks were evicted before the victims gave theirs back.
    if (preempts_ == 0 && !free_.empty()) {
      fail("block {} is evicted though {} are free", block, free_.size());
    }
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

void NaivePool::retain(BlockId block, SeqId by) {
  if (!is_held(block) && cached_.erase(block) == 0) {
    return fail("sequence {} takes block {}, which nobody holds and which is not cached", by, block);
  }
  holders_[block].insert(by);
}

void NaivePool::release(BlockId block, SeqId by) {
  auto& holders = holders_[block];
  const auto one = holders.find(by);
  if (one == holders.end()) return fail("sequence {} gives back block {} and does not hold it", by, block);
  holders.erase(one);
  if (!holders.empty()) return;
  holders_.erase(block);
  (published_.contains(block) ? cached_ : free_).insert(block);
}

void NaivePool::leave_behind(Sequence& seq, uint32_t computed) {
  for (uint32_t group = 0; group < groups_; ++group) {
    const uint32_t window = config_.kv_windows[group];
    if (window == 0) continue;
    for (uint32_t row = 0; row < seq.table[group].size(); ++row) {
      BlockId& block = seq.table[group][row];
      // The last computed token is at computed - 1 and reads from computed - window on.
      if (block == kNoBlock || uint64_t{row + 1} * config_.block_size + window > computed) continue;
      release(std::exchange(block, kNoBlock), seq.id);
      ++counts_.left_behind;
    }
  }
}

void NaivePool::clear(Sequence& seq) {
  for (Column& column : seq.table) {
    for (const BlockId block : column) {
      if (block != kNoBlock) release(block, seq.id);
    }
    column.clear();
  }
  seq.changed.clear();
  seq.computed = 0;
}

NaivePool::Contents NaivePool::contents(const Sequence& seq, uint32_t group, uint32_t row) const {
  return {group, seq.salt, seq.text.substr(0, size_t{row + 1} * config_.block_size)};
}

std::set<std::pair<uint32_t, uint32_t>> NaivePool::publish(Sequence& seq, uint32_t from, uint32_t to) {
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
        retain(known->second, seq.id);
        release(std::exchange(own, known->second), seq.id);
        replaced.emplace(group, row);
        ++counts_.deduplicated;
      }
    }
  }
  return replaced;
}

// ---- in and out ----

void NaivePool::add(const SeqSpec& spec, std::span<const TokenId> tokens) {
  Sequence& seq = sequences_[spec.id];
  seq.id = spec.id;
  seq.order = arrivals_++;
  seq.fork_of = spec.fork_of;
  seq.salt = spec.salt;
  for (const TokenId token : tokens) seq.text += static_cast<char>('a' + token);
  seq.prompt = seq.total = static_cast<uint32_t>(spec.prompt.size());
  seq.penalties = spec.sampling.has_penalties();
  seq.table.resize(groups_);
  waiting_.emplace(seq.order, &seq);
}

void NaivePool::end(Sequence& seq) {
  if (seq.slot) {
    clear(seq);
    by_slot_.erase(*seq.slot);
    gone_.insert(*seq.slot);
    std::erase(running_, &seq);
  } else {
    leave_queue(seq);
  }
  sequences_.erase(SeqId{seq.id});
}

void NaivePool::leave_queue(Sequence& seq) {
  waiting_.erase(seq.order);
  give_back_host(seq);
}

void NaivePool::give_back_host(Sequence& seq) {
  for (const Column& column : seq.host) {
    for (const BlockId block : column) {
      if (block != kNoBlock) free_host_.insert(block);
    }
  }
  seq.host.clear();
  seq.swapped = 0;
}

void NaivePool::abort(SeqId id) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) end(found->second);
}

void NaivePool::reset() {
  for (const BlockId block : cached_) {
    index_.erase(published_.at(block));
    published_.erase(block);
    free_.insert(block);
    ++counts_.forgotten;
  }
  cached_.clear();
}

void NaivePool::commit(const StepPlan& plan, const std::vector<SeqEvent>& events) {
  std::map<SeqId, FinishReason> ends;
  for (const SeqEvent& event : events) {
    if (event.finish) ends.emplace(event.id, *event.finish);
  }
  for (const SeqStep& step : plan.seqs) {
    const auto found = by_slot_.find(step.slot);
    if (found == by_slot_.end()) continue;  // aborted meanwhile
    Sequence& seq = *found->second;
    const auto ending = ends.find(seq.id);
    if (ending == ends.end() || ending->second != FinishReason::kError) {
      const uint32_t before = seq.computed;
      seq.computed += static_cast<uint32_t>(step.tokens.size());
      seq.changed.merge(publish(seq, before, seq.computed));
      leave_behind(seq, seq.computed);
      if (step.rows == LogitRows::kLast) ++seq.total;
    }
    if (ending != ends.end()) end(seq);
  }
}

void NaivePool::compare(const StepStats& stats) {
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

// ---- a plan ----

void NaivePool::plan(const StepPlan& plan) {
  preempts_ = moves_out_ = moves_in_ = 0;
  copies_.clear();
  updates_.clear();
  held_before_.clear();
  const bool nobody_ran = running_.empty();
  for (const SlotId slot : plan.removed) {
    if (gone_.erase(slot) > 0) continue;
    const auto found = by_slot_.find(slot);
    if (found == by_slot_.end()) return fail("slot {} is removed and holds nothing", slot);
    if (preempts_++ == 0) held_before_ = holders_;
    preempt(*found->second, plan);
  }
  if (!gone_.empty()) fail("the executor is not told that slot {} is free", *gone_.begin());
  if (preempts_ > 0 && !plan.added.empty()) fail("a sequence comes in while others are preempted");
  if (config_.batching == BatchingKind::kStatic && !plan.added.empty() && !nobody_ran && !batch_fills_) {
    fail("a sequence joins a static batch under way");
  }

  size_t next_added = 0;
  size_t tokens = 0;
  for (const SeqStep& step : plan.seqs) {
    tokens += step.tokens.size();
    if (next_added < plan.added.size() && plan.added[next_added].slot == step.slot) {
      const NewSeq& added = plan.added[next_added++];
      const auto found = sequences_.find(added.sampling.seed);
      if (found == sequences_.end() || found->second.slot) return fail("who does not wait is added");
      admit(found->second, added, plan);
    }
    const auto found = by_slot_.find(step.slot);
    if (found == by_slot_.end()) return fail("slot {} computes and holds nothing", step.slot);
    compute(*found->second, step, plan);
    if (!error_.empty()) return;
  }
  if (next_added != plan.added.size()) fail("a sequence is added and computes nothing");
  if (moves_out_ != plan.moves_out.size()) fail("a block is moved out for nobody");
  if (moves_in_ != plan.moves_in.size()) fail("a block is moved in for nobody");
  if (copies_.size() != plan.copies.size()) fail("a block is copied for nobody");
  std::set<std::tuple<SlotId, uint32_t, uint32_t, BlockId>> updates;
  for (const TableUpdate& update : plan.updates) {
    updates.emplace(update.slot, update.group, update.index, update.block);
  }
  if (updates != updates_)
    fail("{} entries of tables are updated instead of {}", updates.size(), updates_.size());
  const bool budget_is_spent = tokens == config_.max_num_batched_tokens;
  const bool open = config_.batching == BatchingKind::kContinuous || nobody_ran || batch_fills_;
  if (open && preempts_ == 0 && !budget_is_spent) check_order(plan);
  if (preempts_ == 0) {
    batch_fills_ = open && budget_is_spent && !waiting_.empty() && running_.size() < config_.max_num_seqs;
  }
}

/// First come, first served: who is first and has room is not left out.
void NaivePool::check_order(const StepPlan& plan) {
  if (config_.scheduling != SchedulingKind::kFcfs || running_.size() == config_.max_num_seqs) return;
  const Sequence* first = first_in_queue();
  if (first != nullptr && may_come_in(*first, find(*first))) {
    fail("sequence {} waits in step {} though there is room for it", first->id, plan.step);
  }
}

void NaivePool::preempt(Sequence& seq, const StepPlan& plan) {
  ++counts_.preemptions;
  if (++seq.preemptions == 8) ++counts_.protections;
  if (running_.back() != &seq) ++counts_.chosen_victims;
  if (config_.victim == VictimKind::kLastAdmitted) {
    for (size_t i = running_.size(); running_[--i] != &seq;) {
      if (running_[i]->preemptions < 8) {
        fail("sequence {} is preempted before sequence {}, admitted later", seq.id, running_[i]->id);
      }
    }
  }
  uint64_t blocks = 0;
  for (const Column& column : seq.table) {
    blocks += column.size() - static_cast<size_t>(std::ranges::count(column, kNoBlock));
  }
  const Nanos moving = 2 * static_cast<Nanos>(blocks) * config_.costs.swap_block;
  const bool swaps =
      config_.preemption == PreemptionKind::kSwap ||
      (config_.preemption == PreemptionKind::kAuto && moving < seq.computed * config_.costs.prefill_token);
  if (swaps && blocks > free_host_.size()) ++counts_.too_big_to_swap;
  if (swaps && blocks <= free_host_.size()) {
    seq.swapped = seq.computed;
    for (const Column& column : seq.table) {
      Column& host = seq.host.emplace_back();
      for (const BlockId block : column) {
        host.push_back(kNoBlock);
        if (block == kNoBlock) continue;
        if (moves_out_ == plan.moves_out.size() || plan.moves_out[moves_out_].device != block) {
          return fail("block {} of sequence {} is not moved out", block, seq.id);
        }
        host.back() = plan.moves_out[moves_out_++].host;
        if (free_host_.erase(host.back()) == 0) fail("host block {} is in use", host.back());
        ++counts_.swapped_out;
      }
    }
  }
  clear(seq);
  by_slot_.erase(*seq.slot);
  seq.slot.reset();
  std::erase(running_, &seq);
  waiting_.emplace(seq.order, &seq);
}

void NaivePool::admit(Sequence& seq, const NewSeq& added, const StepPlan& plan) {
  ++counts_.admissions;
  const Sequence* first = first_in_queue();
  if (waits_for_parent(seq)) return fail("fork {} comes in before its parent's prompt is computed", seq.id);
  if (first != &seq) {
    ++counts_.overtakes;
    if (config_.scheduling == SchedulingKind::kFcfs)
      fail("sequence {} comes in before {}", seq.id, first->id);
  }
  const Hit hit = find(seq);
  if (!may_come_in(seq, hit)) fail("sequence {} comes in without room for it", seq.id);
  (hit.of_parent ? counts_.forks : counts_.hits) += hit.tokens > 0 ? 1 : 0;
  for (uint32_t group = 0; group < groups_; ++group) {
    seq.table[group] = hit.blocks[group];
    for (const BlockId block : seq.table[group]) {
      if (block != kNoBlock) retain(block, seq.id);
    }
  }
  seq.computed = hit.tokens;
  if (seq.swapped > hit.tokens) swap_in(seq, plan);
  leave_queue(seq);
  if (added.slot >= config_.max_num_seqs || !by_slot_.emplace(added.slot, &seq).second) {
    fail("slot {} is given to sequence {}", added.slot, seq.id);
  }
  seq.slot = added.slot;
  running_.push_back(&seq);

  std::vector<BlockId> blocks;
  for (const Column& column : seq.table) blocks.insert(blocks.end(), column.begin(), column.end());
  if (added.blocks != blocks)
    fail("sequence {} comes in with other blocks than hold its first tokens", seq.id);
  if (added.prompt_length != seq.prompt) fail("sequence {} comes in with another prompt", seq.id);
  std::string history;
  for (const TokenId token : added.history) history += static_cast<char>('a' + token);
  if (history != (seq.penalties ? seq.text.substr(0, seq.total) : "")) fail("a wrong history");
}

void NaivePool::swap_in(Sequence& seq, const StepPlan& plan) {
  leave_behind(seq, seq.swapped);
  const size_t rows = seq.host[0].size();
  for (size_t row = seq.table[0].size(); row < rows; ++row) {
    for (uint32_t group = 0; group < groups_; ++group) {
      seq.table[group].push_back(kNoBlock);
      const BlockId host = seq.host[group][row];
      if (host == kNoBlock) continue;
      if (moves_in_ == plan.moves_in.size() || plan.moves_in[moves_in_].host != host) {
        return fail("host block {} of sequence {} is not moved in", host, seq.id);
      }
      seq.table[group].back() = plan.moves_in[moves_in_++].device;
      allocate(seq.table[group].back(), seq.id);
      ++counts_.swapped_in;
    }
  }
  publish(seq, std::exchange(seq.computed, seq.swapped), seq.swapped);
}

void NaivePool::compute(Sequence& seq, const SeqStep& step, const StepPlan& plan) {
  if (step.first_position != seq.computed) {
    return fail("sequence {} computes from {} on and has {} tokens", seq.id, step.first_position,
                seq.computed);
  }
  const uint32_t end = seq.computed + static_cast<uint32_t>(step.tokens.size());
  const size_t known = seq.table[0].size();
  const size_t rows = rows_for(end, config_.block_size);
  if (end > seq.total || rows < known || step.new_blocks.size() != (rows - known) * groups_) {
    return fail("sequence {} computes up to {} with {} new blocks", seq.id, end, step.new_blocks.size());
  }
  if ((step.rows == LogitRows::kLast) != (end == seq.total)) fail("sequence {} samples at {}", seq.id, end);
  const uint32_t first = seq.computed / config_.block_size;
  for (uint32_t group = 0; group < groups_; ++group) {
    if (first < known) copy_if_needed(seq, group, first, plan);
    for (size_t row = known; row < rows; ++row) {
      const BlockId block = step.new_blocks[group * (rows - known) + row - known];
      allocate(block, seq.id);
      seq.table[group].push_back(block);
    }
  }
  for (const auto& [group, row] : std::exchange(seq.changed, {})) {
    const BlockId block = seq.table[group][row];
    if (block != kNoBlock) updates_.emplace(*seq.slot, group, row, block);
  }
}

/// A block that is written to belongs to one sequence and is not published.
void NaivePool::copy_if_needed(Sequence& seq, uint32_t group, uint32_t row, const StepPlan& plan) {
  BlockId& own = seq.table[group][row];
  if (own == kNoBlock) return fail("sequence {} writes to a block that it gave back", seq.id);
  const bool must = holders_[own].size() > 1 || published_.contains(own);
  // Who shared it may have been preempted only after the copy was made.
  const auto before = held_before_.find(own);
  const bool may = must || (before != held_before_.end() && before->second.size() > 1);
  if (!may) return;
  for (const TableUpdate& update : plan.updates) {
    if (update.slot != *seq.slot || update.group != group || update.index != row) continue;
    for (size_t i = 0; i < plan.copies.size(); ++i) {
      if (plan.copies[i] != BlockCopy{own, update.block} || !copies_.insert(i).second) continue;
      ++counts_.copies;
      allocate(update.block, seq.id);
      release(std::exchange(own, update.block), seq.id);
      seq.changed.emplace(group, row);
      return;
    }
  }
  if (must) fail("sequence {} writes to block {} without a copy", seq.id, own);
}

// ---- what there is for who comes in ----

/// A token at `position` reads keys of this row.
bool NaivePool::reads(uint32_t group, uint32_t row, uint32_t position) const {
  const uint32_t window = config_.kv_windows[group];
  return window == 0 || uint64_t{row + 1} * config_.block_size + window > uint64_t{position} + 1;
}

/// Of a fork that has no tokens of its own yet.
const NaivePool::Sequence* NaivePool::parent_of(const Sequence& seq) const {
  if (!seq.fork_of || seq.total > seq.prompt) return nullptr;
  const auto parent = sequences_.find(*seq.fork_of);
  return parent != sequences_.end() && parent->second.order < seq.order ? &parent->second : nullptr;
}

bool NaivePool::waits_for_parent(const Sequence& seq) const {
  const Sequence* parent = parent_of(seq);
  return parent != nullptr && parent->computed < seq.prompt;
}

const NaivePool::Sequence* NaivePool::first_in_queue() const {
  for (const auto& [order, seq] : waiting_) {
    if (!waits_for_parent(*seq)) return seq;
  }
  return nullptr;
}

NaivePool::Hit NaivePool::find(const Sequence& seq) const {
  if (auto hit = find_in_parent(seq)) return *hit;
  return find_in_index(seq);
}

/// All of the prompt but its last token, if the parent still holds what that reads.
std::optional<NaivePool::Hit> NaivePool::find_in_parent(const Sequence& seq) const {
  const Sequence* parent = parent_of(seq);
  if (parent == nullptr) return std::nullopt;
  Hit hit{.tokens = seq.prompt - 1, .blocks = {}, .of_parent = true};
  for (uint32_t group = 0; group < groups_; ++group) {
    Column& column = hit.blocks.emplace_back();
    for (uint32_t row = 0; row < rows_for(hit.tokens, config_.block_size); ++row) {
      const bool needed = reads(group, row, hit.tokens);
      if (needed && parent->table[group][row] == kNoBlock) return std::nullopt;
      column.push_back(needed ? parent->table[group][row] : kNoBlock);
    }
  }
  return hit;
}

NaivePool::Hit NaivePool::find_in_index(const Sequence& seq) const {
  const uint32_t size = config_.block_size;
  const uint32_t most = (seq.total - 1) / size;
  std::vector<Column> there(groups_, Column(most, kNoBlock));
  for (uint32_t group = 0; group < groups_; ++group) {
    for (uint32_t row = 0; row < most; ++row) {
      const auto found = index_.find(contents(seq, group, row));
      if (found != index_.end()) there[group][row] = found->second;
    }
  }
  for (uint32_t rows = most; rows > 0; --rows) {
    Hit hit{.tokens = rows * size, .blocks = {}};
    bool whole = true;
    bool reads_any = false;
    for (uint32_t group = 0; group < groups_; ++group) {
      Column& column = hit.blocks.emplace_back();
      for (uint32_t row = 0; row < rows; ++row) {
        const bool needed = reads(group, row, hit.tokens);
        reads_any = reads_any || needed;
        whole = whole && (!needed || there[group][row] != kNoBlock);
        column.push_back(needed ? there[group][row] : kNoBlock);
      }
    }
    // Where the windows are so short that nothing is read, the index must still know of these tokens.
    if (whole && (reads_any || is_known(seq.salt, seq.text.substr(0, hit.tokens)))) return hit;
  }
  return {.tokens = 0, .blocks = std::vector<Column>(groups_)};
}

bool NaivePool::is_known(uint64_t salt, const std::string& prefix) const {
  const bool in_block = std::ranges::any_of(index_, [&](const auto& entry) {
    return entry.first.salt == salt && entry.first.prefix.starts_with(prefix);
  });
  return in_block || std::ranges::any_of(running_, [&](const Sequence* other) {
           const size_t published = other->computed / config_.block_size * config_.block_size;
           return config_.enable_prefix_caching && other->salt == salt && published >= prefix.size() &&
                  other->text.starts_with(prefix);
         });
}

bool NaivePool::may_come_in(const Sequence& seq, const Hit& hit) const {
  if (running_.empty()) return true;
  const uint32_t size = config_.block_size;
  const uint32_t first_new = hit.tokens / size * size;
  const uint32_t chunk = std::min(config_.max_num_batched_tokens, seq.total - hit.tokens);
  uint64_t needed = blocks_held(config_.kv_windows, seq.total - first_new, chunk, size);
  for (const Column& column : hit.blocks) {
    for (const BlockId block : column) needed += block != kNoBlock && !is_held(block) ? 1 : 0;
  }
  const uint64_t watermark = std::min<uint64_t>(
      (uint64_t{config_.num_blocks} * config_.watermark_bp + 9999) / 10000, config_.num_blocks);
  return needed + watermark <= free_.size() + cached_.size();
}

}  // namespace quire::test
