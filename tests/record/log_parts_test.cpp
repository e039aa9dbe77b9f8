// A log in parts: what is kept begins at a moment without work, can be read at any moment, and is made again
// like the whole.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/rng.h"
#include "record/log_files.h"
#include "record/recorded_scheduler.h"
#include "record/run_index.h"
#include "record/run_page.h"
#include "record/run_story.h"
#include "record/run_summary.h"
#include "sim/replay.h"
#include "tests/record/random_run.h"
#include "tests/support/data.h"

namespace quire::record {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uint64_t kSmall = 24'000;  // bytes: a few parts of a run of bursts

/// Bursts of random requests, after each of which nothing runs and the log is written: a part that is not yet
/// in its file is not followed by another.
class Bursts {
 public:
  Bursts(const control::SchedulerConfig& config, uint64_t seed, size_t depth, RunWriter* writer)
      : scheduler_(config, writer), writer_(writer), random_(seed), depth_(depth) {}

  void run(int bursts) {
    for (int burst = 0; burst < bursts; ++burst) {
      for (uint64_t left = 3 + random_.below(8); left > 0; --left) {
        add();
        for (uint64_t steps = random_.below(4); steps > 0; --steps) step();
        if (random_.below(12) == 0) scheduler_.abort(random_.below(next_));
      }
      while (scheduler_.has_work() || !open_.empty()) step();
      if (writer_ != nullptr) writer_->flush();
    }
  }
  uint64_t end() {
    scheduler_.end_record();
    return scheduler_.scheduler().digest();
  }
  const control::StepStats& stats() const { return scheduler_.stats(); }
  uint64_t steps() const { return scheduler_.scheduler().next_step() - 1; }
  uint64_t swapped() const { return swapped_; }
  RecordedScheduler& scheduler() { return scheduler_; }

