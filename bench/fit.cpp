// How well a fit of the times of steps foresees steps that it has not seen, on a machine whose speed changes.
//   bench_fit MODEL [SECONDS [QUANTIZATION [EVERY]]]
// Runs `quire calibrate`'s sweep, without swaps and with a prompt of its own for each sequence, and shuffled
// among its pieces others of sizes between theirs. The sweep's are fitted, the others are foreseen. Each
// step's time is taken relative to that of reference steps around it, so what is compared is the fit and not
// the machine's speed of that moment. The engine's executor carries them out between the engine's steps:
// after each step three in which eight sequences decode, and after each fourth step and each large one a
// chunk of a prompt. There are two kinds because what else runs on the machine slows a step of few tokens,
// which mostly reads weights, and one of many, which mostly computes, by different factors. Beside each error
// stand two floors, below which no fit comes: by how much equal steps of two pieces less than 2 s apart
// differ, and equal steps one after the other. With EVERY, references of both kinds come only after each so
// many steps: enough where the machine keeps its speed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
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
constexpr uint32_t kLongest = 512;         // tokens of a sequence
constexpr int kDecodes = 3;                // references that decode, after each step
constexpr size_t kChunkEvery = 4;          // steps a reference is a chunk
constexpr int kChunksAround = 2;           // before a step and after it, that tell its speed
constexpr int64_t kClose = 2'000'000'000;  // nanoseconds

/// REQUIRES: there is a value.
double quantile(std::vector<double> values, double of) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(of * static_cast<double>(values.size() - 1))];
}

/// The mean of the middle half, since a step that something interrupts says nothing of those around it.
double middle_mean(std::vector<double> values) {
  std::ranges::sort(values);
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         static_cast<double>(std::ssize(values) - 2 * cut);
}

/// A step that is carried out again and again, and how long it took each time.
class Reference {
 public:
  /// Of so many sequences, each of which computes so many tokens after a context.
  Reference(uint32_t seqs, uint32_t context, uint32_t tokens)
      : seqs_(seqs), context_(context), tokens_(tokens) {}

  uint32_t seqs() const { return seqs_; }
  uint32_t tokens() const { return seqs_ * tokens_; }
  uint32_t rows(uint32_t block_size) const { return (context_ + tokens_ + block_size - 1) / block_size; }

  /// Takes the last slots and blocks away from the configuration, and computes the contexts. To be called
  /// while there is no engine. Throws Error if a step fails.
  void begin(startup::LocalEngine& local) {
    local_ = &local;
    control::SchedulerConfig& config = local.config.scheduler;
    const size_t blocks = rows(config.block_size) * config.kv_windows.size();
    SplitMix64 random(5);
    for (uint32_t i = 0; i < seqs_; ++i) {
      control::NewSeq& seq = plan_.added.emplace_back();
      seq.slot = --config.max_num_seqs;
      seq.prompt_length = context_ + tokens_;
      while (seq.blocks.size() < blocks) seq.blocks.push_back(--config.num_blocks);
      control::SeqStep& step = plan_.seqs.emplace_back();
      step.slot = seq.slot;
      while (step.tokens.size() < context_) {
        step.tokens.push_back(static_cast<TokenId>(random.below(local.config.vocab_size)));
      }
    }
    carry_out();
    // Each time the sequences are added anew, with the K/V of their contexts.
    for (control::SeqStep& step : plan_.seqs) {
      plan_.removed.push_back(step.slot);
      step.first_position = context_;
      step.rows = control::LogitRows::kLast;
      step.tokens.resize(tokens_);
    }
    for (const control::SeqResult& result : carry_out().seqs) {
      if (!result.error.empty()) throw Error("a reference step failed: " + result.error);
    }
  }

  control::StepResult carry_out() {
    for (control::NewSeq& seq : plan_.added) ++seq.generation;
    for (control::SeqStep& seq : plan_.seqs) ++seq.generation;
    return local_->executor->wait(local_->executor->submit(plan_));
  }

