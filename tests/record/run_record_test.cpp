// A run, written down, made again and read: random runs under all policies, and files that are broken.
#include "record/run_record.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "record/run_index.h"
#include "record/run_page.h"
#include "sim/replay.h"
#include "tests/record/log_bytes.h"
#include "tests/record/random_run.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"

namespace quire::record {
namespace {

using testing::HasSubstr;

/// Copies a record; `change` is asked until it says that it has changed an event. Whether it did.
bool rewrite(const std::filesystem::path& from, const std::filesystem::path& to,
             const std::function<bool(RunEvent&)>& change) {
  RunReader reader(from);
  RunWriter writer(to);
  writer.begin(reader.config());
  bool changed = false;
  while (auto event = reader.next()) {
    changed = changed || change(*event);
    if (const auto* add = std::get_if<RunAdd>(&*event)) writer.add(add->spec, add->name);
    if (const auto* abort = std::get_if<RunAbort>(&*event)) writer.abort(abort->id, abort->stop_string);
    if (const auto* budget = std::get_if<RunBudget>(&*event)) writer.set_budget(budget->tokens);
    if (const auto* plan = std::get_if<RunPlan>(&*event)) writer.plan(plan->step, plan->now);
    if (std::holds_alternative<RunReset>(*event)) writer.reset();
    if (const auto* warm = std::get_if<RunRestore>(&*event)) writer.restore(warm->nodes);
    if (const auto* end = std::get_if<RunEnd>(&*event)) writer.end(end->digest);
    if (const auto* decision = std::get_if<control::Decision>(&*event)) writer.take(*decision);
    if (const auto* commit = std::get_if<RunCommit>(&*event)) {
      control::StepResult result;
      for (const RunCommit::Result& each : commit->results) {
        control::SeqResult& seq = result.seqs.emplace_back();
        if (each.failed) seq.error = "failed";
        if (each.token) seq.token.emplace().token = *each.token;
      }
      writer.commit(commit->step, result, commit->now);
    }
    if (const auto* refusal = std::get_if<RunRefusal>(&*event)) {
      writer.refused({.code = refusal->code, .message = refusal->why});
    }
    if (const auto* cause = std::get_if<control::Cause>(&*event)) writer.take(*cause);
  }
  writer.flush();
  return changed;
}

TEST(RunRecordFile, IsReadAsItWasWritten) {
  const std::filesystem::path first = test::temp_dir() / "first.log";
  const std::filesystem::path second = test::temp_dir() / "second.log";
  test::record_random_run(first, 12);
  EXPECT_FALSE(rewrite(first, second, [](RunEvent&) { return false; }));
  const test::LogParts before = test::parts_of(first);
  const test::LogParts after = test::parts_of(second);
  EXPECT_EQ(before.line, after.line);
  EXPECT_EQ(before.index, after.index);
  EXPECT_EQ(before.records, after.records);
}

class RunRecord : public testing::Test {
 protected:
  std::string bytes() const { return read_file(path_); }
  void overwrite(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string error() const {
    try {
      sim::replay(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  uint64_t record_run(uint64_t seed) { return test::record_random_run(path_, seed).digest; }

  std::filesystem::path path_ = test::temp_dir() / "run.log";
};

TEST_F(RunRecord, ARunMadeAgainDecidesTheSame) {
  uint64_t preemptions = 0;
  uint64_t prompt_steps = 0;
  uint64_t adds_with_wants = 0;
  // A third of the seeds has one step in flight, a third two, a third three.
  for (uint64_t seed = 0; seed < (test::kSanitized ? 90 : 300); ++seed) {
    const test::RandomRun run = test::record_random_run(path_, seed);
    preemptions += run.stats.total_preemptions;
    prompt_steps += run.prompt_steps;
    RunReader reader(path_);
    while (auto event = reader.next()) {
      if (const auto* add = std::get_if<RunAdd>(&*event)) adds_with_wants += add->spec.wants.any() ? 1 : 0;
    }
    const Replay again = sim::replay(path_);
    EXPECT_TRUE(again.same()) << "seed " << seed;
    EXPECT_EQ(again.digest, run.digest);
    EXPECT_GT(again.decisions, 200U);
  }
  EXPECT_GT(preemptions, test::kSanitized ? 90U : 300U);
  EXPECT_GT(prompt_steps, test::kSanitized ? 90U : 300U);
  EXPECT_GT(adds_with_wants, test::kSanitized ? 90U : 300U);
}

TEST_F(RunRecord, AnotherTokenIsAnotherRun) {
  const uint64_t digest = record_run(3);
  // The first sampled token that is no stop token becomes one.
  const std::filesystem::path other = test::temp_dir() / "other.log";
  ASSERT_TRUE(rewrite(path_, other, [](RunEvent& event) {
    auto* commit = std::get_if<RunCommit>(&event);
    if (commit == nullptr || commit->results.empty() || commit->results[0].token != 3) return false;
    commit->results[0].token = 7;
    return true;
  }));
  std::filesystem::rename(other, path_);
  // Either its decisions are others, or what follows does not fit it any more.
  if (!error().empty()) {
    EXPECT_THAT(error(), testing::ContainsRegex("was not planned|results for . sequences instead of"));
    return;
  }
  const Replay again = sim::replay(path_);
  EXPECT_FALSE(again.same());
  EXPECT_TRUE(again.first_difference);
  EXPECT_NE(again.digest, digest);
}

TEST_F(RunRecord, AFileThatWasCutOffIsReadAsFarAsItGoes) {
  record_run(5);
  const std::string whole = bytes();
  overwrite(whole.substr(0, whole.size() * 2 / 3));
  const Replay again = sim::replay(path_);
  EXPECT_FALSE(again.recorded);
  EXPECT_FALSE(again.first_difference);
  EXPECT_GT(again.steps, 10U);
}

TEST_F(RunRecord, BrokenRecordsAreRefusedByTheirBytes) {
  record_run(5);
  const test::LogParts parts = test::parts_of(path_);
  const size_t begin = parts.line.size() + 1 + BlockHead::kBytes;
  overwrite(test::log_of(parts.line, "?"));
  EXPECT_THAT(error(), HasSubstr(fmt::format("at byte {}: unknown kind of record: 63", begin)));
  overwrite(test::log_of(parts.line, "p" + std::string(12, '\xff')));
  EXPECT_THAT(error(), HasSubstr("a number of more than 64 bits"));
  overwrite(test::log_of(parts.line, std::string("c\1\0\0", 4)));
  EXPECT_THAT(error(), HasSubstr("results of step 1, which is not the oldest that is open"));
  overwrite(test::log_of(parts.line, std::string("p\2\0", 3)));
  EXPECT_THAT(error(), HasSubstr("step 2 where 1 is due"));
  overwrite(test::log_of(parts.line, std::string("q\1\0\3", 4)));
  EXPECT_THAT(error(), HasSubstr("3 where at most 2 can be"));
  overwrite(test::log_of(parts.line, std::string("q\1\0\0p", 5)));
  EXPECT_THAT(error(), HasSubstr("what is wanted of a prompt, and no sequence behind it"));
  overwrite(test::log_of(parts.line, "p"));
  EXPECT_THAT(error(), HasSubstr("a record that continues past its log block"));
  overwrite(test::log_of(parts.line, std::string("e\0e\0", 4)));
  EXPECT_THAT(error(), HasSubstr("a record after the end of the run"));
  overwrite("{\"quire_run\": 4, \"scheduler\": {\"num_blocks\": -4}}\n");
  EXPECT_THAT(error(), HasSubstr("key 'scheduler.num_blocks'"));
}

/// Whatever is changed, and wherever, is reported; and so is a block that is missing.
TEST_F(RunRecord, EveryDamageIsReported) {
  record_run(5);
  const std::string whole = bytes();
  const auto reads_all = [&] {
    RunReader reader(path_);
    while (reader.next()) {
    }
    return reader.truncated();
  };
  EXPECT_FALSE(reads_all());
  int reported = 0;
  for (size_t at = 0; at < whole.size(); at += test::kSanitized ? 23 : 7) {
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ (1 << at % 8));
    overwrite(text);
    EXPECT_THROW(reads_all(), Error) << "byte " << at << " of " << whole.size();
    ++reported;
  }
  EXPECT_GT(reported, test::kSanitized ? 150 : 500);
  const std::string mark = "QBLK";
  const size_t first = whole.find(mark);
  const size_t second = whole.find(mark, first + 1);
  const size_t third = whole.find(mark, second + 1);
  ASSERT_NE(third, std::string::npos);
  overwrite(whole.substr(0, second) + whole.substr(third));
  EXPECT_THAT(error(), HasSubstr("log block 2 where log block 1 is due"));
  overwrite(whole.substr(0, third) + whole.substr(second, third - second) + whole.substr(third));
  EXPECT_THAT(error(), HasSubstr("log block 1 where log block 2 is due"));
}

TEST_F(RunRecord, IsInTheFileWithinASecondWithoutBeingAskedFor) {
  RunWriter writer(path_);
  control::SchedulerConfig config;
  config.num_blocks = 4;
  writer.begin(config);
  control::SeqSpec spec;
  spec.id = 77;
  spec.prompt = {1, 2};
  spec.max_tokens = 1;
  writer.add(spec, "quiet");
  writer.settle();
  const auto is_there = [&] {
    RunReader reader(path_);
    const auto event = reader.next();
    return event && std::holds_alternative<RunAdd>(*event);
  };
  for (int i = 0; i < 300 && !is_there(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(is_there());
  const RunIndex index = read_run_index(path_);
  ASSERT_EQ(index.sequences.size(), 1U);
  EXPECT_EQ(index.sequences[0].id, 77U);
  EXPECT_EQ(index.sequences[0].name, "quiet");
}

TEST_F(RunRecord, TheIndexIsOfWhatHappened) {
  const test::RandomRun run = test::record_random_run(path_, 5);
  const RunIndex index = read_run_index(path_);
  EXPECT_EQ(index.steps, run.steps);
  const RunStory story = tell_run(path_);
  ASSERT_EQ(index.sequences.size(), story.sequences.size());
  for (size_t i = 0; i < index.sequences.size(); ++i) {
    EXPECT_EQ(index.sequences[i].id, story.sequences[i].id);
    EXPECT_EQ(index.sequences[i].name, story.sequences[i].name);
    EXPECT_EQ(index.sequences[i].added, story.sequences[i].arrived);
    EXPECT_EQ(index.sequences[i].ended, story.sequences[i].ended);
  }
}

TEST_F(RunRecord, NamesBlocksOfItsPoolOnly) {
  record_run(5);
  const test::LogParts parts = test::parts_of(path_);
  const uint32_t blocks = RunReader(path_).config().num_blocks;
  ASSERT_LT(blocks, 128U);
  const auto byte = [](auto value) { return static_cast<char>(value); };
  for (const control::DecisionKind kind :
       {control::DecisionKind::kAllocate, control::DecisionKind::kEvict, control::DecisionKind::kCopy}) {
    const char record[] = {byte(1 + static_cast<int>(kind)), 0, byte(blocks), 0};
    overwrite(test::log_of(parts.line, std::string(record, sizeof record)));
    EXPECT_THAT(error(), HasSubstr(fmt::format("block {0} in a pool of {0}", blocks)));
  }
}

TEST_F(RunRecord, FilesOfOthersAreRefusedByWhatTheyAre) {
  record_run(5);
  const std::string whole = bytes();
  overwrite("");
  EXPECT_THAT(error(), HasSubstr("empty"));
  overwrite(whole.substr(0, 40));
  EXPECT_THAT(error(), HasSubstr("ends within its first line"));
  for (const char* foreign : {"nonsense", "{\"step\": 1}\n", "{\"quire\": 1}\n",
                              "\x7f"
                              "ELF\n"}) {
    overwrite(foreign);
    EXPECT_THAT(error(), HasSubstr("not a decision log"));
  }
  overwrite("{\"quire_run\": 1}\n");
  EXPECT_THAT(error(), HasSubstr("of format 1, and this quire reads format 4: use the older quire"));
  overwrite("{\"quire_run\": 2}\n");
  EXPECT_THAT(error(), HasSubstr("of format 2, and this quire reads format 4: use the older quire"));
  overwrite("{\"quire_run\": 5}\n");
  EXPECT_THAT(error(), HasSubstr("of format 5, and this quire reads format 4: use the newer quire"));
  overwrite("{\"quire_run\":x}\n");
  EXPECT_THAT(error(), HasSubstr("at byte 13"));
}

TEST_F(RunRecord, KeepsNamesTimesAndHowAnAbortCame) {
  const std::string name("\0<b>\xff", 5);
  RunWriter writer(path_);
  control::SchedulerConfig config;
  config.num_blocks = 4;
  writer.begin(config);
  control::SeqSpec spec;
  spec.prompt = {1, 2};
  writer.add(spec, name);
  writer.commit(7, {}, 123'456'789'000);
  writer.abort(0);
  writer.abort(0, true);
  writer.flush();
  RunReader reader(path_);
  EXPECT_EQ(std::get<RunAdd>(*reader.next()).name, name);
  const auto commit = std::get<RunCommit>(*reader.next());
  EXPECT_EQ(commit.step, 7U);
  EXPECT_EQ(commit.now, 123'456'789'000);
  EXPECT_FALSE(std::get<RunAbort>(*reader.next()).stop_string);
  EXPECT_TRUE(std::get<RunAbort>(*reader.next()).stop_string);
}

TEST_F(RunRecord, NoRecordDoesMoreThanAnError) {
  record_run(9);
  const test::LogParts whole = test::parts_of(path_);
  SplitMix64 random(1);
  int read = 0;
  for (int i = 0; i < (test::kSanitized ? 150 : 400); ++i) {
    std::string records = whole.records;
    for (uint64_t n = 1 + random.below(3); n > 0; --n) {
      records[random.below(records.size())] = static_cast<char>(random.below(256));
    }
    const std::string text = test::log_of(whole.line, records, whole.index);
    overwrite(text);
    try {
      EXPECT_FALSE(make_page(path_, sim::try_replay(path_)).html.empty());
      ++read;
    } catch (const Error&) {
      continue;
    }
  }
  EXPECT_GT(read, test::kSanitized ? 3 : 10);
}

}  // namespace
}  // namespace quire::record
