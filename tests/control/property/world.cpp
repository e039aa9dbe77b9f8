#include "tests/control/property/world.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "control/kv/windows.h"

namespace quire::test {
namespace {

constexpr char kFailure[] = "NaN";

uint32_t num_tokens(const control::StepPlan& plan) {
  size_t tokens = 0;
  for (const control::SeqStep& step : plan.seqs) tokens += step.tokens.size();
  return static_cast<uint32_t>(tokens);
}

}  // namespace

World::World(const Story& story)
    : story_(story),
      config_(story.config),
      scheduler_(config_),
      executor_(config_.num_blocks, config_.block_size, story.operations.size(), config_.kv_windows,
                config_.num_host_blocks),
      model_(config_) {}

std::string World::run() {
  for (size_t i = 0; i < story_.operations.size(); ++i) {
    operate(story_.operations[i]);
    if (!error_.empty())
      return fmt::format("operation {}, {}: {}", i, to_string(story_.operations[i]), error_);
  }
  drain();
  return error_.empty() ? "" : "after the last operation: " + error_;
}

void World::operate(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kAdd:
    case Operation::Kind::kFork:
      return add(operation);
    case Operation::Kind::kAbort:
      return abort(operation.other);
    case Operation::Kind::kReset:
      scheduler_.pool().drop_cached();
      model_.reset();
      return check();
    case Operation::Kind::kStep:
      open(operation.milliseconds, operation.fails);
      if (open_.size() == story_.depth) close();
      return;
    case Operation::Kind::kPlan:
      return open(operation.milliseconds, operation.fails);
    case Operation::Kind::kCommit:
      return close();
    case Operation::Kind::kBudget:
      scheduler_.set_budget(operation.tokens);
      return model_.set_budget(operation.tokens);
    case Operation::Kind::kLose:
      return lose_executor();
  }
}

// ---- in and out ----

void World::add(const Operation& operation) {
  const Request& request = operation.request;
  control::SeqSpec spec;
  if (operation.kind == Operation::Kind::kFork) {
    const auto parent = records_.find(operation.other);
    if (parent == records_.end()) return;
    spec.prompt = parent->second.spec.prompt;
    // As a beam: the answer so far, or a part of it, perhaps with another last token.
    const std::vector<TokenId>& said = parent->second.output;
    const size_t shared = std::min<size_t>(request.own - 1, said.size());
    std::vector<TokenId>& prompt = spec.prompt.write();
    prompt.insert(prompt.end(), said.begin(), said.begin() + static_cast<ptrdiff_t>(shared));
    if (shared > 0 && request.length % 2 == 1) prompt.back() = (prompt.back() + 1) % kVocabulary;
    spec.salt = parent->second.spec.salt;
    spec.fork_of = operation.other;
  } else {
    spec.prompt = prompt(request);
    spec.salt = request.salt;
    if (spec.prompt.empty()) return;
  }
  spec.wants.logprobs = static_cast<int32_t>(request.rows) - 1;
  spec.wants.first_row = request.first_row;
  spec.wants.pooling = static_cast<Pooling>(request.pooling);
  spec.id = request.id;
  spec.max_tokens = request.max_tokens;
  spec.sampling.seed = spec.id;
  spec.sampling.choice = request.choice;
  if (request.penalties) spec.sampling.presence_penalty = 1;
  if (request.stop_token > 0) spec.stop_tokens = {static_cast<TokenId>(request.stop_token - 1)};
  spec.arrived = now_;
  spec.ttft_deadline = request.deadline * Nanos{1'000'000};
  spec.priority = request.priority;
  spec.tenant = request.tenant;
  if (request.expected > 0) spec.expected_tokens = request.expected;
  add(std::move(spec), request.stop_after);
}

