#include "record/run_story.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/kv_windows.h"
#include "record/run_state.h"
#include "record/wait_story.h"

namespace quire {
namespace {

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

/// Follows the run and writes down what each decision means.
class Teller final : public RunListener {
 public:
  Teller(RunStory& story, const WhoseLines& whose) : story_(story), whose_(whose) {}

  void before(const RunEvent& event, const RunState& state) override;
  void planned(const RunState& state) override;
  void end();

 private:
  /// What is under way with a sequence, not yet told.
  struct Life {
    size_t index = 0;  // in story_.sequences
    bool told = false;
    Phase doing = Phase::kQueued;
    uint64_t since = 0;  // step; 0: nothing
    uint64_t until = 0;
    uint64_t tokens = 0;       // computed meanwhile
    uint64_t position = 0;     // of the first of them
    bool first_token = false;  // sampled meanwhile
    std::vector<WaitSpan> waits;
    uint32_t hit = 0;        // tokens, in the admission under way
    uint32_t moved_in = 0;   // blocks
    uint32_t given_up = 0;   // tokens, by the last preemption
    uint64_t preempted = 0;  // step of it
    bool has_run = false;
  };

  SequenceStory& of(const Life& life) { return story_.sequences[life.index]; }
  void say(const Life& life, uint64_t from, uint64_t to, std::string text) {
    if (life.told) of(life).lines.push_back({from, to, std::move(text)});
  }
  void say(const Life& life, std::string text) { say(life, step_, step_, std::move(text)); }

  void tell_add(const RunAdd& add, const RunState& state);
  void tell_commit(const RunCommit& commit, const RunState& state);
  void tell_decision(const Decision& decision, const RunState& state);
  void tell_admit(Life& life, const Decision& decision, const LiveSequence& seq);
  void tell_preempt(Life& life, const Decision& decision, const RunState& state);
  void tell_swap_out(Life& life, const Decision& decision);
  void tell_finish(Life& life, const Decision& decision);
  void settle_preemption(const RunState& state);
  void note_wait(Life& life, const LiveSequence& seq, const RunState& state);
  /// Tells what went on until now, and that it does no more.
  void flush(Life& life);
  std::string doing_text(const Life& life);

