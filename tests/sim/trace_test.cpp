#include "sim/trace.h"

#include <fstream>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/simulation.h"
#include "tests/support/data.h"

namespace quire::sim {
namespace {

constexpr const char* kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

std::filesystem::path write(std::string_view text) {
  const auto path = test::temp_dir() / "trace";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

void expect_trace_refused(const std::string& text, const std::string& what) {
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
  expect_trace_refused("", "line 1: neither the header of a trace");
  expect_trace_refused("hello\n", "line 1: neither the header");
  expect_trace_refused(kHeader + good + "2023-11-16 18:15:46.68,374",
                       "line 3: 2 values, not the 3 of the header");
  expect_trace_refused(kHeader + good + "2023-11-16 18:15:46.68,374,44,5",
                       "line 3: 4 values, not the 3 of the header");
  expect_trace_refused(kHeader + good + "2003-11-16 18:15:45.68,374,44", "line 3: its time is years before");
  expect_trace_refused(kHeader + good + "2033-11-16 18:15:45.68,374,44", "line 3: its time is years after");
  for (const char* time : {"", "2023-13-16 18:15:46", "2023-11-16T18:15:46", "2023-11-16 18:15", "x",
                           "2023-11-16 18:15:46.", "2023-11-16 24:15:46", "2023-11-16 18:15:46.1234567890"}) {
    expect_trace_refused(std::string(kHeader) + time + ",1,1", "line 2: TIMESTAMP is '");
  }
  for (const char* length : {"", "0", "-4", "4x", "99999999999", "2147483648", " 4"}) {
    expect_trace_refused(std::string(kHeader) + "2023-11-16 18:15:46," + length + ",1",
                         "line 2: ContextTokens is '");
    expect_trace_refused(std::string(kHeader) + "2023-11-16 18:15:46,1," + length,
                         "line 2: GeneratedTokens is '");
  }
}

TEST(AzureTrace, WhatCannotBePlayedIsRefused) {
  expect_trace_refused(kHeader, "line 1: the trace ends without a request");
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
  expect_trace_refused(good + "\n{\"timestamp\": 7,", "line 2: at byte ");
  expect_trace_refused(good + "\n[]", "line 2");
  expect_trace_refused(R"({"input_length": 10, "output_length": 5, "hash_ids": [0]})", "key 'timestamp'");
  expect_trace_refused(R"({"timestamp": -1, "input_length": 10, "output_length": 5, "hash_ids": [0]})",
                       "timestamp");
  expect_trace_refused(R"({"timestamp": 7, "input_length": 0, "output_length": 5, "hash_ids": []})",
                       "input_length");
  expect_trace_refused(R"({"timestamp": 7, "input_length": 10, "output_length": "5", "hash_ids": [0]})",
                       "output_length");
  expect_trace_refused(R"({"timestamp": 7, "input_length": 513, "output_length": 5, "hash_ids": [0]})",
                       "not a list of 2 ids");
  expect_trace_refused(R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": 0})",
                       "hash_ids");
  expect_trace_refused(R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": [-1]})",
                       "hash_ids");
  expect_trace_refused(R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": [0.5]})",
                       "hash_ids");
  expect_trace_refused(
      good + "\n" + R"({"timestamp": -0.5, "input_length": 10, "output_length": 5, "hash_ids": [0]})",
      "line 2: key 'timestamp'");
}

TEST(MooncakeTrace, ALineWithoutAnOptionalFieldHasTheDefault) {
  const std::string line = R"({"timestamp": 7, "input_length": 10, "output_length": 5, "hash_ids": [0])";
  const Workload workload = read_trace(write(line + R"(, "priority": 3, "tenant": "a"})" + "\n" + line +
                                             "}\n" + line + R"(, "ttft_deadline_ms": 250, "tenant": "a"})"),
                                       {});
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_TRUE(workload.has_priorities && workload.has_deadlines && workload.has_tenants);
  const SimRequest& bare = workload.requests[1];
  EXPECT_EQ(bare.priority, 0);
  EXPECT_EQ(bare.ttft_deadline, SimRequest().ttft_deadline);
  EXPECT_FALSE(bare.names_deadline);
  EXPECT_EQ(workload.requests[0].priority, 3);
  EXPECT_EQ(workload.requests[2].ttft_deadline, 250'000'000);
  EXPECT_TRUE(workload.requests[2].names_deadline);
  EXPECT_EQ(workload.requests[0].tenant, workload.requests[2].tenant);
  EXPECT_NE(bare.tenant, workload.requests[0].tenant);
}

TEST(CsvTrace, ADeadlineMayHaveAFraction) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens,ttft_deadline_ms\n1,10,5,";
  const std::pair<const char*, Nanos> deadlines[] = {
      {"0.5", 500'000}, {"250.25", 250'250'000}, {"7", 7'000'000}, {"0.0000019", 1}, {"0", 0}};
  for (const auto& [text, deadline] : deadlines) {
    const Workload workload = read_trace(write(head + text + "\n"), {});
    EXPECT_EQ(workload.requests.front().ttft_deadline, deadline) << text;
    EXPECT_TRUE(workload.requests.front().names_deadline);
  }
  for (const char* text : {"-1", "1.", ".5", "1.5e3", "x"}) {
    EXPECT_THROW(read_trace(write(head + text + "\n"), {}), Error) << text;
  }
}

TEST(CsvTrace, AnEmptyOptionalValueIsTheDefault) {
  const Workload workload = read_trace(write("TIMESTAMP,ContextTokens,GeneratedTokens,ttft_deadline_ms,"
                                             "priority,tenant\n1,10,5,250,-3,a\n2,10,5,,,\n"),
                                       {});
  ASSERT_EQ(workload.requests.size(), 2U);
  EXPECT_TRUE(workload.requests[0].names_deadline);
  EXPECT_EQ(workload.requests[0].priority, -3);
  const SimRequest& bare = workload.requests[1];
  EXPECT_FALSE(bare.names_deadline);
  EXPECT_EQ(bare.ttft_deadline, SimRequest().ttft_deadline);
  EXPECT_EQ(bare.priority, 0);
  EXPECT_NE(bare.tenant, workload.requests[0].tenant);
}

TEST(MooncakeTrace, FractionsOfMillisecondsAndLongIdsAreKept) {
  const auto path = write(
      "\xEF\xBB\xBF"
      R"({"timestamp": 7.25, "input_length": 600, "output_length": 5, "hash_ids": [18446744073709551615, 3]})"
      "\n"
      R"({"timestamp": 8.000001, "input_length": 600, "output_length": 5, "hash_ids": [18446744073709551614, 4]})"
      "\n"
      R"({"timestamp": 9, "input_length": 600, "output_length": 5, "hash_ids": [18446744073709551615, 5]})");
  const Workload workload = read_trace(path, {});
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.requests[1].arrival, 750'001);
  EXPECT_EQ(workload.requests[2].arrival, 1'750'000);
  EXPECT_EQ(workload.requests[0].pieces[0], UINT64_MAX);
  const auto begins_as_first = [&](size_t index) {
    const auto first = workload.prompt(0);
    return std::equal(first.begin(), first.begin() + 512, workload.prompt(index).begin());
  };
  EXPECT_FALSE(begins_as_first(1));
  EXPECT_TRUE(begins_as_first(2));
}

TEST(MooncakeTrace, EachRequestMayHaveItsDeadlinePriorityAndTenant) {
  const auto line = [](const char* more) {
    return fmt::format(R"({{"timestamp": 7, "input_length": 1, "output_length": 5, "hash_ids": [0], {}}})",
                       more) +
           "\n";
  };
  const auto path = write(line(R"("ttft_deadline_ms": 250.5, "priority": -3, "tenant": "a")") +
                          line(R"("ttft_deadline_ms": 9, "priority": 4, "tenant": 77)") +
                          line(R"("ttft_deadline_ms": 9, "priority": 0, "tenant": "a")"));
  Workload workload = read_trace(path, {});
  assign_service(workload, {.num_tenants = 5, .num_priorities = 6});  // leaves them
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.requests[0].ttft_deadline, 250'500'000);
  EXPECT_EQ(workload.requests[0].priority, -3);
  EXPECT_EQ(workload.requests[0].tenant, workload.requests[2].tenant);
  EXPECT_NE(workload.requests[0].tenant, workload.requests[1].tenant);
  EXPECT_EQ(workload.requests[1].priority, 4);
}

TEST(Traces, RequestsThatAreOutOfOrderAreSortedAndANoteSaysSo) {
  const auto path = write(std::string(kHeader) +
                          "2023-11-16 00:00:05,1,1\n2023-11-16 00:00:09,2,1\n2023-11-16 00:00:04,3,1\n"
                          "2023-11-16 00:00:05,4,1\n");
  const Workload workload = read_trace(path, {});
  std::vector<uint32_t> order;
  for (const SimRequest& request : workload.requests) order.push_back(request.line);
  EXPECT_EQ(order, (std::vector<uint32_t>{4, 2, 5, 3}));
  EXPECT_EQ(workload.requests[0].arrival, 0);
  EXPECT_EQ(workload.requests[3].arrival, 5'000'000'000);
  ASSERT_EQ(workload.notes.size(), 1U);
  EXPECT_THAT(workload.notes[0],
              testing::HasSubstr("sorted by time: 2 of 4 requests came after a later one, the "
                                 "first in line 4"));
  EXPECT_TRUE(read_trace(path, {.max_requests = 2}).notes.empty());
}

TEST(BurstGptTrace, SecondsAndColumnsInAnyOrderAndFailuresLeftOut) {
  const auto path = write(
      "Timestamp,Session ID,Model,Request tokens,Response tokens,tenant,Log Type\n"
      "5,x,ChatGPT,472,18,b,Conversation log\n"
      "5.5,x,GPT-4,10,0,b,API log\n"
      "45.000000001,x,ChatGPT,1087,230,a,Conversation log\n");
  const Workload workload = read_trace(path, {});
  ASSERT_EQ(workload.requests.size(), 2U);
  EXPECT_EQ(workload.requests[1].arrival, 40'000'000'001);
  EXPECT_EQ(workload.requests[1].prompt_length, 1087U);
  EXPECT_EQ(workload.requests[1].output_length, 230U);
  EXPECT_EQ(workload.requests[1].line, 4U);
  EXPECT_TRUE(workload.has_tenants);
  EXPECT_EQ(workload.requests[1].tenant, 1U);
  EXPECT_THAT(workload.notes, testing::ElementsAre(testing::HasSubstr("left out 1 requests that failed")));
  const std::string header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
  expect_trace_refused(header + "5,m,1,1,2,l\n-5,m,1,1,2,l\n", "line 3: Timestamp is '-5'");
  expect_trace_refused(header + "5,m,x,1,2,l\n", "line 2: Request tokens is 'x'");
  expect_trace_refused(header + "5,m,0,1,2,l\n", "line 2: Request tokens is '0'");
  expect_trace_refused(header + "5,m,1,1.5,2,l\n", "line 2: Response tokens is '1.5'");
  expect_trace_refused(header + "5,m,1,0,1,l\n", "line 2: the trace ends without a request");
  expect_trace_refused("Timestamp,Request tokens\n5,1\n", "line 1: neither the header");
  expect_trace_refused("Timestamp,Request tokens,Response tokens,priority\n5,1,1,high\n",
                       "line 2: priority is 'high'");
  expect_trace_refused("Timestamp,TIMESTAMP,Request tokens,Response tokens\n5,5,1,1\n",
                       "line 1: the column TIMESTAMP");
}

TEST(ShareGptTrace, TurnsContinueTheirConversation) {
  const auto path = write(R"([
    {"id": "a", "conversations": [
      {"from": "system", "value": "1234"}, {"from": "human", "value": "12345678"}, {"from": "gpt", "value": "\"}]"},
      {"from": "human", "value": "äöüß"}, {"from": "gpt", "value": "123456789"}]},
    {"id": "b", "conversations": []},
    {"id": "c", "conversations": [{"from": "gpt", "value": "to nothing"},
      {"from": "human", "value": "x"}, {"from": "human", "value": "y"}, {"from": "gpt", "value": "z"}]}
  ])");
  const Workload workload = read_trace(path, {});
  EXPECT_FALSE(workload.has_times);
  ASSERT_EQ(workload.requests.size(), 3U);
  EXPECT_EQ(workload.requests[0].prompt_length, 3U);
  EXPECT_EQ(workload.requests[0].output_length, 1U);
  EXPECT_FALSE(workload.requests[0].continues);
  EXPECT_TRUE(workload.requests[1].continues);
  EXPECT_EQ(workload.requests[1].follows, 0U);
  EXPECT_EQ(workload.requests[1].prompt_length, 3U + 1 + 1);
  EXPECT_EQ(workload.requests[1].output_length, 3U);
  EXPECT_FALSE(workload.requests[2].continues);
  EXPECT_EQ(workload.requests[2].prompt_length, 2U);
  EXPECT_EQ(workload.requests[2].line, 6U);
  EXPECT_THAT(workload.notes, testing::ElementsAre(testing::HasSubstr("a quarter of their characters"),
                                                   testing::HasSubstr("left out 1 conversations")));
  const Workload counted =
      read_trace(path, {.count_tokens = [](std::string_view text) { return text.size(); }});
  EXPECT_EQ(counted.requests[0].prompt_length, 12U);
  EXPECT_EQ(read_trace(path, {.max_requests = 1}).requests.size(), 1U);
}

TEST(ShareGptTrace, BadOnesAreNamed) {
  const std::string good =
      R"({"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]})";
  expect_trace_refused("[]", "line 1: the trace ends without a request");
  expect_trace_refused("[\n" + good, "line 2: ',' or ']' is missing");
  expect_trace_refused("[\n" + good + ",\n]", "line 3: a conversation is not an object");
  expect_trace_refused("[" + good + "] x", "line 1: there is something after the array");
  expect_trace_refused("[\n\n{\"conversations\": [", "line 3: the file ends within a conversation");
  expect_trace_refused("[\n{}]", "line 2: key 'conversations'");
  expect_trace_refused("[{\"conversations\": [1]}]", "conversations[0]");
  expect_trace_refused("[{\"conversations\": [{\"from\": \"human\"}]}]", "key 'conversations[0].value'");
  expect_trace_refused("[{\"conversations\": [{\"value\": \"x\", \"from\": 3}]}]",
                       "key 'conversations[0].from'");
}

TEST(RecordedRun, IsATraceOfItsRequests) {
  const auto log = test::temp_dir() / "run.log";
  WorkloadConfig config;
  config.num_requests = 40;
  config.rate_thousandths = 20'000;
  config.prompt = Lengths::parse("uniform:20:90", "");
  config.output = Lengths::parse("uniform:1:80", "");
  config.prefix_length = 40;
  config.num_prefixes = 2;
  Workload workload = make_workload(config);
  assign_service(workload, {.num_tenants = 3, .num_priorities = 4});
  SimulationConfig machine;
  machine.scheduler.num_blocks = 24;  // with preemptions
  machine.scheduler.max_num_seqs = 8;
  machine.scheduler.max_num_batched_tokens = 128;
  machine.scheduler.max_model_len = 24 * 16;
  {
    record::RunWriter record(log);
    Simulation simulation(machine, workload, &record);
    simulation.run();
    ASSERT_GT(simulation.stats().total_preemptions, 0U);
  }
  const Workload again = read_trace(log, {});
  ASSERT_EQ(again.requests.size(), workload.requests.size());
  const Nanos start = workload.requests.front().arrival;
  for (size_t i = 0; i < again.requests.size(); ++i) {
    EXPECT_EQ(again.requests[i].arrival, workload.requests[i].arrival - start);
    EXPECT_EQ(again.requests[i].prompt_length, workload.requests[i].prompt_length);
    EXPECT_EQ(again.requests[i].output_length, workload.requests[i].output_length) << i;
    EXPECT_EQ(again.requests[i].priority, workload.requests[i].priority);
    EXPECT_EQ(again.requests[i].ttft_deadline, workload.requests[i].ttft_deadline);
    for (size_t k = 0; k < i; ++k) {  // whole blocks of the shared prefix: two
      const auto one = again.prompt(i);
      const auto other = again.prompt(k);
      EXPECT_EQ(std::equal(one.begin(), one.begin() + 32, other.begin()),
                workload.requests[i].pieces == workload.requests[k].pieces);
    }
  }
  EXPECT_TRUE(again.has_tenants);
  EXPECT_EQ(read_trace(log, {.max_requests = 5}).requests.size(), 5U);
  EXPECT_THAT(again.notes, testing::Each(testing::Not(testing::HasSubstr("the log ends before"))));
  // One that was broken off says what it lacks.
  size_t open = 0;
  {
    record::RunWriter record(log);
    Simulation simulation(machine, workload, &record);
    while (simulation.totals().finished < 15) ASSERT_TRUE(simulation.step());
    open = simulation.scheduler().running().size() + simulation.scheduler().waiting().size();
    ASSERT_GT(open, 1U);
  }
  EXPECT_THAT(read_trace(log, {}).notes,
              testing::Contains(testing::HasSubstr(fmt::format(
                  "run.log: the log ends before the run did: {} of its requests had not ended", open))));
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
