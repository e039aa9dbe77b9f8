// How well a fit of the times of steps foresees steps that it has not seen, on a machine whose speed changes.
//   bench_fit MODEL [SECONDS [QUANTIZATION]]
// Runs the pieces of `quire calibrate`'s sweep (without swaps) in random order, a short reference piece
// before each: one sequence that decodes. Half of the pieces, drawn by chance, are fitted, the others are
// foreseen. Each step's time is taken relative to that of the references around it, so what is compared is
// the fit and not the machine's speed of that second. Beside each error stands the floor: by how much equal
// steps, less than 2 s apart, differ.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/calibration_sweep.h"
#include "cli/sweep_plan.h"
#include "sim/calibration.h"
#include "startup/local_engine.h"

namespace quire {
namespace {

constexpr uint32_t kSeqs = 32;
constexpr uint32_t kLongest = 512;  // tokens of a sequence
constexpr cli::SweepPiece kReferencePiece{.decoding = 1, .context = 16, .prompts = 1, .steps = 4};

enum class Use { kReference, kFitted, kForeseen };

struct Step {
  backend::StepRecord record;
  size_t piece = 0;
  Use use = Use::kReference;
  double speed = 1;  // the time of a reference step then, over the median of all
};

double quantile(std::vector<double> values, double of) {
  if (values.empty()) return std::nan("");
  std::ranges::sort(values);
  return values[static_cast<size_t>(of * static_cast<double>(values.size() - 1))];
}

/// Each piece as often as `seconds` allow, at least once, with a reference before each and after the last.
std::vector<Step> measure(startup::LocalEngine& local, const cli::StepCollector& collector,
                          std::vector<cli::SweepPiece> pieces, double seconds) {
  std::vector<Step> steps;
  SplitMix64 random(11);
  size_t count = 0;
  const auto run = [&](const cli::SweepPiece& piece, Use use) {
    cli::run_sweep(local, {.pieces = {piece}, .summary = {}, .notes = {}}, 0, [](double) {});
    const std::vector<backend::StepRecord> all = collector.records();
    for (size_t i = steps.size(); i < all.size(); ++i) steps.push_back({all[i], count, use});
    ++count;
  };
  const Nanos start = local.clock.now();
  const auto passed = [&] { return static_cast<double>(local.clock.now() - start) / 1e9; };
  for (bool first = true; first || passed() < seconds; first = false) {
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
    for (const cli::SweepPiece& piece : pieces) {
      run(kReferencePiece, Use::kReference);
      run(piece, random.below(2) == 0 ? Use::kFitted : Use::kForeseen);
    }
  }
  run(kReferencePiece, Use::kReference);
  return steps;
}

/// Sets the speeds, linear in time between the references. Returns the median time of a reference step.
double set_speeds(std::vector<Step>& steps) {
  std::vector<std::pair<double, double>>
      references;  // when, and how long the median of its decode steps took
  std::vector<double> times;
  for (size_t i = 0; i < steps.size();) {
    const size_t piece = steps[i].piece;
    std::vector<double> own;
    const auto when = static_cast<double>(steps[i].record.started);
    for (; i < steps.size() && steps[i].piece == piece; ++i) {
      const bool decodes = steps[i].record.work.prefill_tokens == 0;
      if (steps[i].use == Use::kReference && decodes)
        own.push_back(static_cast<double>(steps[i].record.whole));
    }
    if (own.empty()) continue;
    references.emplace_back(when, quantile(own, 0.5));
    times.push_back(references.back().second);
  }
  const double median = quantile(times, 0.5);
  size_t next = 1;
  for (Step& step : steps) {
    const auto when = static_cast<double>(step.record.started);
    while (next + 1 < references.size() && references[next].first < when) ++next;
    const auto [from, before] = references[next - 1];
    const auto [to, after] = references[next];
    const double part = std::clamp((when - from) / (to - from), 0.0, 1.0);
    step.speed = (before + part * (after - before)) / median;
  }
  return median;
}

/// With times as they would be at the usual speed.
backend::StepRecord at_usual_speed(const Step& step) {
  backend::StepRecord record = step.record;
  for (int64_t* time : {&record.plan, &record.submit, &record.wait, &record.compute, &record.sample,
                        &record.commit, &record.deliver, &record.whole}) {
    *time = std::llround(static_cast<double>(*time) / step.speed);
  }
  return record;
}

/// Equal but for the tokens that each sequence has decoded meanwhile.
bool are_equal(const backend::StepWork& a, const backend::StepWork& b) {
  return a.decoding == b.decoding && a.chunks == b.chunks && a.prefill_tokens == b.prefill_tokens &&
         a.chunk_prefix == b.chunk_prefix && a.copies == b.copies;
}

/// How much equal steps of one piece differ.
std::vector<double> differences(const std::vector<Step>& steps, std::string_view kind) {
  std::vector<double> out;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].use == Use::kReference || sim::kind_of(steps[i].record.work) != kind) continue;
    for (size_t j = i + 1; j < steps.size() && steps[j].piece == steps[i].piece; ++j) {
      if (steps[j].record.started - steps[i].record.started > 2'000'000'000) break;
      if (!are_equal(steps[i].record.work, steps[j].record.work)) continue;
      out.push_back(std::abs(
          static_cast<double>(steps[i].record.whole) / static_cast<double>(steps[j].record.whole) - 1));
      break;
    }
  }
  return out;
}

