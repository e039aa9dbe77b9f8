#include "record/teller.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "record/display_text.h"

namespace quire {
namespace {

constexpr size_t kWorstKept = 3;
constexpr size_t kOvertakersNamed = 3;
constexpr size_t kMostSplits = size_t{1} << 18;  // of all waits: one line of a log can split many

std::string ordinal(uint32_t n) {
  if (n % 100 >= 11 && n % 100 <= 13) return fmt::format("{}th", n);
  static constexpr const char* kEndings[] = {"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"};
  return fmt::format("{}{}", n, kEndings[n % 10]);
}

std::string victim_text(const Cause& cause) {
  switch (cause.ground) {
    case Ground::kNothingLeft:
      return "it has nothing left to compute";
    case Ground::kLowest:
      return fmt::format("it has the lowest priority ({})", cause.value);
    case Ground::kLeastDone:
      return fmt::format("it had computed least ({})",
                         plural(static_cast<uint64_t>(std::max<int64_t>(0, cause.value)), "token"));
    default:
      return "it came in last";
  }
}

bool is_waiting(const WaitSpan& span) { return span.steps.from != 0; }

}  // namespace

Teller::Teller(RunStory& story, const WhoseLines& whose)
    : story_(story), whose_(whose), evictions_(story.config) {}

void Teller::say(const Life& life, uint64_t from, uint64_t to, std::string text) {
  if (life.told) of(life).lines.push_back({from, to, std::move(text)});
}

void Teller::before(const RunEvent& event, const RunState& state) {
  if (victim_ && !follow_victim(event, state)) tell_victim();
  evictions_.take(event, state);
  if (const auto* decision = std::get_if<Decision>(&event)) return tell_decision(*decision, state);
  if (const auto* cause = std::get_if<Cause>(&event)) return tell_cause(*cause);
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
                  state.waiting() == 0   ? "nobody waits"
                  : state.waiting() == 1 ? "one waits"
                                         : fmt::format("{} wait", with_commas(state.waiting())),
                  state.running(), plural(state.config().max_num_seqs, "slot")));
}

void Teller::tell_refusal(const RunRefusal& refusal) {
  if (!added_) return;
  SequenceStory& story = story_.sequences[added_->index];
  story.refused = refusal.why;
  if (refusal.code == RequestErrorCode::kQueueFull) ++story_.queue_full;
}

void Teller::tell_cause(const Cause& cause) {
  if (cause.kind == CauseKind::kPublished) return;
  const auto found = lives_.find(cause.seq);
  switch (cause.kind) {
    case CauseKind::kFirst:
      first_ = {cause.ground, cause.value};
      if (found != lives_.end()) {
        first_tenant_ = of(found->second).tenant;
        found->second.precedence = {.own = first_};
      }
      break;
    case CauseKind::kBehind:
      if (found != lives_.end()) compare_with_first(found->second, cause);
      break;
    case CauseKind::kShort:
      short_ = cause;
      break;
    case CauseKind::kVictim:
      victim_cause_ = cause;
      break;
    default:
      break;
  }
}