  RunStory& story_;
  const WhoseLines& whose_;
  uint64_t step_ = 0;
  Nanos now_ = 0;  // of the last plan or result
  std::optional<Nanos> started_;
  std::map<SeqId, Life> lives_;
  std::optional<Life> added_;
  std::optional<SeqId> victim_;  // whose preemption is told when it is known whether it was swapped out
  bool stop_string_ = false;     // of the abort under way
  bool restoring_ = false;       // the prefix cache
  BlockHolders holders_;
};

void Teller::before(const RunEvent& event, const RunState& state) {
  if (victim_) {
    const auto* decision = std::get_if<Decision>(&event);
    if (decision == nullptr || decision->kind != DecisionKind::kSwapOut) settle_preemption(state);
  }
  if (const auto* decision = std::get_if<Decision>(&event)) return tell_decision(*decision, state);
  added_.reset();
  restoring_ = std::holds_alternative<RunRestore>(event);
  if (const auto* add = std::get_if<RunAdd>(&event)) {
    tell_add(*add, state);
  } else if (const auto* abort = std::get_if<RunAbort>(&event)) {
    stop_string_ = abort->stop_string;
  } else if (const auto* plan = std::get_if<RunPlan>(&event)) {
    step_ = ++story_.steps;
    now_ = plan->now;
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
  made.prompt_tokens = static_cast<uint32_t>(add.spec.prompt.size());
  made.max_tokens = add.spec.max_tokens;
  made.arrived = step_;
  made.refused = why_refused(add, state);
  made.arrived_at = add.spec.arrived;
  Life& life = added_.emplace();
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
  for (size_t i = 0; i < std::min(commit.results.size(), state.planned().size()); ++i) {
    const auto found = lives_.find(state.planned()[i]);
    if (found == lives_.end() || !commit.results[i].token) continue;
    SequenceStory& sequence = of(found->second);
    ++sequence.generated;
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
  if (decision.kind == DecisionKind::kEvict) ++story_.evictions;
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
    case DecisionKind::kSwapOut:
      tell_swap_out(life, decision);
      break;
    case DecisionKind::kFinish:
      tell_finish(life, decision);
      lives_.erase(found);
      break;
    default:
      break;
  }
}

void Teller::tell_admit(Life& life, const Decision& decision, const LiveSequence& seq) {
  flush(life);
  SequenceStory& story = of(life);
  const uint32_t there = std::min(decision.b, seq.total);
  const uint32_t hit = std::min(std::exchange(life.hit, 0), there);
  const uint32_t blocks = std::exchange(life.moved_in, 0);
  std::string text;
  if (!life.has_run) {
    text = fmt::format("comes in at slot {}", decision.a);
    story.admitted = step_;
    story.hit_tokens = hit;
  } else {
    text = fmt::format("comes back at slot {}, {} after it was preempted", decision.a,
                       plural(step_ - life.preempted, "step"));
    const uint32_t lost = std::exchange(life.given_up, 0);
    story.found_tokens += std::min(hit, lost);
    story.returned_tokens += std::min(there, lost) - std::min(hit, lost);
    story.again_tokens += lost - std::min(there, lost);
    story.swapped_in += blocks;
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
  SequenceStory& story = of(life);
  ++story.preemptions;
  story.lost_tokens += decision.a;
  life.given_up = decision.a;
  life.preempted = step_;
  const LiveSequence* needy = state.needy();
  std::string text = fmt::format("is preempted, for the {} time: ", ordinal(decision.b));
  if (needy == nullptr) {
    text += "no block was left";
  } else {
    text += needy->id == decision.seq ? "no block was left for its own next token"
                                      : fmt::format("no block was left for the next token of #{}", needy->id);
    switch (state.config().victim) {
      case VictimKind::kLastAdmitted:
        text += ", and of those that could give way it came in last";
        break;
      case VictimKind::kLowestPriority:
        text += ", and of those that could give way it has the lowest priority";
        break;
      case VictimKind::kLeastProgress:
        text += ", and of those that could give way it had computed least";
        break;
    }
  }
  text += fmt::format(". The K/V of {} ({}) ", plural(decision.a, "token"),
                      plural(state.find(decision.seq)->blocks, "block"));
  say(life, std::move(text));
  victim_ = decision.seq;
}

void Teller::tell_swap_out(Life& life, const Decision& decision) {
  of(life).swapped_out += decision.a;
  if (life.told && victim_) of(life).lines.back().text += "is moved to the host";
  victim_.reset();
}

void Teller::settle_preemption(const RunState& state) {
  const auto found = lives_.find(*std::exchange(victim_, std::nullopt));
  if (found == lives_.end() || !found->second.told) return;
  std::string& text = of(found->second).lines.back().text;
  const LiveSequence* seq = state.find(found->first);
  text += "is given up: what is not found in the prefix cache later is computed again";
  if (state.config().preemption == PreemptionKind::kRecompute) return;
  // Not the blocks that it shares any more, but those it had; they are released after this.
  const bool full = seq != nullptr && seq->blocks > state.host_blocks_free();
  text += full ? fmt::format(" (the host pool has only {} free)", plural(state.host_blocks_free(), "block"))
               : " (that is expected to be quicker than to move it to the host and back)";
}

void Teller::tell_finish(Life& life, const Decision& decision) {
  static constexpr std::string_view kEnds[] = {
      "a stop token", "all the tokens it may generate are there",
      "ended from outside: its client went away, its beam was given up, or the server ended",
      "the executor failed"};
  flush(life);
  SequenceStory& story = of(life);
  const size_t reason = std::min<size_t>(decision.a, std::size(kEnds) - 1);
  story.ended = step_;
  story.finish = static_cast<FinishReason>(reason);
  const bool by_string = story.finish == FinishReason::kAbort && std::exchange(stop_string_, false);
  if (by_string) story.finish = FinishReason::kStop;
  story.total = now_ - story.arrived_at;
  say(life, fmt::format("ends after {}: {}", plural(story.generated, "generated token"),
                        by_string ? "a stop string" : kEnds[reason]));
}

void Teller::planned(const RunState& state) {
  if (victim_) settle_preemption(state);
  holders_.note(state);
  for (const auto& [id, seq] : state.live()) {
    const auto found = lives_.find(id);
    if (found == lives_.end()) continue;
    Life& life = found->second;
    const Phase phase = seq.phase();
    const bool computes = phase == Phase::kPrefill || phase == Phase::kDecode;
    if (life.since != 0 && life.doing != phase) flush(life);
    if (life.since == 0) {
      life.since = step_;
      life.doing = phase;
      life.position = seq.computed;
    }
    life.until = step_;
    if (computes) {
      life.tokens += seq.planned;
    } else if (phase != Phase::kStalled) {
      note_wait(life, seq, state);
    }
  }
}

void Teller::note_wait(Life& life, const LiveSequence& seq, const RunState& state) {
  SequenceStory& story = of(life);
  ++story.waited[seq.waits];
  if (!life.has_run) ++story.queued;
  std::optional<SeqId> behind;
  bool behind_waits = false;
  if (seq.waits == WaitReason::kParent && seq.parent) {
    behind = seq.parent;
    const LiveSequence* parent = state.find(*seq.parent);
    behind_waits = parent != nullptr && !parent->running;
  }
  if (seq.waits == WaitReason::kOrder) {
    if (const LiveSequence* first = state.first_in_line()) behind = first->id;
  }
  if (behind) ++story.behind[*behind];
  const WaitSpan now{seq.waits, behind, behind_waits, seq.waits == WaitReason::kBlocks ? seq.needs : 0,
                     step_,     step_};
  if (!life.told) return;
  if (!life.waits.empty() && life.waits.back().reason == now.reason &&
      life.waits.back().behind == now.behind && life.waits.back().behind_waits == now.behind_waits &&
      life.waits.back().needs == now.needs && life.waits.back().to + 1 == step_) {
    life.waits.back().to = step_;
  } else {
    life.waits.push_back(now);
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
    case Phase::kStalled:
      text = fmt::format("holds its slot and computes nothing for {}: no block is left for its next token",
                         plural(steps, "step"));
      break;
    default:
      text = wait_text(life.waits, holders_, story_.config);
      break;
  }
  if (life.first_token) {
    text += fmt::format(", and samples its first token, {} after it arrived", duration_text(*story.ttft));
  }
  return text;
}

void Teller::flush(Life& life) {
  if (life.since == 0) return;
  if (life.told) say(life, life.since, life.until, doing_text(life));
  life.since = 0;
  life.tokens = 0;
  life.first_token = false;
  life.waits.clear();
}

void Teller::end() {
  for (auto& [id, life] : lives_) flush(life);
  story_.duration = started_ ? now_ - *started_ : 0;
}

}  // namespace

uint64_t SequenceStory::steps_waited() const {
  return std::accumulate(waited.begin(), waited.end(), uint64_t{0},
                         [](uint64_t sum, const auto& each) { return sum + each.second; });
}

WaitReason SequenceStory::waited_most_for() const {
  const auto most = std::ranges::max_element(waited, {}, [](const auto& each) { return each.second; });
  return most == waited.end() ? WaitReason::kNone : most->first;
}

RunStory tell_run(const std::filesystem::path& path, const WhoseLines& whose_lines) {
  RunStory story;
  RunReader reader(path);
  story.config = reader.config();
  Teller teller(story, whose_lines);
  follow_run(reader, teller);
  teller.end();
  story.truncated = reader.truncated();
  return story;
}

std::string duration_text(Nanos nanos) {
  const double seconds = static_cast<double>(nanos) / 1e9;
  const double size = std::abs(seconds);
  const auto digits = [](double value) { return value < 10 ? 2 : value < 100 ? 1 : 0; };
  if (size < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (size < 1) return fmt::format("{:.{}f} ms", seconds * 1e3, digits(size * 1e3));
  return fmt::format("{:.{}f} s", seconds, digits(size));
}

std::string_view wait_name(WaitReason reason) { return kWaitNames[static_cast<size_t>(reason)]; }

std::string_view end_name(const SequenceStory& story) {
  static constexpr std::string_view kEnds[] = {"stop", "length", "aborted", "error"};
  if (!story.refused.empty()) return "refused";
  return story.finish ? kEnds[static_cast<size_t>(*story.finish)] : "runs on";
}

}  // namespace quire
