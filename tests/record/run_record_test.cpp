// A run, written down, made again and read: random runs under all policies, and files that are broken.
#include "record/run_record.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"

namespace quire {
namespace {

using testing::HasSubstr;

class RunRecord : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  SchedulerConfig random_config(SplitMix64& random) {
    SchedulerConfig config;
    config.num_blocks = static_cast<uint32_t>(8 + random.below(30));
    config.block_size = 4;
    config.max_num_seqs = static_cast<uint32_t>(2 + random.below(6));
    config.max_num_batched_tokens = config.max_num_seqs + static_cast<uint32_t>(random.below(30));
    config.max_model_len = 60;
    config.watermark_bp = 0;
    config.scheduling = SchedulingKind{static_cast<uint8_t>(random.below(std::size(kSchedulingNames)))};
    config.victim = VictimKind{static_cast<uint8_t>(random.below(std::size(kVictimNames)))};
    config.preemption = PreemptionKind{static_cast<uint8_t>(random.below(std::size(kPreemptionNames)))};
    config.eviction = EvictionKind{static_cast<uint8_t>(random.below(std::size(kEvictionNames)))};
    config.batching = BatchingKind{static_cast<uint8_t>(random.below(2))};
    config.num_host_blocks = static_cast<uint32_t>(random.below(20));
    return config;
  }