void World::add(control::SeqSpec spec, uint32_t stop_after) {
  const uint64_t length = spec.prompt.size() + spec.max_tokens;
  const uint64_t computed = spec.max_tokens == 0 ? length : length - 1;
  const bool fits =
      length <= config_.max_model_len &&
      control::blocks_held(config_.kv_windows, computed, 1, config_.block_size) <= config_.num_blocks;
  const bool has_place =
      (spec.fork_of && model_.has_run(*spec.fork_of)) ||
      model_.num_waiting() + model_.num_running() < uint64_t{config_.max_waiting} + config_.max_num_seqs;
  const auto added = scheduler_.add(spec);
  if (added.has_value() != (fits && has_place)) return fail("a sequence is taken or refused wrongly");
  if (!added) {
    ++coverage_.refusals;
    if (added.error().code != (fits ? RequestErrorCode::kQueueFull : RequestErrorCode::kTooLong)) {
      fail("refused for the wrong reason: " + added.error().message);
    }
    return;
  }
  executor_.expect(spec);
  model_.add(spec, executor_.solo(spec.id).tokens);
  records_[spec.id] = {.spec = std::move(spec), .stop_after = stop_after, .output = {}};
  check();
}

void World::abort(SeqId id) {
  scheduler_.abort(id);
  check();
  if (!model_.knows(id)) return;
  ++coverage_.aborts;
  coverage_.aborts_inside += open_.empty() ? 0 : 1;
  records_.at(id).ended = true;
  model_.abort(id);
  check_counts();
}

// ---- a step ----

void World::open(uint32_t milliseconds, uint32_t fails) {
  if (open_.size() == story_.depth) close();
  now_ += milliseconds * Nanos{1'000'000};
  const bool had_work = scheduler_.has_work();
  control::StepPlan plan = scheduler_.plan();
  check();
  if (had_work) check_reasons();
  if (!plan.empty() && !had_work) fail("a step without work");
  if (plan.empty() && had_work && open_.empty()) fail("a step without progress while work waits");
  if (num_tokens(plan) > config_.max_num_batched_tokens) fail("over the token budget");
  const uint64_t preempted = model_.counts().preemptions;
  if (had_work) model_.plan(plan);
  if (!model_.error().empty()) fail(model_.error());
  if (plan.empty()) {
    if (!plan.removed.empty() || !plan.added.empty() || !plan.updates.empty() || !plan.moves_out.empty() ||
        !plan.moves_in.empty() || !plan.copies.empty()) {
      fail("no step, but a plan");
    }
    coverage_.waits += had_work ? 1 : 0;
    return close();
  }
  if (!error_.empty()) return;  // the executor might trip over it
  control::StepResult result = executor_.execute(plan);
  if (!executor_.error().empty()) fail(executor_.error());
  if (fails > 0) result.seqs[(fails - 1) % result.seqs.size()].error = kFailure;
  for (const control::SeqStep& step : plan.seqs) coverage_.late_tokens += step.is_late() ? 1 : 0;
  open_.push_back({std::move(plan), std::move(result), model_.counts().preemptions - preempted});
}

void World::close() {
  if (open_.empty()) return;
  OpenStep oldest = std::move(open_.front());
  open_.pop_front();
  const control::StepPlan& plan = oldest.plan;
  const uint64_t preempted = oldest.preempted;
  const control::StepStats before = scheduler_.stats();
  const std::vector<control::SeqEvent> events = scheduler_.commit(plan, std::move(oldest.result));
  const auto samples = [](const control::SeqStep& step) { return step.rows != control::LogitRows::kNone; };
  coverage_.late_results += static_cast<uint64_t>(std::ranges::count_if(plan.seqs, samples)) - events.size();
  model_.commit(plan, events);
  for (const control::PromptEvent& event : scheduler_.prompts()) take(event);
  std::vector<SeqId> stops;
  for (const control::SeqEvent& event : events) take(event, stops);
  check();
  check_counts();
  const control::StepStats& stats = scheduler_.stats();
  if (stats.step != plan.step || stats.preempted != preempted ||
      stats.total_preemptions != before.total_preemptions + preempted ||
      stats.total_copies != before.total_copies + stats.copies ||
      stats.prefill_tokens + stats.decode_tokens != num_tokens(plan) || stats.admitted != plan.added.size() ||
      stats.copies != plan.copies.size() || stats.swapped_out != plan.moves_out.size() ||
      stats.swapped_in != plan.moves_in.size()) {
    fail("the statistics of the step are not those of its plan");
  }
  ++coverage_.steps;
  coverage_.preempting_steps += stats.preempted > 0 ? 1 : 0;
  for (const SeqId id : stops) {
    ++coverage_.stops;
    abort(id);
  }
}

