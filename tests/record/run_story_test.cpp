// What `quire explain` says of a run, in words.
#include "record/run_story.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/display_text.h"
#include "record/run_page.h"
#include "record/run_summary.h"
#include "tests/record/random_run.h"
#include "tests/support/data.h"

namespace quire::record {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

/// A scheduler whose steps are written down; every sampled token is another.
class Recording {
 public:
  explicit Recording(control::SchedulerConfig config) : scheduler_(config), writer_(path()) {
    writer_.begin(scheduler_.config());
    scheduler_.listen(&writer_, &writer_);
  }
  static std::filesystem::path path() {
    static const std::filesystem::path folder = test::temp_dir();
    return folder / "story.log";
  }

  static control::SchedulerConfig small(uint32_t blocks) {
    control::SchedulerConfig config;
    config.num_blocks = blocks;
    config.block_size = 4;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config.max_model_len = 64;
    config.watermark_bp = 0;
    return config;
  }

  control::SeqSpec add(SeqId id, size_t prompt, uint32_t most, TokenId first = 0,
                       control::SeqSpec spec = {}) {
    spec.id = id;
    for (size_t i = 0; i < prompt; ++i) {
      spec.prompt.push_back(static_cast<TokenId>(first != 0 ? first + i : 1000 * (id + 1) + i));
    }
    spec.max_tokens = most;
    spec.arrived = now_;
    writer_.add(spec, "name-" + std::to_string(id));
    if (const auto added = scheduler_.add(spec); !added) writer_.refused(added.error());
    return spec;
  }
  void fork(control::SeqSpec spec, SeqId id) {
    spec.fork_of = spec.id;
    spec.id = id;
    writer_.add(spec);
    if (const auto added = scheduler_.add(spec); !added) writer_.refused(added.error());
  }
  /// The prefix cache begins with a chain of whole blocks.
  void restore(TokenId first, uint32_t blocks) {
    std::vector<PrefixNode> nodes(blocks);
    for (uint32_t i = 0; i < blocks; ++i) {
      if (i > 0) nodes[i].parent = i - 1;
      for (int k = 0; k < 4; ++k) nodes[i].tokens.push_back(first++);
      nodes[i].blocks.push_back(0);
    }
    writer_.restore(nodes);
    quire::record::restore(scheduler_.pool(), nodes);
  }
  void abort(SeqId id, bool stop_string) {
    writer_.abort(id, stop_string);
    scheduler_.abort(id);
  }
  void step(int count = 1) {
    for (int i = 0; i < count && scheduler_.has_work(); ++i) {
      writer_.plan(scheduler_.next_step(), now_);
      const control::StepPlan plan = scheduler_.plan();
      control::StepResult result;
      for (const control::SeqStep& seq : plan.seqs) {
        result.seqs.emplace_back();
        if (seq.rows == control::LogitRows::kLast) result.seqs.back().token.emplace().token = token_++;
      }
      now_ += 10'000'000;
      writer_.commit(plan.step, result, now_);
      scheduler_.commit(plan, std::move(result));
    }
  }
  RunStory tell() {
    writer_.end(scheduler_.digest());
    return tell_run(path(), [](SeqId, std::string_view) { return true; });
  }

