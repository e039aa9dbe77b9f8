// Which requests wait for whom, and which are told to come again, over a real socket.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/api_answer.h"
#include "tests/support/sanitized.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::error_code;
using test::error_param;
using test::HttpClient;
using test::kSanitized;
using test::read_stream;
using test::Service;
using test::Stream;
using testing::HasSubstr;

TEST(Api, AFullQueueSaysTryAgain) {
  Service service({.num_blocks = 64, .max_num_seqs = 1, .max_waiting = 2, .step_delay = 5'000'000});
  const std::string slow = R"({"prompt": "a", "max_tokens": 400})";
  HttpClient running(service.port());
  running.send(test::post_text("/v1/completions", slow));
  ASSERT_TRUE(service.wait_until_running());
  HttpClient first(service.port());
  HttpClient second(service.port());
  first.send(test::post_text("/v1/completions", slow));
  second.send(test::post_text("/v1/completions", slow));
  ASSERT_TRUE(service.wait_for([](const control::StepStats& now) { return now.waiting == 2; }));
  const Answer answer = service.complete(slow);
  EXPECT_EQ(answer.status, 429);
  // Nothing has ended since work began, and three requests wait or run.
  const int wait = std::stoi(answer.headers.at("retry-after"));
  EXPECT_GE(wait, 1);
  EXPECT_LE(wait, 600);
  EXPECT_EQ(error_code(answer), "rate_limit_exceeded");
  EXPECT_EQ(answer.parsed().at("error").at("message"),
            "The queue is full: 2 of 2 places are taken. Try again later.");
  const Answer wide = service.complete(R"({"prompt": "a", "max_tokens": 4, "n": 3})");
  EXPECT_THAT(wide.body, HasSubstr("2 of 2 places are taken, and this request needs 3."));
  EXPECT_THAT(service.get("/metrics").body, HasSubstr("finished_reason=\"abort\",model_name=\"letters\"} 0"))
      << "what was refused never ran";
  running.close();
  first.close();
  second.close();
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, PromptsOfARequestThatDoNotFitYetComeLater) {
  Service service({.num_blocks = 64, .max_num_seqs = 1, .max_waiting = 2, .step_delay = 5'000'000});
  HttpClient running(service.port());
  running.send(test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 400})"));
  ASSERT_TRUE(service.wait_until_running());
  HttpClient many(service.port());
  many.send(test::post_text("/v1/completions", R"({"prompt": ["a", "b", "c"], "max_tokens": 2})"));
  ASSERT_TRUE(service.wait_for([](const control::StepStats& now) { return now.waiting == 1; }));
  HttpClient second(service.port());
  second.send(test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 2})"));
  ASSERT_TRUE(service.wait_for([](const control::StepStats& now) { return now.waiting == 2; }))
      << "one place was left";
  running.close();
  EXPECT_EQ(second.read_answer().status, 200);
  const Answer answer = many.read_answer();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.parsed().at("choices").as_array().size(), 3U);
  EXPECT_EQ(answer.parsed().at("usage").at("completion_tokens"), 6);
  EXPECT_TRUE(service.wait_until_quiet());
}

// 2 run; at most 1 of a request's prompts waits, so that who comes later is next but one.
TEST(Api, ManyPromptsOfOneRequestDoNotStandBeforeOthers) {
  std::atomic<int> begun = 0;         // of the many
  std::atomic<int> begun_before = 0;  // the other one
  Service service(
      {.num_blocks = 64,
       .max_num_seqs = 2,
       .step_delay = 2'000'000,
       .next = [&](std::span<const TokenId> tokens, uint32_t prompt_length, const SamplingParams&) {
         if (tokens.front() == 9) begun_before = begun.load();
         if (tokens.front() == 8 && tokens.size() == prompt_length) ++begun;
         return TokenId{30};
       }});
  std::string prompts = "[8]";
  for (int i = 1; i < 60; ++i) prompts += ", [8]";
  HttpClient many(service.port());
  many.send(test::post_text("/v1/completions",
                            fmt::format(R"({{"prompt": [{}], "max_tokens": 40, "stream": true}})", prompts)));
  ASSERT_TRUE(
      service.wait_for([](const control::StepStats& now) { return now.running == 2 && now.waiting == 1; }));
  EXPECT_EQ(service.complete(R"({"prompt": [9], "max_tokens": 1})").status, 200);
  EXPECT_LT(begun_before, 50);
  const Stream stream = read_stream(many.read_answer());
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.finish.size(), 60U);
  EXPECT_EQ(begun, 60);
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, APromptAmongManyThatIsTooLongIsToldBeforeAnyRuns) {
  Service service;
  const Answer answer = service.complete(
      fmt::format(R"({{"prompt": ["a", "{}"], "max_tokens": 2, "stream": true}})", std::string(600, 'a')));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(error_code(answer), "context_length_exceeded");
  EXPECT_EQ(service.engine().stats().prompt_tokens, 0U);
}

