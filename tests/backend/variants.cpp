#include "tests/backend/variants.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "control/kv/windows.h"

namespace quire::test {
namespace {

constexpr uint32_t kModelLength = 128;
constexpr uint32_t kAmpleBlocks = 1024;

control::SchedulerConfig config_of(const MakeExecutor& make, uint32_t num_blocks, uint32_t max_seqs,
                                   uint32_t budget, bool caching) {
  control::SchedulerConfig config;
  config.kv_windows = make.kv_windows;
  config.num_blocks = num_blocks;
  config.block_size = kBlockSize;
  config.max_num_seqs = max_seqs;
  config.max_num_batched_tokens = budget;
  config.max_model_len = kModelLength;
  config.enable_prefix_caching = caching;
  return config;
}

/// The tokens of its prompt that may be shared instead of computed.
size_t most_cached(const control::SeqSpec& spec) {
  if (spec.wants.pooling == Pooling::kMean) return 0;
  const size_t all = spec.prompt.size() - 1;
  return spec.wants.logprobs < 0 ? all : std::min<size_t>(all, spec.wants.first_row);
}

std::vector<control::SeqSpec> with_ids_from(std::vector<control::SeqSpec> specs, SeqId first) {
  for (control::SeqSpec& spec : specs) spec.id = first++;
  return specs;
}

}  // namespace

std::vector<Continuation> run_alone(const MakeExecutor& make, const std::vector<control::SeqSpec>& specs) {
  const auto blocks = static_cast<uint32_t>(make.kv_windows.size()) * kModelLength / kBlockSize;
  const auto executor = make(blocks, 1);
  control::Scheduler scheduler(config_of(make, blocks, 1, kModelLength, false));
  std::vector<Continuation> out;
  RunLog log;
  for (const control::SeqSpec& spec : specs) {
    out.push_back(std::move(run_to_end(scheduler, *executor, {spec}, log)[0]));
  }
  EXPECT_LE(log.most_decoding, 1U);
  EXPECT_EQ(log.chunked, 0U);
  EXPECT_EQ(log.preemptions + log.hit_tokens + log.copies + log.blocks_left, 0U);
  return out;
}

void expect_same_in_every_way(const MakeExecutor& make, const std::vector<control::SeqSpec>& specs,
                              const std::vector<Continuation>& alone) {
  const auto count = static_cast<uint32_t>(specs.size());
  {
    SCOPED_TRACE("in one batch");
    RunLog log;
    const auto executor = make(kAmpleBlocks, count);
    control::Scheduler scheduler(config_of(make, kAmpleBlocks, count, count * kModelLength, false));
    EXPECT_EQ(difference(alone, run_to_end(scheduler, *executor, specs, log)), "");
    EXPECT_EQ(log.most_decoding,
              std::ranges::count_if(specs, [](const auto& s) { return s.max_tokens > 0; }));
    EXPECT_EQ(log.preemptions + log.hit_tokens, 0U);
  }
  {
    SCOPED_TRACE("in chunks of 16");
    RunLog log;
    const auto executor = make(kAmpleBlocks, 16);
    control::Scheduler scheduler(config_of(make, kAmpleBlocks, 16, 16, false));
    EXPECT_EQ(difference(alone, run_to_end(scheduler, *executor, specs, log)), "");
    EXPECT_LE(log.most_prefill, 16U);
    EXPECT_GE(log.chunked, count);
  }
  {
    SCOPED_TRACE("after prefix hits");
    RunLog log;
    const auto executor = make(kAmpleBlocks, count);
    control::Scheduler scheduler(config_of(make, kAmpleBlocks, count, 256, true));
    EXPECT_EQ(difference(alone, run_to_end(scheduler, *executor, specs, log)), "");
    const uint64_t before = log.hit_tokens;
    const auto again = run_to_end(scheduler, *executor, with_ids_from(specs, 10'000), log, 2);
    EXPECT_EQ(difference(alone, again), "");
    for (size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i].cached_tokens, most_cached(specs[i]) / kBlockSize * kBlockSize);
    }
    EXPECT_GT(log.hit_tokens, before);
    EXPECT_GT(log.late_tokens, count);
  }
  using Way = std::tuple<control::PreemptionKind, bool, uint32_t>;
  for (const auto& [preemption, caching, depth] :
       {Way{control::PreemptionKind::kRecompute, false, 1}, Way{control::PreemptionKind::kRecompute, true, 3},
        Way{control::PreemptionKind::kSwap, false, 2}, Way{control::PreemptionKind::kSwap, true, 1}}) {
    SCOPED_TRACE(fmt::format("through preemptions by {}, {} prefix caching, {} steps in flight",
                             control::kPreemptionNames[static_cast<size_t>(preemption)],
                             caching ? "with" : "without", depth));
    // Half of what all of them want at once; less where they need no more than that.
    size_t wanted = 0;
    for (const control::SeqSpec& spec : specs) {
      wanted += control::blocks_held(make.kv_windows, spec.prompt.size() + spec.max_tokens, 1, kBlockSize);
    }
    const bool swaps = preemption == control::PreemptionKind::kSwap;
    RunLog log;
    for (auto blocks = static_cast<uint32_t>(wanted / 2);
         log.preemptions == 0 || (swaps && log.swapped_out == 0); blocks = blocks * 3 / 4) {
      // A sequence that sees no further than a block hardly ever needs more than it has.
      const auto grows = [](uint32_t window) { return window == 0 || window > kBlockSize; };
      const bool some_grow = std::any_of(make.kv_windows.begin(), make.kv_windows.end(), grows);
      if (blocks <= 4 && !some_grow) break;
      ASSERT_GT(blocks, 4U) << "nothing is ever preempted";
      const auto executor = make(blocks, count, kAmpleBlocks);
      control::SchedulerConfig config = config_of(make, blocks, count, 256, caching);
      config.preemption = preemption;
      config.num_host_blocks = kAmpleBlocks;
      config.watermark_bp = 0;
      control::Scheduler scheduler(config);
      EXPECT_EQ(difference(alone, run_to_end(scheduler, *executor, specs, log, depth)), "");
      EXPECT_EQ(log.blocks_left, 0U);
      if (swaps && !caching) {
        EXPECT_EQ(log.swapped_in, log.swapped_out);
      }
    }
  }
}

std::vector<control::SeqSpec> second_choices(const std::vector<control::SeqSpec>& specs) {
  std::vector<control::SeqSpec> out = with_ids_from(specs, 20'000);
  for (control::SeqSpec& spec : out) {
    spec.sampling.choice = 1;
    spec.wants = {};  // only the first choice yields what is wanted of the prompt
  }
  return out;
}

void expect_same_as_forks(const MakeExecutor& make, const std::vector<control::SeqSpec>& specs,
                          const std::vector<Continuation>& alone,
                          const std::vector<Continuation>& alone_second) {
  SCOPED_TRACE("as forks");
  const std::vector<control::SeqSpec> seconds = second_choices(specs);
  std::vector<control::SeqSpec> all;
  std::vector<Continuation> expected;
  for (size_t i = 0; i < specs.size(); ++i) {
    all.push_back(specs[i]);
    all.push_back(seconds[i]);
    all.back().fork_of = specs[i].id;
    expected.push_back(alone[i]);
    expected.push_back(alone_second[i]);
  }
  const auto count = static_cast<uint32_t>(all.size());
  RunLog log;
  const auto executor = make(kAmpleBlocks, count);
  control::Scheduler scheduler(config_of(make, kAmpleBlocks, count, count * kModelLength, false));
  EXPECT_EQ(difference(expected, run_to_end(scheduler, *executor, all, log)), "");
  EXPECT_GT(log.copies, 0U);
}

}  // namespace quire::test
