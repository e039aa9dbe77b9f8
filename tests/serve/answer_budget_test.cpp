// What answers may hold that wait to be read.
#include "serve/answer_budget.h"

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/serve/service.h"
#include "tests/support/units.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::HttpClient;
using test::post_text;
using test::Service;
using namespace std::chrono_literals;
using Job = AnswerBudget::Job;
using Claim = AnswerBudget::Claim;

using test::kMiB;

TEST(AnswerBudget, AClientsNextJobWaitsWhileItHoldsItsShare) {
  AnswerBudget budget(16 * kMiB);
  Claim first(budget, 1, 3 * kMiB);
  EXPECT_TRUE(budget.may_begin(1, Job::kLong));
  Claim second(budget, 1, kMiB);
  EXPECT_FALSE(budget.may_begin(1, Job::kLong));
  EXPECT_TRUE(budget.may_begin(1, Job::kShort));
  EXPECT_TRUE(budget.may_begin(2, Job::kLong));
  const Claim third(budget, 1, 8 * kMiB);
  EXPECT_FALSE(budget.may_begin(1, Job::kShort));
  EXPECT_FALSE(budget.may_begin(2, Job::kLong)) << "three quarters of all";
  EXPECT_TRUE(budget.may_begin(2, Job::kShort));
  second = Claim();
  first.release();
  EXPECT_EQ(budget.used(), 8 * kMiB);
  EXPECT_TRUE(budget.may_begin(1, Job::kShort));
  EXPECT_TRUE(budget.may_begin(2, Job::kLong));
}

TEST(AnswerBudget, WhatIsSmallDoesNotCount) {
  AnswerBudget budget(kMiB);
  const Claim small(budget, 1, AnswerBudget::kUncounted);
  EXPECT_FALSE(small.holds());
  EXPECT_EQ(budget.used(), 0U);
  {
    Claim large(budget, 1, AnswerBudget::kUncounted + 1);
    const Claim moved(std::move(large));
    EXPECT_TRUE(moved.holds());
    EXPECT_EQ(budget.used(), AnswerBudget::kUncounted + 1);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST(AnswerBudget, WhoHoldsTheMostMakesWayWhileOthersWait) {
  AnswerBudget::Clock::time_point now{};
  AnswerBudget budget(16 * kMiB, [&] { return now; });
  Claim most(budget, 1, 9 * kMiB);
  const Claim less(budget, 2, 8 * kMiB);
  EXPECT_FALSE(budget.may_begin(1, Job::kLong));
  EXPECT_FALSE(most.must_make_way()) << "its own share alone is too large";
  EXPECT_FALSE(budget.may_begin(3, Job::kShort));
  EXPECT_TRUE(most.must_make_way());
  EXPECT_FALSE(less.must_make_way());
  now += AnswerBudget::kWanted;
  EXPECT_FALSE(most.must_make_way()) << "nobody waits any more";
  EXPECT_FALSE(budget.may_begin(3, Job::kShort));
  most.release();
  EXPECT_FALSE(less.must_make_way()) << "there is room";
}

// ---- Of a server ----

constexpr int kReceive = 32 << 10;

std::string key(std::string_view name) { return fmt::format("Authorization: Bearer {}\r\n", name); }

/// Its answer takes more than 1 MiB.
std::string large_text() { return R"({"prompt": ")" + std::string(400'000, 'a') + "\"}"; }

/// Nobody ends an answer but who makes way.
ServerConfig with_keys(uint64_t max_answer_memory) {
  return {.api_keys = test::keys_of({"a", "b", "c", "d"}),
          .max_body_bytes = 1 << 20,
          .max_body_memory = 32 << 20,
          .max_answer_memory = max_answer_memory,
          .send_buffer_bytes = 4096,
          .write_timeout = 600 * kSecond};
}

/// Clients of one key, the first of which has its answer.
std::vector<std::unique_ptr<HttpClient>> ask_and_read_nothing(Service& service, int count) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<HttpClient>(service.port(), kReceive));
    clients.back()->send(post_text("/tokenize", large_text(), key("a")));
    if (i == 0) {
      EXPECT_TRUE(clients[0]->readable(60s));
    }
  }
  return clients;
}

TEST(Answers, ThatNobodyReadsHoldUpTheNextLongOnesOfTheirClientAlone) {
  Service service({.server = with_keys(4 * kMiB)});
  const auto clients = ask_and_read_nothing(service, 12);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(service.post("/tokenize", large_text(), key("b")).status, 200);
    EXPECT_EQ(service.post("/tokenize", R"({"prompt": "a"})", key("a")).status, 200) << "a short one";
  }
  size_t begun = 0;
  for (const auto& client : clients) begun += client->readable(50ms) ? 1 : 0;
  EXPECT_EQ(begun, 1U) << "one takes more than a quarter of the memory for answers";
  std::vector<std::future<Answer>> answers;
  for (const auto& client : clients) {
    answers.push_back(std::async(std::launch::async, [&client] { return client->read_answer(); }));
  }
  for (auto& each : answers) {
    const Answer answer = each.get();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_GT(answer.body.size(), kMiB);
  }
}

TEST(Answers, ThatAreReadSlowlyMakeWayForOthers) {
  Service service({.server = with_keys(4 * kMiB)});
  std::vector<std::unique_ptr<HttpClient>> holders;
  for (const char* name : {"a", "b", "c"}) {
    holders.push_back(std::make_unique<HttpClient>(service.port(), kReceive));
    holders.back()->send(post_text("/tokenize", large_text(), key(name)));
    EXPECT_TRUE(holders.back()->readable(60s));
  }
  // More than three quarters are held.
  const Answer answer = service.post("/tokenize", large_text(), key("d"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  int whole = 0;
  for (const auto& holder : holders) whole += holder->read_answer().complete ? 1 : 0;
  EXPECT_LT(whole, 3);
}

TEST(Answers, OfGenerationsCountToo) {
  ServerConfig config = with_keys(3 * kMiB);
  Service service({.server = config, .max_model_len = 16'000, .num_blocks = 2048});
  const std::string echoes =
      fmt::format(R"({{"prompt": "{}", "n": 40, "max_tokens": 1, "echo": true, "return_token_ids": true}})",
                  std::string(15'500, 'a'));
  HttpClient holder(service.port(), kReceive);
  holder.send(post_text("/v1/completions", echoes, key("a")));
  EXPECT_TRUE(holder.readable(60s));
  HttpClient next(service.port());
  next.send(post_text("/tokenize", R"({"prompt": "a"})", key("a")));
  EXPECT_EQ(service.post("/tokenize", R"({"prompt": "a"})", key("b")).status, 200);
  EXPECT_FALSE(next.readable(300ms)) << "the answer is more than three quarters of the memory for all";
  const Answer answer = holder.read_answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_GT(answer.body.size(), 9 * kMiB / 4);
  EXPECT_EQ(next.read_answer().status, 200);
}

TEST(Answers, AServerStopsThoughWorkWaitsForThem) {
  Service service({.server = with_keys(4 * kMiB)});
  const auto clients = ask_and_read_nothing(service, 4);
  service.server().stop(0);
}

}  // namespace
}  // namespace quire::serve
