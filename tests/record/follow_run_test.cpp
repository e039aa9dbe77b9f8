#include "record/follow_run.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/record/random_run.h"
#include "tests/support/data.h"

namespace quire::record {
namespace {

std::filesystem::path log_file() {
  static const std::filesystem::path folder = test::temp_dir();
  return folder / "state.log";
}

/// Notes what it is told, up to a step, or fails in one.
class Notes final : public RunListener {
 public:
  explicit Notes(std::optional<uint64_t> last = {}, std::optional<uint64_t> fails = {})
      : last_(last), fails_(fails) {}

  void before(const RunEvent& event, const RunState& state) override {
    thread_ = std::this_thread::get_id();
    told_.push_back(event.index() * 1'000'000 + state.step() * 1000 + state.live().size());
    if (fails_ && state.step() == *fails_) throw std::runtime_error("the listener failed");
  }
  void after(const RunEvent& /*event*/, const RunState& state) override {
    told_.push_back(state.blocks_held());
  }
  void planned(const RunState& state) override { told_.push_back(~state.step()); }
  bool done() const override { return last_ && !told_.empty() && told_.size() > *last_; }

  std::vector<uint64_t> told_;
  std::thread::id thread_;

 private:
  std::optional<uint64_t> last_;
  std::optional<uint64_t> fails_;
};

TEST(FollowRun, TellsTwoListenersWhatItTellsOne) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    test::record_random_run(log_file(), seed);
    Notes alone;
    RunReader for_one(log_file());
    follow_run(for_one, alone);
    Notes first(100);
    Notes second;
    RunReader for_two(log_file());
    follow_run(for_two, first, second);
    EXPECT_EQ(second.told_, alone.told_);
    EXPECT_NE(second.thread_, first.thread_);
    EXPECT_GE(first.told_.size(), 100U);
    EXPECT_LT(first.told_.size(), 110U);
    EXPECT_TRUE(std::equal(first.told_.begin(), first.told_.end(), alone.told_.begin()));
  }
}

TEST(FollowRun, ThrowsWhatEitherThreadThrows) {
  test::record_random_run(log_file(), 3);
  Notes good;
  for (const bool first_fails : {true, false}) {
    Notes bad({}, 5);
    RunReader reader(log_file());
    EXPECT_THROW(first_fails ? follow_run(reader, bad, good) : follow_run(reader, good, bad),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace quire::record
