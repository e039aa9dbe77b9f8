#include "engine/engine.h"

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/metrics.h"
#include "engine/step_trace.h"
#include "tests/support/data.h"
#include "tests/support/fake_executor.h"
#include "tests/support/letter_tokenizer.h"

namespace quire {
namespace {

using test::FakeExecutor;
using test::FakeExecutorConfig;
using test::LetterTokenizer;
using namespace std::chrono_literals;

constexpr uint32_t kVocab = 256;
constexpr Nanos kSecond = 1'000'000'000;

/// Collects the news of many requests and waits for their ends.
class Inbox {
 public:
  struct Answer {
    std::map<uint32_t, std::string> text;
    std::map<uint32_t, std::vector<TokenId>> tokens;
    std::map<uint32_t, FinishReason> finish;
    RequestOutput last;
    bool done = false;
    int pieces = 0;
  };

  OutputSink sink(int name) {
    return [this, name](RequestOutput output) {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers_[name];
      EXPECT_FALSE(answer.done) << "news after the end of request " << name;
      ++answer.pieces;
      for (const ChoiceOutput& choice : output.choices) {
        EXPECT_FALSE(answer.finish.contains(choice.index)) << "news after the end of a choice";
        answer.text[choice.index] += choice.text;
        for (const SampledToken& token : choice.tokens) answer.tokens[choice.index].push_back(token.token);
        if (choice.finish) answer.finish[choice.index] = *choice.finish;
      }
      answer.done = output.done;
      answer.last = std::move(output);
      changed_.notify_all();
    };
  }

  Answer wait(int name) {
    return wait_until(name, [](const Answer& answer) { return answer.done; });
  }
  Answer wait_for_text(int name) {
    return wait_until(name, [](const Answer& answer) { return answer.pieces > 0; });
  }

 private:
  template <class Condition>
  Answer wait_until(int name, Condition condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return condition(answers_[name]); }))
        << "request " << name;
    return answers_[name];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Answer> answers_;
};

struct Rig {
  explicit Rig(FakeExecutorConfig fake = {}, SchedulerConfig scheduler = {}, StepTrace* trace = nullptr)
      : tokenizer(kVocab), executor(fake) {
    config.scheduler = scheduler;
    config.scheduler.num_blocks = fake.num_blocks;
    config.scheduler.block_size = fake.block_size;
    config.scheduler.max_num_seqs = std::min(config.scheduler.max_num_seqs, fake.max_slots);
    if (config.scheduler.max_model_len == 0) config.scheduler.max_model_len = 1024;
    config.vocab_size = kVocab;
    config.eos = {0};
    config.check_invariants = true;
    engine = std::make_unique<Engine>(config, tokenizer, executor, clock, trace, &metrics);
  }

  LetterTokenizer tokenizer;
  FakeExecutor executor;
  SteadyClock clock;
  EngineMetrics metrics{"letters"};
  EngineConfig config;
  std::unique_ptr<Engine> engine;
};

GenerationRequest request_of(uint64_t seed, uint32_t prompt_length, uint32_t max_tokens) {
  GenerationRequest request;
  SplitMix64 random(seed);
  for (uint32_t i = 0; i < prompt_length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1 + random.below(kVocab - 1)));
  }
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.ignore_eos = true;
  return request;
}

/// The pool is empty and nothing runs or waits; waits for the step that makes it so.
void expect_baseline(const Engine& engine) {
  for (int i = 0; i < 1000; ++i) {
    const StepStats now = engine.stats().step;
    if (now.blocks_referenced == 0 && now.running == 0 && now.waiting == 0) return;
    std::this_thread::sleep_for(1ms);
  }
  const StepStats now = engine.stats().step;
  ADD_FAILURE() << now.blocks_referenced << " blocks held, " << now.running << " running, " << now.waiting
                << " waiting";
}

