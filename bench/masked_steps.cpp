// What grammars cost the steps of a full batch: decode steps of 64 sequences in a real model.
//   bench_masked_steps QUIRE MODEL TOKENIZER [PAIRS [SCENARIO...]]
// QUIRE: the program, which tries grammars out in a process of its own. MODEL: what `quire serve` takes; its
// weights may be random. TOKENIZER: whose tokens the grammars see, with at most as many as MODEL has.
//
// Two kinds of pieces of about 3 s alternate on one set of weights. For each scenario it prints the median of
// the paired ratios of step times, with the interval in which the median lies in 95 of 100 cases, once that
// is within 1.5 points and every row has had 150 tokens, or PAIRS (default 60) pairs are done:
//   one      64 rows that follow one schema : 64 rows that follow none
//   own      the same, each row with a schema of its own
//   counted  as own, where each string has a maxLength of 17 to 76
//   compile  64 rows with their own schemas while new grammars are compiled all the time : while none are
// A row samples at temperature 1. Where an answer is complete and ends, its row begins another.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/json.h"
#include "bench/random_schemas.h"
#include "engine/mask_source.h"
#include "grammar/compiler.h"
#include "grammar/schema.h"
#include "startup/model_options.h"
#include "tokenize/tokenizer.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kRows = 64;
constexpr uint32_t kPrompt = 16;
constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kMaxLen = 1600;
constexpr uint32_t kTokens = 150;  // of each row at least: masks late in an answer count too
constexpr double kPiece = 3;       // seconds

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Its time is counted, in all rows together.
class TimedMask final : public engine::MaskSource {
 public:
  TimedMask(std::unique_ptr<engine::MaskSource> inner, std::atomic<int64_t>& nanos)
      : inner_(std::move(inner)), nanos_(nanos) {}
  void fill(std::span<uint32_t> mask) override {
    const auto begin = Clock::now();
    inner_->fill(mask);
    nanos_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  }
  void accept(TokenId token) override { inner_->accept(token); }

 private:
  std::unique_ptr<engine::MaskSource> inner_;
  std::atomic<int64_t>& nanos_;
};

class Grammars {
 public:
  Grammars(const std::string& quire, const tokenize::Tokenizer& tokenizer, uint32_t vocab_size)
      : end(static_cast<TokenId>(vocab_size) - 1) {
    auto vocabulary = grammar::vocabulary_of(tokenizer, vocab_size, std::vector<TokenId>{end});
    if (!vocabulary) throw Error(vocabulary.error());
    grammar::CompilerConfig config;
    config.trial_command = {quire, "--compile-grammars"};
    compiler_ = std::make_unique<grammar::Compiler>(std::move(*vocabulary), config);
  }

  engine::MakeMaskSource compile(const std::string& schema) {
    const auto text = grammar::schema_grammar(json::parse(schema));
    if (!text) throw Error(text.error().message);
    auto made = compiler_->compile(*text);
    if (!made) throw Error(made.error().message);
    return std::move(*made);
  }

  /// In another thread: the one that compiles keeps a low priority.
  std::vector<engine::MakeMaskSource> compile(std::string (*draw)(bench::Random&), uint32_t count) {
    std::vector<engine::MakeMaskSource> out;
    std::string failed;
    std::thread([&] {
      try {
        for (uint32_t seed = 0; seed < count; ++seed) {
          bench::Random rng(seed);
          out.push_back(compile(draw(rng)));
        }
      } catch (const std::exception& error) {
        failed = error.what();
      }
    }).join();
    if (!failed.empty()) throw Error(failed);
    return out;
  }

  const TokenId end;  // ends an answer; it has no text

 private:
  std::unique_ptr<grammar::Compiler> compiler_;
};

/// 64 sequences in slots of their own.
struct Batch {
  uint32_t first_slot = 0;
  uint32_t computed = 0;
  std::vector<TokenId> last;                    // by row
  std::vector<engine::MakeMaskSource> sources;  // row i follows i modulo their number; empty: no grammar
  std::vector<uint32_t> length;                 // by row, of the answer so far
  std::vector<uint32_t> ended;                  // the lengths of complete answers
};