 private:
  void add() {
    control::SeqSpec spec = test::random_sequence(random_, next_++);
    // Some begin like others, so that there is something to be found.
    if (random_.below(2) == 0) std::ranges::fill(spec.prompt.write(), TokenId{5});
    static_cast<void>(scheduler_.add(spec, fmt::format("seq-{}", spec.id)));
    if (random_.below(5) != 0) return;
    spec.fork_of = spec.id;
    spec.id = next_++;
    static_cast<void>(scheduler_.add(spec, fmt::format("seq-{}", spec.id)));
  }
  void step() {
    if (random_.below(10) == 0) scheduler_.set_budget(static_cast<uint32_t>(random_.below(40)));
    now_ += 1'000'000;
    while (open_.size() < depth_ && scheduler_.has_work()) {
      open_.push_back(scheduler_.plan(now_));
      if (!open_.back().empty()) continue;
      open_.pop_back();
      break;
    }
    if (open_.empty()) return;
    const control::StepPlan plan = std::move(open_.front());
    open_.pop_front();
    swapped_ += plan.moves_in.size();
    control::StepResult result;
    for (const control::PromptStep& part : plan.prompts) {
      result.prompts.emplace_back().rows.resize(part.end_row - part.first_row);
    }
    for (const control::SeqStep& step : plan.seqs) {
      control::SeqResult& seq = result.seqs.emplace_back();
      const auto token = static_cast<TokenId>(random_.below(9));
      if (random_.below(80) == 0) {
        seq.error = "failed";
      } else if (step.rows == control::LogitRows::kLast) {
        seq.token.emplace().token = token;
      }
    }
    scheduler_.commit(plan, std::move(result), now_ + 500'000);
  }

  RecordedScheduler scheduler_;
  RunWriter* writer_;
  SplitMix64 random_;
  size_t depth_;
  std::deque<control::StepPlan> open_;
  SeqId next_ = 0;
  Nanos now_ = 0;
  uint64_t swapped_ = 0;
};

class LogParts : public testing::Test {
 protected:
  control::SchedulerConfig config(uint64_t seed = 1) const {
    SplitMix64 random(seed);
    control::SchedulerConfig config = test::random_config(random);
    if (seed > 1) return config;
    // The log must have some parts, whichever policies there are to draw from.
    config.scheduling = control::SchedulingKind::kSlo;
    config.victim = control::VictimKind::kLeastProgress;
    config.preemption = control::PreemptionKind::kAuto;
    config.eviction = control::EvictionKind::kGdf;
    return config;
  }
  fs::path part(uint64_t number) const { return part_path(log_, number); }
  uint64_t bytes_of_all() const {
    uint64_t sum = fs::file_size(log_);
    for (const uint64_t number : numbered_files(log_)) sum += fs::file_size(part(number));
    return sum;
  }
  /// Writes a log of some parts; returns the digest of the run.
  uint64_t write(uint64_t most_bytes = kSmall, int bursts = 30) {
    RunWriter writer(log_, most_bytes);
    Bursts run(config(), 7, 2, &writer);
    run.run(bursts);
    return run.end();
  }
  std::string error(const fs::path& path) const {
    try {
      sim::replay(path);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  fs::path folder_ = test::temp_dir();
  fs::path log_ = folder_ / "run.log";
};

TEST_F(LogParts, ALogOfAllItsPartsIsMadeAgain) {
  uint64_t preemptions = 0;
  uint64_t evictions = 0;
  uint64_t swapped = 0;
  uint64_t seed = 0;
  for (size_t policy = 0; policy < std::size(control::kSchedulingNames); ++policy) {
    for (size_t eviction = 0; eviction < std::size(control::kEvictionNames); ++eviction) {
      control::SchedulerConfig config = this->config(++seed);
      config.scheduling = control::SchedulingKind{static_cast<uint8_t>(policy)};
      config.eviction = control::EvictionKind{static_cast<uint8_t>(eviction)};
      const size_t depth = 1 + seed % 3;
      SCOPED_TRACE(fmt::format("{} {} at depth {}", control::kSchedulingNames[policy],
                               control::kEvictionNames[eviction], depth));
      Bursts unrecorded(config, seed, depth, nullptr);
      unrecorded.run(60);
      {
        RunWriter writer(log_, kSmall);
        Bursts run(config, seed, depth, &writer);
        run.run(60);
        const uint64_t digest = run.end();
        EXPECT_EQ(digest, unrecorded.end());
        preemptions += run.stats().total_preemptions;
        evictions += run.stats().total_evictions;
        swapped += run.swapped();

        const std::vector<uint64_t> parts = numbered_files(log_);
        ASSERT_GE(parts.size(), 1U);
        EXPECT_GT(parts.front(), 1U);
        EXPECT_LE(bytes_of_all(), kSmall);
        const Replay tail = sim::replay(log_);
        EXPECT_FALSE(tail.has_beginning);
        EXPECT_EQ(tail.recorded, digest);
        EXPECT_EQ(tail.steps_before + tail.steps, run.steps());
        for (const uint64_t number : parts) EXPECT_FALSE(sim::replay(part(number)).has_beginning);
      }
      RunWriter unlimited(log_, 16 * kSmall);
      Bursts whole(config, seed, depth, &unlimited);
      whole.run(60);
      whole.end();
      ASSERT_EQ(numbered_files(log_).front(), 1U) << "so it has its beginning";
      const Replay all = sim::replay(log_);
      EXPECT_TRUE(all.same()) << (all.differs() ? difference_text(all) : "the digest");
      EXPECT_EQ(all.steps, whole.steps());
    }
  }
  EXPECT_GT(preemptions, 300U);
  EXPECT_GT(evictions, 300U);
  EXPECT_GT(swapped, 50U);
}

TEST_F(LogParts, IsToldFromItsFirstPartOn) {
  write();
  const std::vector<uint64_t> parts = numbered_files(log_);
  RunReader reader(log_);
  EXPECT_EQ(reader.first_part(), parts.front());
  const RunStory story = tell_run(log_, [](SeqId, std::string_view) { return true; });
  EXPECT_EQ(story.steps_before, reader.steps_before());
  EXPECT_TRUE(story.ended_well());
  EXPECT_EQ(
      late_begin_text(story),
      fmt::format("The log begins after step {}, at a moment without any request: {} earlier parts were "
                  "deleted (--decision-log-max).",
                  with_commas(story.steps_before), parts.front() - 1));
  ASSERT_FALSE(story.sequences.empty());
  EXPECT_GT(story.sequences.front().id, 0U);
  EXPECT_EQ(story.sequences.front().arrived, story.steps_before);
  for (const SequenceStory& s : story.sequences) EXPECT_TRUE(s.finish || !s.refused.empty()) << s.id;
  const RunIndex index = read_run_index(log_);
  EXPECT_EQ(index.steps, story.last_step());
  EXPECT_EQ(index.sequences.size(), story.sequences.size());
  const Page page = make_page(log_, sim::try_replay(log_));
  EXPECT_EQ(page.first, story.steps_before + 1);
  EXPECT_EQ(page.last, story.last_step());
  EXPECT_THAT(page.html, HasSubstr("earlier parts were deleted"));
  PageOptions before;
  before.last = story.steps_before;
  EXPECT_THROW(make_page(log_, std::nullopt, before), Error);
}

/// The blocks that are cached when the log begins are on the page, and the pool is never said to hold more
/// than it does.
TEST_F(LogParts, KnowsTheCacheThatItBeginsWith) {
  write();
  RunReader reader(log_);
  const std::optional<RunEvent> first = reader.next();
  ASSERT_TRUE(first && std::holds_alternative<RunCached>(*first));
  std::set<BlockId> cached;
  for (const PrefixNode& node : std::get<RunCached>(*first).nodes) {
    for (const BlockId block : node.blocks) {
      if (block != kNoBlock) {
        EXPECT_TRUE(cached.insert(block).second);
      }
    }
  }
  EXPECT_GT(cached.size(), 2U);
  RunReader again(log_);
  const RunTimeline timeline = read_timeline(again, 1, UINT64_MAX);
  EXPECT_EQ(timeline.first, reader.steps_before() + 1);
  for (size_t i = 0; i < timeline.columns.held.size(); ++i) {
    EXPECT_LE(timeline.columns.held[i] + timeline.columns.cached[i], reader.config().num_blocks) << i;
  }
  EXPECT_GT(timeline.columns.held[0] + timeline.columns.cached[0], 2U);
}

TEST_F(LogParts, AnyPartIsToldAlone) {
  write();
  const std::vector<uint64_t> parts = numbered_files(log_);
  const RunStory story = tell_run(part(parts[1]));
  EXPECT_TRUE(story.is_single_part);
  EXPECT_TRUE(story.ended_well());
  EXPECT_EQ(story.steps_before, tell_run(part(parts[0])).last_step());
  EXPECT_THAT(late_begin_text(story), HasSubstr(fmt::format("This is part {} of a log", parts[1])));
  // The first one has nothing before it.
  fs::remove_all(folder_);
  fs::create_directory(folder_);
  write(200'000, 90);
  ASSERT_EQ(numbered_files(log_).front(), 1U);
  EXPECT_EQ(late_begin_text(tell_run(log_)), "");
  EXPECT_TRUE(sim::replay(log_).same());
}

TEST_F(LogParts, GrowsBeyondItsLimitWhileSomethingRuns) {
  RunWriter writer(log_, kSmall);
  Bursts run(config(), 7, 1, &writer);
  control::SeqSpec held;
  held.prompt = {1};
  held.max_tokens = 30;
  testing::internal::CaptureStderr();
  // Never idle: the next request is there before the last one ends.
  RecordedScheduler& scheduler = run.scheduler();
  Nanos now = 0;
  for (SeqId id = 0; id < 200; ++id) {
    held.id = id;
    ASSERT_TRUE(scheduler.add(held));
    for (int i = 0; i < 20; ++i) {
      const control::StepPlan plan = scheduler.plan(++now);
      control::StepResult result;
      for (const control::SeqStep& step : plan.seqs) {
        control::SeqResult& seq = result.seqs.emplace_back();
        if (step.rows == control::LogitRows::kLast) seq.token.emplace().token = 1;
      }
      scheduler.commit(plan, std::move(result), ++now);
      ASSERT_TRUE(scheduler.has_work());
    }
  }
  writer.flush();
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(numbered_files(log_).empty());
  EXPECT_GT(fs::file_size(log_), 2 * kSmall);
  const std::string text = "the decision log is longer than 23.4 KiB";
  const size_t at = warnings.find(text);
  ASSERT_NE(at, std::string::npos) << warnings;
  EXPECT_EQ(warnings.find(text, at + 1), std::string::npos);
}

TEST_F(LogParts, AFormerLogGoesAndNothingElseDoes) {
  write();
  const std::vector<uint64_t> before = numbered_files(log_);
  std::ofstream(folder_ / "run.log.old") << "mine";
  std::ofstream(folder_ / "run.log.007") << "mine";
  { RunWriter writer(log_, kSmall); }
  EXPECT_TRUE(numbered_files(log_).empty());
  EXPECT_TRUE(fs::exists(folder_ / "run.log.old"));
  EXPECT_TRUE(fs::exists(folder_ / "run.log.007"));
  std::ofstream(part(3)) << "mine";
  try {
    RunWriter::check_place(log_, kSmall);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.log.3: is not a part of a decision log"));
  }
  RunWriter::check_place(log_);  // one file minds no other
  EXPECT_THROW(RunWriter::check_place("/dev/null", kSmall), Error);
}

TEST_F(LogParts, WhatDoesNotBelongTogetherIsRefused) {
  write();
  const std::vector<uint64_t> parts = numbered_files(log_);
  ASSERT_GE(parts.size(), 2U);
  const fs::path last = part(parts.back());
  const fs::path kept = folder_ / "kept";
  fs::copy_file(last, kept);
  // A part that was cut off, and another follows.
  fs::resize_file(last, fs::file_size(last) - 5);
  EXPECT_THAT(error(log_), HasSubstr("ends too early: "));
  // A part under the name of another.
  fs::copy_file(part(parts.front()), last, fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(log_),
              HasSubstr(fmt::format("is part {} of a log, not part {}", parts.front(), parts.back())));
  fs::copy_file(kept, last, fs::copy_options::overwrite_existing);
  EXPECT_EQ(error(log_), "");
  // Without the part before it, a part is the beginning.
  fs::remove(last);
  EXPECT_FALSE(sim::replay(log_).has_beginning);
}

TEST_F(LogParts, ADamagedPartIsAnErrorThatNamesItsFile) {
  write();
  const std::vector<uint64_t> parts = numbered_files(log_);
  ASSERT_GE(parts.size(), 2U);
  const fs::path middle = part(parts[1]);
  std::fstream file(middle, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(middle) / 2));
  file.put('\x55');
  file.put('\xaa');
  file.close();
  EXPECT_THAT(error(log_), HasSubstr(middle.string()));
}

/// The writer is killed at some moment; whatever is there can be read, and leads as far as it goes.
TEST_F(LogParts, AKillLeavesALogThatIsRead) {
  int in_parts = 0;
  for (int i = 0; i < 25; ++i) {
    for (const uint64_t number : numbered_files(log_)) fs::remove(part(number));
    fs::remove(log_);
    const pid_t child = fork();
    if (child == 0) {
      RunWriter writer(log_, kSmall);
      Bursts run(config(), 7, 1 + static_cast<size_t>(i) % 3, &writer);
      run.run(10'000);
      _exit(1);
    }
    ASSERT_GT(child, 0);
    const auto far_enough = [&] {
      const std::vector<uint64_t> parts = numbered_files(log_);
      std::error_code none;
      return i % 2 == 0 ? fs::exists(log_, none) && fs::file_size(log_, none) > 0
                        : !parts.empty() && parts.front() > 1;
    };
    for (int wait = 0; wait < 30'000 && !far_enough(); ++wait) usleep(1000);
    usleep(static_cast<useconds_t>(i * 337));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const Replay again = sim::replay(log_);
    EXPECT_FALSE(again.differs()) << difference_text(again);
    EXPECT_FALSE(again.recorded);
    const RunStory story = tell_run(log_);
    EXPECT_FALSE(story.ended_well());
    in_parts += again.steps_before > 0 ? 1 : 0;
  }
  EXPECT_GE(in_parts, 12);
}

TEST_F(LogParts, TheMomentBetweenTwoPartsIsReadToo) {
  write();
  const std::vector<uint64_t> parts = numbered_files(log_);
  // The present part has its second name, the next is not there yet.
  fs::copy_file(part(parts.back()), log_, fs::copy_options::overwrite_existing);
  const Replay again = sim::replay(log_);
  EXPECT_FALSE(again.differs());
  EXPECT_FALSE(again.recorded);
  EXPECT_FALSE(tell_run(log_).ended_well());
  // On a file system without second names it was renamed.
  fs::remove(log_);
  EXPECT_EQ(sim::replay(log_).digest, again.digest);
  EXPECT_EQ(tell_run(log_).last_step(), tell_run(part(parts.back())).last_step());
}

}  // namespace
}  // namespace quire::record