/// FakeExecutor finds all that it samples equally likely, and ties go to the earlier choice.
TEST(Engine, BestOfAnswersAtTheEndWithTheBest) {
  Rig rig;
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 30);
  request.n = 2;
  request.best_of = 5;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  const Inbox::Answer best = inbox.wait(0);
  EXPECT_EQ(best.pieces, 1);
  EXPECT_EQ(best.tokens.size(), 2U);
  EXPECT_EQ(best.last.completion_tokens, 5U * 30U);  // all that was sampled is told
  request.best_of = 2;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  const Inbox::Answer plain = inbox.wait(1);
  EXPECT_EQ(best.text, plain.text);
  expect_baseline(*rig.engine);
}

TEST(Engine, BeamsDependOnNobodyElse) {
  GenerationRequest request = request_of(1, 20, 30);
  request.n = 3;
  request.best_of = 4;
  request.beam_search = true;
  std::map<uint32_t, std::vector<TokenId>> alone;
  {
    Rig rig;
    Inbox inbox;
    ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
    const Inbox::Answer answer = inbox.wait(0);
    EXPECT_EQ(answer.pieces, 1);
    EXPECT_EQ(answer.last.completion_tokens, 90U);
    EXPECT_EQ(answer.text.at(2), rig.tokenizer.decode(answer.tokens.at(2), true));
    alone = answer.tokens;
    EXPECT_NE(alone.at(0), alone.at(1));
    EXPECT_GT(rig.engine->stats().step.total_copies, 0U) << "the beams share no block";
    expect_baseline(*rig.engine);
  }
  FakeExecutorConfig fake;
  fake.num_blocks = 16;  // for 256 tokens: less than half of what they want
  Rig rig(fake, {.max_num_seqs = 9, .max_num_batched_tokens = 12, .max_model_len = 100});
  Inbox inbox;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rig.engine->submit(request, inbox.sink(2 * i)));
    ASSERT_TRUE(rig.engine->submit(request_of(static_cast<uint64_t>(i) + 50, 30, 40), inbox.sink(2 * i + 1)));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(inbox.wait(2 * i).tokens, alone);
    inbox.wait(2 * i + 1);
  }
  EXPECT_GT(rig.engine->stats().step.total_preemptions, 0U);
  expect_baseline(*rig.engine);
}

TEST(Engine, AbortedBeamsLeaveNothing) {
  FakeExecutorConfig fake;
  fake.delay = 1'000'000;
  Rig rig(fake);
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 500);
  request.n = 4;
  request.beam_search = true;
  const auto id = rig.engine->submit(request, inbox.sink(0));
  ASSERT_TRUE(id);
  while (rig.engine->stats().generation_tokens < 50) std::this_thread::sleep_for(1ms);
  rig.engine->abort(*id);
  EXPECT_FALSE(inbox.wait(0).last.error);
  expect_baseline(*rig.engine);
}

TEST(Engine, AnswersOneRequest) {
  Rig rig;
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 20, 30), inbox.sink(0)));
  const Inbox::Answer answer = inbox.wait(0);
  EXPECT_EQ(answer.tokens.at(0).size(), 30U);
  EXPECT_EQ(answer.text.at(0), rig.tokenizer.decode(answer.tokens.at(0), true));
  EXPECT_EQ(answer.finish.at(0), FinishReason::kLength);
  EXPECT_EQ(answer.last.prompt_tokens, 20U);
  EXPECT_EQ(answer.last.completion_tokens, 30U);
  EXPECT_GE(answer.pieces, 30);
  expect_baseline(*rig.engine);
}

