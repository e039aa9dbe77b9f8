#include "control/scheduler.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/kv_windows.h"

namespace quire {
namespace {

const SchedulerConfig& checked(const SchedulerConfig& config) {
  const auto require_positive = [](uint32_t value, const char* name) {
    if (value == 0) throw Error(fmt::format("scheduler: {} must be at least 1", name));
  };
  require_positive(config.num_blocks, "num_blocks");
  require_positive(config.block_size, "block_size");
  require_positive(config.max_num_seqs, "max_num_seqs");
  require_positive(config.max_model_len, "max_model_len");
  require_positive(config.priority_aging > 0 ? 1 : 0, "priority_aging");
  if (config.kv_windows.empty()) throw Error("scheduler: kv_windows must have an entry a K/V group");
  if (config.num_blocks == kNoBlock || config.max_num_seqs == kNoSlot) {
    throw Error("scheduler: num_blocks and max_num_seqs must be less than 4294967295");
  }
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    throw Error(fmt::format(
        "scheduler: max_num_batched_tokens ({}) must be at least max_num_seqs ({}), or decodes would starve",
        config.max_num_batched_tokens, config.max_num_seqs));
  }
  return config;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(checked(config)),
      budget_(config.max_num_batched_tokens),
      watermark_(static_cast<uint32_t>(std::min<uint64_t>(
          (uint64_t{config.num_blocks} * config.watermark_bp + 9999) / 10000, config.num_blocks))),
      longest_(
          longest_sequence(config.kv_windows, config.num_blocks, config.block_size, config.max_model_len)),
      pool_(PrefixCache(config.num_blocks, config.block_size,
                        make_eviction(config.eviction, config.num_blocks), PrefixCache::xxh3,
                        config.kv_windows)),
      log_(pool_.log()),
      policy_(make_policy(config.scheduling, config.costs, config.priority_aging, pool_.cache())),
      by_slot_(config.max_num_seqs),
      free_slots_(config.max_num_seqs),
      free_host_blocks_(config.num_host_blocks) {
  std::iota(free_host_blocks_.rbegin(), free_host_blocks_.rend(), BlockId{0});
  std::iota(free_slots_.rbegin(), free_slots_.rend(), SlotId{0});  // slot 0 is given first
  removed_.reserve(2 * free_slots_.size());  // all that may be, even of a plan() that throws
  describe_state(stats_);
}

// ---- in and out ----

Expected<void> Scheduler::add(SeqSpec spec) {
  if (spec.prompt.empty() || spec.max_tokens == 0) {
    return refuse(RequestErrorCode::kInternal, "a sequence needs a prompt and max_tokens of at least 1");
  }
  const uint64_t length = uint64_t{spec.prompt.size()} + spec.max_tokens;
  const bool beyond_model = length > config_.max_model_len;
  if (beyond_model || length - 1 > longest_) {  // the last token is sampled, never computed
    return refuse(
        RequestErrorCode::kTooLong,
        fmt::format("{} prompt tokens and {} to generate exceed the {} tokens of {}", spec.prompt.size(),
                    spec.max_tokens, beyond_model ? config_.max_model_len : longest_,
                    beyond_model ? "the model's length" : "the K/V pool"));
  }
  if (waiting_.size() >= config_.max_waiting) {
    return refuse(RequestErrorCode::kQueueFull, fmt::format("{} sequences wait already", waiting_.size()));
  }
  const auto parent = spec.fork_of ? sequences_.find(*spec.fork_of) : sequences_.end();
  if (parent != sequences_.end()) {
    const Sequence& other = parent->second;
    if (other.spec.salt != spec.salt || other.total() + 1 < spec.prompt.size() ||
        !std::equal(spec.prompt.begin(), spec.prompt.end() - 1, other.tokens.begin())) {
      return refuse(
          RequestErrorCode::kInternal,
          fmt::format("sequence {} is no fork of {}: other tokens or salt", spec.id, other.spec.id));
    }
  }
  BlockTable table(pool_.cache().num_groups());
  const auto [place, is_new] = sequences_.try_emplace(spec.id);
  if (!is_new) {
    return refuse(RequestErrorCode::kInternal, fmt::format("sequence {} exists already", spec.id));
  }
  Sequence& seq = place->second;
  seq.tokens = std::move(spec.prompt);
  seq.prompt_length = seq.total();
  seq.arrival = arrivals_++;
  seq.table = std::move(table);
  seq.spec = std::move(spec);
  try {
    pool_.want(seq.tokens, seq.spec.salt, 1);
    waiting_.push_back(&seq);
    policy_->queued(seq);
  } catch (...) {
    pool_.want(seq.tokens, seq.spec.salt, -1);
    std::erase(waiting_, &seq);
    sequences_.erase(place);
    throw;
  }
  log_.of(seq.spec.id);
  log_.write(DecisionKind::kAdd, seq.prompt_length, seq.spec.max_tokens);
  return {};
}

void Scheduler::abort(SeqId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  finish(found->second, FinishReason::kAbort);
  describe_state(stats_);
}

void Scheduler::finish(Sequence& seq, FinishReason reason) {
  log_.of(seq.spec.id);
  log_.write(DecisionKind::kFinish, static_cast<uint32_t>(reason));
  if (seq.slot == kNoSlot) {
    std::erase(waiting_, &seq);
    policy_->dequeued(seq);
    free_host_blocks(seq);
    pool_.want(seq.tokens, seq.spec.salt, -1);
  } else {
    std::erase(running_, &seq);
    release(seq);
  }
  policy_->ended(seq);
  sequences_.erase(SeqId{seq.spec.id});
}

void Scheduler::release(Sequence& seq) {
  seq.table.clear(pool_);
  seq.computed = 0;
  removed_.push_back(seq.slot);
  free_slots_.push_back(seq.slot);
  by_slot_[seq.slot] = nullptr;
  seq.slot = kNoSlot;
}

// ---- plan ----

StepPlan Scheduler::plan(Nanos /*now*/) {
  StepPlan plan;
  if (!has_work()) return plan;  // what is to be removed stays for the next plan that computes something
  next_stats_ = StepStats{.step = stats_.step + 1,
                          .token_budget = budget_,
                          .total_preemptions = stats_.total_preemptions,
                          .total_prefix_queried_tokens = stats_.total_prefix_queried_tokens,
                          .total_prefix_hit_tokens = stats_.total_prefix_hit_tokens,
                          .total_copies = stats_.total_copies};
  plan.step = next_stats_.step;
  plan.seqs.reserve(running_.size() + std::min(waiting_.size(), free_slots_.size()));

  log_.at_step(plan.step);
  if (running_.empty()) batch_open_ = true;

  uint32_t budget = budget_;
  plan_decodes(plan, budget);
  plan_prefill(plan, budget);
  if (!config_.admit_while_preempting && next_stats_.preempted > 0) {
    note_waiting(WaitReason::kPreempt, nullptr, 0);
  } else if (config_.batching == BatchingKind::kStatic && !batch_open_) {
    note_waiting(WaitReason::kBatch, nullptr, 0);
  } else {
    plan_admissions(plan, budget);
    batch_open_ = budget == 0 && !free_slots_.empty() && !waiting_.empty();  // cut short by the budget alone
  }

  plan.removed = removed_;
  removed_.clear();
  next_stats_.copies = static_cast<uint32_t>(plan.copies.size());
  next_stats_.total_copies += next_stats_.copies;
  next_stats_.swapped_out = static_cast<uint32_t>(plan.moves_out.size());
  next_stats_.swapped_in = static_cast<uint32_t>(plan.moves_in.size());
  return plan;
}

/// Each running sequence that only has its last token to do gets it, protected ones first, then who came
/// earlier: others may be preempted for it.
void Scheduler::plan_decodes(StepPlan& plan, uint32_t& budget) {
  order_ = running_;
  const auto rights = [](const Sequence* s) { return s->is_protected() ? *s->first_admitted : UINT64_MAX; };
  if (std::ranges::any_of(order_, &Sequence::is_protected)) std::ranges::stable_sort(order_, {}, rights);
  for (Sequence* seq : order_) {
    if (seq->slot == kNoSlot || !seq->decoding()) continue;
    const bool ready = seq->table.is_ready(pool_, seq->computed, 1);
    if (!ready && !make_room(plan, *seq)) continue;
    schedule(plan, *seq, 1, ready);
    --budget;
  }
}

bool Scheduler::make_room(StepPlan& plan, Sequence& seq) {
  while (seq.slot != kNoSlot && seq.table.room(pool_, seq.computed) == 0) {
    Sequence* victim = choose_victim(seq);
    if (victim == nullptr) return false;
    preempt(plan, *victim);
  }
  return seq.slot != kNoSlot;
}

/// Goes on with the sequence that is partly computed, if any: the last admitted, since nobody comes in after
/// one that was cut short. Without a block for it, it waits for this step's decodes (alone, it has room).
void Scheduler::plan_prefill(StepPlan& plan, uint32_t& budget) {
  if (!running_.empty() && running_.back()->planned == 0) plan_chunk(plan, *running_.back(), budget);
}

void Scheduler::plan_chunk(StepPlan& plan, Sequence& seq, uint32_t& budget) {
  const uint64_t most = std::min<uint64_t>(seq.table.room(pool_, seq.computed), seq.remaining());
  if (most == 0) return;
  constexpr uint64_t kOne = 1'000'000;
  const uint64_t price = kOne + uint64_t{seq.computed} * config_.context_cost;  // of each of its tokens
  const uint64_t count = std::min(most, std::max(budget * kOne / price, (uint64_t{budget} + 3) / 4));
  schedule(plan, seq, static_cast<uint32_t>(count), false);
  const uint64_t spent = std::min<uint64_t>(budget, count * price / kOne);
  budget = count < most ? 0 : budget - static_cast<uint32_t>(spent);
}

/// In the order of the policy; only forks that wait for their parent are passed over. A sequence comes in if
/// the blocks for all its tokens and the watermark are there, or if it is alone.
void Scheduler::plan_admissions(StepPlan& plan, uint32_t& budget) {
  while (!waiting_.empty()) {
    if (free_slots_.empty()) return note_waiting(WaitReason::kSlots, nullptr, 0);
    if (budget == 0) return note_waiting(WaitReason::kBudget, nullptr, 0);
    size_t index = 0;
    Sequence* seq = next_waiting(index);
    if (seq == nullptr) return note_waiting(WaitReason::kParent, nullptr, 0);
    const uint32_t cached_tokens = find_prefix(*seq, fork_parent(*seq));
    const uint64_t needed = blocks_to_admit(*seq, cached_tokens);
    if (!running_.empty() && needed + watermark_ > pool_.available()) {
      return note_waiting(WaitReason::kBlocks, seq, needed);
    }
    for (size_t i = 0; i < index; ++i) ++waiting_[i]->passed;
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(index));
    admit(plan, *seq, cached_tokens);
    plan_chunk(plan, *seq, budget);  // at least 1: alone it fits
  }
}

Sequence* Scheduler::next_waiting(size_t& index) {
  Sequence* best = nullptr;
  int64_t lowest = 0;
  size_t compared = 0;
  for (size_t i = 0; i < waiting_.size() && compared < policy_->horizon(); ++i) {
    Sequence* seq = waiting_[i];
    if (waits_for_parent(*seq)) continue;
    ++compared;
    const int64_t rank = seq->is_protected() ? INT64_MIN : policy_->rank(*seq);
    if (best != nullptr && rank >= lowest) continue;
    best = seq;
    lowest = rank;
    index = i;
  }
  return best;
}

/// All that wait do so for `reason`; or only `first`, which needs so many blocks, and the others for it.
void Scheduler::note_waiting(WaitReason reason, const Sequence* first, uint64_t needed) {
  for (Sequence* seq : waiting_) {
    WaitReason own = first == nullptr || seq == first ? reason : WaitReason::kOrder;
    if (waits_for_parent(*seq)) own = WaitReason::kParent;
    if (std::exchange(seq->waits_for, own) == own) continue;
    log_.of(seq->spec.id);
    log_.write(DecisionKind::kSkip, static_cast<uint32_t>(own),
               seq == first ? static_cast<uint32_t>(needed) : 0);
  }
}

/// Of a parent that still holds what the last prompt token reads, the prompt but that token; else by the
/// index.
uint32_t Scheduler::find_prefix(const Sequence& seq, const Sequence* parent) {
  if (parent != nullptr && parent->table.prefix(pool_, seq.prompt_length - 1, prefix_)) {
    return seq.prompt_length - 1;
  }
  prefix_ = {};
  if (config_.enable_prefix_caching) pool_.cache().match(seq.tokens, seq.spec.salt, prefix_);
  return prefix_.num_rows * config_.block_size;
}

uint64_t Scheduler::blocks_to_admit(const Sequence& seq, uint32_t cached_tokens) const {
  const uint32_t size = config_.block_size;
  // A partly filled block of the parent is copied.
  const uint64_t first_new = uint64_t{cached_tokens / size} * size;
  const uint64_t end = config_.admit_eagerly && seq.swapped == 0 ? cached_tokens + 1 : seq.total();
  const uint64_t chunk = std::min<uint64_t>(config_.max_num_batched_tokens, end - cached_tokens);
  uint64_t needed = blocks_held(config_.kv_windows, end - first_new, chunk, size);
  // A hit block that nobody holds counts as available, but not once this sequence holds it.
  for (const BlockId block : prefix_.blocks) {
    needed += block != kNoBlock && pool_.references(block) == 0 ? 1 : 0;
  }
  return needed;
}

void Scheduler::admit(StepPlan& plan, Sequence& seq, uint32_t cached_tokens) {
  policy_->dequeued(seq);
  pool_.want(seq.tokens, seq.spec.salt, -1);
  seq.waits_for = WaitReason::kNone;
  if (!seq.first_admitted) seq.first_admitted = first_admissions_++;
  seq.slot = free_slots_.back();
  free_slots_.pop_back();
  by_slot_[seq.slot] = &seq;
  running_.push_back(&seq);
  log_.of(seq.spec.id);
  if (cached_tokens > 0) log_.write(DecisionKind::kHit, cached_tokens, seq.total());
  seq.table.share(pool_, prefix_);
  seq.computed = cached_tokens;
  if (seq.swapped > cached_tokens) swap_in(plan, seq);
  free_host_blocks(seq);
  log_.write(DecisionKind::kAdmit, seq.slot, seq.computed);

  plan.added.push_back({.slot = seq.slot, .sampling = seq.spec.sampling, .prompt_length = seq.prompt_length});
  NewSeq& added = plan.added.back();
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    const auto blocks = seq.table.blocks(group);
    added.blocks.insert(added.blocks.end(), blocks.begin(), blocks.end());
  }
  if (seq.spec.sampling.has_penalties()) added.history = seq.tokens;