void World::lose_executor() {
  ++coverage_.losses;
  for (const auto& [id, record] : records_) {
    if (!record.ended) abort(id);
  }
  scheduler_.reset();
  model_.reset();
  executor_.forget();
  open_.clear();
  check();
}

/// Each row once and in order, for the right token, before the sequence's first token.
void World::take(const control::PromptEvent& event) {
  Record& record = records_.at(event.id);
  const control::SeqSpec& spec = record.spec;
  const Solo& solo = executor_.solo(event.id);
  const auto wrong = [&](const char* what) { fail(fmt::format("sequence {}: {}", event.id, what)); };
  if (record.ended || !record.output.empty())
    wrong("something of its prompt after its first token or its end");
  if (event.yield.empty()) wrong("nothing of its prompt, as an event");
  coverage_.in_pieces += record.rows > 0 && !event.yield.rows.empty() ? 1 : 0;
  for (const PromptRow& row : event.yield.rows) {
    if (spec.wants.logprobs < 0 || row.row != spec.wants.first_row + record.rows++) {
      return wrong("a row twice, too late or that nobody wants");
    }
    if (row.row + 1 >= spec.prompt.size() || row.next.token != spec.prompt[row.row + 1] ||
        row.next.logprob != rating(solo.contents[row.row])) {
      return wrong("a row for another token or of other K/V");
    }
    ++coverage_.rows;
  }
  if (event.yield.pooled.empty()) return;
  float expected = 0;
  for (size_t i = 0; i < spec.prompt.size(); ++i) {
    expected = (spec.wants.pooling == Pooling::kMean ? expected : 0) + rating(solo.contents[i]);
  }
  if (spec.wants.pooling == Pooling::kNone || std::exchange(record.pooled, true) ||
      event.yield.pooled != std::vector{expected}) {
    wrong("another pooled state than alone, or twice");
  }
  ++coverage_.pooled;
}

bool World::has_its_prompt(const Record& record) const {
  const PromptWants& wants = record.spec.wants;
  const auto rows = static_cast<uint32_t>(record.spec.prompt.size()) - 1;
  const uint32_t wanted = wants.logprobs < 0 ? 0 : rows - std::min(rows, wants.first_row);
  return record.rows == wanted && record.pooled == (wants.pooling != Pooling::kNone);
}

void World::take(const control::SeqEvent& event, std::vector<SeqId>& stops) {
  Record& record = records_.at(event.id);
  const Solo& solo = executor_.solo(event.id);
  const auto wrong = [&](const char* what) { fail(fmt::format("sequence {}: {}", event.id, what)); };
  if (record.ended) wrong("an event after its end");
  if (event.cached_tokens > (record.output.empty() ? record.spec.prompt.size() - 1 : 0)) {
    wrong("more tokens cached than the prompt has, or said twice");
  }
  if (event.token) record.output.push_back(event.token->token);
  if ((event.token || event.finish == control::FinishReason::kLength) && !has_its_prompt(record)) {
    wrong("a token or an end before all that it wants of its prompt");
  }
  const size_t length = record.spec.prompt.size() + record.output.size();
  if (length > solo.tokens.size() ||
      !std::equal(record.output.begin(), record.output.end(),
                  solo.tokens.begin() + static_cast<ptrdiff_t>(record.spec.prompt.size()))) {
    wrong("another output than alone");
  }
  if (event.token && event.finish.has_value() != (length == solo.tokens.size())) {
    wrong("ends too early or too late");
  }
  if (!event.finish) {
    if (record.output.size() == record.stop_after) stops.push_back(event.id);
    return;
  }
  record.ended = true;
  coverage_.tokenless += record.spec.max_tokens == 0 ? 1 : 0;
  if (*event.finish == control::FinishReason::kError) {
    ++coverage_.failures;
    if (event.error != kFailure) wrong("an error without its reason");
  } else if (*event.finish != solo.finish) {
    wrong("ends for another reason than alone");
  } else if (event.stop_token.has_value() != (solo.finish == control::FinishReason::kStop)) {
    wrong("a stop token missing or invented");
  }
}

// ---- the end ----