  void measure(size_t steps_before) {
    const Nanos start = local_->clock.now();
    carry_out();
    times_.push_back(static_cast<double>(local_->clock.now() - start));
    before_.push_back(steps_before);
  }

  /// To be called after the last measure().
  void end() { usual_ = quantile(times_, 0.5); }
  double usual() const { return usual_; }  // nanoseconds
  /// Its time around the step of this number, over the usual one: by `count` times before that step and as
  /// many after it.
  double speed_at(size_t step, std::ptrdiff_t count) const {
    const std::ptrdiff_t next = std::ranges::upper_bound(before_, step) - before_.begin();
    const std::ptrdiff_t first = std::max<std::ptrdiff_t>(0, next - count);
    const std::ptrdiff_t end = std::min(std::ssize(times_), next + count);
    return middle_mean({times_.begin() + first, times_.begin() + end}) / usual_;
  }

 private:
  const uint32_t seqs_, context_, tokens_;
  startup::LocalEngine* local_ = nullptr;
  control::StepPlan plan_;
  std::vector<double> times_;
  std::vector<size_t> before_;  // by time: steps of the engine before it
  double usual_ = 1;
};

/// A clock that can be made to forget some time, so that an engine counts it to no step.
class ForgetfulClock final : public Clock {
 public:
  Nanos now() const override { return steady_.now() - forgotten_.load(); }
  void forget(Nanos time) { forgotten_ += time; }

 private:
  SteadyClock steady_;
  std::atomic<Nanos> forgotten_ = 0;
};

/// Keeps the records of an engine's steps, with references after each. The engine's thread calls it between
/// two steps, when none is in flight, and by the engine's clock it takes no time. A device that fails ends
/// the program.
struct Collector final : engine::StepSink {
  explicit Collector(size_t every_so_many) : every(every_so_many) {}

  void take(const backend::StepRecord& record) noexcept override {
    records.push_back(record);
    if (records.size() % every != 0) return;
    measures = true;
    const Nanos start = clock.now();
    measure_references(record);
    clock.forget(clock.now() - start);
    measures = false;
  }

  /// Returns when those are measured, if there are any, that follow a step whose tokens were delivered.
  void wait_for_references() const {
    do std::this_thread::sleep_for(std::chrono::milliseconds(2));
    while (measures);
  }

  void measure_references(const backend::StepRecord& record) {
    const bool is_large = record.work.tokens() >= chunk.tokens();
    if (every > 1 || is_large || records.size() % kChunkEvery == 0) chunk.measure(records.size());
    decode.carry_out();  // not timed: it finds the caches as the step before left them
    for (int i = 0; i < kDecodes; ++i) decode.measure(records.size());
  }

  /// By what the machine's speed of that moment multiplies the time of a step: as that of a reference step.
  /// If it has more tokens than the one kind and fewer than the other, by a factor between theirs.
  double speed_at(size_t step) const {
    const double few = decode.speed_at(step, kDecodes);
    const double many = chunk.speed_at(step, kChunksAround);
    const double part = std::log2(static_cast<double>(records[step].work.tokens()) / decode.tokens()) /
                        std::log2(static_cast<double>(chunk.tokens()) / decode.tokens());
    return few * std::pow(many / few, std::clamp(part, 0.0, 1.0));
  }

  const size_t every;    // steps there are references
  ForgetfulClock clock;  // of the engine
  std::atomic<bool> measures = false;
  std::vector<backend::StepRecord> records;
  Reference decode{8, 64, 1};
  Reference chunk{1, 16, 64};
};

/// What is foreseen: fewer sequences, with shorter contexts, and shorter chunks than a piece that is fitted,
/// and more than the next smaller one that is.
cli::SweepPiece between(cli::SweepPiece piece) {
  piece.decoding -= piece.decoding / 4;
  piece.context -= piece.context / 4;
  piece.chunk -= piece.chunk / 5;
  piece.prompts = std::min(piece.prompts, piece.decoding);
  return piece;
}