void Teller::tell_commit(const RunCommit& commit, const RunState& state) {
  now_ = std::max(now_, commit.now);
  const std::vector<PlannedPart>& parts = state.parts_of(commit);
  for (size_t i = 0; i < std::min(commit.results.size(), parts.size()); ++i) {
    const auto found = lives_.find(parts[i].id);
    if (found == lives_.end() || !commit.results[i].token) continue;
    SequenceStory& sequence = of(found->second);
    ++sequence.generated;
    Life& life = found->second;
    const bool of_these = life.since != 0 && life.since <= commit.step;  // of what it does still
    if (of_these) ++life.sampled;
    if (sequence.first_token) continue;
    sequence.first_token = commit.step;
    sequence.ttft = now_ - sequence.arrived_at;
    if (of_these) {
      life.first_token = true;
    } else {
      say(life, fmt::format("its first token, which step {} sampled, is there, {} after it arrived",
                            commit.step, duration_text(*sequence.ttft)));
    }
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

void Teller::tell_preempt(Life& life, const Decision& decision, const RunState& state) {
  flush(life);
  preempted_ = true;
  SequenceStory& story = of(life);
  ++story.preemptions;
  story.lost_tokens += decision.a;
  life.given_up = decision.a;
  life.preempted_at = now_;
  life.preempted = {.victim = story.id, .needy = std::nullopt, .step = step_};
  std::erase(told_running_, story.id);
  const std::optional<Cause> cause = std::exchange(victim_cause_, std::nullopt);
  std::string text = fmt::format("is preempted, for the {} time: ", ordinal(decision.b));
  if (!cause) {
    text += "no block was left";
  } else {
    life.preempted.needy = cause->other;
    text += cause->other == decision.seq
                ? "no block was left for its own next token"
                : fmt::format("no block was left for the next token of #{}", cause->other);
    text += fmt::format(", and of those that could give way {}", victim_text(*cause));
  }
  victim_ = Victim{.id = decision.seq,
                   .text = std::move(text),
                   .tokens = decision.a,
                   .blocks = state.find(decision.seq)->blocks};
}

/// Its blocks are moved to the host, then released. False if the event is neither.
bool Teller::follow_victim(const RunEvent& event, const RunState& state) {
  if (const auto* cause = std::get_if<Cause>(&event)) {
    if (cause->kind != CauseKind::kNotMoved || cause->seq != victim_->id) return false;
    victim_->not_moved = *cause;
    return true;
  }
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
    if (victim.not_moved) {
      text += victim.not_moved->a > victim.not_moved->b
                  ? fmt::format(" (the host pool has only {} free)", plural(victim.not_moved->b, "block"))
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
  if (!life.has_run) admissions_.push_back({life.index, {}, false});
  if (life.told) std::erase(told_running_, story.id);
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
  if (life.precedence.compared) {
    life.precedence.first = first_;
    life.precedence.first_tenant = first_tenant_;
  }
  life.waits.precedence = life.precedence;
  life.waits_since = now_;
  if (!life.told) return;
  ++told_waiting_;
  if (reason == WaitReason::kParent && seq.parent) {
    life.waits.parent = seq.parent;
    told_for_parent_.insert(seq.id);
  }
}

void Teller::end_wait(Life& life, uint64_t last) {
  if (!is_waiting(life.waits)) return;
  WaitSpan span = std::exchange(life.waits, {});
  SequenceStory& story = of(life);
  told_for_parent_.erase(story.id);
  if (life.told) --told_waiting_;
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

void Teller::compare_with_first(Life& life, const Cause& cause) {
  Precedence now{.compared = true, .first = first_, .own = {cause.ground, cause.value}};
  now.first_tenant = first_tenant_;
  now.own_tenant = of(life).tenant;
  life.precedence = now;
  if (!life.told || life.waits.reason != WaitReason::kOrder || !is_waiting(life.waits)) return;
  const bool differs = now.kind() != life.waits.precedence.kind();
  if (differs && life.waits.steps.from < step_ && splits_ < kMostSplits) {
    ++splits_;
    end_wait(life, step_ - 1);
    life.waits = {.reason = WaitReason::kOrder, .steps = {step_, step_}};
    life.waits_since = now_;
    ++told_waiting_;
  }
  if (life.waits.steps.from == step_) life.waits.precedence = now;
}

/// What the first in line lacks, in this step.
void Teller::note_short() {
  const auto found = lives_.find(short_->seq);
  if (found == lives_.end() || !is_waiting(found->second.waits)) return;
  WaitSpan& span = found->second.waits;
  span.needs = std::max(span.needs, short_->a);
  span.available_least = std::min<uint64_t>(span.available_least.value_or(UINT64_MAX), short_->b);
  span.available_most = std::max<uint64_t>(span.available_most, short_->b);
  span.reserve = short_->value;
}

/// Until now; it has not been admitted.
Overtaken Teller::overtaken(const Life& life) const {
  Overtaken out;
  out.own = life.precedence.own;
  for (const Admission& each : std::span(admissions_).subspan(life.admissions)) {
    if (!each.admitted || each.index <= life.index) continue;
    if (out.count++ == 0) out.least = out.most = each.by;
    if (out.ids.size() <= kOvertakersNamed) out.ids.push_back(story_.sequences[each.index].id);
    if (each.by.ground != out.least.ground) continue;
    ++out.by_ground;
    out.least.value = std::min(out.least.value, each.by.value);
    out.most.value = std::max(out.most.value, each.by.value);
  }
  return out;
}

/// For each sequence: how many of those that arrived later were admitted before it was, or before it ended. A
/// tree of sums over the order of arrival (Fenwick 1994).
void Teller::count_overtaken() {
  for (const auto& [id, life] : lives_) {
    if (!life.has_run) admissions_.push_back({life.index, {}, false});
  }
  const size_t size = story_.sequences.size();
  std::vector<uint32_t> sums(size + 1);
  uint64_t admitted = 0;
  for (const Admission& each : admissions_) {
    uint64_t earlier = 0;  // that arrived before it, or itself
    for (size_t i = each.index + 1; i > 0; i -= i & (~i + 1)) earlier += sums[i];
    story_.sequences[each.index].overtaken = admitted - earlier;
    if (!each.admitted) continue;
    ++admitted;
    for (size_t i = each.index + 1; i <= size; i += i & (~i + 1)) ++sums[i];
  }
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
    WaitSpan& span = lives_.at(id).waits;
    const LiveSequence* parent = span.parent ? state.find(*span.parent) : nullptr;
    span.parent_waited += parent != nullptr && !parent->running ? 1 : 0;
  }
  for (const SeqId id : told_running_) {
    const LiveSequence* seq = state.find(id);
    const auto found = lives_.find(id);
    if (found == lives_.end() || seq == nullptr || !seq->running) continue;
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
  say(life, life.spans.front().steps.from, life.spans.back().steps.to,
      wait_text(life.spans, life.has_run ? Overtaken{} : overtaken(life), context));
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

}  // namespace quire