TEST(Engine, EosEndsUnlessIgnored) {
  FakeExecutorConfig fake;
  fake.next = test::scripted_continuation({5, 6, 0, 7});
  Rig rig(fake);
  Inbox inbox;
  GenerationRequest request = request_of(1, 4, 8);
  request.ignore_eos = false;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  request.ignore_eos = true;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  const Inbox::Answer stopped = inbox.wait(0);
  EXPECT_EQ(stopped.text.at(0), "fg");
  EXPECT_EQ(stopped.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(stopped.last.choices.at(0).stop_token, 0);
  EXPECT_EQ(inbox.wait(1).tokens.at(0).size(), 8U);
}

TEST(Engine, StopStringsEndTheTextAndFreeTheBlocks) {
  FakeExecutorConfig fake;
  fake.next = test::scripted_continuation({7, 4, 11, 11, 14, 22});  // h e l l o w
  Rig rig(fake);
  Inbox inbox;
  GenerationRequest request = request_of(3, 10, 200);
  request.stop = {"lo", "zzz"};
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  request.include_stop_str_in_output = true;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  const Inbox::Answer cut = inbox.wait(0);
  EXPECT_EQ(cut.text.at(0), "hel");
  EXPECT_EQ(cut.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(cut.last.choices.at(0).stop_string, "lo");
  EXPECT_EQ(inbox.wait(1).text.at(0), "hello");
  expect_baseline(*rig.engine);
}

TEST(Engine, ManyTogetherAnswerAsEachAlone) {
  FakeExecutorConfig fake;
  fake.num_blocks = 40;  // far too few for all: preemptions
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = 16;
  scheduler.max_num_batched_tokens = 48;
  scheduler.max_model_len = 200;
  Rig together(fake, scheduler);
  Inbox inbox;
  constexpr int kRequests = 60;
  std::vector<std::thread> clients;
  for (int thread = 0; thread < 3; ++thread) {
    clients.emplace_back([&, thread] {
      for (int i = thread; i < kRequests; i += 3) {
        ASSERT_TRUE(together.engine->submit(request_of(i, 1 + i * 3 % 100, 5 + i), inbox.sink(i)));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  Rig alone;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(alone.engine->submit(request_of(i, 1 + i * 3 % 100, 5 + i), inbox.sink(1000 + i)));
    EXPECT_EQ(inbox.wait(i).tokens, inbox.wait(1000 + i).tokens) << i;
  }
  EXPECT_GT(together.engine->stats().step.total_preemptions, 0U);
  EXPECT_EQ(together.engine->stats().requests_finished[static_cast<size_t>(FinishReason::kLength)], 60U);
  expect_baseline(*together.engine);
}

TEST(Engine, ChoicesDifferAndShareThePrompt) {
  Rig rig;
  Inbox inbox;
  GenerationRequest request = request_of(9, 100, 12);
  request.n = 4;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  const Inbox::Answer answer = inbox.wait(0);
  ASSERT_EQ(answer.tokens.size(), 4U);
  std::map<std::vector<TokenId>, int> distinct;
  for (const auto& [index, tokens] : answer.tokens) ++distinct[tokens];
  EXPECT_EQ(distinct.size(), 4U);
  EXPECT_EQ(answer.last.completion_tokens, 48U);
  expect_baseline(*rig.engine);
}

TEST(Engine, AbortGivesTheBlocksBackAndDisturbsNobody) {
  FakeExecutorConfig fake;
  fake.delay = 1'000'000;
  Rig rig(fake);
  Inbox inbox;
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) {
    const auto id = rig.engine->submit(request_of(i, 30, i % 2 == 0 ? 1000 - 30 : 20), inbox.sink(i));
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  inbox.wait_for_text(0);
  for (int i = 0; i < 8; i += 2) rig.engine->abort(ids[i]);
  rig.engine->abort(12345);  // no such request
  for (int i = 0; i < 8; ++i) {
    const Inbox::Answer answer = inbox.wait(i);
    EXPECT_EQ(answer.finish.at(0), i % 2 == 0 ? FinishReason::kAbort : FinishReason::kLength);
    EXPECT_FALSE(answer.last.error) << "who aborts knows why";
    if (i % 2 == 1) {
      EXPECT_EQ(answer.tokens.at(0).size(), 20U);
    }
  }
  expect_baseline(*rig.engine);
}

TEST(Engine, RefusesWhatCannotRun) {
  SchedulerConfig scheduler;
  scheduler.max_model_len = 100;
  Rig rig({}, scheduler);
  Inbox inbox;
  const auto too_long = rig.engine->submit(request_of(1, 90, 11), inbox.sink(0));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, RequestErrorCode::kTooLong);
  EXPECT_THAT(too_long.error().message, testing::AllOf(testing::HasSubstr("100"), testing::HasSubstr("101")));
  const auto empty = rig.engine->submit(request_of(1, 0, 1), inbox.sink(0));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, RequestErrorCode::kInvalid);

  FakeExecutorConfig small;
  small.num_blocks = 4;
  Rig tiny(small);
  const auto too_large = tiny.engine->submit(request_of(1, 64, 1), inbox.sink(0));
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, testing::HasSubstr("64"));
  GenerationRequest open_ended = request_of(1, 10, 1);
  open_ended.max_tokens.reset();
  ASSERT_TRUE(tiny.engine->submit(open_ended, inbox.sink(1)));
  EXPECT_EQ(inbox.wait(1).tokens.at(0).size(), 54U);  // as many as the pool holds
}

TEST(Engine, TheQueueIsBounded) {
  FakeExecutorConfig fake;
  fake.max_slots = 2;
  fake.delay = 2'000'000;
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = 2;
  scheduler.max_waiting = 3;
  Rig rig(fake, scheduler);
  Inbox inbox;
  int accepted = 0;
  for (int i = 0; i < 20; ++i) {
    const auto id = rig.engine->submit(request_of(i, 8, 50), inbox.sink(accepted));
    if (id) {
      ++accepted;
    } else {
      EXPECT_EQ(id.error().code, RequestErrorCode::kQueueFull);
    }
  }
  EXPECT_EQ(accepted, 5);
  GenerationRequest wide = request_of(1, 8, 1);
  wide.n = 6;
  const auto never = rig.engine->submit(wide, inbox.sink(100));
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, RequestErrorCode::kInvalid) << "later would not help";
  EXPECT_EQ(never.error().param, "n");
  EXPECT_THAT(never.error().message, testing::AllOf(testing::HasSubstr("6"), testing::HasSubstr("5")));
  for (int i = 0; i < accepted; ++i) EXPECT_EQ(inbox.wait(i).finish.at(0), FinishReason::kLength);
  expect_baseline(*rig.engine);
}

TEST(Engine, DrainFinishesWhatRunsAndRefusesTheRest) {
  FakeExecutorConfig fake;
  fake.delay = 500'000;
  Rig rig(fake);
  Inbox inbox;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 8, 20), inbox.sink(i)));
  EXPECT_TRUE(rig.engine->drain(20 * kSecond));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(inbox.wait(i).finish.at(0), FinishReason::kLength);
  const auto late = rig.engine->submit(request_of(9, 8, 20), inbox.sink(9));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, RequestErrorCode::kShuttingDown);
}