 private:
  control::Scheduler scheduler_;
  RunWriter writer_;
  Nanos now_ = 0;
  TokenId token_ = 500'000;
};

RunIndex index_of(Recording& recording) {
  recording.tell();
  return read_run_index(Recording::path());
}

/// "steps FROM-TO: TEXT", all of them.
std::vector<std::string> lines_of(const RunStory& run, size_t index) {
  std::vector<std::string> out;
  for (const StoryLine& line : run.sequences.at(index).lines) {
    out.push_back(fmt::format("{}-{}: {}", line.from, line.to, line.text));
  }
  return out;
}

std::string summary_of(const RunStory& run, std::string_view what) {
  for (const SummaryLine& line : summarize(run)) {
    if (line.what == what) return line.text;
  }
  return "";
}

TEST(RunStory, TellsAnUndisturbedLife) {
  Recording recording(Recording::small(20));
  recording.add(7, 9, 3);
  recording.step(3);
  const RunStory run = recording.tell();
  EXPECT_THAT(
      lines_of(run, 0),
      ElementsAre("0-0: arrives: 9 tokens of prompt, at most 3 to generate; no request waits and 0 of 8 "
                  "slots are taken",
                  "1-1: starts running (slot 0); 9 tokens to compute",
                  "1-1: computes 9 tokens, from position 0 on, and samples its first token, 10.0 ms after "
                  "it arrived",
                  "2-3: decodes 2 tokens", "3-3: ends after 3 generated tokens: max_tokens reached"));
  EXPECT_EQ(run.sequences[0].name, "name-7");
  EXPECT_EQ(*run.sequences[0].ttft, 10'000'000);
  EXPECT_EQ(*run.sequences[0].total, 30'000'000);
  EXPECT_EQ(run.duration, 30'000'000);
  EXPECT_EQ(end_name(run.sequences[0]), "length");
  EXPECT_EQ(run.short_steps, 0U);
  EXPECT_THAT(summary_of(run, "pool"), StartsWith("large enough"));
  EXPECT_TRUE(run.ended_well());
}

TEST(RunStory, NamesWhomARequestWaitsForAndBehind) {
  // Seven blocks: 0 takes four of them, 1 two; 2 needs five of them and 3 stands behind it.
  Recording recording(Recording::small(7));
  recording.add(0, 13, 3);
  recording.add(1, 5, 3);
  recording.step();
  recording.add(2, 18, 3);
  recording.add(3, 2, 3);
  recording.step(10);
  const RunStory run = recording.tell();
  EXPECT_THAT(
      lines_of(run, 2),
      testing::Contains(AllOf(StartsWith("2-3: waits 2 steps (20.0 ms) first in line, for 5 blocks of K/V (1 "
                                         "available)"),
                              HasSubstr("The blocks were held by #0 and #1"))));
  EXPECT_THAT(lines_of(run, 3),
              testing::Contains(
                  "2-3: waits 2 steps (20.0 ms) behind #2, which arrived earlier. Those waited for blocks "
                  "that #0 and #1 held"));
  const auto behind = run.behind(run.sequences[3]);
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->most, 2U);
  EXPECT_EQ(behind->steps, 2U);
  EXPECT_EQ(behind->count, 1U);
  EXPECT_EQ(run.sequences[3].waited_time, 20'000'000);
  EXPECT_EQ(main_reason(run, run.sequences[2]), "blocks, first in line");
  EXPECT_EQ(main_reason(run, run.sequences[3]), "blocks, behind #2");
  EXPECT_EQ(run.short_steps, 2U);
  EXPECT_THAT(summary_of(run, "pool"), StartsWith("too small in 2 of "));
  EXPECT_THAT(summary_of(run, "waiting"), HasSubstr("100 % for blocks (50 % first in line, 50 % behind it)"));
  EXPECT_THAT(summary_of(run, "longest waits"), "#2 2 steps (20.0 ms), #3 2 (20.0 ms)");
  EXPECT_THAT(run.sequences[3].waited, ElementsAre(Pair(control::WaitReason::kOrder, 2)));
  EXPECT_EQ(run.sequences[3].queued, 2U);
  EXPECT_EQ(run.sequences[2].waited_most_for(), control::WaitReason::kBlocks);
}

