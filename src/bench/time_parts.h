#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire::bench {

/// The time of a run in equal parts, and an amount for each.
class TimeParts {
 public:
  /// `elapsed`: at least 1 ns.
  explicit TimeParts(Nanos elapsed)
      : elapsed_(elapsed), sums_(static_cast<size_t>(std::clamp(seconds(elapsed) * 10, 10.0, 80.0))) {}

  /// `amount` at a moment.
  void add(Nanos at, double amount) { sums_[part_of(at)] += amount; }
  /// Adds 1 for the duration of a span.
  void add_span(Nanos from, Nanos to) {
    if (to > from) add_evenly(from, to, seconds(to - from));
  }
  /// Spreads `amount` evenly over a span.
  void add_evenly(Nanos from, Nanos to, double amount) {
    if (to <= from) return add(from, amount);
    const double each = amount / seconds(to - from);
    for (size_t part = part_of(from); part <= part_of(to); ++part) {
      const Nanos begin = std::max(from, start_of(part));
      const Nanos end = std::min(to, start_of(part + 1));
      sums_[part] += each * seconds(std::max<Nanos>(0, end - begin));
    }
  }
  /// The middle of each part in seconds, and the amounts per second.
  std::vector<std::pair<double, double>> per_second() const {
    std::vector<std::pair<double, double>> out;
    const double length = seconds(elapsed_) / count();
    for (size_t part = 0; part < sums_.size(); ++part) {
      out.emplace_back((static_cast<double>(part) + 0.5) * length, sums_[part] / length);
    }
    return out;
  }
  const std::vector<double>& sums() const { return sums_; }

 private:
  static double seconds(Nanos time) { return static_cast<double>(time) / 1e9; }
  double count() const { return static_cast<double>(sums_.size()); }
  size_t part_of(Nanos at) const {
    const double share = seconds(at) / seconds(elapsed_);
    return std::min<size_t>(static_cast<size_t>(std::max(0.0, share) * count()), sums_.size() - 1);
  }
  Nanos start_of(size_t part) const {
    return static_cast<Nanos>(static_cast<double>(elapsed_) * static_cast<double>(part) / count());
  }

  Nanos elapsed_;
  std::vector<double> sums_;
};

}  // namespace quire::bench
