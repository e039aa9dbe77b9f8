// Random operations on random pools under all policies: the invariants hold after each, a naive model of the
// pool agrees, every sequence gives what it gives alone, and nothing is left at the end. What a failure
// prints is a Story: put it into a test below.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/control/property/check_stories.h"
#include "tests/support/sanitized.h"

namespace quire::test {
namespace {

constexpr uint64_t kSteps = kSanitized ? 50'000 : 1'000'000;

TEST(SchedulerProperty, NoStoryEndsBadly) {
  Coverage coverage;
  for (uint64_t seed = 1; coverage.steps < kSteps; ++seed) {
    ASSERT_EQ(check_stories(seed, 100, coverage), "");
  }
  fmt::print("{}\n", to_string(coverage));
}

uint64_t digest_of_stories() {
  uint64_t digest = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Story story = make_story(seed);
    World world(story);
    EXPECT_EQ(world.run(), "");
    digest = mix64(digest ^ world.digest());
  }
  return digest;
}

TEST(SchedulerProperty, SameInputsSamePlans) {
  const uint64_t first = digest_of_stories();
  const std::vector<std::string> heap_now_differs(1000, std::string(100, 'x'));
  EXPECT_EQ(digest_of_stories(), first);
  // The same with every compiler and on every machine. Changes when the rules of scheduling change.
  EXPECT_EQ(first, 0U);
}

}  // namespace
}  // namespace quire::test