class Steps {
 public:
  Steps(const std::string& model, const Grammars& grammars) : grammars_(grammars) {
    startup::ModelOptions options;
    options.model = model;
    backend_ = std::make_unique<backend::cpu::CpuBackend>(
        startup::load_model(options, startup::config_of(options), kMaxLen), std::nullopt);
    blocks_ = kMaxLen / kBlockSize;
    backend_->allocate({.num_blocks = 2 * kRows * blocks_,
                        .block_size = kBlockSize,
                        .num_slots = 2 * kRows,
                        .max_model_len = kMaxLen});
    executor_ = backend_->make_executor();
  }

  std::string describe() const { return backend_->describe(); }

  /// Takes the slots and computes the prompts.
  Batch begin(uint32_t first_slot, std::vector<engine::MakeMaskSource> sources) {
    Batch batch;
    batch.first_slot = first_slot;
    batch.sources = std::move(sources);
    batch.last.resize(kRows);
    batch.length.resize(kRows);
    control::StepPlan plan;
    uint32_t& generation = generations_[first_slot / kRows];
    if (generation++ > 0) {
      for (uint32_t row = 0; row < kRows; ++row) plan.removed.push_back(first_slot + row);
    }
    for (uint32_t row = 0; row < kRows; ++row) {
      const uint32_t slot = first_slot + row;
      control::NewSeq& added = plan.added.emplace_back();
      added.slot = slot;
      added.generation = generation;
      added.prompt_length = kPrompt;
      added.sampling.seed = row;
      if (!batch.sources.empty()) {
        added.sampling.mask = engine::MaskSources::number(slot);
        begin_answer(batch, row);
      }
      control::SeqStep& seq = plan.seqs.emplace_back();
      seq.slot = slot;
      seq.generation = generation;
      seq.rows = control::LogitRows::kLast;
      for (uint32_t i = 0; i < kPrompt; ++i) seq.tokens.push_back(static_cast<TokenId>(7 + row * 31 + i * 7));
      for (uint32_t i = 0; i * kBlockSize < kPrompt; ++i) seq.new_blocks.push_back(slot * blocks_ + i);
    }
    run(plan, batch);
    batch.computed = kPrompt;
    return batch;
  }

  /// Its steps, each of which gives every row one token: seconds of one step.
  double piece(Batch& batch, uint32_t steps) {
    const auto begin = Clock::now();
    for (uint32_t i = 0; i < steps; ++i) decode(batch);
    return seconds_since(begin) / steps;
  }

  bool has_room(const Batch& batch, uint32_t steps) const { return batch.computed + steps < kMaxLen; }
  /// Microseconds per mask since the last call.
  double mask_time() {
    return static_cast<double>(nanos_.exchange(0)) / 1e3 / static_cast<double>(std::exchange(masks_made_, 0));
  }

 private:
  void decode(Batch& batch) {
    control::StepPlan plan;
    for (uint32_t row = 0; row < kRows; ++row) {
      control::SeqStep& seq = plan.seqs.emplace_back();
      seq.slot = batch.first_slot + row;
      seq.generation = generations_[batch.first_slot / kRows];
      seq.first_position = batch.computed;
      seq.rows = control::LogitRows::kLast;
      seq.tokens.push_back(batch.last[row]);
      if (batch.computed % kBlockSize == 0) {
        seq.new_blocks.push_back(seq.slot * blocks_ + batch.computed / kBlockSize);
      }
    }
    run(plan, batch);
    ++batch.computed;
  }

  /// As the engine does it.
  void run(control::StepPlan& plan, Batch& batch) {
    plan.step = ++step_;
    const backend::Ticket ticket = executor_->submit(plan);
    if (!batch.sources.empty()) executor_->provide(ticket, masks_);
    const control::StepResult result = executor_->wait(ticket);
    if (!batch.sources.empty()) masks_made_ += kRows;
    for (uint32_t row = 0; row < kRows; ++row) {
      const control::SeqResult& one = result.seqs[row];
      if (!one.error.empty()) throw Error(one.error);
      batch.last[row] = one.token->token;
      if (batch.sources.empty()) continue;
      masks_.accept(batch.first_slot + row, batch.last[row]);
      ++batch.length[row];
      if (batch.last[row] != grammars_.end) continue;
      batch.ended.push_back(batch.length[row]);
      begin_answer(batch, row);
    }
  }

  void begin_answer(Batch& batch, uint32_t row) {
    const uint32_t slot = batch.first_slot + row;
    masks_.remove(slot);
    masks_.add(slot, std::make_unique<TimedMask>(batch.sources[row % batch.sources.size()](), nanos_));
    batch.length[row] = 0;
  }

