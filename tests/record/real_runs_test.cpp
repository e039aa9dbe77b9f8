// A hundred runs of the engine over the real executor, under random policies in small pools, with clients
// that go away: each answers as the same requests alone do, and each is made again from its record, decision
// by decision.
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_executor.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "record/run_record.h"
#include "sim/replay.h"
#include "tests/support/deep_executor.h"
#include "tests/support/sanitized.h"
#include "tokenize/tokenizer.h"

namespace quire::record {
namespace {

constexpr auto kModel = "models/llama-quire-stories-5m";

/// What became of a request: the text of each choice, or that it was aborted.
struct Outcome {
  std::map<uint32_t, std::string> texts;
  bool aborted = false;
};

/// How many blocks a recorded run moved to the host and back.
uint64_t swaps_in(const std::filesystem::path& log) {
  RunReader reader(log);
  uint64_t blocks = 0;
  while (const auto event = reader.next()) {
    const auto* decision = std::get_if<control::Decision>(&*event);
    if (decision != nullptr && decision->kind == control::DecisionKind::kSwapIn) blocks += decision->a;
  }
  return blocks;
}

/// How often the engine set one.
uint64_t budgets_in(const std::filesystem::path& log) {
  RunReader reader(log);
  uint64_t count = 0;
  while (const auto event = reader.next()) count += std::holds_alternative<RunBudget>(*event) ? 1 : 0;
  return count;
}

/// The model, loaded once, and an engine over it for each run.
class RealRuns : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kRequests = 24;

  RealRuns() {
    path_ = std::filesystem::temp_directory_path() / fmt::format("quire-real-run-{}", getpid());
    for (uint32_t i = 0; i < kRequests; ++i) requests_.push_back(make_request(i));
  }
  ~RealRuns() override { std::filesystem::remove(path_); }

  engine::GenerationRequest make_request(uint32_t index) {
    static const char* const kBeginnings[] = {
        "Once upon a time there was a little fox who lived in a big forest with his mother and",
        "One day a girl named Lily went to the park with her dog. The dog saw a big red ball and",
        "Tom had a small boat."};
    SplitMix64 random(index);
    engine::GenerationRequest out;
    out.prompt = tokenizer_->encode(kBeginnings[random.below(3)], true);
    out.prompt.resize(1 + random.below(out.prompt.size()));
    for (uint64_t i = random.below(10); i > 0; --i)
      out.prompt.push_back(static_cast<TokenId>(random.below(4000)));
    out.max_tokens = 1 + static_cast<uint32_t>(random.below(30));
    out.n = 1 + static_cast<uint32_t>(random.below(3));
    out.best_of = random.below(4) == 0 ? out.n + 1 : 0;
    out.beam_search = random.below(4) == 0;
    out.sampling.temperature = random.below(2) == 0 ? 0.0F : 1.0F;
    out.sampling.seed = index;
    if (!out.beam_search && random.below(3) == 0) out.stop = {"the", "and"};
    out.salt = random.below(3) == 0 ? 1 : 0;
    out.tenant = random.below(3);
    out.priority = static_cast<int32_t>(random.below(3));
    return out;
  }

  control::SchedulerConfig random_config(SplitMix64& random) {
    control::SchedulerConfig config;
    const auto any = [&](size_t count) { return static_cast<uint8_t>(random.below(count)); };
    config.num_blocks = 6 + static_cast<uint32_t>(random.below(9));  // a sequence takes up to 5
    config.max_num_seqs = 2 + static_cast<uint32_t>(random.below(10));
    config.max_num_batched_tokens = config.max_num_seqs + static_cast<uint32_t>(random.below(40));
    config.max_model_len = 100;
    config.watermark_bp = 0;
    config.scheduling = control::SchedulingKind{any(std::size(control::kSchedulingNames))};
    config.victim = control::VictimKind{any(std::size(control::kVictimNames))};
    config.preemption = control::PreemptionKind{any(std::size(control::kPreemptionNames))};
    config.batching = control::BatchingKind{static_cast<uint8_t>(random.below(5) == 0 ? 1 : 0)};
    config.eviction = control::EvictionKind{any(std::size(control::kEvictionNames))};
    config.enable_prefix_caching = random.below(5) != 0;
    config.num_host_blocks = static_cast<uint32_t>(random.below(20));
    return config;
  }

