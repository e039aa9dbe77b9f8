#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "control/kv/windows.h"
#include "tests/control/property/naive_model.h"

// The part of NaiveModel that follows a plan.
namespace quire::test {
namespace {

uint32_t rows_for(uint32_t tokens, uint32_t block_size) { return (tokens + block_size - 1) / block_size; }

uint64_t count_blocks(const std::vector<std::vector<BlockId>>& table) {
  uint64_t count = 0;
  for (const auto& column : table) {
    count += column.size() - static_cast<size_t>(std::ranges::count(column, kNoBlock));
  }
  return count;
}

}  // namespace

void NaiveModel::plan(const control::StepPlan& plan) {
  preempted_ = steps_ = prompts_ = added_ = moved_out_ = moved_in_ = copied_ = 0;
  budget_ = std::max(std::min(wanted_budget_, config_.max_num_batched_tokens), config_.max_num_seqs);
  updates_.clear();
  for (Sequence* seq : running_) seq->planned = false;
  if (running_.empty()) batch_open_ = true;

  plan_decodes(plan);
  plan_prefill(plan);
  const bool continuous = config_.batching == control::BatchingKind::kContinuous;
  const bool open = continuous || batch_open_ || (batch_may_be_open_ && !plan.added.empty());
  if (preempted_ == 0 && open) plan_admissions(plan);
  if (!error_.empty()) return;

  if (plan.empty()) {
    if (preempted_ > 0) fail("{} sequences are preempted for nobody", preempted_);
    return;  // the slots that were given back are told of by the next
  }
  if (steps_ != plan.seqs.size()) return fail("slot {} computes and should not", plan.seqs[steps_].slot);
  if (prompts_ != plan.prompts.size()) fail("something of a prompt is asked for by nobody");
  if (added_ != plan.added.size()) fail("slot {} is given and should not be", plan.added[added_].slot);
  if (moved_out_ != plan.moves_out.size()) fail("a block is moved out for nobody");
  if (moved_in_ != plan.moves_in.size()) fail("a block is moved in for nobody");
  if (copied_ != plan.copies.size()) fail("a block is copied for nobody");
  if (std::set(plan.removed.begin(), plan.removed.end()) != gone_ || plan.removed.size() != gone_.size()) {
    fail("{} slots are removed instead of {}", plan.removed.size(), gone_.size());
  }
  gone_.clear();
  std::set<std::tuple<SlotId, uint32_t, uint32_t, BlockId>> updates;
  for (const control::TableUpdate& update : plan.updates) {
    updates.emplace(update.slot, update.group, update.index, update.block);
  }
  if (updates != updates_) {
    fail("{} entries of tables are updated instead of {}", updates.size(), updates_.size());
  }
}

// ---- those that run ----

/// Protected sequences first, then in order of admission; who finds no room has others preempted.
void NaiveModel::plan_decodes(const control::StepPlan& plan) {
  std::vector<Sequence*> order;
  for (const bool is_protected : {true, false}) {
    for (Sequence* seq : running_) {
      if (seq->is_protected() == is_protected) order.push_back(seq);
    }
    if (is_protected) std::ranges::sort(order, {}, [](const Sequence* s) { return *s->first_admitted; });
  }
  for (Sequence* seq : order) {
    if (!seq->slot || !seq->decoding()) continue;
    if (room(*seq) == 0) leave_behind(*seq, seq->next());
    while (seq->slot && room(*seq) == 0) {
      Sequence* victim = victim_for(*seq, config_.victim);
      if (victim == nullptr) break;
      if (victim != victim_for(*seq, control::VictimKind::kLastAdmitted)) ++counts_.chosen_victims;
      preempt(*victim, plan);
    }
    if (seq->slot && room(*seq) > 0) compute(*seq, 1, plan);
    if (!error_.empty()) return;
  }
}

void NaiveModel::plan_prefill(const control::StepPlan& plan) {
  if (!error_.empty() || running_.empty() || running_.back()->planned) return;
  Sequence& seq = *running_.back();
  compute_chunk(seq, plan);
}

/// The most tokens that the rule allows, by trying them all. What the budget cuts short leaves none of it.
void NaiveModel::compute_chunk(Sequence& seq, const control::StepPlan& plan) {
  if (room(seq) < seq.remaining()) leave_behind(seq, seq.next());
  const uint64_t wanted = std::min<uint64_t>(room(seq), seq.remaining());
  const auto millionths = [&](uint64_t tokens) {
    const uint64_t rows = seq.lacks && *seq.lacks + 1 < seq.prompt ? tokens : 0;
    return (tokens + rows) * 1'000'000 + tokens * seq.next() * config_.context_cost;
  };
  const auto allowed = [&](uint64_t tokens) {
    return millionths(tokens) <= budget_ * 1'000'000 || tokens * 4 < budget_ + 4;
  };
  uint64_t tokens = 0;
  while (tokens < wanted && allowed(tokens + 1)) ++tokens;
  if (tokens == 0) return;
  if (tokens < budget_ && tokens < wanted) ++counts_.short_chunks;
  const uint64_t spent = std::min(budget_, millionths(tokens) / 1'000'000);
  const uint64_t left = tokens < wanted ? 0 : budget_ - spent;
  compute(seq, tokens, plan);
  budget_ = left;
}

bool NaiveModel::writable(BlockId block) const {
  const auto holders = holders_.find(block);
  return holders != holders_.end() && holders->second.size() == 1 && !published_.contains(block);
}

uint64_t NaiveModel::room(const Sequence& seq) const {
  const uint32_t row = seq.next() / config_.block_size;
  uint64_t copies = 0;
  for (const Column& column : seq.table) copies += row < column.size() && !writable(column[row]) ? 1 : 0;
  if (copies > available()) return 0;
  const uint64_t rows = seq.table[0].size() + (available() - copies) / groups_;
  return rows * config_.block_size - seq.next();
}

/// Of those without a part in the plan; the last admitted of equals.
NaiveModel::Sequence* NaiveModel::victim_for(const Sequence& needy, control::VictimKind kind) {
  std::vector<Sequence*> candidates;
  Sequence* done = nullptr;
  for (Sequence* seq : running_) {
    const bool has_to =
        !seq->is_protected() || (needy.is_protected() && *needy.first_admitted < *seq->first_admitted);
    if (!seq->planned && seq->remaining() == 0) done = seq;
    if (!seq->planned && has_to) candidates.push_back(seq);
  }
  if (done != nullptr) return done;  // it has nothing to lose
  if (candidates.empty()) return nullptr;
  std::ranges::reverse(candidates);
  if (kind == control::VictimKind::kLowestPriority) {
    return *std::ranges::max_element(candidates, {}, [](const Sequence* s) { return s->spec.priority; });
  }
  if (kind == control::VictimKind::kLeastProgress) {
    return *std::ranges::min_element(candidates, {}, [](const Sequence* s) { return s->next(); });
  }
  return candidates.front();
}

void NaiveModel::preempt(Sequence& seq, const control::StepPlan& plan) {
  ++preempted_;
  ++counts_.preemptions;
  if (++seq.preemptions == 8) ++counts_.protections;
  const bool may_swap =
      config_.preemption != control::PreemptionKind::kRecompute && seq.remaining() > 0 && !seq.adds_up();
  if (may_swap) leave_behind(seq, seq.next());
  const Nanos moving = 2 * static_cast<Nanos>(count_blocks(seq.table)) * config_.costs.swap_block;
  const bool quicker = moving < seq.next() * config_.costs.prefill_token;
  if (may_swap && (config_.preemption == control::PreemptionKind::kSwap || quicker)) {
    swap_out(seq, plan);
  }
  clear(seq);
  by_slot_.erase(*seq.slot);
  gone_.insert(*seq.slot);
  seq.slot.reset();
  std::erase(running_, &seq);
  join_queue(seq);
}

void NaiveModel::swap_out(Sequence& seq, const control::StepPlan& plan) {
  if (count_blocks(seq.table) > free_host_.size()) {
    ++counts_.too_big_to_swap;
    return;
  }
  seq.swapped = seq.next();
  for (const Column& column : seq.table) {
    Column& host = seq.host.emplace_back();
    for (const BlockId block : column) {
      host.push_back(kNoBlock);
      if (block == kNoBlock) continue;
      if (moved_out_ == plan.moves_out.size() || plan.moves_out[moved_out_].device != block) {
        return fail("block {} of sequence {} is not moved out", block, seq.id());
      }
      host.back() = plan.moves_out[moved_out_++].host;
      if (free_host_.erase(host.back()) == 0) fail("host block {} is in use", host.back());
      ++counts_.swapped_out;
    }
  }
}

void NaiveModel::compute(Sequence& seq, uint64_t tokens, const control::StepPlan& plan) {
  if (steps_ == plan.seqs.size() || plan.seqs[steps_].slot != *seq.slot) {
    return fail("sequence {} does not compute its {} tokens", seq.id(), tokens);
  }
  const control::SeqStep& step = plan.seqs[steps_++];
  if (step.generation != seq.generation || step.is_late() != (seq.pending > 0)) {
    return fail("sequence {} computes its {} pending tokens wrongly", seq.id(), seq.pending);
  }
  if (step.first_position != seq.next() || step.tokens.size() != tokens) {
    return fail("sequence {} computes {} tokens from {} on instead of {} from {} on", seq.id(),
                step.tokens.size(), step.first_position, tokens, seq.next());
  }
  seq.planned = true;
  budget_ -= tokens;
  const bool wants_tokens = seq.spec.max_tokens > 0;
  if (tokens == seq.remaining() && wants_tokens) tenants_.at(seq.spec.tenant).served += 2;
  const uint32_t begin = seq.next();
  const uint32_t end = begin + static_cast<uint32_t>(tokens);
  const bool samples = tokens == seq.remaining();
  const auto at_end = wants_tokens ? control::LogitRows::kLast : control::LogitRows::kEnd;
  if (step.rows != (samples ? at_end : control::LogitRows::kNone)) {
    fail("sequence {} samples at {}", seq.id(), end);
  }
  if (seq.lacks && begin < seq.prompt) compare_prompt(seq, begin, end, plan);
  seq.in_flight += static_cast<uint32_t>(tokens);
  seq.pending += samples ? 1 : 0;
  const size_t known = seq.table[0].size();
  const size_t rows = rows_for(end, config_.block_size);
  if (step.new_blocks.size() != (rows - known) * groups_) {
    return fail("sequence {} gets {} new blocks", seq.id(), step.new_blocks.size());
  }
  const uint32_t first = begin / config_.block_size;
  for (uint32_t group = 0; group < groups_; ++group) {
    if (first < known) copy_if_shared(seq, group, first, plan);
    for (size_t row = known; row < rows; ++row) {
      const BlockId block = step.new_blocks[group * (rows - known) + row - known];
      allocate(block, seq.id());
      seq.table[group].push_back(block);
    }
  }
  for (const auto& [group, row] : std::exchange(seq.changed, {})) {
    const BlockId block = seq.table[group][row];
    if (block != kNoBlock) updates_.emplace(*seq.slot, group, row, block);
  }
}

/// Every row that lies in the chunk and is missing, and no other.
void NaiveModel::compare_prompt(Sequence& seq, uint32_t begin, uint32_t end, const control::StepPlan& plan) {
  std::vector<uint32_t> rows;
  for (uint32_t row = begin; row < end && row + 1 < seq.prompt; ++row) {
    if (row >= *seq.lacks) rows.push_back(row);
  }
  if (prompts_ == plan.prompts.size() || plan.prompts[prompts_].seq + 1 != steps_) {
    return fail("sequence {}: nothing of its prompt is asked for", seq.id());
  }
  const control::PromptStep& part = plan.prompts[prompts_++];
  ++seq.yields;
  const bool same = part.end_row - part.first_row == rows.size() &&
                    (rows.empty() || part.first_row == rows.front()) && part.last == (end == seq.prompt);
  if (!same) fail("sequence {}: rows {} to {} are asked for", seq.id(), part.first_row, part.end_row);
}

/// A block that is written to belongs to one sequence and is not published.
void NaiveModel::copy_if_shared(Sequence& seq, uint32_t group, uint32_t row, const control::StepPlan& plan) {
  BlockId& own = seq.table[group][row];
  if (own == kNoBlock) return fail("sequence {} writes to a block that it gave back", seq.id());
  if (writable(own)) return;
  if (copied_ == plan.copies.size() || plan.copies[copied_].from != own) {
    return fail("sequence {} writes to block {} without a copy", seq.id(), own);
  }
  const BlockId copy = plan.copies[copied_++].to;
  allocate(copy, seq.id());
  release(std::exchange(own, copy), seq.id());
  seq.changed.emplace(group, row);
  ++counts_.copies;
}

// ---- those that wait ----

void NaiveModel::plan_admissions(const control::StepPlan& plan) {
  followers_.clear();
  bool can_follow = false;
  bool unsure = false;                // only the scheduler knows which sequences it passed over
  std::set<SeqId> perhaps_followers;  // it did so with these if it looked at them, and what they wait for can
                                      // be moved in before the next is admitted
  while (error_.empty() && running_.size() + followers_.size() < config_.max_num_seqs && budget_ > 0) {
    Sequence* first = first_by_rank();
    unsure = unsure || first == nullptr;
    if (unsure) {
      for (const auto& [order, seq] : waiting_) {
        if (!waits_for_parent(*seq) && computes_for(*seq)) perhaps_followers.insert(seq->id());
      }
    }
    if (unsure && added_ == plan.added.size()) {
      can_follow = std::ranges::any_of(waiting_, [&](const auto& place) {
        return !waits_for_parent(*place.second) && computes_for(*place.second);
      });
      break;
    }
    if (first == nullptr) {  // the plan must say which
      const auto chosen = sequences_.find(plan.added[added_].sampling.seed);
      if (chosen == sequences_.end() || chosen->second.slot) return fail("who does not wait comes in");
      first = &chosen->second;
      if (waits_for_parent(*first)) return fail("fork {} comes in too early", first->id());
      if (computes_for(*first)) return fail("sequence {} comes in before its prefix", first->id());
    }
    const bool was_one = perhaps_followers.contains(first->id()) && added_ < plan.added.size() &&
                         plan.added[added_].sampling.seed != first->id();
    if (was_one || computes_for(*first)) {
      followers_.insert(first->id());
      ++counts_.followers;
      continue;
    }
    if (first->pending + first->yields > 0) break;  // its token first, and its rows
    if (!may_come_in(*first, find(*first))) break;
    if (added_ == plan.added.size()) {
      return fail("sequence {} waits though there is room for it", first->id());
    }
    admit(*first, plan.added[added_++], plan);
    if (!error_.empty()) return;
    // The first time that it comes in, its prompt is counted.
    if (first->preemptions == 0) tenants_.at(first->spec.tenant).served += first->prompt - first->computed;
    compute_chunk(*first, plan);
  }
  const bool goes_on = budget_ == 0 || !followers_.empty();
  const bool has_more = running_.size() < config_.max_num_seqs && !waiting_.empty();
  batch_open_ = goes_on && has_more;
  batch_may_be_open_ = can_follow && has_more;
}

/// A running sequence with the same first tokens has begun the first block that this one does not find, and
/// its result is not there.
bool NaiveModel::computes_for(const Sequence& seq) const {
  const Hit hit = find(seq);
  if (!config_.enable_prefix_caching || hit.of_parent) return false;
  const uint32_t size = config_.block_size;
  const uint32_t found = hit.tokens;
  const uint32_t end = found + size;
  if (end > (seq.total - 1) / size * size || seq.swapped > found || !seq.may_skip(end - 1)) return false;
  return std::ranges::any_of(running_, [&](const Sequence* other) {
    return other->spec.salt == seq.spec.salt && other->total >= end && other->next() > found &&
           other->computed < end && other->text.substr(0, end) == seq.text.substr(0, end);
  });
}

void NaiveModel::admit(Sequence& seq, const control::NewSeq& added, const control::StepPlan& plan) {
  if (added.sampling.seed != seq.id()) {
    return fail("sequence {} comes in before sequence {}", added.sampling.seed, seq.id());
  }
  ++counts_.admissions;
  note_overtaking(seq);
  const Hit hit = find(seq);
  (hit.of_parent ? counts_.forks : counts_.hits) += hit.tokens > 0 ? 1 : 0;
  counts_.late_forks += hit.of_parent && seq.prompt > parent_of(seq)->prompt ? 1 : 0;
  for (uint32_t group = 0; group < groups_; ++group) {
    seq.table[group] = hit.blocks[group];
    for (const BlockId block : seq.table[group]) {
      if (block != kNoBlock) retain(block, seq.id());
    }
  }
  seq.computed = hit.tokens;
  if (seq.swapped > hit.tokens) swap_in(seq, plan);
  leave_queue(seq);
  if (added.slot >= config_.max_num_seqs || !by_slot_.emplace(added.slot, &seq).second) {
    fail("slot {} is given to sequence {}", added.slot, seq.id());
  }
  seq.slot = added.slot;
  seq.generation = added.generation;
  if (!owners_.emplace(std::pair(added.slot, added.generation), seq.id()).second) {
    fail("slot {} is given twice in generation {}", added.slot, added.generation);
  }
  if (!seq.first_admitted) seq.first_admitted = first_admissions_++;
  running_.push_back(&seq);

  std::vector<BlockId> blocks;
  for (const Column& column : seq.table) blocks.insert(blocks.end(), column.begin(), column.end());
  if (added.blocks != blocks) fail("sequence {} comes in with wrong blocks", seq.id());
  if (added.prompt_length != seq.prompt) fail("sequence {} comes in with another prompt", seq.id());
  std::string history;
  for (const TokenId token : added.history) history += static_cast<char>('a' + token);
  const bool needs_history = seq.spec.sampling.needs_history();
  if (history != (needs_history ? seq.text.substr(0, seq.total) : "")) fail("a wrong history");
}

void NaiveModel::swap_in(Sequence& seq, const control::StepPlan& plan) {
  leave_behind(seq, seq.swapped);
  const size_t rows = seq.host[0].size();
  for (size_t row = seq.table[0].size(); row < rows; ++row) {
    for (uint32_t group = 0; group < groups_; ++group) {
      seq.table[group].push_back(kNoBlock);
      const BlockId host = seq.host[group][row];
      if (host == kNoBlock) continue;
      if (moved_in_ == plan.moves_in.size() || plan.moves_in[moved_in_].host != host) {
        return fail("host block {} of sequence {} is not moved in", host, seq.id());
      }
      seq.table[group].back() = plan.moves_in[moved_in_++].device;
      allocate(seq.table[group].back(), seq.id());
      ++counts_.swapped_in;
    }
  }
  publish(seq, std::exchange(seq.computed, seq.swapped), seq.swapped);
}

/// The parent of a fork that has no tokens of its own yet.
const NaiveModel::Sequence* NaiveModel::parent_of(const Sequence& seq) const {
  if (!seq.spec.fork_of || seq.total > seq.prompt) return nullptr;
  const auto parent = sequences_.find(*seq.spec.fork_of);
  return parent != sequences_.end() && parent->second.order < seq.order ? &parent->second : nullptr;
}

bool NaiveModel::waits_for_parent(const Sequence& seq) const {
  const Sequence* parent = parent_of(seq);
  if (parent == nullptr) return false;
  // The last token of the prompt is computed in any case, so the parent need not have it.
  return parent->computed < parent->prompt || parent->computed + 1 < seq.prompt;
}

std::optional<int64_t> NaiveModel::rank(const Sequence& seq) const {
  const control::SeqSpec& spec = seq.spec;
  const control::CostHints& costs = config_.costs;
  if (seq.is_protected()) return INT64_MIN;
  switch (config_.scheduling) {
    case control::SchedulingKind::kFcfs:
      return 0;
    case control::SchedulingKind::kSrpt: {
      if (!spec.expected_tokens) return std::nullopt;
      const int64_t length = std::min(*spec.expected_tokens, spec.max_tokens);
      const int64_t left = std::max<int64_t>(length - (seq.total - seq.prompt), 1);
      return (seq.total - seq.swapped) * costs.prefill_token + left * costs.decode_token;
    }
    case control::SchedulingKind::kSlo:
      if (seq.total > seq.prompt) return INT64_MIN;
      return spec.arrived + spec.ttft_deadline - seq.prompt * costs.prefill_token;
    case control::SchedulingKind::kPriority:
      return spec.priority * config_.priority_aging + spec.arrived;
    case control::SchedulingKind::kFair:
      return tenants_.at(spec.tenant).served;
    case control::SchedulingKind::kLpm:
      if (seq.passed >= 32) return INT64_MIN;
      return -static_cast<int64_t>(find_in_index(seq).tokens);
  }
  return std::nullopt;
}

NaiveModel::Sequence* NaiveModel::first_by_rank() {
  Sequence* first = nullptr;
  int64_t lowest = 0;
  uint32_t compared = 0;
  for (const auto& [order, seq] : waiting_) {
    if (waits_for_parent(*seq) || followers_.contains(seq->id())) continue;
    if (config_.scheduling == control::SchedulingKind::kLpm && ++compared > 64) break;
    const std::optional<int64_t> own = rank(*seq);
    if (!own) return nullptr;
    if (first != nullptr && *own >= lowest) continue;
    first = seq;
    lowest = *own;
    if (config_.scheduling == control::SchedulingKind::kFcfs) break;
  }
  return first;
}

void NaiveModel::note_overtaking(const Sequence& seq) {
  bool overtakes = false;
  for (const auto& [order, other] : waiting_) {
    if (order >= seq.order) break;
    ++other->passed;
    overtakes = overtakes || !(waits_for_parent(*other) || followers_.contains(other->id()));
  }
  counts_.overtakes += overtakes ? 1 : 0;
}

/// A token at `position` reads keys of this row.
bool NaiveModel::reads(uint32_t group, uint32_t row, uint32_t position) const {
  const uint32_t window = config_.kv_windows[group];
  return window == 0 || uint64_t{row + 1} * config_.block_size + window > uint64_t{position} + 1;
}

NaiveModel::Hit NaiveModel::find(const Sequence& seq) const {
  if (auto hit = find_in_parent(seq)) return *hit;
  return find_in_index(seq);
}

/// All of the prompt but its last token, if the parent still holds what that reads.
std::optional<NaiveModel::Hit> NaiveModel::find_in_parent(const Sequence& seq) const {
  const Sequence* parent = parent_of(seq);
  if (parent == nullptr || (seq.prompt > 1 && !seq.may_skip(seq.prompt - 2))) return std::nullopt;
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

NaiveModel::Hit NaiveModel::find_in_index(const Sequence& seq) const {
  const uint32_t size = config_.block_size;
  uint32_t most = (seq.total - 1) / size;
  while (most > 0 && !seq.may_skip(most * size - 1)) --most;
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
    if (whole && (reads_any || is_known(seq.spec.salt, seq.text.substr(0, hit.tokens)))) return hit;
  }
  return {.tokens = 0, .blocks = std::vector<Column>(groups_)};
}

bool NaiveModel::is_known(uint64_t salt, const std::string& prefix) const {
  const bool in_block = std::ranges::any_of(index_, [&](const auto& entry) {
    return entry.first.salt == salt && entry.first.prefix.starts_with(prefix);
  });
  return in_block || std::ranges::any_of(running_, [&](const Sequence* other) {
           const size_t published = other->computed / config_.block_size * config_.block_size;
           return config_.enable_prefix_caching && other->spec.salt == salt && published >= prefix.size() &&
                  other->text.starts_with(prefix);
         });
}

bool NaiveModel::may_come_in(const Sequence& seq, const Hit& hit) const {
  if (running_.empty()) return true;
  const uint32_t size = config_.block_size;
  const uint32_t first_new = hit.tokens / size * size;
  const uint32_t chunk = std::min(config_.max_num_batched_tokens, seq.total - hit.tokens);
  uint64_t needed = control::blocks_held(config_.kv_windows, seq.total - first_new, chunk, size);
  for (const Column& column : hit.blocks) {
    for (const BlockId block : column) needed += block != kNoBlock && !is_held(block) ? 1 : 0;
  }
  const uint64_t watermark = std::min<uint64_t>(
      (uint64_t{config_.num_blocks} * config_.watermark_bp + 9999) / 10000, config_.num_blocks);
  return needed + watermark <= free_.size() + cached_.size();
}

}  // namespace quire::test
