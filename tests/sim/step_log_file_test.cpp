#include "sim/step_log_file.h"

#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/data.h"

namespace quire::sim {
namespace {

std::string columns() {
  std::string out;
  backend::StepRecord none;
  backend::StepRecord::for_each_field(none, [&](std::string_view name, auto&) {
    out += (out.empty() ? "\"" : ",\"") + std::string(name) + "\"";
  });
  return out;
}

std::filesystem::path file_of(const std::string& text) {
  const std::filesystem::path path = test::temp_dir() / "steps";
  std::ofstream(path) << text;
  return path;
}

const std::string kHead =
    "{\"step_log\":3,\"columns\":[" + columns() +
    "],\"model\":\"fox\",\"device\":\"d\",\"machine\":\"m\",\"threads\":2,\"warning\":\"w\"}\n";
const std::string kRow = "[7,1,192,1,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n";

TEST(StepLogFile, GivesWhatWasWritten) {
  const StepLogFile file = read_step_log(file_of(kHead + kRow + kRow + "[8,1,19"));
  EXPECT_EQ(file.model, "fox");
  EXPECT_EQ(file.device, "d");
  EXPECT_EQ(file.machine, "m");
  EXPECT_EQ(file.threads, 2U);
  EXPECT_EQ(file.warning, "w");
  ASSERT_EQ(file.records.size(), 2U) << "the line that was cut off is left out";
  EXPECT_EQ(file.cut_line, 4U);
  EXPECT_EQ(file.records[0].step, 7U);
  EXPECT_EQ(file.records[0].work.decoding, 3U);
  EXPECT_EQ(file.records[0].work.decode_context, 30U);
  EXPECT_EQ(file.records[0].work.logit_rows, 5U);
  EXPECT_EQ(file.records[0].work.sampled_rows, 3U);
  EXPECT_EQ(file.records[1].whole, 13);
}

TEST(StepLogFile, TellsOfALineThatWasCutOff) {
  EXPECT_EQ(read_step_log(file_of(kHead + kRow)).cut_line, 0U);
  const StepLogFile zeros = read_step_log(file_of(kHead + kRow + std::string(100, '\0')));
  EXPECT_EQ(zeros.records.size(), 1U);
  EXPECT_EQ(zeros.cut_line, 3U);
}

TEST(StepLogFile, MayBeginWithAByteOrderMark) {
  const StepLogFile file = read_step_log(file_of("\xEF\xBB\xBF" + kHead + kRow));
  EXPECT_EQ(file.model, "fox");
  EXPECT_EQ(file.records.size(), 1U);
}

void expect_log_refused(const std::string& text, const std::string& why) {
  try {
    read_step_log(file_of(text));
    ADD_FAILURE() << "was read: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
  }
}

TEST(StepLogFile, SaysWhatIsWrong) {
  expect_log_refused("", "holds no step");
  expect_log_refused("hello\n",
                     "steps: line 1: is no JSON object: this is no step log, or its head is missing");
  expect_log_refused(kRow + kRow,
                     "steps: line 1: has no 'step_log': this is no step log, or its head is missing");
  expect_log_refused("{\"step\":1}\n", "line 1: has no 'step_log'");
  expect_log_refused("{\"step_log\":1}\n" + kRow,
                     "is a step log of version 1, and this program reads version 3");
  expect_log_refused("{\"step_log\":3,\"columns\":[\"a\"]}\n" + kRow, "'columns'");
  expect_log_refused(kHead, "holds no step");
  expect_log_refused(kHead + kRow + "7\n", "line 3: is no JSON array");
  expect_log_refused(kHead + "[1,2]\n", "line 2: has 2 values where 23 are wanted");
  expect_log_refused(kHead + "[7,1,192,1,-3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n",
                     "line 2: 'decoding' is no count");
  expect_log_refused(kHead + "[7,1,192,1,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,1.5]\n",
                     "line 2: 'whole' is no count");
  expect_log_refused(kHead + "[7,1,192,1,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13,14]\n",
                     "has 24 values where 23 are wanted");
  expect_log_refused(kHead + "[7,1,192,1,9223372036854775807,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n",
                     "line 2: 'decoding' is 9223372036854775807, more than any step has");
  expect_log_refused(kHead + kRow + "[7,1,192,0,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n",
                     "steps: line 3: 'open' is 0, and a step is itself in flight");
}

/// A line with these columns, beside which all is well.
std::string row_with(std::initializer_list<std::pair<std::string_view, uint64_t>> changed) {
  backend::StepRecord record{.step = 7,
                             .started = 1,
                             .budget = 192,
                             .open = 1,
                             .work = {.decoding = 3,
                                      .decode_context = 30,
                                      .chunks = 2,
                                      .prefill_tokens = 100,
                                      .chunk_squares = 5200,
                                      .chunk_prefix = 900,
                                      .logit_rows = 5,
                                      .sampled_rows = 4},
                             .compute = 80,
                             .sample = 9,
                             .whole = 130};
  std::string row;
  backend::StepRecord::for_each_field(record, [&](std::string_view name, auto& field) {
    for (const auto& [which, to] : changed) {
      if (which == name) field = static_cast<std::remove_reference_t<decltype(field)>>(to);
    }
    row += (row.empty() ? "[" : ",") + std::to_string(field);
  });
  return row + "]\n";
}

TEST(StepLogFile, RefusesWhatNoStepHas) {
  EXPECT_EQ(read_step_log(file_of(kHead + row_with({}))).records.size(), 1U);
  const auto refused = [](std::initializer_list<std::pair<std::string_view, uint64_t>> changed,
                          const std::string& why) {
    expect_log_refused(kHead + kRow + row_with(changed), "steps: line 3: " + why);
  };
  constexpr uint64_t kHuge = 1'000'000'000'000'000;
  refused({{"prefill_tokens", kHuge}},
          "'prefill_tokens' is 1000000000000000, and what else the log says allows at most");
  refused({{"decoding", 70'000}}, "'decoding' is 70000");
  refused({{"budget", kHuge}}, "'budget' is");
  refused({{"decode_context", kHuge}}, "'decode_context' is");
  refused({{"chunks", 0}}, "'chunks' is 0, and what else the log says allows at least 1");
  refused({{"chunks", 101}}, "'chunks' is 101");
  refused({{"chunk_squares", 99}}, "'chunk_squares' is 99");
  refused({{"chunk_squares", 10'001}},
          "'chunk_squares' is 10001, and what else the log says allows at most 10000");
  refused({{"chunk_prefix", kHuge}}, "'chunk_prefix' is");
  refused({{"sampled_rows", 2}}, "'sampled_rows' is 2");
  refused({{"sampled_rows", 6}}, "'sampled_rows' is 6");
  refused({{"logit_rows", 3}}, "'logit_rows' is 3");
  refused({{"logit_rows", 200}}, "'logit_rows' is 200");
  refused({{"whole", 0}}, "'whole' is 0, and every step takes time");
  refused({{"compute", 1'000'000'000}},
          "'compute' and 'sample' are 1000000009, and 'whole', which has them, is 130");
  const std::string budget = kHead.substr(0, kHead.size() - 2) + ",\"budget\":256}\n";
  EXPECT_EQ(read_step_log(file_of(budget + row_with({{"budget", 90}}))).records.size(), 1U)
      << "what follows the speed may be less than a step has";
  expect_log_refused(budget + row_with({{"prefill_tokens", 254}, {"chunk_squares", 254}}),
                     "line 2: 'prefill_tokens' is 254, and what else the log says allows at most 253");
}

// The device's time of steps in a row overlaps.
TEST(StepLogFile, StepsInFlightMayComputeForLongerThanTheyAdd) {
  EXPECT_EQ(
      read_step_log(file_of(kHead + row_with({{"open", 2}, {"compute", 1'000'000'000}}))).records.size(), 1U);
}

}  // namespace
}  // namespace quire::sim