  const Grammars& grammars_;
  std::unique_ptr<backend::cpu::CpuBackend> backend_;
  std::unique_ptr<backend::Executor> executor_;
  engine::MaskSources masks_;
  std::atomic<int64_t> nanos_ = 0;
  uint64_t masks_made_ = 0;
  uint32_t blocks_ = 0;  // of each slot
  uint64_t step_ = 0;
  uint32_t generations_[2] = {};  // of the slots from 0 and from kRows on
};

struct Ratio {
  double median = 0;
  double low = 0;
  double high = 0;

  bool narrow() const { return high <= median + 0.015 && low >= median - 0.015; }
  std::string text() const { return fmt::format("{:.3f} | {:.3f} to {:.3f}", median, low, high); }
};

/// The order statistics between which the median lies in 95 of 100 cases.
Ratio ratio_of(std::vector<double> all) {
  std::ranges::sort(all);
  const size_t n = all.size();
  size_t k = 0;
  double below = 0;  // the chance that fewer than k lie under the median
  double term = std::pow(0.5, static_cast<double>(n));
  while (k < n / 2 && below + term <= 0.025) {
    below += term;
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    ++k;
  }
  const double middle = n % 2 == 1 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2;
  return k > 0 ? Ratio{middle, all[k - 1], all[n - k]} : Ratio{middle, 0, HUGE_VAL};
}

uint32_t steps_of_a_piece(Steps& steps, Batch& batch) {
  steps.piece(batch, 2);
  return std::max(1U, static_cast<uint32_t>(std::lround(kPiece / steps.piece(batch, 3))));
}

void print_lengths(const std::string& name, const Batch& batch) {
  if (batch.ended.empty()) return;
  const uint64_t all = std::accumulate(batch.ended.begin(), batch.ended.end(), uint64_t{0});
  fmt::print(stderr, "{}: {} answers ended, after {} tokens on average, the shortest after {}\n", name,
             batch.ended.size(), all / batch.ended.size(), std::ranges::min(batch.ended));
}

void compare(const std::string& name, Steps& steps, std::vector<engine::MakeMaskSource> sources,
             uint32_t most_pairs) {
  Batch without = steps.begin(0, {});
  Batch with = steps.begin(kRows, std::move(sources));
  const uint32_t count = steps_of_a_piece(steps, without);
  steps.piece(with, 5);  // as many as the others have done
  steps.mask_time();
  std::vector<double> ratios;
  std::vector<double> with_times;
  std::vector<double> without_times;
  Ratio found;
  while (ratios.size() < most_pairs &&
         !(ratios.size() >= 6 && found.narrow() && with.computed >= kPrompt + kTokens) &&
         steps.has_room(with, count)) {
    const bool first = ratios.size() % 2 == 0;  // whichever comes first may find another machine
    if (first) with_times.push_back(steps.piece(with, count));
    without_times.push_back(steps.piece(without, count));
    if (!first) with_times.push_back(steps.piece(with, count));
    ratios.push_back(with_times.back() / without_times.back());
    found = ratio_of(ratios);
    fmt::print(stderr, "{} {}: {:.1f} : {:.1f} ms\n", name, ratios.size(), with_times.back() * 1e3,
               without_times.back() * 1e3);
  }
  print_lengths(name, with);
  fmt::print("| {} | {} x {} | {} | {:.1f} | {:.1f} | {} | {:.1f} |\n", name, ratios.size(), count,
             with.computed - kPrompt, median(with_times) * 1e3, median(without_times) * 1e3, found.text(),
             steps.mask_time());
  std::fflush(stdout);
}

/// Of a thread, in seconds.
double cpu_of(const std::filesystem::path& task) {
  uint64_t nanos = 0;
  std::ifstream(task / "schedstat") >> nanos;
  return static_cast<double>(nanos) / 1e9;
}

/// A thread that compiles one new grammar after the other while it is told to.
class Compiling {
 public:
  explicit Compiling(Grammars& grammars) : grammars_(grammars), thread_([this] { run(); }) {}
  ~Compiling() {
    over_ = true;
    thread_.join();
  }