  ++next_stats_.admitted;
  if (seq.cached_tokens) return;  // readmitted: hits on its own blocks would flatter the rate
  seq.cached_tokens = cached_tokens;
  if (config_.enable_prefix_caching && fork_parent(seq) == nullptr) {
    next_stats_.total_prefix_queried_tokens += seq.prompt_length;
    next_stats_.total_prefix_hit_tokens += cached_tokens;
  }
}

void Scheduler::schedule(StepPlan& plan, Sequence& seq, uint32_t count, bool ready) {
  log_.of(seq.spec.id);
  log_.write(DecisionKind::kChunk, seq.computed, count);
  policy_->computes(seq, count);
  (seq.decoding() ? next_stats_.decode_tokens : next_stats_.prefill_tokens) += count;
  seq.planned = count;
  SeqStep& step = plan.seqs.emplace_back(seq.slot, seq.computed);
  step.tokens.append(std::span(seq.tokens).subspan(seq.computed, count));
  step.rows = count == seq.remaining() ? LogitRows::kLast : LogitRows::kNone;

  if (ready) return;
  const uint32_t known_rows = seq.table.size();
  const size_t known_copies = plan.copies.size();
  seq.table.prepare_write(pool_, seq.computed, count, plan.copies);
  for (const BlockCopy& copy : std::span(plan.copies).subspan(known_copies)) {
    log_.write(DecisionKind::kCopy, copy.from, copy.to);
  }
  for (const auto& [group, index] : seq.table.take_changed()) {
    const BlockId block = seq.table.blocks(group)[index];
    if (block != kNoBlock) plan.updates.push_back({seq.slot, index, block, group});  // else given back since
  }
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    step.new_blocks.append(seq.table.blocks(group).subspan(known_rows));
  }
}