TEST(RunStory, TellsOfSlotsBudgetAndParents) {
  control::SchedulerConfig config = Recording::small(40);
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 8;
  Recording recording(config);
  const control::SeqSpec parent = recording.add(0, 12, 4);
  recording.fork(parent, 1);
  recording.add(2, 3, 2);
  recording.step(20);
  const RunStory run = recording.tell();
  EXPECT_THAT(lines_of(run, 1), testing::Contains(HasSubstr("for #0 to compute the tokens that they share")));
  EXPECT_THAT(lines_of(run, 2),
              testing::Contains(HasSubstr("because other requests used up the token budget")));
  EXPECT_THAT(lines_of(run, 1), testing::Contains(HasSubstr("because all 2 slots were taken")));
  EXPECT_THAT(lines_of(run, 1), testing::Contains(HasSubstr("writes to a copy of block")));
  // A fork's prompt is no hit of the prefix cache.
  EXPECT_THAT(
      summary_of(run, "tokens"),
      HasSubstr("(0 % found in the prefix cache, 41 % shared with another answer to the same prompt)"));
}

TEST(RunStory, SaysWhichRequestComputesASharedPrefix) {
  Recording recording(Recording::small(64));
  recording.add(0, 12, 4, 7);
  recording.add(1, 12, 4, 7);
  recording.add(2, 12, 4, 7);
  recording.step(20);
  const RunStory run = recording.tell();
  EXPECT_THAT(lines_of(run, 2),
              testing::Contains(HasSubstr("for #0 to compute the next block that they share")));
  EXPECT_EQ(run.sequences[2].waited_most_for(), control::WaitReason::kPrefix);
  EXPECT_THAT(summary_of(run, "waiting"), HasSubstr("for a prefix that another computes"));
}

TEST(RunStory, SaysThatASlotWasKeptForOneThatWaitsForAPrefix) {
  for (const bool kept : {true, false}) {
    control::SchedulerConfig config = Recording::small(64);
    config.max_num_seqs = 2;
    Recording recording(config);
    recording.add(0, 12, 4, 7);
    recording.add(1, 12, 4, kept ? 7 : 8);
    recording.add(2, 12, 4, 9);
    recording.step(20);
    const std::string text =
        kept ? "because all 2 slots were taken, or kept for requests that wait for a prefix"
             : "because all 2 slots were taken";
    EXPECT_THAT(lines_of(recording.tell(), 2), testing::Contains(testing::EndsWith(text)));
  }
}

TEST(RunStory, TellsForWhomOneGivesWayAndWhatItCosts) {
  for (const control::PreemptionKind kind :
       {control::PreemptionKind::kRecompute, control::PreemptionKind::kSwap}) {
    control::SchedulerConfig config = Recording::small(4);
    config.preemption = kind;
    config.num_host_blocks = 4;
    Recording recording(config);
    recording.add(0, 7, 6);
    recording.add(1, 6, 8);
    recording.step(30);
    const RunStory run = recording.tell();
    const SequenceStory& victim = run.sequences[1];
    EXPECT_EQ(victim.preemptions, 1U);
    EXPECT_THAT(
        lines_of(run, 1),
        testing::Contains(HasSubstr("is preempted, for the 1st time: no block was left for the next token of "
                                    "#0, and of the possible victims it was admitted last. The K/V of 7 "
                                    "tokens (2 blocks) is")));
    EXPECT_EQ(run.short_steps, 1U + victim.waited.at(control::WaitReason::kBlocks));
    ASSERT_EQ(run.worst_preemptions.size(), 1U);
    EXPECT_EQ(run.worst_preemptions[0].victim, 1U);
    EXPECT_EQ(run.worst_preemptions[0].needy, 0U);
    EXPECT_EQ(run.worst_preemptions[0].steps, victim.steps_waited());
    EXPECT_EQ(run.worst_preemptions[0].again_tokens, victim.again_tokens);
    EXPECT_THAT(lines_of(run, 1), testing::Contains(HasSubstr("runs again (slot ")));
    EXPECT_EQ(victim.lost_tokens, 7U);
    EXPECT_EQ(victim.found_tokens + victim.returned_tokens + victim.again_tokens, 7U);
    const bool swaps = kind == control::PreemptionKind::kSwap;
    EXPECT_THAT(lines_of(run, 1),
                testing::Contains(
                    HasSubstr(swaps ? "is moved to the host" : "is given up: what is not found in the")));
    EXPECT_EQ(victim.swapped_out, swaps ? 2U : 0U);
    EXPECT_EQ(victim.again_tokens == 0, swaps);
    if (swaps) {  // the first of them is in the prefix cache still
      EXPECT_THAT(summary_of(run, "preemptions"), HasSubstr("2 blocks to the host, 1 back"));
    } else {
      EXPECT_THAT(lines_of(run, 1),
                  testing::Contains(AllOf(HasSubstr("computes"), HasSubstr(", and samples a token"))));
    }
    EXPECT_EQ(victim.generated, 8U);
  }
}

