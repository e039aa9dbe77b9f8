#include "engine/drift.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace quire::engine {
namespace {

void add_to(StepCost& sum, const StepCost& more, double sign) {
  sum.device += sign * more.device;
  sum.host += sign * more.host;
}

}  // namespace

Drift::Drift() {
  for (Kind& kind : kinds_) kind.kept.resize(kKept);
}

void Drift::add(StepKind kind, const StepCost& predicted, const StepCost& observed) {
  Kind& of = kinds_[static_cast<size_t>(kind)];
  Times& kept = of.kept[of.count % kKept];
  if (of.count >= kKept) {
    add_to(of.sums.predicted, kept.predicted, -1);
    add_to(of.sums.observed, kept.observed, -1);
  }
  const double part = std::min(1.0, kMostTimes * predicted.whole() / std::max(1.0, observed.whole()));
  kept = {predicted, {observed.device * part, observed.host * part}};
  add_to(of.sums.predicted, kept.predicted, 1);
  add_to(of.sums.observed, kept.observed, 1);
  ++of.count;
}

double Drift::bias(StepKind kind) const {
  const Times& sums = of(kind).sums;
  return of(kind).count == 0 ? 0 : sums.predicted.whole() / std::max(1.0, sums.observed.whole()) - 1;
}

bool Drift::is_off(StepKind kind) const { return of(kind).count >= kLeast && std::abs(bias(kind)) > kMost; }

std::string Drift::describe(StepKind kind) const {
  const Times& sums = of(kind).sums;
  const auto steps = static_cast<double>(std::min<uint64_t>(of(kind).count, kKept));
  const double device = sums.observed.device - sums.predicted.device;
  const double host = sums.observed.host - sums.predicted.host;
  const double change = sums.observed.whole() / std::max(1.0, sums.predicted.whole()) - 1;
  return fmt::format(
      "{} steps take {:.1f} % {} than predicted ({:.3f} ms for {:.3f} ms, the mean of the last {}), most of "
      "it "
      "in {}",
      kStepKindNames[static_cast<size_t>(kind)], 100 * std::abs(change), change > 0 ? "longer" : "less",
      sums.observed.whole() / steps / 1e6, sums.predicted.whole() / steps / 1e6, steps,
      std::abs(device) >= std::abs(host) ? "the device's phases" : "the engine's own time");
}

}  // namespace quire::engine