  SeqSpec random_sequence(SplitMix64& random, SeqId id) {
    SeqSpec spec;
    spec.id = id;
    spec.prompt.resize(1 + random.below(25));
    for (TokenId& token : spec.prompt) token = static_cast<TokenId>(random.below(3) * 40'000);
    spec.max_tokens = static_cast<uint32_t>(1 + random.below(25));
    spec.stop_tokens = {7};
    spec.salt = random.below(2) * 0x123456789abcdefU;
    spec.arrived = static_cast<Nanos>(id) * 1'000'000;
    spec.priority = static_cast<int32_t>(random.below(5)) - 2;
    spec.tenant = random.below(3);
    if (random.below(2) == 0) spec.expected_tokens = static_cast<uint32_t>(random.below(20));
    return spec;
  }

  /// A random run, written to path_. Returns its digest.
  uint64_t record_run(uint64_t seed, bool end_well = true) {
    SplitMix64 random(seed);
    Scheduler scheduler(random_config(random));
    RunWriter writer(path_);
    writer.begin(scheduler.config());
    scheduler.listen(&writer);
    if (random.below(2) == 0) {  // a warm start
      std::vector<PrefixNode> nodes(1 + random.below(20));
      for (uint32_t i = 0; i < nodes.size(); ++i) {
        if (random.below(4) != 0 && i > 0) nodes[i].parent = static_cast<uint32_t>(random.below(i));
        for (int k = 0; k < 4; ++k) nodes[i].tokens.push_back(static_cast<TokenId>(random.below(3) * 40'000));
        nodes[i].blocks = {random.below(5) == 0 ? kNoBlock : 0};
      }
      writer.restore(nodes);
      restore(scheduler.pool(), nodes);
      EXPECT_EQ(scheduler.check_invariants(), "");
    }
    SeqId next = 0;
    for (int i = 0; i < 200; ++i) {
      if (random.below(3) == 0) {
        SeqSpec spec = random_sequence(random, next++);
        writer.add(spec);
        static_cast<void>(scheduler.add(spec));
      }
      if (next > 0 && random.below(20) == 0) {
        const SeqId id = random.below(next);
        writer.abort(id);
        scheduler.abort(id);
      }
      if (random.below(100) == 0) {
        writer.reset();
        scheduler.reset_prefix_cache();
      }
      if (!scheduler.has_work()) continue;
      writer.plan(i);
      const StepPlan plan = scheduler.plan(i);
      preemptions_ += scheduler.stats().total_preemptions;
      StepResult result;
      for (const SeqStep& step : plan.seqs) {
        SeqResult& seq = result.seqs.emplace_back();
        if (random.below(60) == 0) seq.error = "failed";
        if (step.rows == LogitRows::kLast)
          seq.tokens.emplace_back().token = static_cast<TokenId>(random.below(9));
      }
      writer.commit(result);
      scheduler.commit(plan, std::move(result));
    }
    if (end_well) writer.end(scheduler.digest());
    writer.flush();
    return scheduler.digest();
  }

  std::string bytes() const { return read_file(path_); }
  void overwrite(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string error() const {
    try {
      replay(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("quire_run_" + std::to_string(::getpid()));
  uint64_t preemptions_ = 0;
};

TEST_F(RunRecord, ARunMadeAgainDecidesTheSame) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const uint64_t digest = record_run(seed);
    const Replay again = replay(path_);
    EXPECT_TRUE(again.same()) << "seed " << seed;
    EXPECT_EQ(again.digest, digest);
    EXPECT_GT(again.decisions, 200U);
  }
  EXPECT_GT(preemptions_, 1000U);
}

TEST_F(RunRecord, AnotherTokenIsAnotherRun) {
  const uint64_t digest = record_run(3);
  std::string text = bytes();
  // The input of a step's results: the first sampled token that is no stop token becomes one.
  bool changed = false;
  RunReader reader(path_);
  const size_t header = text.find('\n');
  for (size_t i = header; i + 2 < text.size() && !changed; ++i) {
    if (text[i] != 'c' || text[i + 1] != 1 || text[i + 2] != 2 + 3) continue;
    text[i + 2] = 2 + 7;
    changed = true;
  }
  ASSERT_TRUE(changed);
  overwrite(text);
  // Either its decisions are others, or what follows does not fit it any more.
  if (!error().empty()) {
    EXPECT_THAT(error(), HasSubstr("was not planned"));
    return;
  }
  const Replay again = replay(path_);
  EXPECT_FALSE(again.same());
  EXPECT_TRUE(again.first_difference);
  EXPECT_NE(again.digest, digest);
}

TEST_F(RunRecord, AFileThatWasCutOffIsReadAsFarAsItGoes) {
  record_run(5);
  const std::string whole = bytes();
  overwrite(whole.substr(0, whole.size() * 2 / 3));
  const Replay again = replay(path_);
  EXPECT_FALSE(again.recorded);
  EXPECT_FALSE(again.first_difference);
  EXPECT_GT(again.steps, 10U);
}

TEST_F(RunRecord, BrokenFilesAreRefusedByTheirBytes) {
  record_run(5);
  const std::string whole = bytes();
  const size_t header = whole.find('\n') + 1;
  overwrite(whole.substr(0, header) + "?");
  EXPECT_THAT(error(), HasSubstr(fmt::format("at byte {}: no record of kind 63", header)));
  overwrite(whole.substr(0, header) + "p" + std::string(12, '\xff'));
  EXPECT_THAT(error(), HasSubstr("a number of more than 64 bits"));
  overwrite(whole.substr(0, header) + "c" + std::string(1, '\0'));
  EXPECT_THAT(error(), HasSubstr("results of a step that was not planned"));
  overwrite("nonsense");
  EXPECT_THAT(error(), HasSubstr("no record of a run"));
  overwrite("{\"quire_run\": 2}\n");
  EXPECT_THAT(error(), HasSubstr("key 'quire_run'"));
  overwrite("{\"quire_run\": 1, \"scheduler\": {\"num_blocks\": -4}}\n");
  EXPECT_THAT(error(), HasSubstr("key 'scheduler.num_blocks'"));
}

TEST_F(RunRecord, NoDamageDoesMoreThanAnError) {
  record_run(9);
  const std::string whole = bytes();
  SplitMix64 random(1);
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    const size_t header = text.find('\n') + 1;
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      text[header + random.below(text.size() - header)] = static_cast<char>(random.below(256));
    }
    overwrite(text);
    error();
  }
}

}  // namespace
}  // namespace quire
