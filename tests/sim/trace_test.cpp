#include "sim/trace.h"

#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/data.h"

namespace quire::sim {
namespace {

constexpr const char* kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

std::filesystem::path write(std::string_view text) {
  const auto path = test::temp_dir() / "trace";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

void expect_refused(const std::string& text, const std::string& what) {
  const auto path = write(text);
  try {
    read_trace(path, {});
    ADD_FAILURE() << "taken: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::StartsWith(path.string() + ": line "));
    EXPECT_THAT(error.what(), testing::HasSubstr(what));
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
  }
}

TEST(AzureTrace, TimesCountFromTheFirstLine) {
  const auto path = write(std::string(kHeader) +
                          "2023-12-31 23:59:59.9000000,374,44\r\n"
                          "2024-01-01 00:00:00.0000001,396,109\r\n"
                          "\r\n"
                          "2024-03-01 00:00:00,1,1");
  const Workload workload = read_trace(path, {});
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.requests[0].arrival, 0);
  EXPECT_EQ(workload.requests[0].prompt_length, 374U);
  EXPECT_EQ(workload.requests[0].output_length, 44U);
  EXPECT_EQ(workload.requests[1].arrival, 100'000'100);
  EXPECT_EQ(workload.requests[2].arrival, Nanos{60} * 86400 * 1'000'000'000 + 100'000'000);  // a leap year
  EXPECT_NE(workload.prompt(0)[0], workload.prompt(1)[0]);
}

TEST(AzureTrace, OptionsCutAndHasten) {
  const auto path = write(std::string(kHeader) +
                          "2024-05-10 00:00:00.000000+00:00,1,2\n2024-05-10 00:00:05+00:00,3,4\nrubbish");
  const Workload workload = read_trace(path, {.max_requests = 2, .speed_thousandths = 2500});
  ASSERT_EQ(workload.requests.size(), 2U);
  EXPECT_EQ(workload.requests[1].arrival, 2'000'000'000);
}

TEST(AzureTrace, BadLinesAreNamed) {
  const std::string good = "2023-11-16 18:15:46.68,374,44\n";
  expect_refused("", "line 1: neither the header");
  expect_refused("hello\n", "line 1: neither the header");
  expect_refused(kHeader + good + "2023-11-16 18:15:46.68,374", "line 3: not the three values");
  expect_refused(kHeader + good + "2023-11-16 18:15:46.68,374,44,5", "line 3: not the three values");
  expect_refused(kHeader + good + "2023-11-16 18:15:45.68,374,44", "line 3: its time is before");
  expect_refused(kHeader + good + "2033-11-16 18:15:45.68,374,44", "line 3: its time is years after");
  for (const char* time : {"", "2023-13-16 18:15:46", "2023-11-16T18:15:46", "2023-11-16 18:15", "x",
                           "2023-11-16 18:15:46.", "2023-11-16 24:15:46", "2023-11-16 18:15:46.1234567890"}) {
    expect_refused(std::string(kHeader) + time + ",1,1", "line 2: TIMESTAMP is '");
  }
  for (const char* length : {"", "0", "-4", "4x", "99999999999", "2147483648", " 4"}) {
    expect_refused(std::string(kHeader) + "2023-11-16 18:15:46," + length + ",1",
                   "line 2: ContextTokens is '");
    expect_refused(std::string(kHeader) + "2023-11-16 18:15:46,1," + length, "line 2: GeneratedTokens is '");
  }
}

TEST(AzureTrace, WhatCannotBePlayedIsRefused) {
  expect_refused(kHeader, "line 1: the trace ends without a request");
  const auto path = write(std::string(kHeader) + "2023-11-16 18:15:46,4,1\n2024-04-29 00:00:00,16,1\n");
  try {
    read_trace(path, {.speed_thousandths = 1});
    FAIL() << "arrivals beyond what 64 bits of nanoseconds hold";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("line 3: at this speed it arrives decades later"));
  }
  EXPECT_EQ(read_trace(path, {.speed_thousandths = 100}).requests.size(), 2U);
}

TEST(MooncakeTrace, EqualIdsAreEqualTokens) {
  const auto path = write(
      "{\"timestamp\": 7, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [0, 1]}\n"
      "{\"timestamp\": 10, \"input_length\": 1100, \"output_length\": 6, \"hash_ids\": [0, 1, 2]}\n"
      "{\"timestamp\": 10, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [3, 0]}\n");
  const Workload workload = read_trace(path, {});
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.requests[1].arrival, 3'000'000);
  EXPECT_EQ(workload.requests[2].output_length, 7U);
  const auto first = workload.prompt(0);
  const auto second = workload.prompt(1);
  const auto third = workload.prompt(2);
  EXPECT_EQ(first.size(), 1000U);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()));
  EXPECT_TRUE(std::equal(third.begin() + 512, third.end(), first.begin()));
  EXPECT_NE(third[0], first[0]);
}

TEST(MooncakeTrace, BadLinesAreNamed) {
  const std::string good = R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": [0]})";
  expect_refused(good + "\n{\"timestamp\": 7,", "line 2: at byte ");
  expect_refused(good + "\n[]", "line 2");
  expect_refused(R"({"input_length": 10, "output_length": 5, "hash_ids": [0]})", "key 'timestamp'");
  expect_refused(R"({"timestamp": -1, "input_length": 10, "output_length": 5, "hash_ids": [0]})",
                 "timestamp");
  expect_refused(R"({"timestamp": 7, "input_length": 0, "output_length": 5, "hash_ids": []})",
                 "input_length");
  expect_refused(R"({"timestamp": 7, "input_length": 10, "output_length": "5", "hash_ids": [0]})",
                 "output_length");
  expect_refused(R"({"timestamp": 7, "input_length": 513, "output_length": 5, "hash_ids": [0]})",
                 "not a list of 2 ids");
  expect_refused(R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": 0})", "hash_ids");
  expect_refused(R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": [-1]})", "hash_ids");
  expect_refused(R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": [0.5]})",
                 "hash_ids");
  expect_refused(good + "\n" + R"({"timestamp": 6, "input_length": 10, "output_length": 5, "hash_ids": [0]})",
                 "line 2: its time is before");
}

TEST(Traces, TheRealOnesAreRead) {
  QUIRE_NEEDS_DATA("traces-azure/AzureLLMInferenceTrace_conv.csv");
  QUIRE_NEEDS_DATA("traces-mooncake/conversation_trace.jsonl");
  const Workload azure = read_trace(test::data_dir() / "traces-azure/AzureLLMInferenceTrace_conv.csv", {});
  ASSERT_EQ(azure.requests.size(), 19366U);
  EXPECT_EQ(azure.requests.back().arrival / 1'000'000'000, 3501);
  const auto mean = [](const Workload& workload, auto field) {
    uint64_t sum = 0;
    for (const SimRequest& request : workload.requests) sum += request.*field;
    return sum / workload.requests.size();
  };
  EXPECT_EQ(mean(azure, &SimRequest::prompt_length), 1154U);
  EXPECT_EQ(mean(azure, &SimRequest::output_length), 211U);

  const Workload mooncake = read_trace(test::data_dir() / "traces-mooncake/conversation_trace.jsonl", {});
  ASSERT_EQ(mooncake.requests.size(), 12031U);
  EXPECT_EQ(mean(mooncake, &SimRequest::prompt_length), 12035U);
  EXPECT_EQ(mean(mooncake, &SimRequest::output_length), 342U);
}

}  // namespace
}  // namespace quire::sim
