#include "tests/control/property/check_stories.h"

#include <fmt/format.h>
#include <rapidcheck.h>

#include "tests/control/property/story_shrinking.h"

namespace quire::test {
namespace {

/// A configuration that was cut down too far is not a counterexample.
bool works(const control::SchedulerConfig& config) {
  return config.max_num_batched_tokens >= config.max_num_seqs &&
         config.num_blocks >= config.kv_windows.size() && config.num_blocks > 0;
}

/// RapidCheck's own would print its configuration, which is not what decides here.
class Silence final : public rc::detail::TestListener {
  void onTestCaseFinished(const rc::detail::CaseDescription& /*description*/) override {}
  void onShrinkTried(const rc::detail::CaseDescription& /*shrink*/, bool /*accepted*/) override {}
  void onTestFinished(const rc::detail::TestMetadata& /*metadata*/,
                      const rc::detail::TestResult& /*result*/) override {}
};

}  // namespace

std::string check_stories(uint64_t seed, int count, Coverage& coverage) {
  Silence silence;
  rc::detail::TestParams params;
  params.seed = seed;
  params.maxSuccess = count;
  const auto result = rc::detail::checkTestable(
      [&](const Story& story) -> std::string {
        if (!works(story.config)) return {};
        World world(story);
        std::string wrong = world.run();
        world.add_to(coverage);
        return wrong;
      },
      rc::detail::TestMetadata{}, params, silence, std::unordered_map<std::string, rc::detail::Reproduce>{});
  if (result.is<rc::detail::SuccessResult>()) return {};
  if (!result.is<rc::detail::FailureResult>()) return "RapidCheck gave up";
  const auto& failure = result.get<rc::detail::FailureResult>();
  std::string story = failure.counterExample.at(0).second;
  story = story.substr(1, story.size() - 2);  // it is printed as a tuple
  return fmt::format("seed {}: story {}, cut down in {} steps to\n{}\n{}", seed, failure.numSuccess + 1,
                     failure.reproduce.shrinkPath.size(), story, failure.description);
}

}  // namespace quire::test
