// The roofline: times by hand, and what must hold between them.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/sim/cost_model.h"
#include "backend/sim/roofline_cost.h"
#include "backend/sim/sim_executor.h"
#include "base/error.h"
#include "sim/report.h"
#include "sim/report_json.h"
#include "sim/simulation.h"

namespace quire::sim {
namespace {

using backend::StepWork;
using backend::sim::AttentionWork;
using backend::sim::CostModel;
using backend::sim::RooflineCost;
using testing::HasSubstr;

/// 1 GB/s and 1 GFLOP/s: a byte takes a nanosecond, and so does an operation.
RooflineCost simple() {
  RooflineCost cost;
  cost.bandwidth = 1e9;
  cost.rate = 1e9;
  cost.host_link = 0.5e9;
  cost.overhead_s = 100e-9;
  cost.weight_bytes = 10'000;
  cost.token_ops = 3000;
  cost.row_ops = 50;
  cost.block_bytes = 64;
  cost.attention = {{.window = 0, .layers = 2, .token_bytes = 8, .pair_ops = 5}};
  return cost;
}

RooflineCost windowed(uint32_t window) {
  RooflineCost cost = simple();
  cost.attention = {{.window = 0, .layers = 1, .token_bytes = 8, .pair_ops = 5},
                    {.window = window, .layers = 3, .token_bytes = 8, .pair_ops = 5}};
  return cost;
}

StepWork decodes(uint64_t count, uint64_t context) {
  return {.decoding = count, .decode_context = count * context, .logit_rows = count};
}

StepWork chunk(uint64_t tokens, uint64_t before) {
  return {.chunks = 1,
          .prefill_tokens = tokens,
          .chunk_squares = tokens * tokens,
          .chunk_prefix = tokens * before,
          .logit_rows = 1};
}

TEST(Roofline, AStepReadsOrComputesWhicheverTakesLonger) {
  const RooflineCost cost = simple();
  // One token reads all weights, and the K/V of the 9 tokens before it and its own.
  EXPECT_EQ(cost.duration(decodes(1, 9)), 100 + 10'000 + 10 * 16);
  // Ten compute more than they read: matrices, rows, and 10 tokens each to attend to.
  EXPECT_EQ(cost.duration(decodes(10, 9)), 100 + 10 * (3000 + 50 + 10 * 10));
  // Of a chunk each token attends to those before it and itself: 20 + 1, ..., 20 + 4.
  EXPECT_EQ(cost.duration(chunk(4, 20)), 100 + 4 * 3000 + 50 + 10 * (21 + 22 + 23 + 24));
  RooflineCost unknown = simple();
  unknown.rate = 0;
  EXPECT_EQ(unknown.duration(decodes(10, 9)), 100 + 10'000 + 10 * 10 * 16);
  unknown.rate = 1e9;
  unknown.bandwidth = 0;
  EXPECT_EQ(unknown.duration(decodes(1, 9)), 100 + 3000 + 50 + 100);
}

TEST(Roofline, BlocksAreMovedByTheLinkAndCopiedInMemory) {
  const RooflineCost cost = simple();
  StepWork work = decodes(1, 9);
  const Nanos alone = cost.duration(work);
  work.copies = 3;
  EXPECT_EQ(cost.duration(work), alone + 3 * 2 * 64);
  work.copies = 0;
  work.moved_blocks = 5;
  EXPECT_EQ(cost.duration(work), alone + 5 * 128);
  EXPECT_EQ(cost.duration({.moved_blocks = 5}), 100 + 5 * 128);  // without tokens no weight is read
  RooflineCost unknown = simple();
  unknown.host_link = 0;
  EXPECT_EQ(unknown.duration(work), alone);
}

TEST(Roofline, AWindowBoundsWhatATokenAttendsTo) {
  for (const uint32_t window : {0U, 1U, 4U, 16U, 100U}) {
    for (const uint32_t before : {0U, 3U, 4U, 15U, 40U}) {
      for (const uint32_t count : {1U, 2U, 5U, 30U}) {
        std::vector<uint8_t> read(before + count);
        double pairs = 0;
        for (uint32_t token = before; token < before + count; ++token) {
          for (uint32_t other = 0; other <= token; ++other) {
            if (window != 0 && other + window <= token) continue;
            read[other] = 1;
            ++pairs;
          }
        }
        AttentionWork work;
        work.add(window, before, count, 2);
        EXPECT_EQ(work.pairs, 2 * pairs) << window << " " << before << " " << count;
        EXPECT_EQ(work.tokens, 2 * std::ranges::count(read, 1)) << window << " " << before << " " << count;
      }
    }
  }
}

TEST(Roofline, AContextCostsByLayersAsFarAsTheirWindowsReach) {
  const RooflineCost cost = windowed(16);
  EXPECT_EQ(cost.duration(decodes(1, 9)), 100 + 10'000 + 10 * 8 * 4);
  EXPECT_EQ(cost.duration(decodes(1, 999)), 100 + 10'000 + 1000 * 8 + 16 * 24);
}

TEST(Roofline, OfTheExpertsThoseAreReadThatATokenIsSentTo) {
  RooflineCost cost = simple();
  cost.rate = 0;
  cost.expert_bytes = 8000;
  cost.chosen = 0.25;
  EXPECT_EQ(cost.duration(decodes(1, 0)), 100 + 2000 + 2000 + 16);
  EXPECT_EQ(cost.duration(decodes(2, 0)), 100 + 2000 + 3500 + 2 * 16);
  EXPECT_EQ(cost.duration(decodes(400, 0)), 100 + 10'000 + 400 * 16);
}

TEST(Roofline, MoreWorkNeverTakesLess) {
  for (const RooflineCost& cost : {simple(), windowed(7)}) {
    Nanos last = 0;
    for (uint64_t n = 1; n < 300; n += 7) {
      EXPECT_GE(cost.duration(decodes(n, 50)), last);
      last = cost.duration(decodes(n, 50));
    }
    for (uint64_t tokens = 1; tokens < 200; tokens += 9) {
      for (uint64_t before = 0; before < 90; before += 8) {
        EXPECT_GE(cost.duration(chunk(tokens + 1, before)), cost.duration(chunk(tokens, before)));
        EXPECT_GE(cost.duration(chunk(tokens, before + 1)), cost.duration(chunk(tokens, before)));
      }
    }
  }
}

TEST(Roofline, HintsAndWhatFitsATimeFollowItsTimes) {
  const CostModel cost = simple();
  EXPECT_EQ(cost.hints(4).decode_token, cost.duration(decodes(4, 512)) / 4);
  EXPECT_EQ(cost.hints(4).swap_block, 128);
  EXPECT_EQ(cost.hints(4).prefill_token, cost.duration(chunk(2048, 0)) / 2048);
  const uint64_t fits = cost.prefill_tokens_in(1'000'000);
  EXPECT_LE(cost.duration(chunk(fits, 0)), 1'000'000);
  EXPECT_GT(cost.duration(chunk(fits + 1, 0)), 1'000'000);
  EXPECT_EQ(cost.prefill_tokens_in(10'000), 0U);  // the weights alone take as long
}

TEST(Roofline, NonsenseIsRefused) {
  EXPECT_NO_THROW(simple().check());
  const auto refused = [](const std::function<void(RooflineCost&)>& change) {
    RooflineCost cost = simple();
    change(cost);
    EXPECT_THROW(cost.check(), Error);
  };
  refused([](RooflineCost& cost) { cost.bandwidth = -1; });
  refused([](RooflineCost& cost) { cost.bandwidth = cost.rate = 0; });
  refused([](RooflineCost& cost) { cost.overhead_s = 1e9; });
  refused([](RooflineCost& cost) { cost.chosen = 1.5; });
  refused([](RooflineCost& cost) { cost.expert_bytes = cost.weight_bytes + 1; });
  refused([](RooflineCost& cost) { cost.token_ops = 0.0 / cost.expert_bytes; });
  refused([](RooflineCost& cost) { cost.attention[0].pair_ops = -2; });
}

control::SchedulerConfig pool_of(uint32_t groups) {
  control::SchedulerConfig config;
  config.num_blocks = 200;
  config.block_size = 4;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 128;
  config.kv_windows = groups == 1 ? std::vector<uint32_t>{0} : std::vector<uint32_t>{0, 16};
  return config;
}

TEST(Roofline, ASimulationPricesEachContextByItself) {
  // One sequence decodes far beyond the window, the other never reaches it.
  Workload workload;
  workload.requests = {{.arrival = 0, .prompt_length = 60, .output_length = 3},
                       {.arrival = 0, .prompt_length = 4, .output_length = 3}};
  const RooflineCost cost = windowed(16);
  Simulation simulation({.scheduler = pool_of(2), .cost = cost}, workload);
  simulation.run();
  const auto attends = [&](std::vector<std::pair<uint32_t, uint32_t>> seqs) {
    std::vector<AttentionWork> out(2);
    for (const auto& [before, count] : seqs) {
      out[0].add(0, before, count);
      out[1].add(16, before, count);
    }
    return out;
  };
  const StepWork prompts{.chunks = 2, .prefill_tokens = 64, .logit_rows = 2};
  const StepWork tokens{.decoding = 2, .logit_rows = 2};
  Nanos expected = cost.duration(prompts, attends({{0, 60}, {0, 4}}));
  expected += cost.duration(tokens, attends({{60, 1}, {4, 1}}));
  expected += cost.duration(tokens, attends({{61, 1}, {5, 1}}));
  EXPECT_EQ(simulation.now(), expected);
  // By the mean of both contexts the windows would seem full.
  EXPECT_NE(cost.duration(tokens, attends({{60, 1}, {4, 1}})), cost.duration(decodes(2, 32)));
}

TEST(Roofline, AReportSaysWhichModelOfTimesItIs) {
  RooflineCost cost = simple();
  cost.model = "M";
  cost.machine = "a card";
  EXPECT_THAT(cost_text(cost), HasSubstr("roofline: M on a card, 1 GB/s, 0.001 TFLOP/s"));
  // Names come from files.
  backend::sim::FittedCost fitted;
  fitted.model = "a\x1b[31m";
  fitted.machine = "b\nc";
  fitted.warning = "d\r";
  EXPECT_EQ(cost_text(fitted), "fitted to steps of a\\u{1b}[31m on b\\u{a}c; warning: d\\u{d}");
  EXPECT_THAT(cost_text(backend::sim::LinearCost{.step = 1'500'000}), HasSubstr("linear: 1.5 ms"));
  EXPECT_EQ(to_json(CostModel(cost)).at("kind"), "roofline");
  EXPECT_EQ(to_json(CostModel(cost)).at("attention").at(0).at("layers"), 2);
  EXPECT_EQ(to_json(CostModel()).at("kind"), "linear");
}

}  // namespace
}  // namespace quire::sim
