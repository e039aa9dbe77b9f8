#include "sim/capacity_search.h"

#include <algorithm>
#include <cmath>

namespace quire::sim {

LoadLimit find_load_limit(const LoadRange& range, const std::function<bool(double)>& carries) {
  LoadLimit limit;
  const auto rounded = [&](double load) { return std::round(load * range.parts) / range.parts; };
  const auto holds = [&](double load) {
    limit.tried.push_back(load);
    return carries(load);
  };
  double good = 0;  // 0: none is known
  double bad = 0;
  for (double load = std::clamp(rounded(range.start), range.least, range.most); good == 0 || bad == 0;) {
    if (holds(load)) {
      good = load;
      if (load >= range.most) break;
      if (bad == 0) load = std::min(load * 2, range.most);
    } else {
      bad = load;
      if (load <= range.least) break;
      if (good == 0) load = std::max(std::floor(load / 2 * range.parts) / range.parts, range.least);
    }
  }
  limit.load = good;
  limit.is_most = bad == 0;
  if (good == 0 || bad == 0) return limit;
  const double part = 1 / range.parts;
  while (bad > good * (1 + range.precision) && bad - good > 1.5 * part) {
    const double between = rounded(std::sqrt(good * bad));
    const double load = std::clamp(between, rounded(good + part), rounded(bad - part));
    (holds(load) ? good : bad) = load;
  }
  limit.load = good;
  return limit;
}

}  // namespace quire::sim
