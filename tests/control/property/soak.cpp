// control_soak SECONDS [SEED]: random stories for so long. Exits with 1, and the story, at the first that
// does not end well. `./dev soak` calls it.
#include <chrono>
#include <cstdlib>
#include <random>

#include <fmt/format.h>

#include "base/rng.h"
#include "tests/control/property/check_stories.h"

int main(int argc, char** argv) {
  using namespace quire;
  using Clock = std::chrono::steady_clock;
  if (argc < 2 || argc > 3) {
    fmt::print(stderr, "usage: control_soak SECONDS [SEED]\n");
    return 2;
  }
  const double seconds = std::strtod(argv[1], nullptr);
  const uint64_t seed = argc == 3 ? std::strtoull(argv[2], nullptr, 0) : mix64(std::random_device{}());
  test::Coverage coverage;
  const auto start = Clock::now();
  double said = 0;
  const auto say = [&](double passed) {
    fmt::print("{:.0f} s: seed {}, {} stories, {} steps, {:.0f} steps/s, nothing found\n", passed, seed,
               coverage.stories, coverage.steps, static_cast<double>(coverage.steps) / passed);
    std::fflush(stdout);
    said = passed;
  };
  fmt::print("seed {}\n", seed);
  for (uint64_t round = 0;; ++round) {
    // The first round of a seed is that seed: a failure's report names the one to begin with.
    const uint64_t own = round == 0 ? seed : mix64(seed + round);
    const std::string wrong = test::check_stories(own, 100, coverage);
    if (!wrong.empty()) {
      fmt::print("{}\n", wrong);
      return 1;
    }
    const double passed = std::chrono::duration<double>(Clock::now() - start).count();
    if (passed >= seconds) {
      say(passed);
      break;
    }
    if (passed >= said + 10) say(passed);
  }
  fmt::print("{}\n", quire::test::to_string(coverage));
  return 0;
}