void print(const std::vector<Step>& steps, const backend::sim::FittedCost& cost) {
  fmt::print("| steps | foreseen | median error | p90 | bias | floor: median | p90 |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const std::string_view kind : {"decode", "prefill", "mixed"}) {
    std::vector<double> errors;
    double sum = 0, foreseen = 0;
    for (const Step& step : steps) {
      if (step.use != Use::kForeseen || sim::kind_of(step.record.work) != kind) continue;
      const auto predicted = static_cast<double>(cost.duration(step.record.work));
      const double took = static_cast<double>(step.record.whole) / step.speed;
      errors.push_back(std::abs(predicted / took - 1));
      sum += took;
      foreseen += predicted;
    }
    const std::vector<double> floor = differences(steps, kind);
    fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:+.1f} % | {:.1f} % | {:.1f} % |\n", kind, errors.size(),
               100 * quantile(errors, 0.5), 100 * quantile(errors, 0.9), 100 * (foreseen / sum - 1),
               100 * quantile(floor, 0.5), 100 * quantile(floor, 0.9));
  }
}

void run(const std::string& model, double seconds, const std::string& quantization) {
  set_log_level(LogLevel::kWarning);
  startup::EngineOptions options;
  options.model.model = model;
  options.model.quantization = quantization;
  options.max_num_seqs = kSeqs;
  options.max_model_len = kLongest;
  options.num_blocks = kSeqs * kLongest / options.block_size;
  options.policies.preemption = control::PreemptionKind::kRecompute;  // so the sweep has no swaps
  cli::StepCollector collector;
  startup::LocalEngine local(options, model, &collector);
  control::SchedulerConfig config = local.config.scheduler;
  config.costs = local.backend->probe(350'000'000).costs;
  cli::SweepPlan plan = cli::plan_sweep(config, seconds, false);
  for (cli::SweepPiece& piece : plan.pieces) {
    if (piece.decoding == 0) piece.chunks = 2;  // so that it has an equal
  }
  std::vector<Step> steps = measure(local, collector, plan.pieces, seconds);
  const double reference = set_speeds(steps);
  std::vector<backend::StepRecord> fitted;
  std::vector<double> speeds;
  for (const Step& step : steps) {
    if (step.use == Use::kFitted) fitted.push_back(at_usual_speed(step));
    speeds.push_back(step.speed);
  }
  fmt::print(
      "{}: {} steps, {} of them fitted; a reference step takes {:.2f} ms, p10 to p90: {:.0f} to {:.0f} % "
      "of that\n\n",
      local.backend->describe(), steps.size(), fitted.size(), reference / 1e6, 100 * quantile(speeds, 0.1),
      100 * quantile(speeds, 0.9));
  print(steps, sim::calibrate(fitted).file.cost);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: bench_fit MODEL [SECONDS [QUANTIZATION]]\n");
    return 2;
  }
  try {
    quire::run(argv[1], argc > 2 ? std::atof(argv[2]) : 120, argc > 3 ? argv[3] : "auto");
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_fit: {}\n", error.what());
    return 1;
  }
}