TEST(RunStory, SaysWhyAVictimIsNotSwapped) {
  control::SchedulerConfig config = Recording::small(4);
  config.preemption = control::PreemptionKind::kSwap;
  config.num_host_blocks = 1;
  Recording recording(config);
  recording.add(0, 7, 6);
  recording.add(1, 6, 8);
  recording.step(30);
  EXPECT_THAT(lines_of(recording.tell(), 1),
              testing::Contains(HasSubstr("computed again (the host pool has only 1 block free)")));
}

TEST(RunStory, RestoredBlocksAreHeldByNobodyAndFound) {
  Recording recording(Recording::small(8));
  recording.restore(900, 5);
  recording.add(0, 9, 2, 900);
  recording.step(5);
  const RunStory run = recording.tell();
  EXPECT_EQ(run.restored, 5U);
  EXPECT_EQ(run.most_blocks_held, 3U) << "nobody held what was restored";
  EXPECT_EQ(run.sequences[0].hit_tokens, 8U);
  EXPECT_THAT(lines_of(run, 0),
              testing::Contains(HasSubstr("the K/V of 8 of its 9 tokens is in the prefix cache")));
}

TEST(RunStory, TellsAStopStringFromAnAbort) {
  Recording recording(Recording::small(20));
  recording.add(0, 3, 9);
  recording.add(1, 3, 9);
  recording.step(2);
  recording.abort(0, true);
  recording.abort(1, false);
  const RunStory run = recording.tell();
  EXPECT_EQ(end_name(run.sequences[0]), "stop");
  EXPECT_EQ(end_name(run.sequences[1]), "aborted");
  EXPECT_EQ(end_text(run.sequences[0]), "stop string");
  EXPECT_THAT(lines_of(run, 1), testing::Contains("2-2: ends after 2 generated tokens: aborted"));
  EXPECT_THAT(summary_of(run, "requests"), StartsWith("2 requests: 1 finished, 0 refused, 1 aborted"));
}

TEST(RunStory, SaysWhyARequestIsRefused) {
  control::SchedulerConfig config = Recording::small(4);
  config.max_num_seqs = 1;
  config.max_waiting = 1;
  Recording recording(config);
  recording.add(0, 60, 6);
  recording.add(1, 14, 6);
  recording.add(2, 3, 3);
  recording.add(2, 3, 3);
  recording.add(3, 3, 3);
  recording.add(4, 3, 3);
  const RunStory run = recording.tell();
  EXPECT_THAT(run.sequences[0].refused,
              HasSubstr("you requested 66 tokens (60 in the prompt, 6 for the answer)"));
  EXPECT_THAT(run.sequences[1].refused, HasSubstr("K/V memory of this server holds 17 tokens"));
  EXPECT_EQ(run.sequences[2].refused, "");
  EXPECT_THAT(run.sequences[3].refused, HasSubstr("sequence 2 exists already"));
  EXPECT_EQ(run.sequences[4].refused, "");
  EXPECT_EQ(run.sequences[5].refused, "the queue of 1 is full");
  EXPECT_EQ(end_name(run.sequences[5]), "refused");
  EXPECT_THAT(summary_of(run, "requests"), StartsWith("6 requests: 0 finished, 4 refused, 0 aborted, 2 not"));
}