void World::finish_all() {
  constexpr uint32_t kForEver = 20'000;  // steps
  uint32_t steps = 0;
  while ((scheduler_.has_work() || !open_.empty()) && error_.empty()) {
    if (scheduler_.has_work()) open(1, 0);
    if (open_.size() == story_.depth || !scheduler_.has_work()) close();
    if (++steps == kForEver) fail("some sequences never end");
  }
}

/// Every sequence ends, and every block and slot is back.
void World::drain() {
  finish_all();
  for (const auto& [id, record] : records_) {
    if (!record.ended) fail(fmt::format("sequence {} never ended", id));
  }
  scheduler_.pool().drop_cached();
  model_.reset();
  control::SeqSpec last;  // alone in an empty house; with it the executor hears of all ends before
  last.id = records_.empty() ? 0 : records_.rbegin()->first + 1;
  last.prompt = {0};
  last.max_tokens = 1;
  last.sampling.seed = last.id;
  add(last, 0);
  finish_all();
  const control::StepStats& stats = scheduler_.stats();
  const auto groups = static_cast<uint32_t>(config_.kv_windows.size());
  const uint32_t its_own = config_.enable_prefix_caching && config_.block_size == 1 ? groups : 0;
  if (stats.running + stats.waiting + stats.blocks_referenced + stats.slots_unused + stats.host_blocks_used >
      0) {
    fail("something is held by nobody");
  }
  if (stats.blocks_cached != its_own) fail("a block was not forgotten");
  if (executor_.slots_in_use() != 1) fail("the executor was not told of an end");  // but the last
}

void World::check() {
  if (!error_.empty()) return;
  if (const std::string wrong = scheduler_.check_invariants(); !wrong.empty()) fail(wrong);
  if (!model_.error().empty()) fail(model_.error());
}

/// Each waiting sequence has a reason of this plan. Those that are not passed over have the same, or the
/// first lacks blocks and the others wait for it.
void World::check_reasons() {
  using control::WaitReason;
  std::map<WaitReason, size_t> reasons;
  for (const control::Sequence* seq : scheduler_.waiting()) {
    const bool follows = seq->follows_in == scheduler_.next_step() - 1;
    if (seq->waits_for == WaitReason::kNone) fail("a sequence waits without a reason");
    if (seq->waits_for == WaitReason::kPrefix && !follows)
      fail("a sequence waits for a prefix of an old plan");
    if (seq->waits_for == WaitReason::kParent || seq->waits_for == WaitReason::kPrefix) continue;
    if (follows) fail("a sequence is passed over without that reason");
    ++reasons[seq->waits_for];
  }
  const bool all_alike = reasons.size() <= 1 && !reasons.contains(WaitReason::kOrder);
  const bool first_lacks = reasons[WaitReason::kBlocks] == 1 && reasons[WaitReason::kOrder] > 0;
  if (!all_alike && !(first_lacks && reasons.size() == 2)) fail("sequences wait for different reasons");
}

void World::check_counts() {
  model_.compare(scheduler_.stats());
  if (!model_.error().empty()) fail(model_.error());
}

// ---- coverage ----

