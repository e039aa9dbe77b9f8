#include "sim/capacity_search.h"

#include <algorithm>
#include <cmath>

namespace quire::sim {

LoadLimit find_load_limit(const LoadRange& range, const std::function<bool(double)>& carries) {
  LoadLimit limit;
  const auto holds = [&](double load) {
    limit.tried.push_back(load);
    return carries(load);
  };
  double good = 0;  // 0: none is known
  double bad = 0;
  for (double load = std::clamp(range.start, range.least, range.most); good == 0 || bad == 0;) {
    if (holds(load)) {
      good = load;
      if (load >= range.most) break;
      if (bad == 0) load = std::min(load * 2, range.most);
    } else {
      bad = load;
      if (load <= range.least) break;
      if (good == 0) load = std::max(range.whole ? std::floor(load / 2) : load / 2, range.least);
    }
  }
  limit.load = good;
  limit.is_most = bad == 0;
  if (good == 0 || bad == 0) return limit;
  while (range.whole ? good + 1 < bad : bad > good * (1 + range.precision)) {
    const double between = std::sqrt(good * bad);
    const double load = range.whole ? std::clamp(std::round(between), good + 1, bad - 1) : between;
    (holds(load) ? good : bad) = load;
  }
  limit.load = good;
  return limit;
}

}  // namespace quire::sim
