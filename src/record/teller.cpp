#include "record/teller.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/kv_windows.h"
#include "record/display_text.h"

namespace quire {
namespace {

constexpr size_t kWorstKept = 3;
constexpr size_t kMostSplits = size_t{1} << 18;  // of all waits: one line of a log can split many

std::string ordinal(uint32_t n) {
  if (n % 100 >= 11 && n % 100 <= 13) return fmt::format("{}th", n);
  static constexpr const char* kEndings[] = {"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"};
  return fmt::format("{}{}", n, kEndings[n % 10]);
}

/// Why Scheduler::add refuses it; it does not record which of its reasons it was.
std::string why_refused(const RunAdd& add, const RunState& state) {
  const SchedulerConfig& config = state.config();
  const uint64_t length = add.spec.prompt.size() + uint64_t{add.spec.max_tokens};
  if (length > config.max_model_len) {
    return fmt::format("{} tokens of prompt and answer are more than the {} of the longest sequence", length,
                       config.max_model_len);
  }
  const uint64_t fits =
      longest_sequence(config.kv_windows, config.num_blocks, config.block_size, config.max_model_len);
  if (length > fits + 1) {
    return fmt::format("{} tokens of prompt and answer are more than the {} that fit in the pool", length,
                       fits);
  }
  if (state.waiting() >= config.max_waiting) return fmt::format("{} waited already", state.waiting());
  return "its number was taken, or it was no sequence that can run";
}

std::string_view victim_text(VictimKind kind) {
  switch (kind) {
    case VictimKind::kLastAdmitted:
      return "it came in last";
    case VictimKind::kLowestPriority:
      return "it has the lowest priority";
    case VictimKind::kLeastProgress:
      return "it had computed least";
  }
  return "";
}

bool is_waiting(const WaitSpan& span) { return span.steps.from != 0; }

}  // namespace

Teller::Teller(RunStory& story, const WhoseLines& whose)
    : story_(story), whose_(whose), evictions_(story.config) {
  if (whose_) order_ = std::make_unique<QueueOrder>(story.config);
}

void Teller::say(const Life& life, uint64_t from, uint64_t to, std::string text) {
  if (life.told) of(life).lines.push_back({from, to, std::move(text)});
}

void Teller::before(const RunEvent& event, const RunState& state) {
  if (victim_ && !follow_victim(event, state)) tell_victim();
  if (order_) order_->take(event, state);
  evictions_.take(event, state);
  if (const auto* decision = std::get_if<Decision>(&event)) return tell_decision(*decision, state);
  added_.reset();
  restoring_ = std::holds_alternative<RunRestore>(event);
  resetting_ = std::holds_alternative<RunReset>(event);
  if (const auto* add = std::get_if<RunAdd>(&event)) {
    tell_add(*add, state);
  } else if (const auto* abort = std::get_if<RunAbort>(&event)) {
    stop_string_ = abort->stop_string;
  } else if (const auto* plan = std::get_if<RunPlan>(&event)) {
    step_ = ++story_.steps;
    now_ = plan->now;
    preempted_ = false;
    if (!started_) started_ = plan->now;
  } else if (const auto* commit = std::get_if<RunCommit>(&event)) {
    tell_commit(*commit, state);
  } else if (const auto* end = std::get_if<RunEnd>(&event)) {
    story_.digest = end->digest;
  }
}

void Teller::tell_add(const RunAdd& add, const RunState& state) {
  SequenceStory& made = story_.sequences.emplace_back();
  made.id = add.spec.id;
  made.name = add.name;
  made.fork_of = add.spec.fork_of;
  made.tenant = add.spec.tenant;
  made.priority = add.spec.priority;
  made.ttft_deadline = add.spec.ttft_deadline;
  made.prompt_tokens = static_cast<uint32_t>(add.spec.prompt.size());
  made.max_tokens = add.spec.max_tokens;
  made.arrived = step_;
  made.refused = why_refused(add, state);
  made.arrived_at = add.spec.arrived;
  tenants_.add(made.tenant);
  Life& life = added_.emplace(Life{});
  life.index = story_.sequences.size() - 1;
  life.told = whose_ && whose_(made.id, made.name);
  say(life,
      fmt::format("arrives{}: {} of prompt, at most {} to generate; {} before it",
                  step_ == 0 ? "" : " after this step", plural(made.prompt_tokens, "token"), made.max_tokens,
                  state.waiting() == 0   ? "nobody waits"
                  : state.waiting() == 1 ? "one waits"
                                         : fmt::format("{} wait", state.waiting())));
}

void Teller::tell_commit(const RunCommit& commit, const RunState& state) {
  now_ = std::max(now_, commit.now);
  const std::vector<PlannedPart>& parts = state.due();
  for (size_t i = 0; i < std::min(commit.results.size(), parts.size()); ++i) {
    const auto found = lives_.find(parts[i].id);
    if (found == lives_.end() || !commit.results[i].token) continue;
    SequenceStory& sequence = of(found->second);
    ++sequence.generated;
    ++found->second.sampled;
    if (sequence.first_token) continue;
    sequence.first_token = step_;
    sequence.ttft = now_ - sequence.arrived_at;
    found->second.first_token = true;
  }
}

void Teller::tell_decision(const Decision& decision, const RunState& state) {
  ++story_.decisions;
  if (restoring_) {  // held only until all are there
    story_.restored += decision.kind == DecisionKind::kAllocate ? 1 : 0;
    return;
  }
  if (decision.kind == DecisionKind::kEvict && !resetting_) ++story_.evictions;
  if (decision.kind == DecisionKind::kCopy) ++story_.copies;
  if (decision.kind == DecisionKind::kAdd && added_) {
    story_.sequences[added_->index].refused.clear();
    lives_.insert_or_assign(decision.seq, *std::exchange(added_, std::nullopt));
  }
  story_.most_blocks_held = std::max(story_.most_blocks_held, state.blocks_held());
  const auto found = lives_.find(decision.seq);
  const LiveSequence* seq = state.find(decision.seq);
  if (found == lives_.end() || seq == nullptr) return;
  Life& life = found->second;
  switch (decision.kind) {
    case DecisionKind::kHit:
      life.hit = decision.a;
      break;
    case DecisionKind::kSkip:
      begin_wait(life, decision, *seq);
      break;
    case DecisionKind::kSwapIn:
      life.moved_in = decision.a;
      break;
    case DecisionKind::kAdmit:
      tell_admit(life, decision, *seq);
      break;
    case DecisionKind::kCopy:
      flush(life);
      say(life, fmt::format("writes to a copy of block {}, which others hold too: block {}", decision.a,
                            decision.b));
      break;
    case DecisionKind::kPreempt:
      tell_preempt(life, decision, state);
      break;
    case DecisionKind::kFinish:
      tell_finish(life, decision);
      told_in_order_.erase(decision.seq);
      told_for_parent_.erase(decision.seq);
      lives_.erase(found);
      break;
    default:
      break;
  }
}

void Teller::tell_admit(Life& life, const Decision& decision, const LiveSequence& seq) {
  flush(life);
  flush_wait(life, step_ - std::min<uint64_t>(step_, 1));
  SequenceStory& story = of(life);
  const uint32_t there = std::min(decision.b, seq.total);
  const uint32_t hit = std::min(std::exchange(life.hit, 0), there);
  const uint32_t blocks = std::exchange(life.moved_in, 0);
  std::string text;
  if (!life.has_run) {
    text = fmt::format("starts running (slot {})", decision.a);
    story.admitted = step_;
    story.hit_tokens = hit;
  } else {
    PreemptionStory& preempted = life.preempted;
    preempted.steps = step_ - preempted.step;
    preempted.took = std::max<Nanos>(0, now_ - life.preempted_at);
    preempted.back = true;
    text = fmt::format("runs again (slot {}), {} ({}) after it was preempted", decision.a,
                       plural(preempted.steps, "step"), duration_text(preempted.took));
    const uint32_t lost = std::exchange(life.given_up, 0);
    preempted.again_tokens = lost - std::min(there, lost);
    story.found_tokens += std::min(hit, lost);
    story.returned_tokens += std::min(there, lost) - std::min(hit, lost);
    story.again_tokens += preempted.again_tokens;
    story.swapped_in += blocks;
    keep_if_bad(preempted);
  }
  life.has_run = true;
  if (hit > 0) {
    text += fmt::format(
        "; the K/V of {} of its {} tokens is {}", hit, seq.total,
        seq.parent && !story.first_token ? "shared or in the prefix cache" : "in the prefix cache");
  }
  if (there > hit) {
    text +=
        fmt::format("; that of {} more comes back from the host ({})", there - hit, plural(blocks, "block"));
  }
  text += fmt::format("; {} to compute", plural(seq.total - there, "token"));
  say(life, std::move(text));
}

void Teller::tell_preempt(Life& life, const Decision& decision, const RunState& state) {
  flush(life);
  preempted_ = true;
  SequenceStory& story = of(life);
  ++story.preemptions;
  story.lost_tokens += decision.a;
  life.given_up = decision.a;
  life.preempted_at = now_;
  life.preempted = {.victim = story.id, .needy = std::nullopt, .step = step_};
  const LiveSequence* needy = state.needy();
  std::string text = fmt::format("is preempted, for the {} time: ", ordinal(decision.b));
  if (needy == nullptr) {
    text += "no block was left";
  } else {
    life.preempted.needy = needy->id;
    text += needy->id == decision.seq ? "no block was left for its own next token"
                                      : fmt::format("no block was left for the next token of #{}", needy->id);
    text += fmt::format(", and of those that could give way {}", victim_text(state.config().victim));
  }
  victim_ = Victim{.id = decision.seq,
                   .text = std::move(text),
                   .tokens = decision.a,
                   .blocks = state.find(decision.seq)->blocks,
                   .host_free = state.host_blocks_free()};
}

/// Its blocks are moved to the host, then released. False if the event is neither.
bool Teller::follow_victim(const RunEvent& event, const RunState& state) {
  const auto* decision = std::get_if<Decision>(&event);
  if (decision == nullptr || decision->seq != victim_->id) return false;
  if (decision->kind == DecisionKind::kSwapOut) {
    const auto found = lives_.find(victim_->id);
    if (found != lives_.end()) of(found->second).swapped_out += decision->a;
    victim_->swapped = true;
    return true;
  }
  if (decision->kind != DecisionKind::kRelease) return false;
  victim_->still_held += state.holders(decision->a) > 1 ? 1 : 0;
  return true;
}

void Teller::tell_victim() {
  const Victim victim = *std::exchange(victim_, std::nullopt);
  const auto found = lives_.find(victim.id);
  if (found == lives_.end() || !found->second.told) return;
  std::string blocks = plural(victim.blocks, "block");
  if (victim.still_held > 0) blocks += fmt::format(", {} of them still held by others", victim.still_held);
  std::string text =
      fmt::format("{}. The K/V of {} ({}) is ", victim.text, plural(victim.tokens, "token"), blocks);
  if (victim.swapped) {
    text += "moved to the host";
  } else {
    text += "given up: what is not found in the prefix cache later is computed again";
    if (story_.config.preemption != PreemptionKind::kRecompute) {
      text += victim.blocks > victim.host_free
                  ? fmt::format(" (the host pool has only {} free)", plural(victim.host_free, "block"))
                  : " (that is expected to be quicker than to move it to the host and back)";
    }
  }
  say(found->second, std::move(text));
}

void Teller::keep_if_bad(const PreemptionStory& preemption) {
  std::vector<PreemptionStory>& worst = story_.worst_preemptions;
  worst.push_back(preemption);
  std::ranges::stable_sort(worst, std::ranges::greater{},
                           [](const auto& each) { return std::pair(each.steps, each.again_tokens); });
  if (worst.size() > kWorstKept) worst.pop_back();
}

void Teller::tell_finish(Life& life, const Decision& decision) {
  flush(life);
  flush_wait(life, step_);
  SequenceStory& story = of(life);
  const auto reason = std::min<uint32_t>(decision.a, static_cast<uint32_t>(FinishReason::kError));
  story.ended = step_;
  story.finish = static_cast<FinishReason>(reason);
  story.stop_string = story.finish == FinishReason::kAbort && std::exchange(stop_string_, false);
  if (story.stop_string) story.finish = FinishReason::kStop;
  story.total = now_ - story.arrived_at;
  say(life, fmt::format("ends after {}: {}", plural(story.generated, "generated token"), end_text(story)));
}

// ---- waiting ----

void Teller::begin_wait(Life& life, const Decision& decision, const LiveSequence& seq) {
  if (step_ == 0) return;
  end_wait(life, step_ - 1);
  const auto reason = static_cast<WaitReason>(std::min<uint32_t>(decision.a, std::size(kWaitNames) - 1));
  life.waits = {.reason = reason, .steps = {step_, step_}, .needs = decision.b};
  life.waits_since = now_;
  if (!life.told) return;
  if (reason == WaitReason::kParent && seq.parent) {
    life.waits.parent = seq.parent;
    told_for_parent_.insert(seq.id);
  }
  if (reason != WaitReason::kOrder) return;
  told_in_order_.insert(seq.id);
  newly_in_order_.push_back(seq.id);
}

void Teller::end_wait(Life& life, uint64_t last) {
  if (!is_waiting(life.waits)) return;
  WaitSpan span = std::exchange(life.waits, {});
  SequenceStory& story = of(life);
  told_in_order_.erase(story.id);
  told_for_parent_.erase(story.id);
  if (last < span.steps.from) return;
  span.steps.to = last;
  span.took = std::max<Nanos>(0, now_ - life.waits_since);
  const uint64_t steps = last - span.steps.from + 1;
  story.waited[span.reason] += steps;
  story.waited_time += span.took;
  if (!life.has_run) {
    story.queued += steps;
    story.queued_time += span.took;
  }
  if (span.reason == WaitReason::kOrder) story.in_order.push_back(span.steps);
  if (!life.told) return;
  life.spans.push_back(span);
}

void Teller::compare_with_first(const LiveSequence& first) {
  const auto compare = [&](SeqId id) {
    Life& life = lives_.at(id);
    const Precedence now = order_->compare(first.id, id);
    if (life.waits.steps.from < step_ && now.kind != life.waits.precedence.kind && splits_ < kMostSplits) {
      ++splits_;
      const uint64_t since = step_;
      end_wait(life, step_ - 1);
      life.waits = {.reason = WaitReason::kOrder, .steps = {since, since}};
      life.waits_since = now_;
      told_in_order_.insert(id);
    }
    if (life.waits.steps.from == step_) life.waits.precedence = now;
  };
  if (first_ == first.id) {
    for (const SeqId id : newly_in_order_) {
      if (told_in_order_.contains(id)) compare(id);
    }
  } else {
    const std::vector<SeqId> all(told_in_order_.begin(), told_in_order_.end());
    for (const SeqId id : all) compare(id);
  }
}

void Teller::note_first(const LiveSequence& first, const RunState& state) {
  if (order_) compare_with_first(first);
  const auto found = lives_.find(first.id);
  if (found == lives_.end() || !is_waiting(found->second.waits)) return;
  WaitSpan& span = found->second.waits;
  const uint64_t available =
      state.config().num_blocks - std::min<uint64_t>(state.blocks_held(), state.config().num_blocks);
  span.available_least = std::min(span.available_least.value_or(UINT64_MAX), available);
  span.available_most = std::max(span.available_most, available);
}

void Teller::planned(const RunState& state) {
  if (victim_) tell_victim();
  const LiveSequence* first = state.first_in_line();
  story_.blocks_held_sum += state.blocks_held();
  story_.short_steps += first != nullptr || preempted_ ? 1 : 0;
  story_.line.note(state);
  if (first != nullptr) note_first(*first, state);
  first_ = first == nullptr ? std::nullopt : std::optional(first->id);
  newly_in_order_.clear();
  for (const SeqId id : told_for_parent_) {
    WaitSpan& span = lives_.at(id).waits;
    const LiveSequence* parent = span.parent ? state.find(*span.parent) : nullptr;
    span.parent_waited += parent != nullptr && !parent->running ? 1 : 0;
  }
  for (const SeqId id : state.running_ids()) {
    const LiveSequence* seq = state.find(id);
    const auto found = lives_.find(id);
    if (found == lives_.end() || !found->second.told) continue;
    Life& life = found->second;
    const Phase phase = seq->phase();
    if (life.since != 0 && life.doing != phase) flush(life);
    if (life.since == 0) {
      life.since = step_;
      life.doing = phase;
      life.position = seq->computed;
    }
    life.until = step_;
    life.tokens += seq->planned;
  }
}

// ---- lines ----

std::string Teller::doing_text(const Life& life) {
  const SequenceStory& story = story_.sequences[life.index];
  const uint64_t steps = life.until - life.since + 1;
  std::string text;
  switch (life.doing) {
    case Phase::kPrefill:
      text = fmt::format("computes {}, from position {} on{}", plural(life.tokens, "token"), life.position,
                         steps == 1 ? "" : fmt::format(", in {} steps", steps));
      break;
    case Phase::kDecode:
      text = life.tokens == 1 ? "decodes a token" : fmt::format("decodes {}", plural(life.tokens, "token"));
      break;
    default:
      text = fmt::format("holds its slot and computes nothing for {}: no block is left for its next token",
                         plural(steps, "step"));
      break;
  }
  if (life.first_token) {
    text += fmt::format(", and samples its first token, {} after it arrived", duration_text(*story.ttft));
  } else if (life.doing == Phase::kPrefill && life.sampled > 0) {
    text += ", and samples a token";
  }
  return text;
}

void Teller::flush(Life& life) {
  if (life.since != 0) say(life, life.since, life.until, doing_text(life));
  life.since = 0;
  life.tokens = 0;
  life.sampled = 0;
  life.first_token = false;
}

void Teller::flush_wait(Life& life, uint64_t last) {
  end_wait(life, last);
  if (life.spans.empty()) return;
  const WaitContext context{.config = story_.config,
                            .line = story_.line,
                            .tally = tally_,
                            .id_of = [&](size_t index) { return story_.sequences.at(index).id; },
                            .tenant = [&](uint64_t tenant) { return tenants_.name(tenant); }};
  say(life, life.spans.front().steps.from, life.spans.back().steps.to, wait_text(life.spans, context));
  life.spans.clear();
}

void Teller::end() {
  for (auto& [id, life] : lives_) {
    flush(life);
    const bool away = life.has_run && is_waiting(life.waits);
    flush_wait(life, step_);
    if (!away) continue;
    life.preempted.steps = step_ - life.preempted.step;
    life.preempted.took = std::max<Nanos>(0, now_ - life.preempted_at);
    keep_if_bad(life.preempted);
  }
  if (evictions_.knows()) {
    story_.evicted_needed = 0;
    for (const auto& [index, blocks] : evictions_.needed_by()) {
      *story_.evicted_needed += blocks;
      story_.sequences.at(index).needed_evicted = blocks;
    }
  }
  story_.duration = started_ ? now_ - *started_ : 0;
}

}  // namespace quire