const Sequence* Scheduler::fork_parent(const Sequence& seq) const {
  // A fork that has tokens of its own shares only what the prefix index knows.
  if (!seq.spec.fork_of || seq.total() > seq.prompt_length) return nullptr;
  const auto parent = sequences_.find(*seq.spec.fork_of);
  const bool found = parent != sequences_.end() && parent->second.arrival < seq.arrival;
  return found ? &parent->second : nullptr;
}

bool Scheduler::waits_for_parent(const Sequence& seq) const {
  const Sequence* parent = fork_parent(seq);
  return parent != nullptr && !(parent->prompt_computed() && parent->computed + 1 >= seq.prompt_length);
}

// ---- commit ----

std::vector<SeqEvent> Scheduler::commit(const StepPlan& plan, StepResult result) {
  if (result.seqs.size() != plan.seqs.size()) {
    throw Error(fmt::format("step {}: results for {} sequences instead of {}", plan.step, result.seqs.size(),
                            plan.seqs.size()));
  }
  std::vector<SeqEvent> events;
  events.reserve(plan.seqs.size());
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const SeqStep& step = plan.seqs[i];
    SeqResult& got = result.seqs[i];
    if (by_slot_[step.slot] == nullptr) continue;  // aborted meanwhile
    Sequence& seq = *by_slot_[step.slot];
    const bool wants_token = step.rows == LogitRows::kLast;
    if (got.error.empty() && got.tokens.size() != (wants_token ? 1 : 0)) {
      got.error = fmt::format("the executor sampled {} tokens", got.tokens.size());
    }
    if (got.error.empty()) {
      seq.computed += std::exchange(seq.planned, 0);
      log_.of(seq.spec.id);
      if (config_.enable_prefix_caching) publish_full_blocks(seq, step.first_position);
      seq.table.release_behind(pool_, seq.computed);
      if (!wants_token) continue;
    }
    SeqEvent& event = events.emplace_back(seq.spec.id);
    if (got.error.empty()) {
      take_token(seq, std::move(got.tokens.front()), event);
    } else {
      event.finish = FinishReason::kError;
      event.error = std::move(got.error);
    }
    if (!event.finish) continue;
    ++next_stats_.finished;
    finish(seq, *event.finish);
  }
  stats_ = next_stats_;
  describe_state(stats_);
  return events;
}

