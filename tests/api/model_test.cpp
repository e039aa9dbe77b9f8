// libquire as a program sees it: only its installed header, and whatever it exports.
#include <chrono>
#include <cmath>
#include <optional>
#include <quire/quire.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"

namespace {

using quire::Fault;
using quire::FinishReason;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kPrompt = "Once upon a time";

quire::Model demo(const quire::ModelOptions& options = {.threads = 1, .kv_cache_memory = 8 << 20}) {
  return quire::Model(quire::test::demo_model_dir(), options);
}

quire::RequestOptions greedy(uint32_t max_tokens) { return {.max_tokens = max_tokens, .temperature = 0.0F}; }

/// The exception of a call that must fail.
template <class Call>
std::optional<quire::Exception> failure_of(Call call) {
  try {
    call();
  } catch (const quire::Exception& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return std::nullopt;
}

template <class Holds>
bool soon(Holds holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST(Api, StreamsAnAnswerInPieces) {
  quire::Model model = demo();
  quire::Stream stream = model.complete(kPrompt, greedy(24));
  std::vector<std::string> pieces;
  for (const std::string& piece : stream) {
    EXPECT_THAT(piece, Not(IsEmpty()));
    pieces.push_back(piece);
  }
  EXPECT_FALSE(stream.next());
  EXPECT_EQ(stream.finish(), FinishReason::kLength);
  EXPECT_EQ(stream.usage().completion_tokens, 24U);
  EXPECT_GT(stream.usage().prompt_tokens, 3U);
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  EXPECT_THAT(text, HasSubstr(" "));
  EXPECT_EQ(model.complete(kPrompt, greedy(24)).rest(), text);
}

TEST(Api, AnswersOfManyThreadsAreThoseOfOne) {
  quire::Model model = demo();
  std::vector<quire::RequestOptions> asked;
  std::vector<std::string> alone;
  for (uint32_t i = 0; i < 8; ++i) {
    asked.push_back({.max_tokens = 8 + 4 * i, .temperature = 1.0F, .seed = i});
    alone.push_back(model.complete(kPrompt, asked.back()).rest());
  }
  std::vector<std::string> together(asked.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < asked.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = model.complete(kPrompt, asked[i]).rest(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  EXPECT_NE(alone[6].substr(0, 20), alone[7].substr(0, 20)) << "the seed has no effect";
}

TEST(Api, RequestsRunTogether) {
  quire::Model model = demo({.device = "sim"});
  std::vector<quire::Stream> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(model.complete(kPrompt, {.ignore_eos = true}));
  EXPECT_TRUE(soon([&] { return model.stats().running == 5; }));
  EXPECT_GT(model.stats().blocks_referenced, 0U);
  streams.clear();  // cancels them
  EXPECT_TRUE(soon([&] { return model.stats().running == 0; }));
  EXPECT_EQ(model.stats().blocks_referenced, 0U);
}

TEST(Api, StopsBeforeAText) {
  quire::Model model = demo();
  const std::string all = model.complete(kPrompt, greedy(24)).rest();
  const std::string stop = all.substr(all.find(' ', 8) + 1, 6);
  quire::RequestOptions options = greedy(24);
  options.stop = {stop};
  quire::Stream stream = model.complete(kPrompt, options);
  EXPECT_EQ(stream.rest(), all.substr(0, all.find(stop)));
  EXPECT_EQ(stream.finish(), FinishReason::kStop);
}

TEST(Api, ACancelledAnswerEndsAndKeepsItsText) {
  quire::Model model = demo({.device = "sim"});
  quire::Stream stream = model.complete(kPrompt, {.ignore_eos = true});
  const std::optional<std::string> first = stream.next();
  ASSERT_TRUE(first);
  EXPECT_FALSE(stream.finish());
  std::thread other([&] { stream.cancel(); });
  stream.rest();
  other.join();
  EXPECT_EQ(stream.finish(), FinishReason::kCancelled);
  EXPECT_GT(stream.usage().completion_tokens, 0U);
  EXPECT_LT(stream.usage().completion_tokens, model.max_model_len() - stream.usage().prompt_tokens);
  stream.cancel();
  EXPECT_FALSE(stream.next());
}

TEST(Api, AStreamOutlivesItsModel) {
  std::optional<quire::Model> model = demo();
  const std::string expected = model->complete(kPrompt, greedy(16)).rest();
  quire::Stream stream = model->complete(kPrompt, greedy(16));
  model.reset();
  quire::Stream moved = std::move(stream);
  EXPECT_EQ(moved.rest(), expected);
}

TEST(Api, ChatsByTheModelsTemplate) {
  quire::Model model = demo();
  ASSERT_TRUE(model.has_chat_template());
  quire::Stream story = model.chat({{"user", "Tell me a story about a fox named Finn."}}, greedy(40));
  EXPECT_THAT(story.rest(), HasSubstr("Finn"));
  const auto fault = [&](const std::vector<quire::Message>& messages) {
    const auto error = failure_of([&] { model.chat(messages); });
    EXPECT_EQ(error->fault(), Fault::kRequest);
    return std::string(error->what());
  };
  EXPECT_EQ(fault({}), "messages: there are none");
  EXPECT_EQ(fault({{"user", "Hi"}, {"", "Hello"}}), "messages[1].role: is empty");
  EXPECT_EQ(fault({{"user", "\xFF"}}), "messages[0].content: is not valid UTF-8");
  EXPECT_EQ(fault({{"\xC3", "Hi"}}), "messages[0].role: is not valid UTF-8");
}

TEST(Api, FindsEqualPrefixesAgain) {
  const std::string prompt =
      "Once upon a time there was a little fox named Finn who lived in a big green forest.";
  quire::Model model = demo();
  model.complete(prompt, greedy(4)).rest();
  quire::Stream second = model.complete(prompt, greedy(4));
  second.rest();
  EXPECT_GE(second.usage().cached_tokens, 16U);
  EXPECT_TRUE(soon([&] { return model.stats().completion_tokens == 8; }));
  EXPECT_EQ(model.stats().cached_tokens, second.usage().cached_tokens);
  EXPECT_EQ(model.stats().prompt_tokens, 2U * second.usage().prompt_tokens);
}

TEST(Api, TwoModelsDoNotDisturbOneAnother) {
  quire::Model one = demo();
  quire::Model other = demo({.threads = 2, .quantization = "int8", .kv_cache_memory = 4 << 20});
  const std::string expected = one.complete(kPrompt, greedy(16)).rest();
  quire::Stream beside = other.complete(kPrompt, greedy(64));
  EXPECT_EQ(one.complete(kPrompt, greedy(16)).rest(), expected);
  EXPECT_THAT(beside.rest(), Not(IsEmpty()));
}

TEST(Api, AModelThatDoesNotLoadSaysWhy) {
  const auto fault = [](const quire::ModelOptions& options) {
    const auto error = failure_of([&] { demo(options); });
    EXPECT_EQ(error->fault(), Fault::kModel);
    return std::string(error->what());
  };
  EXPECT_THAT(failure_of([] { quire::Model("/no/such/model"); })->what(),
              AllOf(HasSubstr("/no/such/model"), HasSubstr("no such file or directory")));
  EXPECT_EQ(fault({.device = "tpu"}), "--device: 'tpu' is not one of cpu, cuda, auto, sim");
  EXPECT_THAT(fault({.dtype = "f8"}), HasSubstr("--dtype: 'f8' is not one of"));
  EXPECT_EQ(fault({.threads = 1025}), "--threads: 1025 is not from 0 to 1024");
  EXPECT_EQ(fault({.max_num_seqs = 0}), "--max-num-seqs: 0 is not from 1 to 65536");
  EXPECT_EQ(fault({.max_waiting = 1U << 31}), "--max-waiting: 2147483648 is not from 0 to 2147483647");
  EXPECT_THAT(fault({.kv_cache_memory = 1}), HasSubstr("--kv-cache-memory"));
  EXPECT_THAT(fault({.max_model_len = 1 << 30}), HasSubstr("--max-model-len"));
  EXPECT_THAT(fault({.chat_template = "no-such-template"}), HasSubstr("no-such-template"));
}

TEST(Api, ARequestOutOfRangeIsRefused) {
  quire::Model model = demo({.device = "sim"});
  const auto fault = [&](const quire::RequestOptions& options) {
    const auto error = failure_of([&] { model.complete(kPrompt, options); });
    EXPECT_EQ(error->fault(), Fault::kRequest);
    return std::string(error->what());
  };
  EXPECT_EQ(fault({.max_tokens = 0}), "max_tokens: 0 is not 1 or more");
  EXPECT_EQ(fault({.temperature = -1.0F}), "temperature: -1 is not from 0 to 100");
  EXPECT_EQ(fault({.temperature = std::nanf("")}), "temperature: nan is not from 0 to 100");
  EXPECT_EQ(fault({.top_k = -1}), "top_k: -1 is not 0 or more");
  EXPECT_EQ(fault({.top_p = 0.0F}), "top_p: 0 is not over 0 and at most 1");
  EXPECT_EQ(fault({.min_p = 1.5F}), "min_p: 1.5 is not from 0 to 1");
  EXPECT_EQ(fault({.repetition_penalty = 0.0F}), "repetition_penalty: 0 is not over 0 and at most 100");
  EXPECT_EQ(fault({.stop = {"a", ""}}), "stop: a text is empty");
}

TEST(Api, ARequestThatDoesNotFitIsRefused) {
  quire::Model model = demo({.device = "sim", .max_model_len = 64, .max_num_seqs = 1, .max_waiting = 1});
  EXPECT_EQ(model.max_model_len(), 64U);
  const auto long_one = failure_of([&] { model.complete(kPrompt, {.max_tokens = 64}); });
  EXPECT_EQ(long_one->fault(), Fault::kTooLong);
  std::vector<quire::Stream> streams;
  const auto busy = failure_of([&] {
    for (int i = 0; i < 8; ++i) streams.push_back(model.complete(kPrompt, {.ignore_eos = true}));
  });
  EXPECT_EQ(busy->fault(), Fault::kBusy);
  EXPECT_GE(streams.size(), 1U);
}

TEST(Api, WritesWhatItIsToldTo) {
  const auto written = [] {
    testing::internal::CaptureStderr();
    demo({.device = "sim"});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(written(), "");
  quire::set_log(quire::Verbosity::kInfo);
  EXPECT_THAT(written(), HasSubstr("K/V: "));
  quire::set_log(quire::Verbosity::kSilent);
  EXPECT_EQ(written(), "");
  quire::set_log(quire::Verbosity::kWarnings);
}

}  // namespace
