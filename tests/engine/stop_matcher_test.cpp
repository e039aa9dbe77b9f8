#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::engine {
namespace {

using Fed = std::pair<std::string, std::string>;

/// All text that comes out for these pieces, and the stop string that ended it.
Fed feed(StopMatcher matcher, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) {
    StopMatcher::Result result = matcher.push(piece);
    text += result.text;
    if (result.stop) return {text, *result.stop};
  }
  return {text + matcher.flush(), ""};
}

TEST(StopMatcher, PassesAllTextWithoutStops) {
  EXPECT_EQ(feed(StopMatcher({}, false), {"a", "b", ""}), Fed("ab", ""));
}

TEST(StopMatcher, CutsAtAStopAcrossPieces) {
  EXPECT_EQ(feed(StopMatcher({"END"}, false), {"one E", "N", "D two"}), Fed("one ", "END"));
  EXPECT_EQ(feed(StopMatcher({"END"}, true), {"one E", "N", "D two"}), Fed("one END", "END"));
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"aab"}, false);
  EXPECT_EQ(matcher.push("xa").text, "x");
  EXPECT_EQ(matcher.push("a").text, "");
  EXPECT_EQ(matcher.push("a").text, "a");
  EXPECT_EQ(matcher.push("c").text, "aac");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, GivesBackTheRestAtTheEnd) {
  EXPECT_EQ(feed(StopMatcher({"END"}, false), {"one EN"}), Fed("one EN", ""));
}

TEST(StopMatcher, TheMatchThatEndsFirstWinsThenTheLongest) {
  EXPECT_EQ(feed(StopMatcher({"later", "now"}, false), {"see now or later"}), Fed("see ", "now"));
  EXPECT_EQ(feed(StopMatcher({"ab", "a"}, false), {"xab"}), Fed("x", "a"));
  EXPECT_EQ(feed(StopMatcher({"b", "ab"}, false), {"xab"}), Fed("x", "ab"));
}

TEST(StopMatcher, PiecesDoNotMatter) {
  SplitMix64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>('a' + random.below(2));
    std::vector<std::string> stops;
    for (uint64_t i = 0, count = 1 + random.below(3); i < count; ++i) {
      stops.push_back(text.substr(random.below(20), 1 + random.below(5)));
      if (random.below(2) == 0) stops.back() += 'c';
    }
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random.below(6)));
      at += pieces.back().size();
    }
    size_t first = std::string::npos;  // begin of the match that ends first, the longest of these
    for (size_t end = 1; end <= text.size() && first == std::string::npos; ++end) {
      for (const std::string& stop : stops) {
        if (text.substr(0, end).ends_with(stop)) first = std::min(first, end - stop.size());
      }
    }
    const auto [out, stop] = feed(StopMatcher(stops, false), pieces);
    ASSERT_EQ(out, text.substr(0, first)) << text;
    ASSERT_EQ(stop.empty(), first == std::string::npos);
  }
}

}  // namespace
}  // namespace quire::engine
