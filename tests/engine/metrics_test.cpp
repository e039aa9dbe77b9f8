// What the engine counts and traces.
#include "engine/metrics.h"

#include <fstream>

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/step_trace.h"
#include "tests/engine/inbox.h"
#include "tests/support/data.h"

namespace quire::engine {
namespace {

using test::expect_baseline;
using test::FakeExecutorConfig;
using test::Inbox;
using test::request_of;
using test::Rig;

TEST(Engine, TracesEveryStep) {
  const auto path = test::temp_dir() / "steps.jsonl";
  {
    StepTrace trace(path);
    Rig rig({}, {}, &trace);
    Inbox inbox;
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(rig.engine->submit(request_of(1, 64, 10), inbox.sink(i)));
      inbox.wait(i);
    }
    rig.engine.reset();
  }
  std::ifstream in(path);
  uint64_t decoded = 0;
  uint64_t hits = 0;
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    const auto step = boost::json::parse(line).as_object();
    decoded += step.at("decode_tokens").to_number<uint64_t>();
    hits = step.at("total_prefix_hit_tokens").to_number<uint64_t>();
    EXPECT_LE(step.at("blocks_referenced").to_number<uint64_t>(),
              step.at("blocks_total").to_number<uint64_t>());
  }
  EXPECT_GE(lines, 10);
  EXPECT_EQ(decoded, 4U * 9U);
  EXPECT_EQ(hits, 3U * 48U);
}

TEST(EngineMetrics, HaveTheWarningsOfCosts) {
  EngineMetrics metrics("fox");
  EXPECT_THAT(metrics.text(), testing::Not(testing::HasSubstr("cost_warning")));
  metrics.cost_warning("--cost", "of a \"hen\"");
  metrics.cost_warning("--shadow", "of a hedgehog");
  EXPECT_THAT(metrics.text(),
              testing::AllOf(testing::HasSubstr("quire:cost_warning{flag=\"--cost\",model_name=\"fox\","
                                                "warning=\"of a \\\"hen\\\"\"} 1\n"),
                             testing::HasSubstr("warning=\"of a hedgehog\"} 1\n")));
}

TEST(Engine, CountsInPrometheusForm) {
  Rig rig;
  Inbox inbox;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 20, 10), inbox.sink(i)));
  for (int i = 0; i < 3; ++i) inbox.wait(i);
  expect_baseline(*rig.engine);
  const std::string text = rig.metrics.text();
  for (const char* line : {"vllm:prompt_tokens_total{model_name=\"letters\"} 60",
                           "vllm:generation_tokens_total{model_name=\"letters\"} 30",
                           "vllm:num_requests_running{model_name=\"letters\"} 0",
                           "quire:step_token_budget{model_name=\"letters\"} 512",
                           "vllm:kv_cache_usage_perc{model_name=\"letters\"} 0",
                           "vllm:request_success_total{finished_reason=\"length\",model_name=\"letters\"} 3",
                           "vllm:time_to_first_token_seconds_count{model_name=\"letters\"} 3",
                           "vllm:request_prompt_tokens_sum{model_name=\"letters\"} 60",
                           "vllm:request_prompt_tokens_bucket{model_name=\"letters\",le=\"10\"} 0",
                           "vllm:request_prompt_tokens_bucket{model_name=\"letters\",le=\"20\"} 3",
                           "vllm:request_generation_tokens_sum{model_name=\"letters\"} 30",
                           "vllm:request_max_num_generation_tokens_sum{model_name=\"letters\"} 30",
                           "vllm:request_queue_time_seconds_count{model_name=\"letters\"} 3",
                           "vllm:request_prefill_time_seconds_count{model_name=\"letters\"} 3",
                           "vllm:request_decode_time_seconds_count{model_name=\"letters\"} 3"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

/// The value of a metric of this engine in the text of all.
double metric(const std::string& text, const std::string& name) {
  const std::string head = "\n" + name + "{model_name=\"letters\"} ";
  const size_t at = text.find(head);
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + head.size()));
}

TEST(Engine, TellsThePhasesOfARequestApart) {
  FakeExecutorConfig fake;
  fake.delay = 2'000'000;
  Rig rig(fake, {.max_num_seqs = 1});
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 30);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(rig.engine->submit(request, inbox.sink(i)));
  for (int i = 0; i < 2; ++i) inbox.wait(i);
  expect_baseline(*rig.engine);
  const std::string text = rig.metrics.text();
  const double queue = metric(text, "vllm:request_queue_time_seconds_sum");
  const double prefill = metric(text, "vllm:request_prefill_time_seconds_sum");
  const double decode = metric(text, "vllm:request_decode_time_seconds_sum");
  const double all = metric(text, "vllm:e2e_request_latency_seconds_sum");
  EXPECT_GE(queue, 30 * 0.002) << "the second waits for the first";
  EXPECT_GE(prefill, 2 * 0.002);
  EXPECT_GE(decode, 2 * 29 * 0.002);
  EXPECT_LE(queue + prefill + decode, all * 1.000001);
}

TEST(Engine, CountsChoicesAndTheLongestOfThem) {
  Rig rig;
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 10);
  request.n = 3;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  inbox.wait(0);
  request.beam_search = true;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  inbox.wait(1);
  expect_baseline(*rig.engine);
  const std::string text = rig.metrics.text();
  EXPECT_EQ(metric(text, "vllm:request_generation_tokens_count"), 6);
  EXPECT_EQ(metric(text, "vllm:request_generation_tokens_sum"), 60);
  EXPECT_EQ(metric(text, "vllm:request_prompt_tokens_sum"), 6 * 20);
  EXPECT_EQ(metric(text, "vllm:request_max_num_generation_tokens_count"), 2);
  EXPECT_EQ(metric(text, "vllm:request_max_num_generation_tokens_sum"), 20);
}

TEST(Engine, WhatNeverRanHasNoPhases) {
  FakeExecutorConfig fake;
  fake.delay = 2'000'000;
  Rig rig(fake, {.max_num_seqs = 1});
  Inbox inbox;
  const auto runs = rig.engine->submit(request_of(1, 20, 500), inbox.sink(0));
  const auto waits = rig.engine->submit(request_of(2, 20, 500), inbox.sink(1));
  ASSERT_TRUE(runs && waits);
  rig.engine->abort(*waits);
  inbox.wait(1);
  rig.engine->abort(*runs);
  inbox.wait(0);
  const std::string text = rig.metrics.text();
  EXPECT_EQ(metric(text, "vllm:request_generation_tokens_count"), 2);
  EXPECT_LE(metric(text, "vllm:request_queue_time_seconds_count"), 1);
}

}  // namespace
}  // namespace quire::engine