  /// Serves `indices`, all at once but for small pauses; aborts some if `aborts`.
  std::map<uint32_t, Outcome> run(const control::SchedulerConfig& scheduler,
                                  const std::vector<uint32_t>& indices, SplitMix64& random, bool aborts,
                                  RunWriter* record) {
    backend::cpu::KvCache cache(decoder_->config(), decoder_->compute_dtype(), scheduler.num_blocks,
                                scheduler.block_size);
    backend::cpu::KvCache host(decoder_->config(), decoder_->compute_dtype(),
                               std::max(1U, scheduler.num_host_blocks), scheduler.block_size);
    backend::cpu::CpuExecutor computing(*decoder_, cache, context_, scheduler.max_num_seqs, &host);
    test::DeepExecutor executor(computing, GetParam());
    engine::EngineConfig config;
    config.scheduler = scheduler;
    config.vocab_size = decoder_->config().vocab_size;
    config.eos = decoder_->config().eos;
    config.check_invariants = true;
    config.step_time = static_cast<Nanos>(random.below(2) * 100'000);  // so little that the budget moves
    std::map<uint32_t, Outcome> outcomes;
    std::mutex mutex;
    std::condition_variable changed;
    size_t done = 0;
    {
      engine::Engine engine(config, *tokenizer_, executor, clock_, nullptr, nullptr, record);
      for (const uint32_t index : indices) {
        const auto id = engine.submit(requests_[index], [&, index](engine::RequestOutput output) {
          const std::lock_guard lock(mutex);
          EXPECT_FALSE(output.error) << output.error->message;
          for (const engine::ChoiceOutput& choice : output.choices) {
            outcomes[index].texts[choice.index] += choice.text;
            if (choice.finish == control::FinishReason::kAbort) outcomes[index].aborted = true;
          }
          if (output.choices.empty()) outcomes[index].aborted = true;  // of a search
          if (output.done && ++done == indices.size()) changed.notify_all();
        });
        EXPECT_TRUE(id) << id.error().message;
        if (random.below(4) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random.below(5)));
        if (id && aborts && random.below(5) == 0) engine.abort(*id);
      }
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(120), [&] { return done == indices.size(); }));
      lock.unlock();
      preemptions_ += engine.stats().step.total_preemptions;
      evictions_ += engine.stats().step.total_evictions;
      copies_ += engine.stats().step.total_copies;
      hits_ += engine.stats().step.total_prefix_hit_tokens;
      evicted_by_[static_cast<size_t>(scheduler.eviction)] += engine.stats().step.total_evictions;
      preempted_by_[static_cast<size_t>(scheduler.victim)] += engine.stats().step.total_preemptions;
    }
    return outcomes;
  }

  ThreadPool pool_{2};
  kernels::KernelContext context_{kernels::best_isa_level(), pool_};
  std::unique_ptr<backend::cpu::Decoder> decoder_ =
      backend::cpu::Decoder::load(kModel, {.compute = DType::kBF16}, context_);
  std::unique_ptr<tokenize::Tokenizer> tokenizer_ = tokenize::Tokenizer::load(kModel);
  SteadyClock clock_;
  std::vector<engine::GenerationRequest> requests_;
  std::filesystem::path path_;
  uint64_t preemptions_ = 0;
  uint64_t evictions_ = 0;
  uint64_t copies_ = 0;
  uint64_t hits_ = 0;
  uint64_t evicted_by_[std::size(control::kEvictionNames)] = {};
  uint64_t preempted_by_[std::size(control::kVictimNames)] = {};
};

TEST_P(RealRuns, AnswerAsAloneAndAreMadeAgain) {
  control::SchedulerConfig roomy;
  roomy.num_blocks = 200;
  roomy.max_model_len = 100;
  SplitMix64 random(1);
  std::vector<std::map<uint32_t, std::string>> alone;
  for (uint32_t index = 0; index < kRequests; ++index) {
    alone.push_back(run(roomy, {index}, random, false, nullptr).at(index).texts);
  }
  preemptions_ = evictions_ = copies_ = hits_ = 0;

  const uint64_t runs = test::kSanitized ? 8 : 100;
  uint64_t aborted = 0;
  uint64_t finished = 0;
  uint64_t swaps = 0;
  uint64_t budgets = 0;
  std::set<std::string_view> policies;
  for (uint64_t seed = 0; seed < runs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SplitMix64 dice(seed * 1000 + 7);
    const control::SchedulerConfig config = random_config(dice);
    policies.insert(control::kSchedulingNames[static_cast<size_t>(config.scheduling)]);
    policies.insert(control::kPreemptionNames[static_cast<size_t>(config.preemption)]);
    policies.insert(control::kBatchingNames[static_cast<size_t>(config.batching)]);
    std::vector<uint32_t> indices;
    for (uint32_t index = 0; index < kRequests; ++index) {
      if (dice.below(2) == 0) indices.push_back(index);
    }
    {
      RunWriter record(path_);
      for (const auto& [index, outcome] : run(config, indices, dice, true, &record)) {
        aborted += outcome.aborted ? 1 : 0;
        if (outcome.aborted) continue;
        ++finished;
        EXPECT_EQ(outcome.texts, alone[index]) << "request " << index;
      }
    }
    swaps += swaps_in(path_);
    budgets += budgets_in(path_);
    const Replay again = sim::replay(path_);
    EXPECT_TRUE(again.recorded) << "the record has no end";
    EXPECT_TRUE(again.same()) << (again.first_difference ? difference_text(*again.first_difference)
                                                         : "the digest");
    EXPECT_GT(again.steps, 0U);
    if (HasFailure()) break;
  }
  EXPECT_GT(finished, runs * 5);
  EXPECT_GT(aborted, runs / 2);
  EXPECT_GT(preemptions_, runs);
  EXPECT_GT(evictions_, runs);
  EXPECT_GT(copies_, runs);
  EXPECT_GT(hits_, runs);
  if (!test::kSanitized) {
    EXPECT_EQ(policies.size(), std::size(control::kSchedulingNames) + std::size(control::kPreemptionNames) +
                                   std::size(control::kBatchingNames));
    for (size_t i = 0; i < std::size(control::kEvictionNames); ++i)
      EXPECT_GT(evicted_by_[i], 20U) << control::kEvictionNames[i];
    for (size_t i = 0; i < std::size(control::kVictimNames); ++i)
      EXPECT_GT(preempted_by_[i], 10U) << control::kVictimNames[i];
    EXPECT_GT(swaps, 20U);
    EXPECT_GT(budgets, 20U);
  }
  fmt::print(
      "{} runs with {} steps in flight made again; {} requests as alone, {} aborted; {} preemptions, {} "
      "evictions, {} copies, {} "
      "blocks moved to the host and back\n",
      runs, GetParam(), finished, aborted, preemptions_, evictions_, copies_, swaps);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, RealRuns, testing::Values(1, 2, 3));

}  // namespace
}  // namespace quire::record
