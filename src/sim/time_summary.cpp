#include "sim/time_summary.h"

#include <algorithm>
#include <bit>

namespace quire::sim {
namespace {

constexpr int kPlaces = 10;  // bits after the first one of a time that tell its range

/// Times below 2^11 have a range each; from there on, each power of two has 2^10 ranges.
uint32_t range_number(Nanos time) {
  const auto value = static_cast<uint64_t>(time);
  const int dropped = std::max(0, static_cast<int>(std::bit_width(value)) - kPlaces - 1);
  return (static_cast<uint32_t>(dropped) << kPlaces) + static_cast<uint32_t>(value >> dropped);
}

Nanos middle_of(uint32_t range) {
  const int dropped = std::max(0, static_cast<int>(range >> kPlaces) - 1);
  const uint64_t low = uint64_t{range - (static_cast<uint32_t>(dropped) << kPlaces)} << dropped;
  return static_cast<Nanos>(low + ((uint64_t{1} << dropped) >> 1));
}

uint64_t rank_of(uint64_t percent, uint64_t count) { return (count * percent + 99) / 100 - 1; }

}  // namespace

Percentiles percentiles(std::vector<Nanos> times) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  const auto at = [&](uint64_t percent) { return times[rank_of(percent, times.size())]; };
  int128 sum = 0;
  for (const Nanos time : times) sum += time;
  return {static_cast<Nanos>(sum / times.size()), at(50), at(90), at(99), times.back(), true};
}

void TimeSummary::add(Nanos time) {
  ++count_;
  sum_ += time;
  max_ = std::max(max_, time);
  if (is_coarse_) return count(time);
  times_.push_back(time);
  if (times_.size() > kMostExact) coarsen();
}

void TimeSummary::coarsen() {
  if (is_coarse_) return;
  is_coarse_ = true;
  for (const Nanos time : times_) count(time);
  std::vector<Nanos>().swap(times_);  // an assignment would keep the memory
}

void TimeSummary::count(Nanos time) {
  const uint32_t number = range_number(time);
  auto at = std::ranges::lower_bound(ranges_, number, {}, &Range::number);
  if (at == ranges_.end() || at->number != number) at = ranges_.insert(at, {number, 0});
  ++at->count;
}

/// `rank`: from 0.
Nanos TimeSummary::at_rank(uint64_t rank) const {
  uint64_t before = 0;
  for (const Range& range : ranges_) {
    before += range.count;
    if (rank < before) return std::min(middle_of(range.number), max_);
  }
  return max_;
}

Percentiles TimeSummary::percentiles() const {
  if (!is_coarse_ || count_ == 0) return sim::percentiles(times_);
  const auto at = [&](uint64_t percent) { return at_rank(rank_of(percent, count_)); };
  return {static_cast<Nanos>(sum_ / count_), at(50), at(90), at(99), max_, true};
}

}  // namespace quire::sim