TEST(Engine, DrainGivesUpAfterItsTime) {
  FakeExecutorConfig fake;
  fake.delay = 5'000'000;
  Rig rig(fake);
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 8, 1000), inbox.sink(0)));
  EXPECT_FALSE(rig.engine->drain(kSecond / 50));
  const Inbox::Answer cut = inbox.wait(0);
  EXPECT_EQ(cut.finish.at(0), FinishReason::kAbort);
  ASSERT_TRUE(cut.last.error);
  EXPECT_EQ(cut.last.error->code, RequestErrorCode::kShuttingDown);
}

TEST(Engine, DestructionEndsEveryRequest) {
  Inbox inbox;
  {
    FakeExecutorConfig fake;
    fake.delay = 1'000'000;
    Rig rig(fake);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 8, 1000), inbox.sink(i)));
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(inbox.wait(i).done);
}

TEST(Engine, AFailedSequenceDisturbsNobody) {
  FakeExecutorConfig fake;
  const test::NextToken hashed = test::hashed_continuation(kVocab);
  fake.next = [hashed](std::span<const TokenId> tokens, uint32_t prompt_length,
                       const SamplingParams& sampling) {
    return sampling.seed == 3 && tokens.size() == 20 ? -1 : hashed(tokens, prompt_length, sampling);
  };
  Rig rig(fake);
  Inbox inbox;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 10, 30), inbox.sink(i)));
  for (int i = 0; i < 6; ++i) {
    const Inbox::Answer answer = inbox.wait(i);
    EXPECT_EQ(answer.finish.at(0), i == 3 ? FinishReason::kError : FinishReason::kLength);
    EXPECT_EQ(answer.last.error.has_value(), i == 3);
  }
  expect_baseline(*rig.engine);
}

