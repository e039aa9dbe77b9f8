#include "sim/step_log_file.h"

#include <fstream>
#include <string>

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
  EXPECT_EQ(file.records[0].step, 7U);
  EXPECT_EQ(file.records[0].work.decoding, 3U);
  EXPECT_EQ(file.records[0].work.decode_context, 30U);
  EXPECT_EQ(file.records[0].work.logit_rows, 5U);
  EXPECT_EQ(file.records[0].work.sampled_rows, 3U);
  EXPECT_EQ(file.records[1].whole, 13);
}

void expect_refused(const std::string& text, const std::string& why) {
  try {
    read_step_log(file_of(text));
    ADD_FAILURE() << "was read: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
  }
}

TEST(StepLogFile, SaysWhatIsWrong) {
  expect_refused("", "holds no step");
  expect_refused("hello\n", "is no step log");
  expect_refused("{\"step\":1}\n", "is no step log");
  expect_refused("{\"step_log\":1}\n" + kRow, "is a step log of version 1, and this program reads version 3");
  expect_refused("{\"step_log\":3,\"columns\":[\"a\"]}\n" + kRow, "'columns'");
  expect_refused(kHead, "holds no step");
  expect_refused(kHead + kRow + "7\n", "line 3: is no JSON array");
  expect_refused(kHead + "[1,2]\n", "line 2: has 2 values where 23 are wanted");
  expect_refused(kHead + "[7,1,192,1,-3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n",
                 "line 2: 'decoding' is no count");
  expect_refused(kHead + "[7,1,192,1,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,1.5]\n",
                 "line 2: 'whole' is no count");
  expect_refused(kHead + "[7,1,192,1,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13,14]\n",
                 "has 24 values where 23 are wanted");
  expect_refused(kHead + "[7,1,192,1,9223372036854775807,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n",
                 "line 2: 'decoding' is 9223372036854775807, more than any step has");
  expect_refused(kHead + kRow + "[7,1,192,0,3,30,0,0,0,0,5,3,0,0,5,6,7,8,9,10,11,12,13]\n",
                 "steps: line 3: 'open' is 0, and a step is itself in flight");
}

}  // namespace
}  // namespace quire::sim