/// Publishes the blocks that became full by computing from `first_position` on.
void Scheduler::publish_full_blocks(Sequence& seq, uint32_t first_position) {
  const uint32_t size = config_.block_size;
  const uint64_t last_row = uint64_t{seq.table.size() - 1} * size;
  if (first_position >= last_row && seq.computed < last_row + size) return;  // mostly, and quicker to see
  for (uint32_t i = first_position / size; i < seq.computed / size; ++i) {
    seq.table.publish(pool_, i, std::span(seq.tokens).subspan(size_t{i} * size, size), seq.spec.salt);
  }
}

void Scheduler::take_token(Sequence& seq, SampledToken&& token, SeqEvent& event) {
  if (seq.total() == seq.prompt_length) event.cached_tokens = seq.cached_tokens.value_or(0);
  seq.tokens.push_back(token.token);
  if (std::binary_search(seq.spec.stop_tokens.begin(), seq.spec.stop_tokens.end(), token.token)) {
    event.finish = FinishReason::kStop;
    event.stop_token = token.token;
  } else if (seq.total() - seq.prompt_length == seq.spec.max_tokens) {
    event.finish = FinishReason::kLength;
  }
  event.token.emplace(std::move(token));
}

void Scheduler::describe_state(StepStats& stats) const {
  stats.running = static_cast<uint32_t>(running_.size());
  stats.waiting = static_cast<uint32_t>(waiting_.size());
  stats.blocks_total = pool_.size();
  stats.blocks_referenced = pool_.num_referenced();
  stats.blocks_cached = pool_.num_cached();
  stats.blocks_shared = pool_.num_shared();
  stats.blocks_saved = static_cast<uint32_t>(pool_.num_saved());
  // Only full blocks are shared between steps, so no unused place is counted twice.
  stats.slots_unused = 0;
  for (const Sequence* seq : running_) {
    stats.slots_unused += seq->table.size() * config_.block_size - seq->computed;
  }
  stats.slots_unused *= pool_.cache().num_groups();
  stats.host_blocks_used = config_.num_host_blocks - static_cast<uint32_t>(free_host_blocks_.size());
  stats.total_evictions = pool_.num_evictions();
}

}  // namespace quire
