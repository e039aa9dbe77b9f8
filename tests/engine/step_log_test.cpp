#include "engine/step_log.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"
#include "tests/engine/engine_rig.h"
#include "tests/support/data.h"

namespace quire::engine {
namespace {

namespace json = boost::json;

class Collector final : public StepSink {
 public:
  void take(const backend::StepRecord& record) noexcept override { records.push_back(record); }
  std::vector<backend::StepRecord> records;  // to be read once the engine has ended
};

TEST(StepLog, SaysWhatEachStepDidAndHowLongItTook) {
  test::EngineRig rig;
  rig.engine.reset();
  Collector steps;
  auto engine = std::make_unique<Engine>(rig.config, rig.tokenizer, rig.executor, rig.clock, nullptr, nullptr,
                                         nullptr, nullptr, &steps);
  const Nanos before = rig.clock.now();
  ASSERT_TRUE(engine->submit(test::EngineRig::request(40, 12), rig.ends.sink(1)));
  EXPECT_FALSE(rig.ends.wait(1).error);
  engine.reset();
  const Nanos after = rig.clock.now();
  ASSERT_EQ(steps.records.size(), 12U);
  EXPECT_EQ(steps.records[0].work.prefill_tokens, 40U);
  EXPECT_EQ(steps.records[0].work.chunks, 1U);
  EXPECT_EQ(steps.records[0].work.chunk_squares, 1600U);
  EXPECT_EQ(steps.records[0].work.decoding, 0U);
  Nanos whole = 0;
  for (size_t i = 0; i < steps.records.size(); ++i) {
    const backend::StepRecord& record = steps.records[i];
    EXPECT_EQ(record.step, steps.records[0].step + i);
    EXPECT_EQ(record.work.logit_rows, 1U);
    EXPECT_EQ(record.work.sampled_rows, 1U);
    EXPECT_EQ(record.open, 1U);
    EXPECT_EQ(record.budget, rig.config.scheduler.max_num_batched_tokens);
    if (i > 0) {
      EXPECT_EQ(record.work.decoding, 1U);
      EXPECT_EQ(record.work.decode_context, 39 + i);
      EXPECT_EQ(record.work.prefill_tokens, 0U);
      EXPECT_EQ(record.idle, 0) << "there was work";
    }
    EXPECT_GE(record.whole, record.plan + record.submit + record.wait + record.commit + record.deliver);
    whole += record.whole + record.idle;
  }
  EXPECT_LE(whole, after - before);
}

/// What the engine does between two steps keeps the device waiting, so it is a part of the second.
TEST(StepLog, CountsWhatPassesBetweenStepsWhileThereIsWork) {
  constexpr Nanos kSending = 3'000'000;
  test::EngineRig rig;
  rig.engine.reset();
  Collector steps;
  auto engine = std::make_unique<Engine>(rig.config, rig.tokenizer, rig.executor, rig.clock, nullptr, nullptr,
                                         nullptr, nullptr, &steps);
  for (const uint64_t number : {1, 2}) {
    const OutputSink sink = rig.ends.sink(number);
    ASSERT_TRUE(engine->submit(test::EngineRig::request(10, 4), [=](RequestOutput news) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kSending));
      sink(std::move(news));
    }));
    EXPECT_FALSE(rig.ends.wait(number).error);
    std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kSending));
  }
  engine.reset();
  ASSERT_EQ(steps.records.size(), 8U);
  for (size_t i = 0; i < steps.records.size(); ++i) {
    const backend::StepRecord& record = steps.records[i];
    if (i % 4 == 0) {
      EXPECT_GE(record.idle, i == 0 ? 0 : 3 * kSending);
    } else {
      EXPECT_EQ(record.idle, 0);
      EXPECT_GE(record.whole,
                record.plan + record.submit + record.wait + record.commit + record.deliver + kSending);
    }
  }
}

/// The lines of the file after its head.
std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  const json::object head = json::parse(lines.at(0)).as_object();
  EXPECT_EQ(head.at("step_log"), 3);
  EXPECT_EQ(head.at("model"), "fox");
  EXPECT_EQ(head.at("columns").as_array().at(0), "step");
  const size_t columns = head.at("columns").as_array().size();
  lines.erase(lines.begin());
  for (const std::string& line : lines) EXPECT_EQ(json::parse(line).as_array().size(), columns) << line;
  return lines;
}

TEST(StepLog, KeepsTheNewestPartWithinItsSize) {
  const std::filesystem::path path = test::temp_dir() / "steps.log";
  constexpr uint64_t kMost = 64 << 10;
  {
    StepLog log(path, "\"model\":\"fox\"", kMost);
    for (uint64_t step = 1; step <= 3000; ++step) {
      backend::StepRecord record;
      record.step = step;
      log.take(record);
      if (step % 375 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(250));  // so that it is written
    }
    EXPECT_EQ(log.dropped(), 0U);
  }
  const std::vector<std::string> newest = lines_of(path);
  const std::vector<std::string> before = lines_of(path.string() + ".1");
  EXPECT_LE(std::filesystem::file_size(path) + std::filesystem::file_size(path.string() + ".1"), kMost);
  EXPECT_EQ(json::parse(newest.back()).as_array().at(0), 3000);
  EXPECT_EQ(json::parse(newest.front()).as_array().at(0).as_int64(),
            json::parse(before.back()).as_array().at(0).as_int64() + 1);
  std::filesystem::perms mode = std::filesystem::status(path).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::others_read, std::filesystem::perms::none);
}

TEST(StepLog, DropsWhatADiskIsTooSlowFor) {
  const std::filesystem::path path = test::temp_dir() / "pipe";
  std::signal(SIGPIPE, SIG_IGN);  // as a program does
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  {
    StepLog log(path, "", uint64_t{1} << 30);
    for (size_t i = 0; i < 3 * StepLog::kMostWaiting; ++i) log.take({});  // does not wait
    EXPECT_GE(log.dropped(), StepLog::kMostWaiting / 2);
    close(reader);  // the log ends, and its thread too
  }
}

TEST(StepLog, OverwritesNoOtherFile) {
  const std::filesystem::path path = test::temp_dir() / "letter";
  std::ofstream(path) << "dear fox";
  EXPECT_THROW(StepLog::check_place(path), Error);
  EXPECT_THROW(StepLog(path, "", 1 << 20), Error);
}

}  // namespace
}  // namespace quire::engine
