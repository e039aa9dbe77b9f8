#include "control/scheduler.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "control/kv/windows.h"

namespace quire::control {
namespace {

const SchedulerConfig& checked(const SchedulerConfig& config) {
  const std::pair<const char*, int64_t> positive[] = {{"num_blocks", config.num_blocks},
                                                      {"block_size", config.block_size},
                                                      {"max_num_seqs", config.max_num_seqs},
                                                      {"max_model_len", config.max_model_len},
                                                      {"priority_aging", config.priority_aging}};
  for (const auto& [name, value] : positive) {
    if (value < 1) throw Error(fmt::format("scheduler: {} must be at least 1", name));
  }
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

/// The figures of a step that the next step continues.
StepStats sums_of(const StepStats& step) {
  return {.step = step.step,
          .total_preemptions = step.total_preemptions,
          .total_prefix_queried_tokens = step.total_prefix_queried_tokens,
          .total_prefix_hit_tokens = step.total_prefix_hit_tokens,
          .total_copies = step.total_copies};
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(checked(config)),
      budget_(config.max_num_batched_tokens),
      watermark_(static_cast<uint32_t>(std::min<uint64_t>(
          (uint64_t{config.num_blocks} * config.watermark_bp + 9999) / 10000, config.num_blocks))),
      pool_tokens_(
          longest_sequence(config.kv_windows, config.num_blocks, config.block_size, config.max_model_len)),
      windowed_(std::ranges::any_of(config.kv_windows, [](uint32_t window) { return window > 0; })),
      pool_(PrefixCache(config.num_blocks, config.block_size,
                        make_eviction(config.eviction, config.num_blocks), PrefixCache::xxh3,
                        config.kv_windows)),
      log_(pool_.log()),
      policy_(make_policy(config.scheduling, {config_.costs, config_.priority_aging, pool_.cache()})),
      by_slot_(config.max_num_seqs),
      generations_(config.max_num_seqs),
      free_slots_(config.max_num_seqs),
      free_host_blocks_(config.num_host_blocks) {
  std::iota(free_host_blocks_.rbegin(), free_host_blocks_.rend(), BlockId{0});
  std::iota(free_slots_.rbegin(), free_slots_.rend(), SlotId{0});  // slot 0 is taken first
  removed_.reserve(2 * free_slots_.size());  // room for all of them, even after a plan() that throws
  describe_state(stats_);
}

Expected<void> Scheduler::check_length(uint64_t prompt, uint64_t max_tokens) const {
  const uint64_t most = most_tokens(max_tokens);
  if (prompt + max_tokens <= most) return {};
  return refuse(
      RequestErrorCode::kTooLong,
      fmt::format("{} {} tokens. However, you requested {} tokens ({} in the prompt, {} for the answer).",
                  most < config_.max_model_len ? "The K/V memory of this server holds"
                                               : "This model's maximum context length is",
                  most, prompt + max_tokens, prompt, max_tokens));
}

Expected<void> Scheduler::add(SeqSpec spec) {
  const auto invalid = [](std::string why) { return refuse(RequestErrorCode::kInternal, std::move(why)); };
  if (spec.prompt.empty()) return invalid("a sequence needs a prompt");
  if (auto fits = check_length(spec.prompt.size(), spec.max_tokens); !fits) return fits;
  const auto parent = spec.fork_of ? sequences_.find(*spec.fork_of) : sequences_.end();
  const bool begins = parent == sequences_.end() || !parent->second->first_admitted;  // or else is a beam
  if (begins && waiting_.size() + running_.size() >= uint64_t{config_.max_waiting} + config_.max_num_seqs)
    return refuse(RequestErrorCode::kQueueFull, fmt::format("the queue of {} is full", config_.max_waiting));
  if (parent != sequences_.end()) {
    const Sequence& other = *parent->second;
    if (other.spec.salt != spec.salt || other.total() + 1 < spec.prompt.size() ||
        !std::equal(spec.prompt.begin(), spec.prompt.end() - 1, other.tokens.begin())) {
      return invalid(
          fmt::format("sequence {} is no fork of {}: other tokens or salt", spec.id, other.spec.id));
    }
  }
  auto made = std::make_unique<Sequence>(Sequence{.table = BlockTable(pool_.cache().num_groups())});
  const auto [place, is_new] = sequences_.try_emplace(spec.id, std::move(made));
  if (!is_new) return invalid(fmt::format("sequence {} exists already", spec.id));
  Sequence& seq = *place->second;
  seq.tokens = std::move(spec.prompt);
  seq.prompt_length = seq.total();
  seq.longest = seq.prompt_length + std::max(spec.max_tokens, 1U);
  const uint32_t first_row = spec.wants.logprobs < 0 ? UINT32_MAX : spec.wants.first_row;
  if (spec.wants.any()) seq.next_row = std::min(first_row, seq.prompt_length - 1);
  seq.arrival = arrivals_++;
  seq.spec = std::move(spec);
  try {
    pool_.want(seq.tokens, seq.spec.salt, 1);
    seq.tokens.forget();  // until it may be admitted, which can take long
    waiting_.push_back(&seq);
    policy_->queued(seq);
  } catch (...) {
    pool_.want(seq.tokens, seq.spec.salt, -1);
    std::erase(waiting_, &seq);
    sequences_.erase(place);
    throw;
  }
  stats_.waiting = static_cast<uint32_t>(waiting_.size());
  log_.of(seq.spec.id);
  log_.write(DecisionKind::kAdd, seq.prompt_length, seq.spec.max_tokens);
  return {};
}

void Scheduler::reset() {
  while (!running_.empty()) abort(running_.back()->spec.id);
  while (!waiting_.empty()) abort(waiting_.back()->spec.id);
  pool_.drop_cached();
  open_.clear();
  next_stats_ = sums_of(stats_);
  describe_state(stats_);
}

void Scheduler::abort(SeqId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  finish(*found->second, FinishReason::kAbort);
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
  std::erase(awaited_, &seq);
  policy_->ended(seq);
  sequences_.erase(SeqId{seq.spec.id});
}

void Scheduler::release(Sequence& seq) {
  slots_unused_ -= uint64_t{seq.table.size()} * config_.block_size - seq.computed;
  seq.table.clear(pool_);
  seq.computed = seq.planned = 0;
  removed_.push_back(seq.slot);
  free_slots_.push_back(seq.slot);
  by_slot_[seq.slot] = nullptr;
  seq.last_slot = std::exchange(seq.slot, kNoSlot);
}

StepPlan Scheduler::plan() {
  StepPlan plan;
  admitted_.clear();
  preempted_.clear();
  if (!has_work()) return plan;  // slots to be removed stay for the next non-empty plan
  plan.step = ++next_stats_.step;
  next_stats_.token_budget = budget_;
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
    // Cut short only by the budget, or to share blocks that are not computed yet.
    batch_open_ = (budget == 0 || followers_ > 0) && !free_slots_.empty() && !waiting_.empty();
  }

  if (plan.empty()) return plan;  // the results of open steps must come first
  plan.removed = removed_;
  removed_.clear();
  next_stats_.copies = static_cast<uint32_t>(plan.copies.size());
  next_stats_.total_copies += next_stats_.copies;
  next_stats_.swapped_out = static_cast<uint32_t>(plan.moves_out.size());
  next_stats_.swapped_in = static_cast<uint32_t>(plan.moves_in.size());
  open_.push_back(next_stats_);
  next_stats_ = sums_of(next_stats_);
  return plan;
}

/// Each running sequence that has only its last token left computes it; protected ones first, then the
/// earliest arrivals, since others may be preempted for it.
void Scheduler::plan_decodes(StepPlan& plan, uint32_t& budget) {
  order_ = running_;
  const auto rights = [](const Sequence* s) { return s->is_protected() ? *s->first_admitted : UINT64_MAX; };
  if (!std::ranges::is_sorted(order_, {}, rights)) std::ranges::stable_sort(order_, {}, rights);
  for (Sequence* seq : order_) {
    if (seq->slot == kNoSlot || !seq->decoding()) continue;
    const bool ready = seq->table.is_ready(pool_, seq->next(), 1);
    if (!ready && !make_room(plan, *seq)) continue;
    schedule(plan, *seq, 1, 1, ready);
    --budget;
  }
}

/// If there is no room for `wanted` tokens, releases the blocks behind its windows. Blocks that open steps
/// compute would then be released before they are published, so this is only done if needed.
uint64_t Scheduler::room(Sequence& seq, uint64_t wanted) {
  const uint64_t found = seq.table.room(pool_, seq.next());
  if (found >= wanted || !windowed_ || seq.planned == 0) return found;
  log_.of(seq.spec.id);
  seq.table.release_behind(pool_, seq.next());
  return seq.table.room(pool_, seq.next());
}

bool Scheduler::make_room(StepPlan& plan, Sequence& seq) {
  while (seq.slot != kNoSlot && room(seq, 1) == 0) {
    Sequence* victim = choose_victim(seq);
    if (victim == nullptr) return false;
    const Standing why = worth(*victim);
    log_.because({CauseKind::kVictim, why.ground, victim->spec.id, seq.spec.id, 0, 0, why.value});
    preempt(plan, *victim);
  }
  return seq.slot != kNoSlot;
}

/// Continues the partly computed sequence, if any: the last admitted, since none is admitted after one that
/// was cut short. Without a block it waits for this step's decodes (alone, it has room).
void Scheduler::plan_prefill(StepPlan& plan, uint32_t& budget) {
  if (!running_.empty() && running_.back()->last_step != plan.step)
    plan_chunk(plan, *running_.back(), budget);
}

void Scheduler::plan_chunk(StepPlan& plan, Sequence& seq, uint32_t& budget) {
  const uint64_t most = std::min<uint64_t>(room(seq, seq.remaining()), seq.remaining());
  if (most == 0) return;
  constexpr uint64_t kMillion = 1'000'000;
  const uint64_t head = seq.next_row < seq.prompt_length - 1 ? 2 : 1;  // of each token: 2 if it lacks rows
  const uint64_t price = head * kMillion + uint64_t{seq.next()} * config_.context_cost;
  const uint64_t count = std::min(most, std::max(budget * kMillion / price, (uint64_t{budget} + 3) / 4));
  schedule(plan, seq, static_cast<uint32_t>(count), seq.remaining(), false);
  const uint64_t spent = std::min<uint64_t>(budget, count * price / kMillion);
  budget = count < most ? 0 : budget - static_cast<uint32_t>(spent);
}

void Scheduler::schedule(StepPlan& plan, Sequence& seq, uint32_t count, uint32_t left, bool ready) {
  log_.of(seq.spec.id);
  const uint32_t first = seq.next();
  log_.write(DecisionKind::kChunk, first, count);
  policy_->computes(seq, count);
  const bool samples = count == left;
  SeqStep& step =
      plan.seqs.emplace_back(seq.slot, seq.generation, first, samples ? LogitRows::kLast : LogitRows::kNone);
  if (left == 1 && first >= seq.prompt_length) {
    ++next_stats_.decode_tokens;
  } else {
    next_stats_.prefill_tokens += count;
    if (samples && seq.spec.max_tokens == 0) step.rows = LogitRows::kEnd;
    if (seq.next_row != Sequence::kNoRow) plan_prompt(plan, seq, first + count);
  }
  if (seq.pending == 0) {
    step.tokens.append(std::span(seq.tokens).subspan(first, count));
  } else {
    step.tokens.push_back(kLateToken);  // it decodes the token that an open step samples
  }
  seq.pending += samples ? 1 : 0;
  seq.planned += count;
  seq.last_step = plan.step;

  if (!ready) extend_table(plan, step, seq);
}

/// What is wanted of the prompt in the chunk that was planned last, which ends at `end`.
void Scheduler::plan_prompt(StepPlan& plan, Sequence& seq, uint32_t end) {
  const uint32_t first = std::max(seq.next(), seq.next_row);
  const uint32_t end_row = std::max(first, std::min(end, seq.prompt_length - 1));
  PromptStep& part = plan.prompts.emplace_back(plan.seqs.size() - 1, first, end_row, seq.tokens[end_row]);
  part.last = end == seq.prompt_length;
  ++seq.yields;
}

/// Prepares the table of a sequence for the tokens of its step.
void Scheduler::extend_table(StepPlan& plan, SeqStep& step, Sequence& seq) {
  const auto count = static_cast<uint32_t>(step.tokens.size());
  const uint32_t known_rows = seq.table.size();
  const size_t known_copies = plan.copies.size();
  seq.table.prepare_write(pool_, step.first_position, count, plan.copies);
  slots_unused_ += uint64_t{seq.table.size() - known_rows} * config_.block_size;
  for (const BlockCopy& copy : std::span(plan.copies).subspan(known_copies)) {
    log_.write(DecisionKind::kCopy, copy.from, copy.to);
  }
  for (const auto& [group, index] : seq.table.take_changed()) {
    const BlockId block = seq.table.blocks(group)[index];  // kNoBlock: it has been released since
    if (block != kNoBlock) plan.updates.push_back({seq.slot, index, block, group});
  }
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    step.new_blocks.append(seq.table.blocks(group).subspan(known_rows));
  }
}

void Scheduler::describe_state(StepStats& stats) const {
  stats.running = static_cast<uint32_t>(running_.size());
  stats.waiting = static_cast<uint32_t>(waiting_.size());
  stats.blocks_total = pool_.size();
  stats.blocks_referenced = pool_.num_referenced();
  stats.blocks_cached = pool_.num_cached();
  stats.blocks_shared = pool_.num_shared();
  stats.blocks_saved = static_cast<uint32_t>(pool_.num_saved());
  // Only full blocks are shared between steps, so no unused position is counted twice.
  stats.slots_unused = static_cast<uint32_t>(slots_unused_ * pool_.cache().num_groups());
  stats.host_blocks_used = config_.num_host_blocks - static_cast<uint32_t>(free_host_blocks_.size());
  stats.total_evictions = pool_.num_evictions();
}

}  // namespace quire::control
