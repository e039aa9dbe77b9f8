#include "tests/control/property/story.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rng.h"
#include "control/kv/windows.h"

namespace quire::test {

std::vector<TokenId> prompt(const Request& request) {
  constexpr uint32_t kCommon = 5;  // tokens that all texts begin with
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < request.length; ++i) {
    tokens.push_back(
        static_cast<TokenId>(keyed_random(1, i < kCommon ? kTexts : request.text, i) % kVocabulary));
  }
  for (uint32_t i = 0; i < request.own; ++i) {
    tokens.push_back(static_cast<TokenId>(keyed_random(2, request.id, i) % kVocabulary));
  }
  return tokens;
}

Operation add(const Request& request) { return {.kind = Operation::Kind::kAdd, .request = request}; }
Operation fork_of(SeqId parent, const Request& request) {
  return {.kind = Operation::Kind::kFork, .request = request, .other = parent};
}
Operation abort_of(SeqId id) { return {.kind = Operation::Kind::kAbort, .other = id}; }
Operation reset_cache() { return {.kind = Operation::Kind::kReset}; }
Operation step(uint32_t milliseconds, uint32_t fails) {
  return {.kind = Operation::Kind::kStep, .milliseconds = milliseconds, .fails = fails};
}
Operation plan_only(uint32_t milliseconds, uint32_t fails) {
  return {.kind = Operation::Kind::kPlan, .milliseconds = milliseconds, .fails = fails};
}
Operation commit_open() { return {.kind = Operation::Kind::kCommit}; }
Operation set_budget(uint32_t tokens) { return {.kind = Operation::Kind::kBudget, .tokens = tokens}; }
Operation lose_executor() { return {.kind = Operation::Kind::kLose}; }

// ---- making one ----

namespace {

class Author {
 public:
  Author(uint64_t seed, bool prompts) : seed_(seed), random_(seed), prompts_(prompts) {}