void World::add_to(Coverage& sum) const {
  const NaiveModel::Counts& own = model_.counts();
  ++sum.stories;
  sum.steps += coverage_.steps;
  sum.preempting_steps += coverage_.preempting_steps;
  sum.aborts += coverage_.aborts;
  sum.aborts_inside += coverage_.aborts_inside;
  sum.stops += coverage_.stops;
  sum.failures += coverage_.failures;
  sum.refusals += coverage_.refusals;
  sum.losses += coverage_.losses;
  sum.late_tokens += coverage_.late_tokens;
  sum.late_results += coverage_.late_results;
  sum.waits += coverage_.waits;
  sum.rows += coverage_.rows;
  sum.pooled += coverage_.pooled;
  sum.in_pieces += coverage_.in_pieces;
  sum.tokenless += coverage_.tokenless;
  sum.model.admissions += own.admissions;
  sum.model.hits += own.hits;
  sum.model.forks += own.forks;
  sum.model.late_forks += own.late_forks;
  sum.model.overtakes += own.overtakes;
  sum.model.followers += own.followers;
  sum.model.preemptions += own.preemptions;
  sum.model.chosen_victims += own.chosen_victims;
  sum.model.short_chunks += own.short_chunks;
  sum.model.protections += own.protections;
  sum.model.swapped_out += own.swapped_out;
  sum.model.swapped_in += own.swapped_in;
  sum.model.too_big_to_swap += own.too_big_to_swap;
  sum.model.copies += own.copies;
  sum.model.deduplicated += own.deduplicated;
  sum.model.evictions += own.evictions;
  sum.model.left_behind += own.left_behind;
  sum.model.forgotten += own.forgotten;
  sum.steps_by_batching[static_cast<size_t>(config_.batching)] += coverage_.steps;
  sum.admissions_by_scheduling[static_cast<size_t>(config_.scheduling)] += own.admissions;
  sum.overtakes_by_scheduling[static_cast<size_t>(config_.scheduling)] += own.overtakes;
  sum.preemptions_by_victim[static_cast<size_t>(config_.victim)] += own.preemptions;
  sum.chosen_by_victim[static_cast<size_t>(config_.victim)] += own.chosen_victims;
  sum.preemptions_by_way[static_cast<size_t>(config_.preemption)] += own.preemptions;
  sum.swaps_by_way[static_cast<size_t>(config_.preemption)] += own.swapped_out;
  sum.evictions_by_policy[static_cast<size_t>(config_.eviction)] += own.evictions;
}

std::string to_string(const Coverage& c) {
  const auto percent = [](uint64_t part, uint64_t of) {
    return fmt::format("{:.1f} %",
                       100.0 * static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(of, 1)));
  };
  const auto by_name = [](const auto& counts, const auto& names) {
    std::string text;
    for (size_t i = 0; i < std::size(names); ++i) {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", names[i], counts[i]);
    }
    return text;
  };
  std::string text;
  text += fmt::format(
      "{} stories, {} steps, of these {} preempt; {} admissions, of these {} hit; passed over {} times, "
      "while another computed their prefix\n",
      c.stories, c.steps, percent(c.preempting_steps, c.steps), c.model.admissions,
      percent(c.model.hits, c.model.admissions), c.model.followers);
  text += fmt::format(
      "{} aborts, of these {} within a step; {} ends by a stop string, {} failures, {} losses of all, {} "
      "refusals, "
      "{} sequences protected\n",
      c.aborts, c.aborts_inside, c.stops, c.failures, c.losses, c.refusals, c.model.protections);
  text += fmt::format(
      "{} tokens decoded before they were known, {} results that came too late, {} waits for results\n",
      c.late_tokens, c.late_results, c.waits);
  text += fmt::format(
      "prompts: {} rows, {} chunks of rows that go on, {} pooled states; {} ends without a token\n", c.rows,
      c.in_pieces, c.pooled, c.tokenless);
  text += fmt::format(
      "blocks: {} swapped out, {} in, {} preempted without room on the host, {} copies, "
      "{} deduplicated, {} evicted, {} left behind, {} forgotten; {} forks that share, {} of them "
      "in mid-answer\n",
      c.model.swapped_out, c.model.swapped_in, c.model.too_big_to_swap, c.model.copies, c.model.deduplicated,
      c.model.evictions, c.model.left_behind, c.model.forgotten, c.model.forks, c.model.late_forks);
  text += "steps: " + by_name(c.steps_by_batching, control::kBatchingNames) + "\n";
  text += "admissions: " + by_name(c.admissions_by_scheduling, control::kSchedulingNames) + "\n";
  text += "admissions of another than the first: " +
          by_name(c.overtakes_by_scheduling, control::kSchedulingNames) + "\n";
  text += "preemptions: " + by_name(c.preemptions_by_victim, control::kVictimNames) + "\n";
  text +=
      "preemptions of another than the last: " + by_name(c.chosen_by_victim, control::kVictimNames) + "\n";
  text += "preemptions: " + by_name(c.preemptions_by_way, control::kPreemptionNames) + "\n";
  text += "blocks swapped out: " + by_name(c.swaps_by_way, control::kPreemptionNames) + "\n";
  text += "evictions: " + by_name(c.evictions_by_policy, control::kEvictionNames);
  return text;
}

}  // namespace quire::test
