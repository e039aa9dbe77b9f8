#include "engine/queue_forecast.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "control/kv/windows.h"

namespace quire::engine {
namespace {

constexpr double kLongestRetry = 600;  // seconds

std::string milliseconds(Nanos time) { return fmt::format("{:.0f} ms", static_cast<double>(time) * 1e-6); }

uint32_t whole_seconds(Nanos time) {
  return static_cast<uint32_t>(std::clamp(std::ceil(static_cast<double>(time) * 1e-9), 1.0, kLongestRetry));
}

/// As Scheduler::add makes it, with tokens of no value.
control::Sequence sequence_of(const Newcomer& newcomer) {
  const control::SeqSpec& spec = newcomer.spec;
  control::Sequence seq;
  seq.tokens = std::vector<TokenId>(spec.prompt.size());
  seq.prompt_length = seq.total();
  seq.longest = seq.prompt_length + std::max(spec.max_tokens, 1U);
  if (spec.wants.any()) {
    seq.next_row =
        std::min(spec.wants.logprobs < 0 ? UINT32_MAX : spec.wants.first_row, seq.prompt_length - 1);
  }
  seq.spec.arrived = spec.arrived;
  seq.spec.ttft_deadline = spec.ttft_deadline;
  seq.spec.priority = spec.priority;
  seq.spec.expected_tokens = spec.expected_tokens;
  seq.spec.max_tokens = spec.max_tokens;
  seq.spec.wants = spec.wants;
  seq.spec.tenant = spec.tenant;
  return seq;
}

}  // namespace

Outlook QueueForecast::foresee(const control::Scheduler& scheduler, const control::PrefixCache& cache,
                               const Newcomer& newcomer, Nanos begins, StepTokens budget, bool promises) {
  const bool judges = promises && !newcomer.accepted;
  const control::SchedulerConfig& config = scheduler.config();
  if (policy_ == nullptr) {
    policy_ = control::make_policy(config.scheduling, {config.costs, config.priority_aging, cache});
  }
  const control::Sequence seq = sequence_of(newcomer);
  Told told{.runs_on = newcomer.runs_on};
  if (judges && newcomer.ttft_deadline) told.due = newcomer.spec.arrived + *newcomer.ttft_deadline;
  if (config.enable_prefix_caching) {
    control::Prefix found;
    cache.match(std::span(newcomer.spec.prompt).first(seq.sharable() + 1), newcomer.spec.salt, found);
    told.cached = found.num_rows * config.block_size;
    told.idle = static_cast<uint64_t>(std::ranges::count_if(
        found.blocks, [&](BlockId block) { return block != kNoBlock && cache.is_idle(block); }));
  }
  const bool is_fair = config.scheduling == control::SchedulingKind::kFair;
  if (is_fair) shares_.see(scheduler);
  Queue before = gather(scheduler, begins, budget);
  const uint32_t tenant = is_fair ? tenant_in(before, newcomer.spec.tenant) : 0;
  const int64_t own_rank = rank(config, seq, told);
  const auto place = static_cast<size_t>(
      std::upper_bound(before.ranks.begin(), before.ranks.end(), own_rank) - before.ranks.begin());
  ForecastState state = before.state;
  state.all_first = judges;
  if (is_fair) state.served[tenant] = shares_.starts_at(newcomer.spec.tenant);
  ForecastSeq own = waits(config, seq, told);
  own.wanted = true;
  own.tenant = tenant;
  auto at = state.waiting.begin() + static_cast<ptrdiff_t>(place);
  at = state.waiting.insert(at, own) + 1;
  if (newcomer.sequences > 1) {  // they share its prompt but for the last token
    own.computed = seq.prompt_length - 1;
    own.blocks = state.groups;
    state.waiting.insert(at, newcomer.sequences - 1, own);
  }
  const Forecast with = forecast(state, costs_);
  Outlook outlook;
  outlook.first_token = with.waiting[place].first_token;
  for (size_t i = 0; i < newcomer.sequences; ++i) {
    outlook.end = std::max(outlook.end, with.waiting[place + i].end);
  }
  if (judges) judge(before, state, place, newcomer, with, outlook);
  if (outlook.unkept) return outlook;
  told_[newcomer.spec.id] = told;
  if (is_fair) shares_.arrives(newcomer.spec.tenant);
  return outlook;
}

QueueForecast::Queue QueueForecast::gather(const control::Scheduler& scheduler, Nanos begins,
                                           StepTokens budget) {
  const control::SchedulerConfig& config = scheduler.config();
  const control::StepStats& stats = scheduler.stats();
  Queue queue;
  ForecastState& state = queue.state;
  state.now = begins;
  state.budget = budget;
  state.context_cost = config.context_cost;
  state.free_slots = config.max_num_seqs;
  state.available = stats.blocks_total - stats.blocks_referenced;
  state.watermark = (uint64_t{config.num_blocks} * config.watermark_bp + 9999) / 10000;
  state.block_size = config.block_size;
  // A table with a window stops growing; where there are only such, it is taken to grow all the same.
  state.groups = std::max(1U, static_cast<uint32_t>(std::ranges::count(config.kv_windows, 0U)));
  state.swaps = config.preemption == control::PreemptionKind::kSwap;
  gather_running(scheduler, queue);
  gather_waiting(scheduler, queue);
  return queue;
}

/// The number of a tenant in the state.
uint32_t QueueForecast::tenant_in(Queue& queue, uint64_t tenant) const {
  std::vector<int64_t>& served = queue.state.served;
  const auto [found, is_new] = queue.tenants.emplace(tenant, static_cast<uint32_t>(served.size()));
  if (is_new) served.push_back(shares_.served(tenant));
  return found->second;
}

void QueueForecast::gather_running(const control::Scheduler& scheduler, Queue& queue) {
  ForecastState& state = queue.state;
  const bool is_fair = scheduler.config().scheduling == control::SchedulingKind::kFair;
  uint64_t held = 0;  // by all tables together; a shared block counts in each
  for (const control::Sequence* seq : scheduler.running()) {
    held += uint64_t{seq->table.size()} * seq->table.num_groups();
  }
  const uint64_t referenced = scheduler.stats().blocks_referenced;
  for (const control::Sequence* seq : scheduler.running()) {
    const uint64_t own = uint64_t{seq->table.size()} * seq->table.num_groups();
    const uint64_t share = held == 0 ? 0 : own * referenced / held;
    if (seq->remaining() == 0) {  // it ends with an open step
      state.available += share;
      continue;
    }
    --state.free_slots;
    const Told told = told_of(*seq);
    const uint32_t generated = seq->generated() + seq->pending;
    state.running.push_back({.tokens = seq->total() + seq->pending,
                             .computed = seq->next(),
                             .to_generate = to_generate(*seq, told),
                             .blocks = share,
                             .started = generated > 0});
    queue.running_due.push_back(generated > 0 ? -1 : told.due);
    if (!is_fair) continue;
    state.running.back().tenant = tenant_in(queue, seq->spec.tenant);
    shares_.expect(seq->spec.id, state.running.back().to_generate);
  }
}

void QueueForecast::gather_waiting(const control::Scheduler& scheduler, Queue& queue) const {
  const control::SchedulerConfig& config = scheduler.config();
  struct Entry {
    int64_t rank = 0;
    ForecastSeq seq;
    Nanos due = -1;
  };
  std::vector<Entry> entries;
  entries.reserve(scheduler.waiting().size());
  uint32_t first = 0;  // a tenant that goes before all others
  if (config.scheduling == control::SchedulingKind::kFair) {
    first = static_cast<uint32_t>(queue.state.served.size());
    queue.state.served.push_back(INT64_MIN / 2);
  }
  for (const control::Sequence* seq : scheduler.waiting()) {
    const Told told = told_of(*seq);
    const int64_t order = seq->is_protected() ? INT64_MIN : rank(config, *seq, told);
    entries.push_back({order, waits(config, *seq, told), seq->generated() > 0 ? -1 : told.due});
    if (config.scheduling != control::SchedulingKind::kFair) continue;
    entries.back().seq.tenant = seq->is_protected() ? first : tenant_in(queue, seq->spec.tenant);
  }
  std::ranges::stable_sort(entries, {}, &Entry::rank);
  for (const Entry& entry : entries) {
    queue.ranks.push_back(entry.rank);
    queue.state.waiting.push_back(entry.seq);
    queue.waiting_due.push_back(entry.due);
  }
}

QueueForecast::Told QueueForecast::told_of(const control::Sequence& seq) const {
  const auto found = told_.find(seq.spec.id);
  if (found != told_.end()) return found->second;
  const auto parent = seq.spec.fork_of ? told_.find(*seq.spec.fork_of) : told_.end();
  if (parent == told_.end()) return {};
  return {.cached = seq.prompt_length - 1, .runs_on = parent->second.runs_on};
}

ForecastSeq QueueForecast::waits(const control::SchedulerConfig& config, const control::Sequence& seq,
                                 const Told& told) const {
  const uint32_t size = config.block_size;
  const bool was_preempted = seq.preemptions > 0;  // then others may have got what it had
  const uint32_t cached = std::min(was_preempted ? seq.swapped : told.cached, seq.total() - 1);
  const uint64_t missing = seq.total() - uint64_t{cached / size} * size;
  const uint64_t chunk = std::min<uint64_t>(config.max_num_batched_tokens, seq.total() - cached);
  return {.tokens = seq.total(),
          .computed = cached,
          .to_generate = to_generate(seq, told),
          .blocks =
              control::blocks_held(config.kv_windows, missing, chunk, size) + (was_preempted ? 0 : told.idle),
          .started = seq.generated() > 0,
          .counted = was_preempted};
}

uint32_t QueueForecast::to_generate(const control::Sequence& seq, const Told& told) const {
  const uint32_t most = seq.longest - seq.prompt_length;
  const uint32_t generated = seq.generated() + seq.pending;
  uint32_t expected = most;
  if (!told.runs_on) {
    const uint32_t said = std::min(seq.spec.expected_tokens.value_or(0), most);
    expected = said > generated ? said : lengths_.expect(generated, most);
  }
  return std::max(expected, generated + 1) - generated;
}

/// By the scheduler's policy; one that keeps counts of its own is imitated. Of `fair` it is the order of
/// arrival, among the sequences of a tenant.
int64_t QueueForecast::rank(const control::SchedulerConfig& config, const control::Sequence& seq,
                            const Told& told) const {
  switch (config.scheduling) {
    case control::SchedulingKind::kSlo:
    case control::SchedulingKind::kPriority:
      return policy_->rank(seq);
    case control::SchedulingKind::kSrpt:
      return int64_t{seq.total() - seq.swapped} * config.costs.prefill_token +
             int64_t{to_generate(seq, told)} * config.costs.decode_token;
    case control::SchedulingKind::kLpm:
      return -int64_t{told.cached / config.block_size};
    case control::SchedulingKind::kFcfs:
    case control::SchedulingKind::kFair:
      break;
  }
  return 0;
}

/// `before`: without the newcomer, whose first sequence is at `place` in `state`.
void QueueForecast::judge(const Queue& before, const ForecastState& state, size_t place,
                          const Newcomer& newcomer, const Forecast& with, Outlook& outlook) const {
  const Nanos arrived = newcomer.spec.arrived;
  if (newcomer.ttft_deadline && outlook.first_token > arrived + *newcomer.ttft_deadline) {
    judge_own(state, place, newcomer, outlook);
  } else {
    judge_others(before, place, newcomer.sequences, with, outlook);
  }
}

/// Its own deadline will pass.
void QueueForecast::judge_own(const ForecastState& state, size_t place, const Newcomer& newcomer,
                              Outlook& outlook) const {
  const Nanos wanted = *newcomer.ttft_deadline;
  const Nanos expected = outlook.first_token - newcomer.spec.arrived;
  ForecastState alone = state;
  alone.free_slots += static_cast<uint32_t>(alone.running.size());
  alone.running.clear();
  alone.waiting = {state.waiting[place]};
  const Nanos least = forecast(alone, costs_).waiting[0].first_token - state.now;
  if (least > wanted) {
    outlook.unkept = Unkept::kNever;
    outlook.reason = fmt::format(
        "ttft_deadline_ms: the first token is wanted within {}, and even alone here this prompt "
        "of {} tokens is predicted to need {}",
        milliseconds(wanted), newcomer.spec.prompt.size(), milliseconds(least));
    return;
  }
  outlook.unkept = Unkept::kOwn;
  outlook.retry_after = whole_seconds(expected - wanted);
  outlook.reason = fmt::format(
      "The first token is wanted within {} (ttft_deadline_ms) and predicted after {}, since others are "
      "before "
      "it. Try again in {} s.",
      milliseconds(wanted), milliseconds(expected), outlook.retry_after);
}

/// Whether a promise would be kept but for the newcomer.
void QueueForecast::judge_others(const Queue& before, size_t place, size_t sequences, const Forecast& with,
                                 Outlook& outlook) const {
  const auto late = [](Nanos due, const ForecastTimes& times) { return due >= 0 && times.first_token > due; };
  const auto now_at = [&](size_t i) { return with.waiting[i < place ? i : i + sequences]; };
  bool any = false;
  for (size_t i = 0; i < before.running_due.size(); ++i) any |= late(before.running_due[i], with.running[i]);
  for (size_t i = 0; i < before.waiting_due.size(); ++i) any |= late(before.waiting_due[i], now_at(i));
  if (!any) return;
  ForecastState state = before.state;
  state.all_first = true;
  const Forecast without = forecast(state, costs_);
  Nanos until = -1;  // then the last of those that it would make late has its first token
  Nanos worst = 0;
  const auto weigh = [&](Nanos due, const ForecastTimes& then, const ForecastTimes& now) {
    if (!late(due, now) || late(due, then)) return;
    until = std::max(until, then.first_token);
    worst = std::max(worst, now.first_token - due);
  };
  for (size_t i = 0; i < before.running_due.size(); ++i) {
    weigh(before.running_due[i], without.running[i], with.running[i]);
  }
  for (size_t i = 0; i < before.waiting_due.size(); ++i) {
    weigh(before.waiting_due[i], without.waiting[i], now_at(i));
  }
  if (until < 0) return;
  outlook.unkept = Unkept::kAnother;
  outlook.retry_after = whole_seconds(until - before.state.now);
  outlook.reason = fmt::format(
      "With this request, the first token of another is predicted {} after the time for which it was "
      "promised. "
      "Try again in {} s.",
      milliseconds(worst), outlook.retry_after);
}

}  // namespace quire::engine