  Story write() {
    Story story;
    crowded_ = one_in(4);
    story.config = config();
    story.depth = 1 + static_cast<uint32_t>(keyed_random(seed_, 3, 0) % kMostDepth);
    const auto longest =
        static_cast<uint32_t>(control::longest_sequence(story.config.kv_windows, story.config.num_blocks,
                                                        story.config.block_size, story.config.max_model_len));
    longest_text_ = 1 + below(std::max(longest / 2, 1U));
    longest_own_ = 1 + below(std::max(longest / 4, 1U));
    longest_answer_ = 1 + below(std::max(longest / 2, 1U));
    if (crowded_) {
      longest_text_ = longest_own_ = 3;
      longest_answer_ = 1 + longest * 3 / 4;
    }
    newcomers_ = 10 + below(30);
    aborts_ = crowded_ ? below(2) : 3;
    failing_ = !crowded_ && one_in(3);
    const uint32_t count = 20 + below(400);
    while (story.operations.size() < count) {
      const uint32_t dice = below(100);
      if (dice < newcomers_) {
        story.operations.push_back(newcomer());
      } else if (dice < newcomers_ + aborts_) {
        story.operations.push_back(abort_of(recent(15)));
      } else if (dice == newcomers_ + aborts_ && one_in(4)) {
        story.operations.push_back(reset_cache());
      } else if (dice == newcomers_ + aborts_ + 1 && one_in(2)) {
        story.operations.push_back(set_budget(below(one_in(4) ? 100 : 20)));
      } else if (dice < (crowded_ ? 98 : 90)) {
        const uint32_t fails = failure();  // apart: compilers order the arguments of a call as they like
        story.operations.push_back(step(below(4), fails));
      } else {
        interrupted_step(story.operations);
      }
    }
    return story;
  }

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_.below(bound)); }
  bool one_in(uint32_t count) { return below(count) == 0; }
  template <typename Kind, size_t count>
  Kind any_of(const std::string_view (&)[count]) {
    return static_cast<Kind>(below(count));
  }

  /// A crowded one has many sequences in few blocks, some of them long: those are preempted again and again.
  control::SchedulerConfig config() {
    control::SchedulerConfig made;
    made.block_size = 1 + below(crowded_ ? 2 : 6);
    made.num_blocks = crowded_ ? 20 + below(40) : 4 + below(one_in(2) ? 12 : 60);
    made.max_num_seqs = crowded_ ? 8 + below(16) : 1 + below(12);
    made.max_num_batched_tokens = made.max_num_seqs + below(one_in(2) ? 4 : 30);
    made.context_cost = one_in(2) ? 0 : below(500'000);
    made.max_model_len = crowded_ ? 100 : 10 + below(100);
    made.max_waiting = one_in(8) ? 80 : below(20);
    made.watermark_bp = crowded_ ? 0 : one_in(8) ? 20000 : below(2) * below(1000);
    made.enable_prefix_caching = !one_in(crowded_ ? 2 : 6);
    if (one_in(2)) {  // K/V groups
      made.kv_windows.resize(1 + below(4));
      for (uint32_t& window : made.kv_windows) window = one_in(3) ? 0 : 1 + below(30);
      made.num_blocks *= static_cast<uint32_t>(made.kv_windows.size());
    }
    made.scheduling = any_of<control::SchedulingKind>(control::kSchedulingNames);
    made.batching = one_in(4) ? control::BatchingKind::kStatic : control::BatchingKind::kContinuous;
    made.victim = any_of<control::VictimKind>(control::kVictimNames);
    made.preemption = any_of<control::PreemptionKind>(control::kPreemptionNames);
    made.eviction = any_of<control::EvictionKind>(control::kEvictionNames);
    made.num_host_blocks =
        made.preemption == control::PreemptionKind::kRecompute ? 0 : below(2 * made.num_blocks);
    made.priority_aging = 1'000'000 * Nanos{1 + below(50)};
    made.costs.swap_block = made.costs.prefill_token * below(3);
    return made;
  }

  Request request() {
    Request made;
    made.id = next_id_++;
    made.text = below(kTexts);
    made.length = below(longest_text_ + 1);
    made.own = below(longest_own_ + 1) + (made.length == 0 ? 1 : 0);
    made.max_tokens = 1 + below((crowded_ && one_in(2) ? 6 : longest_answer_) + 1);
    made.salt = one_in(5) ? 1 : 0;
    made.choice = below(2);
    made.stop_token = !crowded_ && one_in(12) ? 1 + below(kVocabulary) : 0;
    made.stop_after = !crowded_ && one_in(10) ? 1 + below(6) : 0;
    made.penalties = one_in(10);
    made.priority = static_cast<int32_t>(below(7)) - 3;
    made.tenant = below(3);
    made.deadline = below(200);
    made.expected = one_in(8) ? 0 : 1 + below(longest_answer_);
    if (prompts_) wants(made, seed_);
    return made;
  }

  /// Something of its prompt, in one of four.
  static void wants(Request& made, uint64_t seed) {
    SplitMix64 random(keyed_random(seed, 4, made.id));
    if (random.below(4) != 0) return;
    made.rows = static_cast<uint32_t>(random.below(3));
    made.first_row = static_cast<uint32_t>(random.below(2) * random.below(made.length + made.own + 1));
    made.pooling = static_cast<uint32_t>(random.below(3));
    if (random.below(3) == 0) made.max_tokens = 0;
  }

  /// One of the last, which may have ended.
  SeqId recent(uint32_t count) { return next_id_ - std::min<SeqId>(next_id_, 1 + below(count)); }

  Operation newcomer() {
    const bool forks = next_id_ > 0 && one_in(4);
    const SeqId parent = forks ? recent(4) : 0;
    return forks ? fork_of(parent, request()) : add(request());
  }
  uint32_t failure() { return failing_ && one_in(12) ? 1 + below(12) : 0; }

  void interrupted_step(std::vector<Operation>& operations) {
    const uint32_t fails = failure();
    operations.push_back(plan_only(below(4), fails));
    const uint32_t count = 1 + below(3);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t dice = below(10);
      operations.push_back(dice < 7 ? abort_of(recent(15)) : dice < 9 ? newcomer() : reset_cache());
    }
    operations.push_back(one_in(40) ? lose_executor() : commit_open());
  }

  uint64_t seed_;
  SplitMix64 random_;
  bool prompts_;
  SeqId next_id_ = 0;
  bool crowded_ = false;
  uint32_t longest_text_ = 0;
  uint32_t longest_own_ = 0;
  uint32_t longest_answer_ = 0;
  uint32_t newcomers_ = 0;  // in a hundred operations
  uint32_t aborts_ = 0;
  bool failing_ = false;
};

}  // namespace

Story make_story(uint64_t seed, bool prompts) { return Author(seed, prompts).write(); }

// ---- as C++ ----

