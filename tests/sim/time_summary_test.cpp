#include "sim/time_summary.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::sim {
namespace {

/// Times from `least` up over `octaves` powers of two, each of which has as many.
std::vector<Nanos> times_over(size_t count, int octaves, Nanos least) {
  SplitMix64 random(3);
  std::vector<Nanos> times;
  for (size_t i = 0; i < count; ++i) {
    const Nanos low = least << random.below(static_cast<uint64_t>(octaves));
    times.push_back(low + static_cast<Nanos>(random.below(static_cast<uint64_t>(low) + 1)));
  }
  return times;
}

Percentiles summary_of(const std::vector<Nanos>& times) {
  TimeSummary summary;
  for (const Nanos time : times) summary.add(time);
  return summary.percentiles();
}

TEST(TimeSummary, IsExactUpToItsLimit) {
  EXPECT_EQ(summary_of({}).p99, 0);
  for (const size_t count : {size_t{1}, size_t{7}, size_t{1000}, TimeSummary::kMostExact}) {
    const std::vector<Nanos> times = times_over(count, 20, 1'000);
    const Percentiles found = summary_of(times);
    const Percentiles exact = percentiles(times);
    EXPECT_EQ(found.mean, exact.mean);
    EXPECT_EQ(found.p50, exact.p50);
    EXPECT_EQ(found.p90, exact.p90);
    EXPECT_EQ(found.p99, exact.p99);
    EXPECT_EQ(found.max, exact.max);
  }
}

TEST(TimeSummary, IsWithinAThousandthAbove) {
  for (const Nanos least : {Nanos{1}, Nanos{1'000}, Nanos{1'000'000'000}, Nanos{1} << 61}) {
    const std::vector<Nanos> times =
        times_over(TimeSummary::kMostExact + 1, least == Nanos{1} << 61 ? 1 : 8, least);
    const Percentiles found = summary_of(times);
    const Percentiles exact = percentiles(times);
    EXPECT_EQ(found.mean, exact.mean);
    EXPECT_EQ(found.max, exact.max);
    for (Nanos Percentiles::*const each : {&Percentiles::p50, &Percentiles::p90, &Percentiles::p99}) {
      EXPECT_LE(std::abs(found.*each - exact.*each), exact.*each / 1000) << exact.*each;
    }
  }
}

TEST(TimeSummary, MayBeCoarseFromTheFirstTimeOn) {
  TimeSummary summary;
  summary.add(1'000'000);
  summary.coarsen();
  summary.add(3'000'000);
  EXPECT_EQ(summary.percentiles().mean, 2'000'000);
  EXPECT_NEAR(static_cast<double>(summary.percentiles().p50), 1e6, 1e3);
  EXPECT_EQ(summary.percentiles().max, 3'000'000);
  TimeSummary empty;
  empty.coarsen();
  EXPECT_EQ(empty.percentiles().mean, 0);
}

TEST(TimeSummary, EqualTimesStayWhatTheyAre) {
  for (const Nanos time : {Nanos{0}, Nanos{2047}, Nanos{2048}, Nanos{123'456'789}, INT64_MAX}) {
    const Percentiles found = summary_of(std::vector<Nanos>(TimeSummary::kMostExact + 10, time));
    EXPECT_EQ(found.mean, time);
    EXPECT_EQ(found.max, time);
    EXPECT_LE(found.p50, time);
    EXPECT_LE(time - found.p50, time / 1000);
    EXPECT_EQ(found.p50, found.p99);
  }
}

}  // namespace
}  // namespace quire::sim
