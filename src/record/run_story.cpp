#include "record/run_story.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace quire {
namespace {

constexpr size_t kHoldersNamed = 3;

std::string plural(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Follows the run and writes down what each decision means.
class Teller {
 public:
  Teller(RunStory& story, std::optional<SeqId> only) : story_(story), only_(only) {}

  void tell(const RunEvent& event) {
    if (const auto* add = std::get_if<RunAdd>(&event)) return tell(*add);
    if (const auto* commit = std::get_if<RunCommit>(&event)) return tell(*commit);
    if (const auto* decision = std::get_if<Decision>(&event)) return tell(*decision);
    if (const auto* end = std::get_if<RunEnd>(&event)) story_.digest = end->digest;
    if (!std::holds_alternative<RunPlan>(event)) return;
    count_waits();
    ++story_.steps;
    planned_.clear();
  }
  /// The last plan has no plan behind it.
  void end() { count_waits(); }

 private:
  /// What is under way with a sequence, not yet told.
  struct State {
    size_t index = 0;  // in story_.sequences
    WaitReason waits = WaitReason::kNone;
    uint32_t needs = 0;
    uint64_t waits_since = 0;
    uint32_t blocks = 0;
    uint32_t known_tokens = 0;
    uint64_t decodes_since = 0;  // step of the first decode not told; 0: none
    uint32_t decodes = 0;
    bool waiting = false;
  };

  SequenceStory& of(const State& state) { return story_.sequences[state.index]; }

  void say(const State& state, std::string line) {
    SequenceStory& sequence = of(state);
    if (!only_ || *only_ == sequence.id) sequence.lines.push_back(std::move(line));
  }
  void say_now(const State& state, const std::string& what) {
    say(state, fmt::format("step {}: {}", story_.steps, what));
  }

  void tell(const RunAdd& add) {
    SequenceStory& made = story_.sequences.emplace_back();
    made.id = add.spec.id;
    made.fork_of = add.spec.fork_of;
    made.prompt_tokens = static_cast<uint32_t>(add.spec.prompt.size());
    made.max_tokens = add.spec.max_tokens;
    made.arrived = story_.steps;
    made.refused = "refused: it does not fit, the queue is full, or its number is taken";
    const uint64_t ahead = std::ranges::count_if(states_, [](const auto& s) { return s.second.waiting; });
    State state;
    state.index = story_.sequences.size() - 1;
    state.known_tokens = made.prompt_tokens;
    if (states_.contains(made.id)) return;
    states_.emplace(made.id, state);
    say(state, fmt::format("after step {}: arrives with {} and asks for {} more; {} before it", story_.steps,
                           plural(made.prompt_tokens, "token"), made.max_tokens,
                           ahead == 1 ? "one waits" : fmt::format("{} wait", ahead)));
  }

  void tell(const RunCommit& commit) {
    for (size_t i = 0; i < std::min(commit.results.size(), planned_.size()); ++i) {
      const auto found = states_.find(planned_[i]);
      if (found == states_.end() || !commit.results[i].token) continue;
      SequenceStory& sequence = of(found->second);
      if (!sequence.first_token) sequence.first_token = story_.steps;
      ++sequence.generated;
      ++found->second.known_tokens;
    }
  }

  void tell(const Decision& decision) {
    ++story_.decisions;
    if (decision.kind == DecisionKind::kEvict) ++story_.evictions;
    if (decision.kind == DecisionKind::kAllocate) take(decision.a, decision.seq, +1);
    if (decision.kind == DecisionKind::kShare) take(decision.a, decision.seq, +1);
    if (decision.kind == DecisionKind::kRelease) take(decision.a, decision.seq, -1);
    if (decision.kind == DecisionKind::kCopy) ++story_.copies;
    const auto found = states_.find(decision.seq);
    if (found == states_.end()) return;
    State& state = found->second;
    SequenceStory& sequence = of(state);
    switch (decision.kind) {
      case DecisionKind::kAdd:
        sequence.refused.clear();
        state.waiting = true;
        state.waits_since = story_.steps + 1;
        break;
      case DecisionKind::kSkip:
        say_waited(state);
        state.waits = static_cast<WaitReason>(std::min<uint32_t>(decision.a, std::size(kWaitNames) - 1));
        state.needs = decision.b;
        state.waits_since = story_.steps;
        if (state.waits == WaitReason::kBlocks) holders_ = largest_holders();
        break;
      case DecisionKind::kHit:
        if (!sequence.admitted) sequence.hit_tokens = decision.a;
        say_waited(state);
        say_now(state,
                fmt::format("finds the K/V of {} of its {} tokens in the pool", decision.a, decision.b));
        break;
      case DecisionKind::kAdmit:
        say_waited(state);
        state.waiting = false;
        state.waits = WaitReason::kNone;
        if (!sequence.admitted) sequence.admitted = story_.steps;
        say_now(state,
                fmt::format("comes in at slot {}, with {} to compute", decision.a,
                            plural(state.known_tokens - std::min(state.known_tokens, decision.b), "token")));
        break;
      case DecisionKind::kChunk:
        tell_chunk(state, decision);
        break;
      case DecisionKind::kCopy:
        say_decodes(state);
        say_now(state, fmt::format("copies block {} to {}, which others hold too", decision.a, decision.b));
        break;
      case DecisionKind::kPreempt:
        say_decodes(state);
        ++sequence.preemptions;
        state.waiting = true;
        state.waits_since = story_.steps;
        say_now(state, fmt::format("gives way ({} preemption): the K/V of {} is given up",
                                   ordinal(decision.b), plural(decision.a, "token")));
        break;
      case DecisionKind::kSwapOut:
        sequence.swapped_blocks += decision.a;
        say_now(state, fmt::format("but {} moved to the host", plural(decision.a, "block")));
        break;
      case DecisionKind::kSwapIn:
        say_now(state, fmt::format("has {} moved back from the host", plural(decision.a, "block")));
        break;
      case DecisionKind::kFinish:
        tell_finish(state, decision);
        break;
      default:
        break;
    }
  }

  void tell_chunk(State& state, const Decision& decision) {
    planned_.push_back(decision.seq);
    if (decision.b == 1 && of(state).first_token) {
      if (state.decodes++ == 0) state.decodes_since = story_.steps;
      return;
    }
    say_decodes(state);
    say_now(state, fmt::format("computes {} from position {} on", plural(decision.b, "token"), decision.a));
  }

  void tell_finish(State& state, const Decision& decision) {
    static constexpr std::string_view kEnds[] = {"a stop token or stop string", "its length", "an abort",
                                                 "an error of the executor"};
    say_waited(state);
    say_decodes(state);
    SequenceStory& sequence = of(state);
    sequence.ended = story_.steps;
    sequence.finish = static_cast<FinishReason>(std::min<uint32_t>(decision.a, std::size(kEnds) - 1));
    say_now(state, fmt::format("ends by {}, after {}", kEnds[static_cast<size_t>(*sequence.finish)],
                               plural(sequence.generated, "token")));
    state.waiting = false;
  }

  static std::string ordinal(uint32_t n) {
    if (n % 100 >= 11 && n % 100 <= 13) return fmt::format("{}th", n);
    static constexpr const char* kEndings[] = {"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"};
    return fmt::format("{}{}", n, kEndings[n % 10]);
  }

  void take(uint32_t block, SeqId seq, int change) {
    const auto found = states_.find(seq);
    if (found != states_.end()) found->second.blocks += static_cast<uint32_t>(change);
    uint32_t& holders = holders_of_[block];
    held_ += holders == 0 && change > 0 ? 1 : 0;
    holders += static_cast<uint32_t>(change);
    held_ -= holders == 0 && change < 0 ? 1 : 0;
    story_.most_blocks_held = std::max(story_.most_blocks_held, held_);
  }

  std::string largest_holders() const {
    std::vector<std::pair<uint32_t, SeqId>> held;
    for (const auto& [id, state] : states_) {
      if (state.blocks > 0) held.emplace_back(state.blocks, id);
    }
    std::ranges::sort(held, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::string out;
    for (size_t i = 0; i < std::min(kHoldersNamed, held.size()); ++i) {
      out += fmt::format("{}#{}: {}", i == 0 ? "" : ", ", held[i].second, held[i].first);
    }
    if (held.size() > kHoldersNamed) out += fmt::format(", and {} others", held.size() - kHoldersNamed);
    return out;
  }

  void count_waits() {
    for (auto& [id, state] : states_) {
      if (state.waiting && state.waits != WaitReason::kNone) ++of(state).waited[state.waits];
    }
  }

  void say_waited(State& state) {
    const uint64_t steps = story_.steps - std::min(story_.steps, state.waits_since);
    if (!state.waiting || state.waits == WaitReason::kNone || steps == 0) return;
    std::string why;
    switch (state.waits) {
      case WaitReason::kNone:
        break;
      case WaitReason::kSlots:
        why = fmt::format("for a slot: {} run", story_.config.max_num_seqs);
        break;
      case WaitReason::kBudget:
        why = "for the token budget of a step";
        break;
      case WaitReason::kBlocks:
        why = fmt::format("for {} (held by {})", plural(state.needs, "block"), holders_);
        break;
      case WaitReason::kOrder:
        why = "behind others, by policy order";
        break;
      case WaitReason::kParent:
        why = "for the prompt that it shares";
        break;
      case WaitReason::kPreempt:
        why = "since blocks ran out and somebody gave way";
        break;
      case WaitReason::kBatch:
        why = "for the batch to end";
        break;
    }
    say(state, fmt::format("step {}: waits {} {}", state.waits_since, plural(steps, "step"), why));
    state.waits = WaitReason::kNone;
  }

  void say_decodes(State& state) {
    if (state.decodes == 0) return;
    say(state, fmt::format("step {}: decodes {}", state.decodes_since, plural(state.decodes, "token")));
    state.decodes = 0;
  }

  RunStory& story_;
  std::optional<SeqId> only_;
  std::map<SeqId, State> states_;
  std::unordered_map<uint32_t, uint32_t> holders_of_;  // by block
  uint64_t held_ = 0;
  std::vector<SeqId> planned_;  // of this step, in the order of the plan
  std::string holders_;         // when the first in the queue began to wait for blocks
};

}  // namespace

uint64_t SequenceStory::steps_waited() const {
  return std::accumulate(waited.begin(), waited.end(), uint64_t{0},
                         [](uint64_t sum, const auto& each) { return sum + each.second; });
}

RunStory tell_run(const std::filesystem::path& path, std::optional<SeqId> only) {
  RunStory story;
  RunReader reader(path);
  story.config = reader.config();
  Teller teller(story, only);
  while (const auto event = reader.next()) teller.tell(*event);
  teller.end();
  story.truncated = reader.truncated();
  return story;
}

}  // namespace quire