/// Seven blocks, of which 0 takes five; then 1 waits for blocks, and 2 behind it or before it.
RunStory two_that_wait(control::SchedulerConfig config, const control::SeqSpec& first,
                       const control::SeqSpec& second) {
  config.num_blocks = 7;
  Recording recording(config);
  recording.add(0, 17, 3);
  recording.step();
  recording.add(1, 18, 3, 0, first);
  recording.add(2, 14, 3, 0, second);
  recording.step(20);
  return recording.tell();
}

TEST(RunStory, GivesTheReasonThatIsTrue) {
  const auto config_of = [](control::SchedulingKind kind) {
    control::SchedulerConfig config = Recording::small(7);
    config.scheduling = kind;
    return config;
  };
  control::SeqSpec plain;
  control::SeqSpec other = plain;
  other.tenant = 9;
  control::SeqSpec urgent = plain;
  urgent.priority = -2;
  const auto lines_contain = [](const RunStory& run, size_t index, const char* text) {
    EXPECT_THAT(lines_of(run, index), testing::Contains(HasSubstr(text)));
  };
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kFair), plain, plain), 2,
                "behind #1, of the same tenant, which arrived earlier");
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kFair), plain, other), 1,
                "behind #2, whose tenant had been served less (tenant B ");
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kLpm), plain, plain), 2,
                "behind #1, which arrived earlier and had no less in the prefix cache");
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kPriority), plain, plain), 2,
                "behind #1, of the same priority, which arrived earlier");
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kPriority), plain, urgent), 1,
                "behind #2, of higher priority (-2, its own is 0)");
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kSrpt), plain, plain), 1,
                "behind #2, with less left to do");
  lines_contain(two_that_wait(config_of(control::SchedulingKind::kFcfs), plain, other), 2,
                "behind #1, which arrived earlier");
}

/// The scheduler reports an order only when it changes, and #1 comes after #3 as it came after #2.
TEST(RunStory, KeepsTheOrderOfOneThatWasFirstInBetween) {
  control::SchedulerConfig config = Recording::small(7);
  config.scheduling = control::SchedulingKind::kPriority;
  Recording recording(config);
  recording.add(0, 17, 10);
  recording.step();
  control::SeqSpec urgent;
  urgent.priority = -2;
  recording.add(1, 18, 3);
  recording.add(2, 14, 3, 0, urgent);
  recording.step(2);
  recording.abort(2, false);
  recording.step(2);
  recording.add(3, 14, 3, 0, urgent);
  recording.step(20);
  const RunStory run = recording.tell();
  EXPECT_THAT(lines_of(run, 1),
              testing::Contains(HasSubstr("behind #3 and #2, of higher priority (-2, its own is 0)")));
}

/// One slot, which #0 has; #1 waits for it, and 32 that arrive later are admitted before it.
RunStory overtaken_run(control::SchedulingKind kind) {
  control::SchedulerConfig config = Recording::small(200);
  config.scheduling = kind;
  config.max_num_seqs = 1;
  config.max_model_len = 128;
  Recording recording(config);
  recording.add(0, 9, 3, 900);
  recording.step();
  control::SeqSpec own;
  own.priority = 5;
  own.expected_tokens = 30;
  recording.add(1, 40, 30, 0, own);
  for (SeqId id = 2; id < 34; ++id) {
    control::SeqSpec later;
    later.priority = -static_cast<int32_t>(id % 3);
    later.expected_tokens = 2;
    later.ttft_deadline = 1'000'000'000;
    later.tenant = id;
    recording.add(id, 9, 2, 900, later);
  }
  recording.step(300);
  return recording.tell();
}

