#pragma once

#include <functional>
#include <vector>

namespace quire::sim {

/// Where the largest load that a system carries is looked for.
struct LoadRange {
  double start = 1;  // the first that is tried
  double least = 0.001;
  double most = 1e6;
  double parts = 1000;      // of one: loads are whole numbers of them; 1 for users
  double precision = 0.01;  // the relative distance from the result to the least load that is too much; but
                            // a part is always near enough
};

struct LoadLimit {
  double load = 0;       // the largest that is carried; 0: not even `least` is
  bool is_most = false;  // it is the range's end, so more may be carried
  std::vector<double> tried;
};

/// Doubles or halves the load from `start` on until one is carried and another is not, then bisects between
/// them, by the geometric mean. `carries(load)` is taken to be true up to some load and false above; where
/// that does not hold, the result is one of the loads after which it turns false. It may throw.
LoadLimit find_load_limit(const LoadRange& range, const std::function<bool(double)>& carries);

}  // namespace quire::sim