TEST(Api, WhileOthersFillTheQueueTheRestOfARequestWaits) {
  Service service({.num_blocks = 64, .max_num_seqs = 1, .max_waiting = 1, .step_delay = 5'000'000});
  HttpClient many(service.port());
  many.send(test::post_text("/v1/completions", R"({"prompt": ["a", "b"], "max_tokens": 3})"));
  std::vector<std::unique_ptr<HttpClient>> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(std::make_unique<HttpClient>(service.port()));
    others.back()->send(test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 100})"));
  }
  const Answer answer = many.read_answer();
  EXPECT_THAT(answer.status, testing::AnyOf(200, 429)) << answer.body;
  for (auto& other : others) EXPECT_THAT(other->read_answer().status, testing::AnyOf(200, 429));
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, MoreThanCanEverRunAndWaitIsNoMatterOfTime) {
  Service service({.max_num_seqs = 1, .max_waiting = 2});
  const auto refused_for = [&](const char* path, const char* body) {
    const Answer answer = service.post(path, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_THAT(answer.body, HasSubstr("at most 3"));
    return error_param(answer);
  };
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "b", "c", "d"]})"), "prompt");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "b"], "n": 2})"), "prompt");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "b"], "n": 4})"), "n");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": "a", "n": 4})"), "n");
  EXPECT_EQ(
      refused_for("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "n": 4})"),
      "n");
  EXPECT_EQ(service.complete(R"({"prompt": ["a", "b", "c"]})").status, 200);
  EXPECT_EQ(service.complete(R"({"prompt": "a", "n": 3})").status, 200);
}

TEST(Api, WhatThePolicyIgnoresIsRefused) {
  const auto ask = [](Service& service, std::string_view field) {
    return service.complete(fmt::format(R"({{"prompt": "a", "max_tokens": 1, {}}})", field));
  };
  Service fcfs;
  const Answer priority = ask(fcfs, R"("priority": -1)");
  EXPECT_EQ(priority.status, 400);
  EXPECT_EQ(error_param(priority), "priority");
  EXPECT_THAT(priority.body,
              HasSubstr("scheduling policy, fcfs: it needs quire serve --scheduling-policy priority"));
  const Answer deadline = fcfs.post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "ttft_deadline_ms": 500})");
  EXPECT_EQ(deadline.status, 400);
  EXPECT_EQ(error_param(deadline), "ttft_deadline_ms");
  EXPECT_THAT(deadline.body, HasSubstr("--scheduling-policy slo"));
  EXPECT_EQ(ask(fcfs, R"("priority": 0, "ttft_deadline_ms": null)").status, 200);
  Service by_priority({.scheduling = control::SchedulingKind::kPriority});
  EXPECT_EQ(ask(by_priority, R"("priority": -1)").status, 200);
  EXPECT_EQ(ask(by_priority, R"("ttft_deadline_ms": 5)").status, 400);
  Service slo({.scheduling = control::SchedulingKind::kSlo});
  EXPECT_EQ(ask(slo, R"("ttft_deadline_ms": 5)").status, 200);
  EXPECT_EQ(ask(slo, R"("priority": 3)").status, 400);
}

// Who gives way for want of blocks may go by it whoever comes in first.
TEST(Api, ThePriorityIsTakenWhereItChoosesTheVictim) {
  Service service({.victim = control::VictimKind::kLowestPriority});
  EXPECT_EQ(service.complete(R"({"prompt": "a", "max_tokens": 1, "priority": -1})").status, 200);
  const Answer deadline = service.complete(R"({"prompt": "a", "max_tokens": 1, "ttft_deadline_ms": 5})");
  EXPECT_EQ(deadline.status, 400) << "no victim is chosen by it";
}

TEST(Api, ATenantHasItsPartOfTheQueueAlone) {
  Service service({.server = {.api_keys = test::keys_of({"alpha", "beta"})},
                   .num_blocks = 64,
                   .max_num_seqs = 1,
                   .max_waiting = 8,
                   .max_waiting_per_tenant = 2,
                   .step_delay = 2'000'000});
  const auto send = [&](HttpClient& client, const char* key, int tokens) {
    client.send(test::post_text("/v1/completions",
                                fmt::format(R"({{"prompt": "a", "max_tokens": {}}})", tokens),
                                fmt::format("Authorization: Bearer {}\r\n", key)));
  };
  HttpClient running(service.port());
  send(running, "alpha", 400);
  ASSERT_TRUE(service.wait_until_running());
  HttpClient first(service.port());
  HttpClient second(service.port());
  send(first, "alpha", 2);
  send(second, "alpha", 2);
  ASSERT_TRUE(service.wait_for([](const control::StepStats& now) { return now.waiting == 2; }));
  HttpClient third(service.port());
  send(third, "alpha", 2);
  const Answer refused = third.read_answer();
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("Your share of the queue is full: 2 of 2 places are taken."));
  HttpClient other(service.port());
  send(other, "beta", 2);
  ASSERT_TRUE(service.wait_for([](const control::StepStats& now) { return now.waiting == 3; }))
      << "its part is free";
  running.close();
  for (HttpClient* client : {&first, &second, &other}) EXPECT_EQ(client->read_answer().status, 200);
  send(third, "alpha", 2);
  EXPECT_EQ(third.read_answer().status, 200) << "places come free again";
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, ShortRequestsDoNotWaitBehindLongOnes) {
  Service service({.server = {.worker_threads = 1}});
  // Eight long bodies that the one worker for such ones takes seconds over.
  const size_t length = kSanitized ? 200'000 : 15'000'000;
  const std::string body = R"({"prompt": ")" + std::string(length, 'a') + R"("})";
  std::vector<std::future<int>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::async(std::launch::async, [&] { return service.post("/tokenize", body).status; }));
  }
  EXPECT_EQ(service.complete(R"({"prompt": "a"})").status, 200);
  size_t waiting = 0;
  for (auto& each : slow) waiting += each.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  EXPECT_GT(waiting, 0U);
  for (auto& each : slow) EXPECT_EQ(each.get(), 200);
}

}  // namespace
}  // namespace quire::serve