namespace {

/// ".name = value" of what is not as in a default one.
class Fields {
 public:
  template <typename T>
  void add(std::string_view name, const T& value, const T& usual) {
    if (value != usual) say(name, fmt::format("{}", value));
  }
  template <typename Kind>
  void add(std::string_view name, std::string_view type, Kind value, Kind usual,
           const std::vector<std::string_view>& enumerators) {
    if (value != usual) say(name, fmt::format("{}::{}", type, enumerators[static_cast<size_t>(value)]));
  }
  void say(std::string_view name, const std::string& value) {
    text_ += fmt::format("{}.{} = {}", text_.empty() ? "" : ", ", name, value);
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

std::string to_string(const Request& request) {
  const Request usual;
  Fields fields;
  fields.say("id", std::to_string(request.id));
  fields.add("text", request.text, usual.text);
  fields.add("length", request.length, usual.length);
  fields.add("own", request.own, usual.own);
  fields.add("max_tokens", request.max_tokens, usual.max_tokens);
  fields.add("salt", request.salt, usual.salt);
  fields.add("choice", request.choice, usual.choice);
  fields.add("stop_token", request.stop_token, usual.stop_token);
  fields.add("stop_after", request.stop_after, usual.stop_after);
  fields.add("rows", request.rows, usual.rows);
  fields.add("first_row", request.first_row, usual.first_row);
  fields.add("pooling", request.pooling, usual.pooling);
  fields.add("penalties", request.penalties, usual.penalties);
  fields.add("priority", request.priority, usual.priority);
  fields.add("tenant", request.tenant, usual.tenant);
  fields.add("deadline", request.deadline, usual.deadline);
  fields.add("expected", request.expected, usual.expected);
  return fields.text();
}

std::string to_string(const control::SchedulerConfig& config) {
  const control::SchedulerConfig usual;
  Fields fields;
  fields.add("num_blocks", config.num_blocks, usual.num_blocks);
  fields.add("block_size", config.block_size, usual.block_size);
  if (config.kv_windows != usual.kv_windows) {
    fields.say("kv_windows", fmt::format("{{{}}}", fmt::join(config.kv_windows, ", ")));
  }
  fields.add("max_num_seqs", config.max_num_seqs, usual.max_num_seqs);
  fields.add("max_num_batched_tokens", config.max_num_batched_tokens, usual.max_num_batched_tokens);
  fields.add("context_cost", config.context_cost, usual.context_cost);
  fields.add("max_model_len", config.max_model_len, usual.max_model_len);
  fields.add("max_waiting", config.max_waiting, usual.max_waiting);
  fields.add("watermark_bp", config.watermark_bp, usual.watermark_bp);
  fields.add("enable_prefix_caching", config.enable_prefix_caching, usual.enable_prefix_caching);
  fields.add("scheduling", "SchedulingKind", config.scheduling, usual.scheduling,
             {"kFcfs", "kSrpt", "kSlo", "kPriority", "kFair", "kLpm"});
  fields.add("batching", "BatchingKind", config.batching, usual.batching, {"kContinuous", "kStatic"});
  fields.add("victim", "VictimKind", config.victim, usual.victim,
             {"kLastAdmitted", "kLowestPriority", "kLeastProgress"});
  fields.add("preemption", "PreemptionKind", config.preemption, usual.preemption,
             {"kRecompute", "kSwap", "kAuto"});
  fields.add("num_host_blocks", config.num_host_blocks, usual.num_host_blocks);
  fields.add("priority_aging", config.priority_aging, usual.priority_aging);
  if (config.costs.swap_block != usual.costs.swap_block) {
    fields.say("costs", fmt::format("{{.swap_block = {}}}", config.costs.swap_block));
  }
  fields.add("eviction", "EvictionKind", config.eviction, usual.eviction,
#define QUIRE_ROW(kind, name, make) #kind,
             {QUIRE_EVICTION_POLICIES(QUIRE_ROW)});
#undef QUIRE_ROW
  return fields.text();
}

std::string step_arguments(const Operation& operation) {
  if (operation.fails > 0) return fmt::format("{}, {}", operation.milliseconds, operation.fails);
  return operation.milliseconds > 0 ? std::to_string(operation.milliseconds) : "";
}

}  // namespace

std::string to_string(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kAdd:
      return fmt::format("add({})", to_string(operation.request));
    case Operation::Kind::kFork:
      return fmt::format("fork_of({}, {})", operation.other, to_string(operation.request));
    case Operation::Kind::kAbort:
      return fmt::format("abort_of({})", operation.other);
    case Operation::Kind::kReset:
      return "reset_cache()";
    case Operation::Kind::kStep:
      return fmt::format("step({})", step_arguments(operation));
    case Operation::Kind::kPlan:
      return fmt::format("plan_only({})", step_arguments(operation));
    case Operation::Kind::kCommit:
      return "commit_open()";
    case Operation::Kind::kBudget:
      return fmt::format("set_budget({})", operation.tokens);
    case Operation::Kind::kLose:
      return "lose_executor()";
  }
  return "?";
}

std::string to_string(const Story& story) {
  std::string text = fmt::format("{{{}, {},\n {{", to_string(story.config), story.depth);
  for (const Operation& operation : story.operations) text += to_string(operation) + ",\n  ";
  return text + "}}";
}

}  // namespace quire::test