/// Works for a while, then fails as a whole.
class BreakingExecutor final : public Executor {
 public:
  explicit BreakingExecutor(Executor& inner) : inner_(inner) {}
  Ticket submit(const StepPlan& plan) override {
    if (++steps_ > 5) throw Error("the device is gone");
    return inner_.submit(plan);
  }
  StepResult wait(Ticket ticket) override { return inner_.wait(ticket); }

 private:
  Executor& inner_;
  int steps_ = 0;
};

TEST(Engine, AFailedExecutorEndsAllAndRefusesMore) {
  Rig rig;
  BreakingExecutor breaking(rig.executor);
  Engine engine(rig.config, rig.tokenizer, breaking, rig.clock);
  Inbox inbox;
  std::vector<Expected<RequestId>> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(engine.submit(request_of(i, 8, 100), inbox.sink(i)));
  for (int i = 0; i < 3; ++i) {
    if (!ids[i]) continue;  // it came after the failure
    const Inbox::Answer answer = inbox.wait(i);
    ASSERT_TRUE(answer.last.error);
    EXPECT_THAT(answer.last.error->message, testing::HasSubstr("the device is gone"));
  }
  const auto late = engine.submit(request_of(9, 8, 2), inbox.sink(9));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, RequestErrorCode::kInternal);
}

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

TEST(Engine, TokensThatTheModelDoesNotKnowAreRefused) {
  Rig rig;
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 20, 200), inbox.sink(0)));
  for (const TokenId bad : {static_cast<TokenId>(kVocab), -1, INT32_MAX}) {
    GenerationRequest request = request_of(2, 20, 5);
    request.prompt[3] = bad;
    const auto refused = rig.engine->submit(request, inbox.sink(1));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, RequestErrorCode::kInvalid);
    EXPECT_EQ(refused.error().param, "prompt");
    EXPECT_THAT(refused.error().message, testing::HasSubstr(fmt::format("Token 3 of the prompt is {}", bad)));
  }
  inbox.wait(0);
  EXPECT_EQ(rig.engine->failure(), "");
}

TEST(Engine, AbortedSequencesHoldNoBlockInTheNextStep) {
  // Without sharing, the token places in use are the computed tokens of those that run: one that is gone and
  // still held blocks would show in the sum.
  const auto path = test::temp_dir() / "steps.jsonl";
  constexpr uint32_t kPrompt = 40;
  constexpr int kAll = 64;
  constexpr int kCut = 20;
  {
    StepTrace trace(path);
    SchedulerConfig scheduler;
    scheduler.enable_prefix_caching = false;
    scheduler.max_num_batched_tokens = kAll * kPrompt;
    Rig rig({.num_blocks = 1024, .delay = 1'000'000}, scheduler, &trace);
    Inbox inbox;
    std::vector<RequestId> ids;
    for (int i = 0; i < kAll; ++i) {
      ids.push_back(rig.engine->submit(request_of(i, kPrompt, 200), inbox.sink(i)).value());
    }
    while (rig.engine->stats().step.running < kAll) std::this_thread::sleep_for(1ms);
    for (int i = 0; i < kCut; ++i) rig.engine->abort(ids[3 * i]);
    for (int i = 0; i < kAll; ++i) inbox.wait(i);
    rig.engine.reset();
  }
  std::ifstream in(path);
  uint32_t steps = 0;
  uint32_t steps_after = 0;
  for (std::string line; std::getline(in, line);) {
    const auto step = boost::json::parse(line).as_object();
    const auto number = [&](const char* key) { return step.at(key).to_number<uint32_t>(); };
    ++steps;
    const uint32_t held = number("blocks_referenced") * 16 - number("slots_unused");
    EXPECT_LE(held, number("running") * (kPrompt + steps));
    if (number("running") != kAll - kCut) continue;
    ++steps_after;
    EXPECT_GE(held, (kAll - kCut) * kPrompt);
  }
  EXPECT_GT(steps_after, 100U);
}

}  // namespace
}  // namespace quire
