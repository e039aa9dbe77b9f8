// Random operations on random pools: the invariants hold after each, every sequence gives what it gives
// alone, and nothing is left at the end.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/kv_windows.h"
#include "base/rng.h"
#include "control/scheduler.h"
#include "tests/control/oracle_executor.h"

namespace quire::test {
namespace {

/// One scheduler under random fire. Everything follows from the seed.
class World {
 public:
  explicit World(uint64_t seed, bool windowed = false, bool all_policies = false)
      : random_(seed),
        config_(windowed ? with_windows(random_config(), seed) : random_config()),
        scheduler_(all_policies ? with_policies(seed) : config_),
        executor_(config_.num_blocks, config_.block_size, seed, config_.kv_windows, config_.num_host_blocks),
        error_every_(random_.below(3) == 0 ? 50 : 0) {
    for (auto& prompt : common_prompts_) prompt = random_tokens(1 + below(4 * config_.block_size));
  }

  /// One random operation; afterwards the invariants hold.
  void operate() {
    const uint32_t dice = below(100);
    if (dice < 30) {
      add();
    } else if (dice < 36) {
      abort_any();
    } else if (dice < 37) {
      scheduler_.reset_prefix_cache();
    } else {
      step();
    }
    check();
  }

  /// Steps until nothing is left; then every sequence has ended once, and every block and slot is back.
  void drain() {
    finish_all();
    for (const auto& [id, record] : records_) {
      if (!record.ended) fail(fmt::format("sequence {} never ended", id));
    }
    scheduler_.reset_prefix_cache();
    calm_ = true;
    SeqSpec last;  // alone in an empty house
    last.id = next_id_++;
    last.prompt = {0};
    last.max_tokens = 1;
    last.sampling.seed = last.id;
    add(last);
    finish_all();
    const StepStats& stats = scheduler_.stats();
    const auto groups = static_cast<uint32_t>(config_.kv_windows.size());
    const uint32_t its_own = config_.enable_prefix_caching && config_.block_size == 1 ? groups : 0;
    if (stats.running + stats.waiting + stats.blocks_referenced + stats.blocks_shared + stats.blocks_saved +
            stats.slots_unused !=
        0) {
      fail("something is held by nobody");
    }
    if (stats.blocks_cached != its_own) fail("a block was not forgotten");
    if (executor_.slots_in_use() != 1) fail("the executor was not told of an end");  // but the last
  }

  const std::string& error() const { return error_; }
  uint64_t digest() const { return executor_.digest(); }
  const StepStats& stats() const { return scheduler_.stats(); }
  const SchedulerConfig& config() const { return config_; }
  uint64_t replaced() const { return replaced_; }
  uint64_t swapped_out() const { return swapped_out_; }
  uint64_t swapped_in() const { return swapped_in_; }

 private:
  struct Record {
    SeqSpec spec;
    std::vector<TokenId> output;
    bool ended = false;
  };

  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_.below(bound)); }

  SchedulerConfig random_config() {
    SchedulerConfig config;
    config.block_size = 1 + below(6);
    config.num_blocks = 4 + below(40);
    config.max_num_seqs = 1 + below(12);
    config.max_num_batched_tokens = config.max_num_seqs + below(below(2) == 0 ? 4 : 30);
    config.max_model_len = 10 + below(100);
    config.max_waiting = 2 + below(30);
    config.watermark_bp = below(8) == 0 ? 20000 : below(1000);
    config.enable_prefix_caching = below(4) != 0;
    return config;
  }

  /// One to four K/V groups of other windows, and blocks for them.
  static SchedulerConfig with_windows(SchedulerConfig config, uint64_t seed) {
    SplitMix64 random(seed + 77);
    config.kv_windows.clear();
    const uint64_t groups = 1 + random.below(4);
    for (uint64_t i = 0; i < groups; ++i) {
      config.kv_windows.push_back(random.below(3) == 0 ? 0 : 1 + static_cast<uint32_t>(random.below(30)));
    }
    config.num_blocks *= static_cast<uint32_t>(groups);
    return config;
  }

  const SchedulerConfig& with_policies(uint64_t seed) {
    SplitMix64 random(seed + 78);
    const auto any = [&](uint64_t count) { return static_cast<uint8_t>(random.below(count)); };
    config_.scheduling = SchedulingKind{any(std::size(kSchedulingNames))};
    config_.victim = VictimKind{any(std::size(kVictimNames))};
    config_.preemption = PreemptionKind{any(std::size(kPreemptionNames))};
    config_.batching = BatchingKind{static_cast<uint8_t>(random.below(4) == 0 ? 1 : 0)};
    config_.num_host_blocks = static_cast<uint32_t>(random.below(40));
    config_.costs.swap_block = static_cast<Nanos>(random.below(3) * config_.costs.prefill_token);
    config_.eviction = static_cast<EvictionKind>(mix64(seed) % std::size(kEvictionNames));
    config_.watermark_bp = 0;
    return config_;
  }

  std::vector<TokenId> random_tokens(uint32_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(below(kVocabulary));
    return tokens;
  }