TEST(RunStory, SaysWhoOvertookUnderEveryPolicy) {
  const std::map<control::SchedulingKind, const char*> reasons = {
      {control::SchedulingKind::kSrpt, "with less left to do"},
      {control::SchedulingKind::kSlo, "with less time to the deadline"},
      {control::SchedulingKind::kPriority, "of higher priority (-2 to 0, its own is 5)"},
      {control::SchedulingKind::kFair, "whose tenants had been served less"},
      {control::SchedulingKind::kLpm, "with more in the prefix cache"},
  };
  for (const auto& [kind, reason] : reasons) {
    SCOPED_TRACE(control::kSchedulingNames[static_cast<size_t>(kind)]);
    const RunStory run = overtaken_run(kind);
    const SequenceStory& own = run.sequences[1];
    ASSERT_TRUE(own.admitted);
    EXPECT_THAT(own.waited, ElementsAre(Pair(control::WaitReason::kSlots, own.queued)));
    EXPECT_EQ(own.overtaken, 32U);
    EXPECT_THAT(lines_of(run, 1),
                testing::Contains(
                    AllOf(HasSubstr("because the only slot was taken. 32 that arrived later overtook it (#"),
                          HasSubstr("and 29 others"), HasSubstr(reason))));
    EXPECT_EQ(main_reason(run, own), "a slot, 32 overtook it");
    EXPECT_EQ(run.sequences[33].overtaken, 0U);
  }
}

TEST(RunStory, WithoutComparisonNobodyIsOvertaken) {
  const RunStory run = overtaken_run(control::SchedulingKind::kFcfs);
  for (const SequenceStory& s : run.sequences) EXPECT_EQ(s.overtaken, 0U);
  EXPECT_EQ(main_reason(run, run.sequences[5]), "a slot");
}

TEST(RunStory, NamesOverload) {
  EXPECT_THAT(summary_of(overtaken_run(control::SchedulingKind::kFcfs), "load"), StartsWith("overloaded: "));
  {
    Recording calm(Recording::small(20));
    calm.add(0, 3, 5);
    calm.step(9);
    EXPECT_THAT(summary_of(calm.tell(), "load"), StartsWith("not overloaded: 1.0 ran and 0.0 waited"));
  }
  control::SchedulerConfig config = Recording::small(20);
  config.max_num_seqs = 1;
  config.max_waiting = 0;
  Recording full(config);
  full.add(0, 3, 5);
  full.add(1, 3, 5);
  full.step(9);
  EXPECT_THAT(summary_of(full.tell(), "load"),
              testing::EndsWith("; one request was refused because the queue was full"));
}

/// Two steps in flight: a token is there when its step retires, not when it is planned.
TEST(RunStory, ShowsATokenWhenItsStepRetires) {
  for (uint64_t seed = 1; seed < 3; ++seed) {  // depths of 2 and 3
    const test::RandomRun made = test::record_random_run(Recording::path(), seed);
    ASSERT_GT(made.depth, 1U);
    const RunStory run = tell_run(Recording::path(), [](SeqId, std::string_view) { return true; });
    uint64_t later = 0;
    for (const SequenceStory& s : run.sequences) {
      for (const StoryLine& line : s.lines) {
        EXPECT_FALSE(line.text.starts_with("decodes") &&
                     line.text.find("samples its first") != std::string::npos)
            << line.text;
        if (!line.text.starts_with("its first token, which step")) continue;
        EXPECT_GT(line.from, *s.first_token);
        ++later;
      }
    }
    EXPECT_GT(later, 5U);
  }
}