  void begin() { wanted_ = true; }
  /// Waits for the one that is being compiled.
  void end() {
    wanted_ = false;
    while (busy_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  uint32_t done() const { return done_; }
  /// Of this thread and of all in the process that tries out, so far.
  double cpu() const {
    const std::filesystem::path own = fmt::format("/proc/self/task/{}", tid_.load());
    double out = cpu_of(own);
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream children(thread.path() / "children");
      for (int child = 0; children >> child;) {
        for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", child))) {
          out += cpu_of(task.path());
        }
      }
    }
    return out;
  }

 private:
  void run() {
    tid_ = static_cast<int>(syscall(SYS_gettid));
    for (uint32_t seed = 1000; !over_;) {
      busy_ = wanted_.load();
      if (!busy_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      bench::Random rng(seed++);
      try {
        grammars_.compile(seed % 2 == 0 ? bench::flat(rng) : bench::nested(rng));
        ++done_;
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
    }
  }

  Grammars& grammars_;
  std::atomic<int> tid_ = 0;
  std::atomic<bool> over_ = false;
  std::atomic<bool> wanted_ = false;
  std::atomic<bool> busy_ = false;
  std::atomic<uint32_t> done_ = 0;
  std::thread thread_;
};

/// Beside the ratio: what a piece takes more while grammars are compiled, as a share of the CPU time that
/// compiling takes meanwhile, divided by the number of cores.
void compare_compiling(Steps& steps, Grammars& grammars, std::vector<engine::MakeMaskSource> sources,
                       uint32_t most_pairs) {
  const auto cores = static_cast<double>(std::thread::hardware_concurrency());
  Batch batch = steps.begin(kRows, std::move(sources));
  const uint32_t count = steps_of_a_piece(steps, batch);
  Compiling compiling(grammars);
  std::vector<double> ratios;
  std::vector<double> longer;
  std::vector<double> shares;
  Ratio found;
  while (ratios.size() < most_pairs && !(ratios.size() >= 6 && found.narrow()) &&
         steps.has_room(batch, 2 * count)) {
    const double quiet = steps.piece(batch, count);
    const double before = compiling.cpu();
    compiling.begin();
    const double busy = steps.piece(batch, count);
    const double cpu = compiling.cpu() - before;
    compiling.end();
    ratios.push_back(busy / quiet);
    longer.push_back((busy - quiet) * count / (cpu / cores));
    shares.push_back(cpu / (busy * count));
    found = ratio_of(ratios);
    fmt::print(stderr, "compile {}: {:.1f} : {:.1f} ms, {:.2f} s of CPU time\n", ratios.size(), busy * 1e3,
               quiet * 1e3, cpu);
  }
  print_lengths("compile", batch);
  const Ratio extra = ratio_of(longer);
  fmt::print(
      "| compile | {} x {} | | | | {} | |\n\n"
      "{} grammars were compiled, by {:.2f} of a core. That made steps longer by {:.2f} ({:.2f} to {:.2f}) "
      "of "
      "its time over {} cores.\n",
      ratios.size(), count, found.text(), compiling.done(), median(shares), extra.median, extra.low,
      extra.high, cores);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "bench_masked_steps QUIRE MODEL TOKENIZER [PAIRS [SCENARIO...]]\n");
    return 2;
  }
  const auto pairs = static_cast<uint32_t>(argc > 4 ? std::atoi(argv[4]) : 60);
  std::vector<std::string> names(argv + std::min(argc, 5), argv + argc);
  if (names.empty()) names = {"one", "own", "counted", "compile"};
  startup::ModelOptions options;
  options.model = argv[2];
  const uint32_t vocab_size = startup::config_of(options).vocab_size;
  Grammars grammars(argv[1], *tokenize::Tokenizer::load(argv[3]), vocab_size);
  Steps steps(argv[2], grammars);
  fmt::print(
      "{}; {} ids\n\n| rows follow | pairs x steps | tokens | with, ms | without, ms | ratio | 95 % | a "
      "mask, us "
      "|\n|---|---|---|---|---|---|---|---|\n",
      steps.describe(), vocab_size);
  for (const std::string& name : names) {
    if (name == "one") compare(name, steps, grammars.compile(bench::listed, 1), pairs);
    if (name == "own") compare(name, steps, grammars.compile(bench::listed, kRows), pairs);
    if (name == "counted") compare(name, steps, grammars.compile(bench::listed_bounded, kRows), pairs);
    if (name == "compile") compare_compiling(steps, grammars, grammars.compile(bench::listed, kRows), pairs);
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    return quire::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
