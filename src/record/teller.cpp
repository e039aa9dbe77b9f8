#include "record/teller.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "record/display_text.h"

namespace quire::record {
namespace {

constexpr size_t kWorstKept = 3;

std::string ordinal(uint32_t n) {
  if (n % 100 >= 11 && n % 100 <= 13) return fmt::format("{}th", n);
  static constexpr const char* kEndings[] = {"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"};
  return fmt::format("{}{}", n, kEndings[n % 10]);
}

/// No line tells of these decisions, and most decisions of a log are such.
bool moves_block(control::DecisionKind kind) {
  return kind == control::DecisionKind::kAllocate || kind == control::DecisionKind::kShare ||
         kind == control::DecisionKind::kRelease || kind == control::DecisionKind::kEvict;
}

}  // namespace

Teller::Teller(RunStory& story, const WhoseLines& whose)
    : story_(story), whose_(whose), step_(story.steps_before), evictions_(story.config) {}

void Teller::say(const Life& life, uint64_t from, uint64_t to, std::string text) {
  if (life.told) of(life).lines.push_back({from, to, std::move(text)});
}

void Teller::before(const RunEvent& event, const RunState& state) {
  if (victim_ && !follow_victim(event, state)) tell_victim();
  evictions_.take(event, state);
  if (const auto* decision = std::get_if<control::Decision>(&event)) return tell_decision(*decision, state);
  if (const auto* cause = std::get_if<control::Cause>(&event)) return tell_cause(*cause);
  if (const auto* refusal = std::get_if<RunRefusal>(&event)) return tell_refusal(*refusal);
  added_.reset();
  restoring_ = std::holds_alternative<RunRestore>(event);
  resetting_ = std::holds_alternative<RunReset>(event);
  if (const auto* add = std::get_if<RunAdd>(&event)) {
    tell_add(*add, state);
  } else if (const auto* abort = std::get_if<RunAbort>(&event)) {
    stop_string_ = abort->stop_string;
  } else if (const auto* plan = std::get_if<RunPlan>(&event)) {
    step_ = plan->step;
    ++story_.steps;
    now_ = plan->now;
    preempted_ = false;
    short_.reset();
    if (!started_) started_ = plan->now;
  } else if (const auto* commit = std::get_if<RunCommit>(&event)) {
    tell_commit(*commit, state);
  } else if (const auto* end = std::get_if<RunEnd>(&event)) {
    story_.digest = end->digest;
  } else if (const auto* part_end = std::get_if<RunPartEnd>(&event)) {
    if (story_.is_single_part) story_.digest = part_end->digest;
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
  made.refused = "its number was taken, or the log ends here";  // until it is known better
  made.arrived_at = add.spec.arrived;
  tenants_.add(made.tenant);
  Life& life = added_.emplace(Life{});
  life.index = story_.sequences.size() - 1;
  life.told = whose_ && whose_(made.id, made.name);
  life.admissions = admissions_.size();
  say(life,
      fmt::format("arrives{}: {} of prompt, at most {} to generate; {} and {} of {} are taken",
                  step_ == 0 ? "" : " after this step", plural(made.prompt_tokens, "token"), made.max_tokens,
                  state.waiting() == 0   ? "no request waits"
                  : state.waiting() == 1 ? "one request waits"
                                         : fmt::format("{} requests wait", with_commas(state.waiting())),
                  state.running(), plural(state.config().max_num_seqs, "slot")));
}

void Teller::tell_refusal(const RunRefusal& refusal) {
  if (!added_) return;
  SequenceStory& story = story_.sequences[added_->index];
  story.refused = refusal.why;
  if (refusal.code == RequestErrorCode::kQueueFull) ++story_.queue_full;
}

void Teller::tell_cause(const control::Cause& cause) {
  if (cause.kind == control::CauseKind::kPublished) return;
  Life* found = lives_.find(cause.seq);
  switch (cause.kind) {
    case control::CauseKind::kFirst:
      first_ = {cause.ground, cause.value};
      if (found != nullptr) {
        first_tenant_ = of(*found).tenant;
        found->precedence.own = first_;  // it stays compared: the same relation is not reported again
      }
      break;
    case control::CauseKind::kBehind:
      if (found != nullptr) compare_with_first(*found, cause);
      break;
    case control::CauseKind::kShort:
      short_ = cause;
      break;
    case control::CauseKind::kVictim:
      victim_cause_ = cause;
      break;
    case control::CauseKind::kFollows:
      if (followed_ != step_) followed_before_ = std::exchange(followed_, step_);
      break;
    default:
      break;
  }
}

void Teller::tell_commit(const RunCommit& commit, const RunState& state) {
  now_ = std::max(now_, commit.now);
  const std::vector<PlannedPart>& parts = state.parts_of(commit);
  for (size_t i = 0; i < std::min(commit.results.size(), parts.size()); ++i) {
    Life* found = lives_.find(parts[i].id);
    if (found == nullptr || !commit.results[i].token) continue;
    Life& life = *found;
    SequenceStory& sequence = of(life);
    ++sequence.generated;
    const bool of_these = life.since != 0 && life.since <= commit.step;  // of what it does still
    if (of_these) ++life.sampled;
    if (sequence.first_token) continue;
    sequence.first_token = commit.step;
    sequence.ttft = now_ - sequence.arrived_at;
    if (of_these) {
      life.first_token = true;
    } else {
      say(life, fmt::format("its first token, which step {} sampled, is known, {} after it arrived",
                            commit.step, duration_text(*sequence.ttft)));
    }
  }
}

void Teller::tell_decision(const control::Decision& decision, const RunState& state) {
  ++story_.decisions;
  if (restoring_) {  // held only until all are there
    story_.restored += decision.kind == control::DecisionKind::kAllocate ? 1 : 0;
    return;
  }
  if (decision.kind == control::DecisionKind::kEvict && !resetting_) ++story_.evictions;
  if (decision.kind == control::DecisionKind::kCopy) ++story_.copies;
  if (decision.kind == control::DecisionKind::kAdd && added_) {
    story_.sequences[added_->index].refused.clear();
    lives_.insert_or_assign(decision.seq, *std::exchange(added_, std::nullopt));
  }
  story_.most_blocks_held = std::max(story_.most_blocks_held, state.blocks_held());
  if (moves_block(decision.kind) || decision.kind == control::DecisionKind::kChunk) return;
  Life* found = lives_.find(decision.seq);
  const LiveSequence* seq = state.find(decision.seq);
  if (found == nullptr || seq == nullptr) return;
  Life& life = *found;
  switch (decision.kind) {
    case control::DecisionKind::kHit:
      life.hit = decision.a;
      break;
    case control::DecisionKind::kSkip:
      begin_wait(life, decision, *seq);
      break;
    case control::DecisionKind::kSwapIn:
      life.moved_in = decision.a;
      break;
    case control::DecisionKind::kAdmit:
      tell_admit(life, decision, *seq);
      break;
    case control::DecisionKind::kCopy:
      flush(life);
      say(life, fmt::format("writes to a copy of block {}, which others hold too: block {}", decision.a,
                            decision.b));
      break;
    case control::DecisionKind::kPreempt:
      tell_preempt(life, decision, state);
      break;
    case control::DecisionKind::kFinish:
      tell_finish(life, decision);
      told_for_parent_.erase(decision.seq);
      lives_.erase(decision.seq);
      break;
    default:
      break;
  }
}

void Teller::tell_admit(Life& life, const control::Decision& decision, const LiveSequence& seq) {
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
  if (!life.has_run) admissions_.push_back({life.index, life.precedence.own});
  life.has_run = true;
  if (life.told) told_running_.push_back(story.id);
  if (hit > 0) {
    text += fmt::format(
        "; the K/V of {} of its {} is {}", hit, plural(seq.total, "token"),
        seq.parent && !story.first_token ? "shared or in the prefix cache" : "in the prefix cache");
  }
  if (there > hit) {
    text +=
        fmt::format("; that of {} more comes back from the host ({})", there - hit, plural(blocks, "block"));
  }
  text += fmt::format("; {} to compute", plural(seq.total - there, "token"));
  say(life, std::move(text));
}

void Teller::tell_preempt(Life& life, const control::Decision& decision, const RunState& state) {
  flush(life);
  preempted_ = true;
  SequenceStory& story = of(life);
  ++story.preemptions;
  story.lost_tokens += decision.a;
  life.given_up = decision.a;
  life.preempted_at = now_;
  life.preempted = {.victim = story.id, .needy = std::nullopt, .step = step_};
  std::erase(told_running_, story.id);
  const std::optional<control::Cause> cause = std::exchange(victim_cause_, std::nullopt);
  std::string text = fmt::format("is preempted, for the {} time: ", ordinal(decision.b));
  if (cause) life.preempted.needy = cause->other;
  text += cause ? preemption_text(*cause) : "no block was left";
  victim_ = Victim{.id = decision.seq,
                   .text = std::move(text),
                   .tokens = decision.a,
                   .blocks = state.find(decision.seq)->blocks};
}

/// Its blocks are moved to the host, then released. False if the event is neither.
bool Teller::follow_victim(const RunEvent& event, const RunState& state) {
  if (const auto* cause = std::get_if<control::Cause>(&event)) {
    if (cause->kind != control::CauseKind::kNotMoved || cause->seq != victim_->id) return false;
    victim_->not_moved = *cause;
    return true;
  }
  const auto* decision = std::get_if<control::Decision>(&event);
  if (decision == nullptr || decision->seq != victim_->id) return false;
  if (decision->kind == control::DecisionKind::kSwapOut) {
    Life* found = lives_.find(victim_->id);
    if (found != nullptr) of(*found).swapped_out += decision->a;
    victim_->swapped = true;
    return true;
  }
  if (decision->kind != control::DecisionKind::kRelease) return false;
  victim_->still_held += state.holders(decision->a) > 1 ? 1 : 0;
  return true;
}

void Teller::tell_victim() {
  const Victim victim = *std::exchange(victim_, std::nullopt);
  const Life* found = lives_.find(victim.id);
  if (found == nullptr || !found->told) return;
  std::string blocks = plural(victim.blocks, "block");
  if (victim.still_held > 0) blocks += fmt::format(", {} of them still held by others", victim.still_held);
  std::string text =
      fmt::format("{}. The K/V of {} ({}) is ", victim.text, plural(victim.tokens, "token"), blocks);
  if (victim.swapped) {
    text += "moved to the host";
  } else {
    text += "given up: what is not found in the prefix cache later is computed again";
    if (victim.not_moved) {
      text += victim.not_moved->a > victim.not_moved->b
                  ? fmt::format(" (the host pool has only {} free)", plural(victim.not_moved->b, "block"))
                  : " (that is expected to be quicker than to move it to the host and back)";
    }
  }
  say(*found, std::move(text));
}

void Teller::keep_if_bad(const PreemptionStory& preemption) {
  std::vector<PreemptionStory>& worst = story_.worst_preemptions;
  worst.push_back(preemption);
  std::ranges::stable_sort(worst, std::ranges::greater{},
                           [](const auto& each) { return std::pair(each.steps, each.again_tokens); });
  if (worst.size() > kWorstKept) worst.pop_back();
}

void Teller::tell_finish(Life& life, const control::Decision& decision) {
  flush(life);
  flush_wait(life, step_);
  SequenceStory& story = of(life);
  if (!life.has_run) admissions_.push_back({life.index, {}, false});
  if (life.told) std::erase(told_running_, story.id);
  const auto reason = std::min<uint32_t>(decision.a, static_cast<uint32_t>(control::FinishReason::kError));
  story.ended = step_;
  story.finish = static_cast<control::FinishReason>(reason);
  story.stop_string = story.finish == control::FinishReason::kAbort && std::exchange(stop_string_, false);
  if (story.stop_string) story.finish = control::FinishReason::kStop;
  story.total = now_ - story.arrived_at;
  say(life, fmt::format("ends after {}: {}", plural(story.generated, "generated token"), end_text(story)));
}

void Teller::planned(const RunState& state) {
  if (victim_) tell_victim();
  const LiveSequence* first = state.first_in_line();
  story_.blocks_held_sum += state.blocks_held();
  story_.short_steps += first != nullptr || preempted_ ? 1 : 0;
  story_.running_sum += state.running();
  story_.waiting_sum += state.waiting();
  story_.most_waiting = std::max<uint64_t>(story_.most_waiting, state.waiting());
  story_.waiting_steps += state.waiting() > 0 ? 1 : 0;
  story_.line.note(state, told_waiting_ > 0);
  if (short_) note_short();
  for (const SeqId id : told_for_parent_) {
    WaitSpan& span = lives_.find(id)->waits;
    const LiveSequence* parent = span.parent ? state.find(*span.parent) : nullptr;
    span.parent_waited += parent != nullptr && !parent->running ? 1 : 0;
  }
  for (const SeqId id : told_running_) {
    const LiveSequence* seq = state.find(id);
    Life* found = lives_.find(id);
    if (found == nullptr || seq == nullptr || !seq->running) continue;
    Life& life = *found;
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

void Teller::end() {
  for (auto& [id, life] : lives_.all()) {
    flush(life);
    const bool away = life.has_run && life.waits.begun();
    flush_wait(life, step_);
    if (!away) continue;
    life.preempted.steps = step_ - life.preempted.step;
    life.preempted.took = std::max<Nanos>(0, now_ - life.preempted_at);
    keep_if_bad(life.preempted);
  }
  count_overtaken();
  for (SequenceStory& story : story_.sequences) std::ranges::stable_sort(story.lines, {}, &StoryLine::from);
  if (evictions_.knows()) {
    story_.evicted_needed = 0;
    for (const auto& [index, blocks] : evictions_.needed_by()) {
      *story_.evicted_needed += blocks;
      story_.sequences.at(index).needed_evicted = blocks;
    }
  }
  story_.duration = started_ ? now_ - *started_ : 0;
}

}  // namespace quire::record