  void add() {
    SeqSpec spec;
    if (!records_.empty() && below(4) == 0) {  // a fork of a recent one, which may have ended
      const auto back = std::min<uint64_t>(next_id_, 1 + below(6));
      const auto parent = records_.find(next_id_ - back);
      if (parent != records_.end()) {
        spec = parent->second.spec;
        spec.fork_of = parent->first;
      }
    }
    if (spec.prompt.empty()) {
      spec.salt = below(5) == 0 ? 1 : 0;
      spec.prompt = common_prompts_[below(4)];
      spec.prompt.resize(1 + below(static_cast<uint32_t>(spec.prompt.size())));
      const auto tail = random_tokens(below(12));
      spec.prompt.insert(spec.prompt.end(), tail.begin(), tail.end());
    }
    spec.id = next_id_++;
    spec.arrived = now_;
    spec.ttft_deadline = static_cast<Nanos>(spec.id * 7919 % 1'000'000'000);
    spec.priority = static_cast<int32_t>(spec.id * 31 % 7) - 3;
    spec.tenant = spec.id * 17 % 3;
    spec.max_tokens = 1 + below(25);
    spec.sampling.seed = spec.id;
    spec.sampling.choice = below(2);
    spec.stop_tokens.clear();
    if (below(8) == 0) spec.stop_tokens = {static_cast<TokenId>(below(kVocabulary))};

    add(spec);
  }

  void add(const SeqSpec& spec) {
    executor_.expect(spec);
    const uint64_t length = spec.prompt.size() + spec.max_tokens;
    const bool fits =
        length <= config_.max_model_len &&
        blocks_held(config_.kv_windows, length - 1, 1, config_.block_size) <= config_.num_blocks;
    const auto added = scheduler_.add(spec);
    if (added) {
      if (!fits) fail("a sequence that can never run was taken");
      records_[spec.id] = {spec, {}, false};
    } else if (fits != (added.error().code == RequestErrorCode::kQueueFull)) {
      fail("refused for the wrong reason: " + added.error().message);
    }
  }

  void finish_all() {
    while (scheduler_.has_work() && error_.empty()) {
      step();
      check();
    }
  }

  void abort_any() {
    if (next_id_ == 0) return;
    const SeqId id = next_id_ - std::min<uint64_t>(next_id_, 1 + below(15));
    scheduler_.abort(id);
    if (const auto found = records_.find(id); found != records_.end()) found->second.ended = true;
  }

  void step() {
    const bool had_work = scheduler_.has_work();
    const StepPlan plan = scheduler_.plan(now_ += 1'000'000);
    swapped_out_ += plan.moves_out.size();
    swapped_in_ += plan.moves_in.size();
    check();
    if (plan.empty() == had_work) fail("a step without progress while work waits");
    if (plan.empty()) {
      if (!plan.removed.empty() || !plan.added.empty()) fail("an empty plan that is not empty");
      return;
    }
    if (num_tokens(plan) > config_.max_num_batched_tokens) fail("over the token budget");
    replaced_ += plan.updates.size() - plan.copies.size();
    while (!calm_ && below(5) == 0) abort_any();
    check();
    StepResult result = executor_.execute(plan, calm_ ? 0 : error_every_);
    if (!executor_.error().empty()) fail(executor_.error());
    while (!calm_ && below(5) == 0) abort_any();
    for (const SeqEvent& event : scheduler_.commit(plan, std::move(result))) take(event);
    const StepStats& stats = scheduler_.stats();
    if (stats.prefill_tokens + stats.decode_tokens != num_tokens(plan)) fail("stats: tokens");
    if (stats.admitted != plan.added.size() || stats.copies != plan.copies.size()) fail("stats: plan");
    if (stats.preempted > 0 && stats.admitted > 0) fail("an admission in a step that preempted");
    if (stats.step != plan.step) fail("stats: step");
  }

  static uint32_t num_tokens(const StepPlan& plan) {
    uint32_t tokens = 0;
    for (const SeqStep& seq : plan.seqs) tokens += static_cast<uint32_t>(seq.tokens.size());
    return tokens;
  }

  void take(const SeqEvent& event) {
    Record& record = records_.at(event.id);
    const Solo& solo = executor_.solo(event.id);
    if (record.ended) fail(fmt::format("sequence {}: an event after its end", event.id));
    if (event.cached_tokens > (record.output.empty() ? record.spec.prompt.size() - 1 : 0)) {
      fail("more tokens cached than the prompt has, or said twice");
    }
    if (event.token) record.output.push_back(event.token->token);
    const size_t length = record.spec.prompt.size() + record.output.size();
    if (length > solo.tokens.size() || !std::equal(record.output.begin(), record.output.end(),
                                                   solo.tokens.begin() + record.spec.prompt.size())) {
      fail(fmt::format("sequence {}: another output than alone", event.id));
    }
    if (event.token && event.finish.has_value() != (length == solo.tokens.size())) {
      fail(fmt::format("sequence {}: ends too early or too late", event.id));
    }
    if (!event.finish) return;
    record.ended = true;
    if (*event.finish == FinishReason::kError) {
      if (event.error != "NaN") fail("an error without its reason: " + event.error);
    } else if (*event.finish != solo.finish) {
      fail(fmt::format("sequence {}: ends for another reason than alone", event.id));
    } else if (event.stop_token.has_value() != (solo.finish == FinishReason::kStop)) {
      fail("a stop token missing or invented");
    }
  }

  void check() {
    if (const std::string wrong = scheduler_.check_invariants(); !wrong.empty()) fail(wrong);
  }
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  SplitMix64 random_;
  SchedulerConfig config_;
  Scheduler scheduler_;
  OracleExecutor executor_;
  uint32_t error_every_;
  bool calm_ = false;  // no aborts within a step, no errors
  std::vector<TokenId> common_prompts_[4];
  std::map<SeqId, Record> records_;
  SeqId next_id_ = 0;
  uint64_t replaced_ = 0;
  uint64_t swapped_out_ = 0;
  uint64_t swapped_in_ = 0;
  Nanos now_ = 0;
  std::string error_;
};

constexpr uint64_t kWorlds = 400;
constexpr uint32_t kOperations = 250;  // each; 100,000 in all

struct Totals {
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint64_t evictions = 0;
  uint64_t copies = 0;
  uint64_t replaced = 0;
  uint64_t swapped_out = 0;
  uint64_t swapped_in = 0;
  uint64_t evictions_by[std::size(kEvictionNames)] = {};
};

void run_worlds(bool windowed, Totals& totals, bool all_policies = false) {
  for (uint64_t seed = 0; seed < kWorlds; ++seed) {
    World world(seed, windowed, all_policies);
    for (uint32_t i = 0; i < kOperations; ++i) {
      world.operate();
      ASSERT_EQ(world.error(), "") << "seed " << seed << ", operation " << i;
    }
    world.drain();
    ASSERT_EQ(world.error(), "") << "seed " << seed << ", draining";
    totals.preemptions += world.stats().total_preemptions;
    totals.hits += world.stats().total_prefix_hit_tokens;
    totals.evictions += world.stats().total_evictions;
    totals.evictions_by[static_cast<size_t>(world.config().eviction)] += world.stats().total_evictions;
    totals.copies += world.stats().total_copies;
    totals.replaced += world.replaced();
    totals.swapped_out += world.swapped_out();
    totals.swapped_in += world.swapped_in();
  }
  fmt::print(
      "{} preemptions, {} tokens hit, {} evictions, {} copies, {} blocks deduplicated, {} swapped out, {} "
      "in\n",
      totals.preemptions, totals.hits, totals.evictions, totals.copies, totals.replaced, totals.swapped_out,
      totals.swapped_in);
}

TEST(SchedulerProperty, RandomOperationsBreakNothing) {
  Totals totals;
  run_worlds(false, totals);
  // Otherwise the test has not tested much.
  EXPECT_GT(totals.preemptions, 1000U);
  EXPECT_GT(totals.hits, 10000U);
  EXPECT_GT(totals.evictions, 1000U);
  EXPECT_GT(totals.copies, 500U);
  EXPECT_GT(totals.replaced, 500U);
}

TEST(SchedulerProperty, NorDoTheyWithWindows) {
  Totals totals;
  run_worlds(true, totals);
  EXPECT_GT(totals.preemptions, 500U);
  EXPECT_GT(totals.hits, 5000U);
  EXPECT_GT(totals.evictions, 1000U);
  EXPECT_GT(totals.copies, 500U);
  EXPECT_GT(totals.replaced, 500U);
}

void expect_all_of_it(const Totals& totals) {
  EXPECT_GT(totals.preemptions, 1000U);
  EXPECT_GT(totals.hits, 5000U);
  EXPECT_GT(totals.evictions, 1000U);
  EXPECT_GT(totals.copies, 500U);
  EXPECT_GT(totals.swapped_out, 1000U);
  EXPECT_GT(totals.swapped_in, 500U);
  for (const uint64_t evictions : totals.evictions_by) EXPECT_GT(evictions, 100U);
}

TEST(SchedulerProperty, NorDoTheyUnderAnyPolicy) {
  Totals totals;
  run_worlds(false, totals, true);
  expect_all_of_it(totals);
}

TEST(SchedulerProperty, NorDoTheyUnderAnyPolicyWithWindows) {
  Totals totals;
  run_worlds(true, totals, true);
  expect_all_of_it(totals);
}

uint64_t digest_of_worlds() {
  uint64_t digest = 0;
  for (uint64_t seed = 1000; seed < 1010; ++seed) {
    World world(seed);
    for (uint32_t i = 0; i < kOperations; ++i) world.operate();
    world.drain();
    digest = mix64(digest ^ world.digest());
  }
  return digest;
}

TEST(SchedulerProperty, SameInputsSamePlans) {
  const uint64_t first = digest_of_worlds();
  const std::vector<std::string> heap_now_differs(1000, std::string(100, 'x'));
  EXPECT_EQ(digest_of_worlds(), first);
  // The same with every compiler and on every machine. Changes when the rules of scheduling change.
  EXPECT_EQ(first, 0xa4d7b2f721ef3ca1U);
}

}  // namespace
}  // namespace quire::test
