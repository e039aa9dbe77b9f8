#include "sim/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rng.h"
#include "sim/least_squares.h"

namespace quire::sim {
namespace {

using backend::StepRecord;
using backend::StepWork;
using backend::sim::FitError;
using backend::sim::FittedCost;
using backend::sim::PhaseCost;
using backend::sim::step_kind;

constexpr uint64_t kFolds = 5;
constexpr size_t kTerms = 11;        // of a phase, besides those of tokens
constexpr int kRounds = 6;           // of a fit
constexpr double kNearSpreads = 2;   // within so many spreads (median deviations) a step has its full weight
constexpr size_t kDeviations = 41;   // quantiles that are kept
constexpr double kLeastSlow = 1.25;  // of the fitted time: less is no outlier
constexpr double kSlowSpreads = 8;   // nor what is within so many spreads
constexpr double kClearlyLess = 0.99;  // an error is, below this part of another

enum class Phase : uint8_t { kDevice, kHost };

double whole_of(const StepRecord& record) { return static_cast<double>(std::max<int64_t>(1, record.whole)); }

double time_of(const StepRecord& record, Phase phase) {
  const int64_t device = std::min(record.compute + record.sample, record.whole);
  return static_cast<double>(phase == Phase::kDevice ? device : record.whole - device);
}

/// Powers of two up to what was seen; each piece needs enough tokens for a slope of its own.
std::vector<uint64_t> knots_of(std::span<const StepRecord> records) {
  uint64_t most = 1;
  for (const StepRecord& record : records) most = std::max(most, record.work.tokens());
  std::vector<uint64_t> knots{0};
  for (uint64_t knot = 1; knot < most; knot *= 2) knots.push_back(knot);
  return knots;
}

/// What a fit may use.
struct Terms {
  std::vector<uint64_t> knots;
  bool samples_apart = false;
};

/// What the terms of a phase are multiplied with.
void row_of(const StepWork& work, const Terms& terms, std::vector<double>& row) {
  row.clear();
  const auto add = [&](uint64_t count) { row.push_back(static_cast<double>(count)); };
  add(1);
  add(work.decoding > 0 ? 1 : 0);
  add(work.decoding);
  add(work.chunks);
  add(work.decode_context);
  add(work.chunk_squares);
  add(work.chunk_prefix);
  add(work.logit_rows);
  add(terms.samples_apart ? work.sampled_rows : 0);
  add(work.moved_blocks);
  add(work.copies);
  const uint64_t tokens = work.tokens();
  const std::vector<uint64_t>& knots = terms.knots;
  for (size_t i = 0; i < knots.size(); ++i) {
    const uint64_t end = i + 1 < knots.size() ? std::min(knots[i + 1], tokens) : tokens;
    add(end > knots[i] ? end - knots[i] : 0);
  }
}

/// As row_of orders them.
PhaseCost phase_of(const std::vector<double>& costs) {
  PhaseCost phase;
  size_t at = 0;
  PhaseCost::for_each_term(phase, [&](std::string_view, double& cost) { cost = costs[at++]; });
  phase.token.assign(costs.begin() + static_cast<ptrdiff_t>(at), costs.end());
  return phase;
}

double quantile(std::vector<double> values, double of) {
  if (values.empty()) return 0;
  const auto at = static_cast<ptrdiff_t>(of * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

/// `counts(i)`: whether record i does. Each equation is relative to the step's time in the fit before, and
/// weighs the less the more it deviates from it (P. J. Huber: Robust estimation of a location parameter,
/// 1964): a time may be far longer than others of its like, and never far shorter.
template <class Counts>
FittedCost fit(std::span<const StepRecord> records, const Terms& terms, const Counts& counts) {
  FittedCost cost;
  cost.knots = terms.knots;
  std::vector<double> times(records.size());
  std::vector<double> weights(records.size(), 1);
  for (size_t i = 0; i < records.size(); ++i) times[i] = whole_of(records[i]);
  std::vector<double> row;
  for (int round = 0; round < kRounds; ++round) {
    for (const Phase phase : {Phase::kDevice, Phase::kHost}) {
      LeastSquares equations(kTerms + terms.knots.size());
      for (size_t i = 0; i < records.size(); ++i) {
        if (!counts(i)) continue;
        row_of(records[i].work, terms, row);
        // Relative to the whole step, so that the phases' errors add up to its own.
        const double scale = std::sqrt(weights[i]) / times[i];
        for (double& each : row) each *= scale;
        equations.add(row, time_of(records[i], phase) * scale);
      }
      (phase == Phase::kDevice ? cost.device : cost.host) = phase_of(equations.solve());
    }
    std::vector<double> distances;
    for (size_t i = 0; i < records.size(); ++i) {
      times[i] = static_cast<double>(cost.duration(records[i].work));
      if (counts(i)) distances.push_back(std::abs(whole_of(records[i]) / times[i] - 1));
    }
    const double near = kNearSpreads * std::max(1e-6, quantile(distances, 0.5));
    for (size_t i = 0; i < records.size(); ++i) {
      weights[i] = std::min(1.0, near / std::max(1e-9, std::abs(whole_of(records[i]) / times[i] - 1)));
    }
  }
  return cost;
}

std::vector<double> ratios_of(std::span<const StepRecord> records, const FittedCost& cost) {
  std::vector<double> out;
  for (const StepRecord& record : records) {
    out.push_back(whole_of(record) / static_cast<double>(cost.duration(record.work)));
  }
  return out;
}

/// The records that took too long, by index.
std::vector<uint8_t> find_slow(const std::vector<double>& ratios) {
  std::vector<double> distances;
  const double middle = quantile(ratios, 0.5);
  for (const double ratio : ratios) distances.push_back(std::abs(ratio - middle));
  const double most = std::max(kLeastSlow, middle + kSlowSpreads * quantile(distances, 0.5));
  std::vector<uint8_t> slow;
  for (const double ratio : ratios) slow.push_back(ratio > most ? 1 : 0);
  return slow;
}

std::vector<SlowSteps> name_slow(std::span<const StepRecord> records, const std::vector<double>& ratios,
                                 const std::vector<uint8_t>& slow) {
  std::vector<SlowSteps> out;
  for (size_t i = 0; i < records.size(); ++i) {
    if (slow[i] == 0) continue;
    if (out.empty() || i == 0 || slow[i - 1] == 0) out.push_back({records[i].step, records[i].step, 0});
    out.back().last = records[i].step;
    out.back().factor = std::max(out.back().factor, ratios[i]);
  }
  return out;
}

/// By record: its time in a fit without it.
std::vector<double> cross_validate(std::span<const StepRecord> records, const Terms& terms,
                                   const std::vector<uint8_t>& slow) {
  std::vector<double> unseen(records.size());
  const auto fold_of = [&](size_t i) { return mix64(i) % kFolds; };
  for (uint64_t fold = 0; fold < kFolds; ++fold) {
    const FittedCost others =
        fit(records, terms, [&](size_t i) { return slow[i] == 0 && fold_of(i) != fold; });
    for (size_t i = 0; i < records.size(); ++i) {
      if (fold_of(i) == fold) unseen[i] = static_cast<double>(others.duration(records[i].work));
    }
  }
  return unseen;
}

double mean_error(std::span<const StepRecord> records, const std::vector<double>& fitted,
                  const std::vector<uint8_t>& slow) {
  double sum = 0;
  double count = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (slow[i] != 0) continue;
    sum += std::abs(fitted[i] / whole_of(records[i]) - 1);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

/// Whether some step needs logits from which it does not sample.
bool samples_differ(std::span<const StepRecord> records) {
  return std::ranges::any_of(
      records, [](const StepRecord& record) { return record.work.sampled_rows != record.work.logit_rows; });
}

/// `fitted`: by record, in a fit without it.
std::vector<FitError> errors_of(std::span<const StepRecord> records, const std::vector<double>& fitted,
                                const std::vector<uint8_t>& slow) {
  std::vector<FitError> out;
  for (const std::string_view kind : backend::sim::kStepKinds) {
    std::vector<double> errors;
    double sum_fitted = 0;
    double sum = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      if (slow[i] != 0 || step_kind(records[i].work) != kind) continue;
      errors.push_back(std::abs(fitted[i] / whole_of(records[i]) - 1));
      sum_fitted += fitted[i];
      sum += whole_of(records[i]);
    }
    out.push_back({.kind = std::string(kind),
                   .steps = errors.size(),
                   .median = quantile(errors, 0.5),
                   .p90 = quantile(errors, 0.9),
                   .bias = sum > 0 ? sum_fitted / sum - 1 : 0});
  }
  return out;
}

/// What the steps that were not slow had of each count.
void set_range(std::span<const StepRecord> records, const std::vector<uint8_t>& slow, FittedCost& cost) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (slow[i] != 0) continue;
    std::vector<uint64_t> counts;
    StepWork::for_each_count(records[i].work,
                             [&](std::string_view, uint64_t count) { counts.push_back(count); });
    size_t at = 0;
    StepWork::for_each_count(cost.most,
                             [&](std::string_view, uint64_t& most) { most = std::max(most, counts[at++]); });
    at = 0;
    StepWork::for_each_count(cost.least, [&](std::string_view, uint64_t& least) {
      const uint64_t count = counts[at++];
      if (count > 0 && (least == 0 || count < least)) least = count;
    });
  }
}

/// Throws Error if a reader of the cost file would refuse the fit.
void check_fit(const Calibration& of) {
  try {
    of.file.cost.check();
  } catch (const Error& error) {
    const auto worst = std::ranges::max_element(of.slow, {}, &SlowSteps::factor);
    const std::string most =
        worst == of.slow.end()
            ? ""
            : fmt::format("; steps {} to {} took up to {:.3g} times as long as such steps take", worst->first,
                          worst->last, worst->factor);
    throw Error(fmt::format("no cost model fits these steps: {}{}", error.what(), most));
  }
}

}  // namespace

Calibration calibrate(std::span<const StepRecord> records) {
  if (records.size() < kLeastSteps) {
    throw Error(
        fmt::format("{} steps are too few to fit a cost model to: at least {}", records.size(), kLeastSteps));
  }
  for (const StepRecord& record : records) {
    if (record.open == 1) continue;
    throw Error(fmt::format("step {} was one of {} in flight: only steps one by one can be fitted",
                            record.step, record.open));
  }
  Terms terms{knots_of(records)};
  const FittedCost first = fit(records, terms, [](size_t) { return true; });
  const std::vector<double> before = ratios_of(records, first);
  const std::vector<uint8_t> slow = find_slow(before);
  Calibration out;
  std::vector<double> unseen = cross_validate(records, terms, slow);
  if (samples_differ(records)) {
    const Terms apart{terms.knots, true};
    std::vector<double> unseen_apart = cross_validate(records, apart, slow);
    out.samples_apart =
        mean_error(records, unseen_apart, slow) < kClearlyLess * mean_error(records, unseen, slow);
    if (out.samples_apart) unseen.swap(unseen_apart);
  }
  terms.samples_apart = out.samples_apart;
  FittedCost& cost = out.file.cost;
  cost = fit(records, terms, [&](size_t i) { return slow[i] == 0; });
  set_range(records, slow, cost);
  const std::vector<double> ratios = ratios_of(records, cost);
  out.slow = name_slow(records, ratios, slow);
  std::vector<double> kept;
  double slow_took = 0;
  double slow_fitted = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    out.fitted.push_back(static_cast<double>(cost.duration(records[i].work)));
    if (slow[i] == 0) {
      kept.push_back(ratios[i]);
    } else {
      slow_took += whole_of(records[i]);
      slow_fitted += out.fitted.back();
    }
  }
  for (size_t i = 0; i < kDeviations; ++i) {
    cost.deviations.push_back(quantile(kept, static_cast<double>(i) / (kDeviations - 1)));
  }
  out.file.errors = errors_of(records, unseen, slow);
  for (const FitError& each : out.file.errors) {
    if (each.steps > 0) cost.kinds.push_back(each.kind);
  }
  out.file.left_out = static_cast<uint64_t>(std::ranges::count(slow, 1));
  out.file.steps = records.size() - out.file.left_out;
  cost.slow_part = static_cast<double>(out.file.left_out) / static_cast<double>(records.size());
  if (slow_fitted > 0) cost.slow_factor = slow_took / slow_fitted;
  check_fit(out);
  return out;
}

}  // namespace quire::sim