struct Plan {
  cli::SweepPlan sweep;
  std::vector<cli::SweepPiece> fitted;
};

Plan plan_of(const control::SchedulerConfig& config, double seconds) {
  Plan plan{.sweep = cli::plan_sweep(config, seconds, false), .fitted = {}};
  for (cli::SweepPiece& piece : plan.sweep.pieces) {
    if (piece.decoding == 0) piece.chunks = 2;  // so that it has an equal
    // Sequences that share a long prompt find its K/V in the caches, and no count of a step tells that.
    if (piece.context > config.block_size) piece.prompts = piece.decoding;
  }
  plan.fitted = plan.sweep.pieces;
  for (const cli::SweepPiece& piece : plan.fitted) {
    const cli::SweepPiece other = between(piece);
    if (std::ranges::find(plan.fitted, other) == plan.fitted.end()) plan.sweep.pieces.push_back(other);
  }
  return plan;
}

struct Step {
  backend::StepRecord record;
  size_t piece = 0;  // of those that were run
  bool fitted = false;
  double speed = 1;
};

/// Runs the sweep. Afterwards there is no engine.
std::vector<Step> measure(startup::LocalEngine& local, Collector& collector, const Plan& plan,
                          double seconds) {
  struct Piece {
    Nanos end;
    bool fitted;
  };
  std::vector<Piece> pieces;
  cli::run_sweep(local, plan.sweep, seconds, [&](double, const cli::SweepPiece& done) {
    collector.wait_for_references();
    const bool fitted = std::ranges::find(plan.fitted, done) != plan.fitted.end();
    pieces.push_back({collector.clock.now(), fitted});
  });
  local.engine.reset();  // so the last step has its record and its references
  collector.decode.end();
  collector.chunk.end();
  std::vector<Step> steps;
  size_t piece = 0;
  for (const backend::StepRecord& record : collector.records) {
    while (piece + 1 < pieces.size() && pieces[piece].end <= record.started) ++piece;
    steps.push_back({record, piece, pieces[piece].fitted, collector.speed_at(steps.size())});
  }
  return steps;
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

double relative_time(const Step& step) { return static_cast<double>(step.record.whole) / step.speed; }

/// Without the tokens that its sequences have decoded, if `any_context`.
std::vector<uint64_t> counts_of(backend::StepWork work, bool any_context) {
  if (any_context) work.decode_context = 0;
  std::vector<uint64_t> counts;
  backend::StepWork::for_each_count(work, [&](std::string_view, uint64_t count) { counts.push_back(count); });
  return counts;
}

/// How much each step differs from the last equal one of another piece that is close. Mixed steps have none,
/// so theirs is of the same piece, whose sequences have decoded more.
std::vector<double> differences(const std::vector<Step>& steps, std::string_view kind) {
  const bool mixed = kind == "mixed";
  std::map<std::vector<uint64_t>, const Step*> last;
  std::vector<double> out;
  for (const Step& step : steps) {
    if (backend::sim::step_kind(step.record.work) != kind) continue;
    const Step* before = std::exchange(last[counts_of(step.record.work, mixed)], &step);
    if (before == nullptr || (before->piece == step.piece && !mixed)) continue;
    if (step.record.started - before->record.started > kClose) continue;
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
    if (b.piece != a.piece || backend::sim::step_kind(a.record.work) != kind) continue;
    if (counts_of(a.record.work, true) == counts_of(b.record.work, true)) {
      out.push_back(std::abs(relative_time(a) / relative_time(b) - 1));
    }
  }
  return out;
}

std::string percent(const std::vector<double>& values, double of) {
  return values.empty() ? "-" : fmt::format("{:.1f} %", 100 * quantile(values, of));
}

void print(const std::vector<Step>& steps, const backend::sim::FittedCost& cost) {
  fmt::print(
      "| steps | foreseen | median error | p90 | signed median | bias | floor, 2 s apart: median | p90 | "
      "in a row: median |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string_view kind : {"decode", "prefill", "mixed"}) {
    std::vector<double> errors, sizes;
    double sum = 0, foreseen = 0;
    for (const Step& step : steps) {
      if (step.fitted || backend::sim::step_kind(step.record.work) != kind) continue;
      const auto predicted = static_cast<double>(cost.duration(step.record.work));
      errors.push_back(predicted / relative_time(step) - 1);
      sizes.push_back(std::abs(errors.back()));
      sum += relative_time(step);
      foreseen += predicted;
    }
    if (errors.empty()) continue;
    const std::vector<double> floor = differences(steps, kind);
    fmt::print("| {} | {} | {} | {} | {:+.1f} % | {:+.1f} % | {} ({} pairs) | {} | {} |\n", kind,
               errors.size(), percent(sizes, 0.5), percent(sizes, 0.9), 100 * quantile(errors, 0.5),
               100 * (foreseen / sum - 1), percent(floor, 0.5), floor.size(), percent(floor, 0.9),
               percent(differences_of_next(steps, kind), 0.5));
  }
}

/// With slots and blocks for the references besides.
startup::EngineOptions options_of(const std::string& model, const std::string& quantization,
                                  const Collector& collector) {
  startup::EngineOptions options;
  options.model.model = model;
  options.model.quantization = quantization;
  options.max_num_seqs = kSeqs;
  options.max_model_len = kLongest;
  options.num_blocks = (kSeqs + 2) * kLongest / options.block_size;
  for (const Reference* reference : {&collector.decode, &collector.chunk}) {
    options.max_num_seqs += reference->seqs();
    options.num_blocks += reference->seqs() * reference->rows(options.block_size);
  }
  options.policies.preemption = control::PreemptionKind::kRecompute;  // so the sweep has no swaps
  return options;
}

void run(const std::string& model, double seconds, const std::string& quantization, size_t every) {
  set_log_level(LogLevel::kWarning);
  Collector collector(every);
  startup::LocalEngine local(options_of(model, quantization, collector), model);
  local.engine.reset();
  local.config.scheduler.costs = local.backend->probe(350'000'000).costs;
  collector.decode.begin(local);
  collector.chunk.begin(local);
  local.engine =
      std::make_unique<engine::Engine>(local.config, *local.tokenizer, *local.executor, collector.clock,
                                       nullptr, nullptr, nullptr, nullptr, &collector);
  const std::vector<Step> steps =
      measure(local, collector, plan_of(local.config.scheduler, seconds), seconds);
  std::vector<backend::StepRecord> fitted;
  std::vector<double> speeds;
  for (const Step& step : steps) {
    if (step.fitted) fitted.push_back(at_usual_speed(step));
    speeds.push_back(step.speed);
  }
  fmt::print(
      "{}: {} steps, {} of them fitted; a reference step takes {:.2f} ms or {:.2f} ms, p10 to p90: {:.0f} to "
      "{:.0f} % of that\n\n",
      local.backend->describe(), steps.size(), fitted.size(), collector.decode.usual() / 1e6,
      collector.chunk.usual() / 1e6, 100 * quantile(speeds, 0.1), 100 * quantile(speeds, 0.9));
  print(steps, sim::calibrate(fitted).file.cost);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  const int every = argc > 4 ? std::atoi(argv[4]) : 1;
  if (argc < 2 || argc > 5 || every < 1) {
    fmt::print(stderr, "usage: bench_fit MODEL [SECONDS [QUANTIZATION [EVERY]]]\n");
    return 2;
  }
  try {
    quire::run(argv[1], argc > 2 ? std::atof(argv[2]) : 120, argc > 3 ? argv[3] : "auto",
               static_cast<size_t>(every));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_fit: {}\n", error.what());
    return 1;
  }
}
