// How well a fit of the times of steps foresees steps that it has not seen, on a machine whose speed changes.
//   bench_fit MODEL [SECONDS [QUANTIZATION]]
// Runs the pieces of `quire calibrate`'s sweep (without swaps) in random order, a short reference piece
// before each: eight sequences that decode. Half of the pieces, drawn by chance, are fitted, the others are
// foreseen. Each step's time is taken relative to that of the references around it, so what is compared is
// the fit and not the machine's speed of that second. Beside each error stand two floors, below which no fit
// comes: by how much equal steps of two pieces less than 2 s apart differ, and equal steps one after the
// other. The second does not contain how the machine's speed changes between two references.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
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
constexpr cli::SweepPiece kReferencePiece{.decoding = 8, .context = 64, .prompts = 8, .steps = 12};

enum class Use { kReference, kFitted, kForeseen };

struct Step {
  backend::StepRecord record;
  size_t piece = 0;  // of those that were run
  size_t kind = 0;   // of those of the sweep
  size_t place = 0;  // in its piece
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
                          const std::vector<cli::SweepPiece>& pieces, double seconds) {
  std::vector<Step> steps;
  SplitMix64 random(11);
  size_t count = 0;
  const auto run = [&](const cli::SweepPiece& piece, size_t kind, Use use) {
    cli::run_sweep(local, {.pieces = {piece}, .summary = {}, .notes = {}}, 0, [](double) {});
    size_t place = 0;
    for (const backend::StepRecord& record : collector.records(steps.size())) {
      steps.push_back({record, count, kind, place++, use});
    }
    ++count;
  };
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const Nanos start = local.clock.now();
  const auto passed = [&] { return static_cast<double>(local.clock.now() - start) / 1e9; };
  for (bool first = true; first || passed() < seconds; first = false) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const size_t kind : order) {
      run(kReferencePiece, pieces.size(), Use::kReference);
      run(pieces[kind], kind, random.below(2) == 0 ? Use::kFitted : Use::kForeseen);
    }
  }
  run(kReferencePiece, pieces.size(), Use::kReference);
  return steps;
}

struct Reference {
  double when = 0;
  double time = 0;  // the median of its decode steps
};

std::vector<Reference> references_of(const std::vector<Step>& steps) {
  std::vector<Reference> out;
  for (size_t i = 0; i < steps.size();) {
    const size_t piece = steps[i].piece;
    const auto when = static_cast<double>(steps[i].record.started);
    std::vector<double> own;
    for (; i < steps.size() && steps[i].piece == piece; ++i) {
      if (steps[i].use != Use::kReference || steps[i].record.work.prefill_tokens > 0) continue;
      own.push_back(static_cast<double>(steps[i].record.whole));
    }
    if (!own.empty()) out.push_back({when, quantile(own, 0.5)});
  }
  return out;
}

/// Sets the speeds: linear in time between the references, of each the median of it and its two neighbours,
/// since one that something disturbed says nothing of the steps around it. Returns the median time of a
/// reference step.
double set_speeds(std::vector<Step>& steps) {
  const std::vector<Reference> raw = references_of(steps);
  std::vector<Reference> references = raw;
  for (size_t i = 1; i + 1 < raw.size(); ++i) {
    references[i].time = quantile({raw[i - 1].time, raw[i].time, raw[i + 1].time}, 0.5);
  }
  std::vector<double> times;
  for (const Reference& reference : raw) times.push_back(reference.time);
  const double median = quantile(times, 0.5);
  size_t next = 1;
  for (Step& step : steps) {
    const auto when = static_cast<double>(step.record.started);
    while (next + 1 < references.size() && references[next].when < when) ++next;
    const Reference& before = references[next - 1];
    const Reference& after = references[next];
    const double part = std::clamp((when - before.when) / (after.when - before.when), 0.0, 1.0);
    step.speed = (before.time + part * (after.time - before.time)) / median;
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

bool are_equal(const backend::StepWork& a, const backend::StepWork& b) {
  return a.decoding == b.decoding && a.chunks == b.chunks && a.prefill_tokens == b.prefill_tokens &&
         a.chunk_prefix == b.chunk_prefix && a.copies == b.copies;
}

double relative_time(const Step& step) { return static_cast<double>(step.record.whole) / step.speed; }

/// How much equal steps at the same place of two pieces of a kind differ that are less than 2 s apart.
std::vector<double> differences(const std::vector<Step>& steps, std::string_view kind) {
  std::map<std::pair<size_t, size_t>, const Step*> last;  // by kind and place
  std::vector<double> out;
  for (const Step& step : steps) {
    if (step.use == Use::kReference || sim::kind_of(step.record.work) != kind) continue;
    const Step* before = std::exchange(last[{step.kind, step.place}], &step);
    if (before == nullptr || step.record.started - before->record.started > 2'000'000'000) continue;
    if (!are_equal(step.record.work, before->record.work)) continue;
    out.push_back(std::abs(relative_time(step) / relative_time(*before) - 1));
  }
  return out;
}

/// How much a step and the next differ that is equal but for the tokens that its sequences have decoded.
std::vector<double> differences_of_next(const std::vector<Step>& steps, std::string_view kind) {
  std::vector<double> out;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const Step& a = steps[i];
    const Step& b = steps[i + 1];
    if (a.use == Use::kReference || b.piece != a.piece || sim::kind_of(a.record.work) != kind) continue;
    if (are_equal(a.record.work, b.record.work)) {
      out.push_back(std::abs(relative_time(a) / relative_time(b) - 1));
    }
  }
  return out;
}

void print(const std::vector<Step>& steps, const backend::sim::FittedCost& cost) {
  fmt::print(
      "| steps | foreseen | median error | p90 | bias | floor, 2 s apart: median | p90 | in a row: median |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const std::string_view kind : {"decode", "prefill", "mixed"}) {
    std::vector<double> errors;
    double sum = 0, foreseen = 0;
    for (const Step& step : steps) {
      if (step.use != Use::kForeseen || sim::kind_of(step.record.work) != kind) continue;
      const auto predicted = static_cast<double>(cost.duration(step.record.work));
      const double took = relative_time(step);
      errors.push_back(std::abs(predicted / took - 1));
      sum += took;
      foreseen += predicted;
    }
    const std::vector<double> floor = differences(steps, kind);
    fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:+.1f} % | {:.1f} % ({} pairs) | {:.1f} % | {:.1f} % |\n",
               kind, errors.size(), 100 * quantile(errors, 0.5), 100 * quantile(errors, 0.9),
               100 * (foreseen / sum - 1), 100 * quantile(floor, 0.5), floor.size(),
               100 * quantile(floor, 0.9), 100 * quantile(differences_of_next(steps, kind), 0.5));
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