TEST(RunStory, TellsWhoNeededWhatWasEvicted) {
  // 0 leaves four blocks in the cache, 1 takes all seven of the pool, then 2 begins as 0 did.
  Recording recording(Recording::small(7));
  recording.add(0, 17, 2, 900);
  recording.step(5);
  recording.add(1, 25, 2);
  recording.step(5);
  recording.add(2, 17, 2, 900);
  recording.step(5);
  const RunStory run = recording.tell();
  ASSERT_TRUE(run.evicted_needed);
  EXPECT_GT(run.evictions, 0U);
  EXPECT_EQ(*run.evicted_needed, 4U - run.sequences[2].hit_tokens / 4);
  EXPECT_EQ(run.sequences[2].needed_evicted, *run.evicted_needed);
  EXPECT_THAT(summary_of(run, "evictions"), HasSubstr("needed again: by #2 ("));
}

TEST(RunStory, NamesTheRequestsThatThereAre) {
  Recording recording(Recording::small(20));
  recording.add(3, 3, 2);
  recording.add(8, 3, 2);
  recording.step(5);
  EXPECT_EQ(
      no_such_request_text(index_of(recording), "5"),
      "no request 5 in this log (2 requests, ids 3-8 with gaps; ids of refused requests are not in it)");
}

TEST(RunStory, CountsWhatTheSchedulerCounts) {
  uint64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const test::RandomRun made = test::record_random_run(Recording::path(), seed);
    const RunStory run = tell_run(Recording::path());
    EXPECT_EQ(run.steps, made.steps);
    EXPECT_EQ(run.evictions, made.stats.total_evictions);
    EXPECT_EQ(run.copies, made.stats.total_copies);
    EXPECT_EQ(run.digest, made.digest);
    uint64_t told = 0;
    uint64_t running = 0;
    uint64_t waiting = 0;
    for (const SequenceStory& s : run.sequences) {
      told += s.preemptions;
      waiting += s.steps_waited();
      EXPECT_LE(s.found_tokens + s.returned_tokens + s.again_tokens, s.lost_tokens);
      EXPECT_LE(s.queued, s.steps_waited());
    }
    // Who comes or ends between two steps is counted in neither or both of these; a step has all that it
    // plans for, and those that wait.
    for (const control::StepPlan& plan : made.plans) running += plan.seqs.size();
    EXPECT_EQ(told, made.stats.total_preemptions);
    EXPECT_GT(running + waiting, made.steps);
    preemptions += told;
  }
  EXPECT_GT(preemptions, 200U);
}

TEST(RunStory, LinesComeInOrderAndOnlyOfThoseAskedFor) {
  test::record_random_run(Recording::path(), 4);
  const RunStory run = tell_run(Recording::path(),
                                [](SeqId, std::string_view name) { return is_called(9999, name, "seq-3"); });
  size_t told = 0;
  for (const SequenceStory& s : run.sequences) {
    EXPECT_EQ(s.lines.empty(), s.name != "seq-3");
    for (size_t i = 1; i < s.lines.size(); ++i) {
      EXPECT_LE(s.lines[i - 1].from, s.lines[i].from);
      EXPECT_LE(s.lines[i].from, s.lines[i].to);
    }
    told += s.lines.size();
  }
  EXPECT_GT(told, 2U);
}

TEST(RunStory, IsCalledByNumberOrName) {
  EXPECT_TRUE(is_called(7, "", "7"));
  EXPECT_TRUE(is_called(7, "x", "#7"));
  EXPECT_TRUE(is_called(7, "chatcmpl-1", "chatcmpl-1"));
  EXPECT_FALSE(is_called(7, "", "07"));
  EXPECT_FALSE(is_called(7, "", ""));
  EXPECT_FALSE(is_called(7, "chatcmpl-1", "chatcmpl"));
}

TEST(RunStory, Durations) {
  EXPECT_EQ(duration_text(1'000), "1 us");
  EXPECT_EQ(duration_text(12'345'000), "12.3 ms");
  EXPECT_EQ(duration_text(345'000'000), "345 ms");
  EXPECT_EQ(duration_text(1'250'000'000), "1.25 s");
  EXPECT_EQ(duration_text(75'000'000'000), "75.0 s");
}

}  // namespace
}  // namespace quire::record
