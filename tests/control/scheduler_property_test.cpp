// Random operations on random pools under all policies: the invariants hold after each, a naive model of the
// pool agrees, every sequence gives what it gives alone, and nothing is left at the end. What a failure
// prints is a Story: put it into a test below.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/control/property/check_stories.h"
#include "tests/support/sanitized.h"

namespace quire::test {
namespace {

constexpr uint64_t kSteps = kSanitized ? 25'000 : 1'000'000;

/// Else the stories have not told much.
void expect_that_all_happened(const Coverage& all) {
  EXPECT_GE(100 * all.preempting_steps, all.steps);
  EXPECT_GE(10 * all.model.hits, all.model.admissions);
  const uint64_t often = all.steps / 1000;
  const auto happened = [](const auto& counts, const auto& names, uint64_t least, size_t first = 0) {
    for (size_t i = first; i < std::size(names); ++i) EXPECT_GE(counts[i], least) << names[i];
  };
  happened(all.steps_by_batching, control::kBatchingNames, 100 * often);
  happened(all.admissions_by_scheduling, control::kSchedulingNames, 10 * often);
  happened(all.overtakes_by_scheduling, control::kSchedulingNames, 2 * often, 1);  // all but fcfs
  happened(all.preemptions_by_victim, control::kVictimNames, 5 * often);
  happened(all.chosen_by_victim, control::kVictimNames, often, 1);  // all but the last admitted
  happened(all.preemptions_by_way, control::kPreemptionNames, 5 * often);
  happened(all.swaps_by_way, control::kPreemptionNames, 5 * often, 1);  // all but by recomputation
  happened(all.evictions_by_policy, control::kEvictionNames, 20 * often);
  EXPECT_GE(all.model.swapped_in, 10 * often);
  EXPECT_GE(all.model.too_big_to_swap, often);
  EXPECT_GE(all.model.forks, 5 * often);
  EXPECT_GE(all.model.late_forks, often);
  EXPECT_GE(all.model.followers, 10 * often);
  EXPECT_GE(all.model.copies, 5 * often);
  EXPECT_GE(all.model.deduplicated, 20 * often);
  EXPECT_GE(all.model.left_behind, 100 * often);
  EXPECT_GE(all.model.short_chunks, often);
  EXPECT_GE(all.model.protections, all.steps / 100'000);
  EXPECT_GE(all.aborts_inside, 10 * often);
  EXPECT_GE(all.stops, often);
  EXPECT_GE(all.failures, often);
  EXPECT_GE(all.refusals, often);
  EXPECT_GE(all.losses, often / 10);
  EXPECT_GE(all.late_tokens, 100 * often);
  EXPECT_GE(all.late_results, 5 * often);
  EXPECT_GE(all.waits, often);
  EXPECT_GE(all.rows, 50 * often);
  EXPECT_GE(all.in_pieces, 10 * often);
  EXPECT_GE(all.pooled, 10 * often);
  EXPECT_GE(all.tokenless, 10 * often);
}

TEST(SchedulerProperty, NoStoryEndsBadly) {
  Coverage coverage;
  for (uint64_t seed = 1; coverage.steps < kSteps; ++seed) {
    ASSERT_EQ(check_stories(seed, 100, coverage), "");
  }
  fmt::print("{}\n", to_string(coverage));
  expect_that_all_happened(coverage);
}

/// As they are, or with so many steps open at most.
uint64_t digest_of_stories(uint32_t most_depth, bool prompts = false) {
  uint64_t digest = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Story story = make_story(seed, prompts);
    story.depth = std::min(story.depth, most_depth);
    World world(story);
    EXPECT_EQ(world.run(), "");
    digest = mix64(digest ^ world.digest());
  }
  return digest;
}

TEST(SchedulerProperty, SameInputsSamePlans) {
  const uint64_t first = digest_of_stories(1);
  const std::vector<std::string> heap_now_differs(1000, std::string(100, 'x'));
  EXPECT_EQ(digest_of_stories(1), first);
  // The same with every compiler and on every machine.
  const auto expect = [](uint64_t digest, uint64_t pinned) {
    EXPECT_EQ(digest, pinned) << fmt::format(
        "{:#x} instead of {:#x}. Did the stories change, or a table of policies get a row? Then take this "
        "number. To see that the "
        "rules are the same, draw among the former policies only and compare with the former number.",
        digest, pinned);
  };
  expect(first, 0xe9f0f8001c6a8e58U);
  expect(digest_of_stories(kMostDepth), 0xad48a5e444f7d6c0U);
  expect(digest_of_stories(kMostDepth, true), 0x6d0837250e4360ddU);
}

}  // namespace
}  // namespace quire::test
