// bench latency: how fast a model computes here, without the engine around it.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/local_engine.h"
#include "cli/terminal.h"
#include "model/kv_groups.h"

namespace quire::cli {
namespace {

struct LatencyOptions {
  ModelOptions model;
  std::string kv_cache_dtype = "auto";
  std::vector<uint32_t> batches = {1, 8, 16, 32, 64};
  uint32_t prompt = 512;
  uint32_t context = 64;
  uint32_t steps = 8;
  uint32_t repeats = 3;
  bool as_json = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Sequences of equal length, each with blocks of its own, that advance together.
class Batch {
 public:
  /// `kv_dtype`: of the K/V; nullopt: the compute type.
  Batch(LoadedModel& model, uint32_t num_seqs, uint32_t max_len, std::optional<DType> kv_dtype)
      : model_(model),
        blocks_per_seq_((max_len + kBlockSize - 1) / kBlockSize *
                        static_cast<uint32_t>(model.decoder->shape().kv_windows.size())),
        cache_(model.decoder->config(), kv_dtype.value_or(model.decoder->compute_dtype()),
               num_seqs * blocks_per_seq_, kBlockSize),
        num_seqs_(num_seqs) {
    const uint32_t groups = cache_.num_groups();
    for (uint32_t i = 0; i < num_seqs; ++i) {
      tables_.push_back(model::consecutive_tables(groups, blocks_per_seq_ / groups, i * blocks_per_seq_));
    }
  }

  /// Gives each sequence the same `count` tokens of context, in its own blocks.
  void fill(uint32_t count) {
    for (uint32_t done = 0; done < count; done += kFillTokens) {
      forward(done, std::min(kFillTokens, count - done), 1);
    }
    for (uint32_t i = 1; i < num_seqs_; ++i) {
      for (BlockId block = 0; block < blocks_per_seq_; ++block) {
        cache_.copy_block(cache_, block, i * blocks_per_seq_ + block);
      }
    }
  }

  /// The first `num_seqs` compute `count` tokens each from `position` on; logits of the last.
  void forward(uint32_t position, uint32_t count, uint32_t num_seqs) {
    const uint32_t vocab = model_.decoder->config().vocab_size;
    tokens_.resize(size_t{num_seqs} * count);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<TokenId>((i * 7919 + position * 104729) % vocab);
    }
    seqs_.clear();
    for (uint32_t i = 0; i < num_seqs; ++i) {
      seqs_.push_back({count, position, tables_[i], 1});
    }
    model_.decoder->forward(model_.context, cache_, tokens_, seqs_);
  }

 private:
  static constexpr uint32_t kBlockSize = 16;
  static constexpr uint32_t kFillTokens = 512;
  LoadedModel& model_;
  uint32_t blocks_per_seq_;
  backend::cpu::KvCache cache_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  // by sequence and K/V group
  uint32_t num_seqs_;
  std::vector<TokenId> tokens_;
  std::vector<backend::cpu::DecoderSeq> seqs_;
};

int latency(const LatencyOptions& options) {
  const std::optional<DType> kv_dtype = pick_kv_dtype(options.kv_cache_dtype);
  LoadedModel model(options.model);
  const uint32_t most = model.decoder->config().max_positions;
  if (options.prompt > most || options.context + options.steps > most) {
    throw Error(fmt::format("the model has {} positions: lower --prompt, --context or --steps", most));
  }
  struct Row {
    std::string name;
    uint32_t tokens;
    double seconds;
  };
  std::vector<Row> rows;
  Progress progress("bench", options.repeats * (1 + options.batches.size()));
  if (options.prompt > 0) {
    Batch batch(model, 1, options.prompt, kv_dtype);
    std::vector<double> times;
    batch.forward(0, options.prompt, 1);
    for (uint32_t i = 0; i < options.repeats; ++i) {
      times.push_back(seconds_of([&] { batch.forward(0, options.prompt, 1); }));
      progress.advance();
    }
    rows.push_back({fmt::format("prefill {}", options.prompt), options.prompt, median(times)});
  }
  for (const uint32_t size : options.batches) {
    Batch batch(model, size, options.context + options.steps, kv_dtype);
    batch.fill(options.context);
    std::vector<double> times;
    for (uint32_t i = 0; i < options.repeats; ++i) {
      const double all = seconds_of([&] {
        for (uint32_t step = 0; step < options.steps; ++step) batch.forward(options.context + step, 1, size);
      });
      times.push_back(all / options.steps);
      progress.advance();
    }
    rows.push_back({fmt::format("decode x {}", size), size, median(times)});
  }
  if (!options.as_json) fmt::print("{:<14} {:>10} {:>12}\n", "step", "ms", "tokens/s");
  for (const Row& row : rows) {
    if (options.as_json) {
      fmt::print("{{\"step\":\"{}\",\"tokens\":{},\"seconds\":{:.6f},\"tokens_per_second\":{:.2f}}}\n",
                 row.name, row.tokens, row.seconds, row.tokens / row.seconds);
    } else {
      fmt::print("{:<14} {:>10.2f} {:>12.1f}\n", row.name, row.seconds * 1e3, row.tokens / row.seconds);
    }
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Command& run) {
  CLI::App* bench = app.add_subcommand("bench", "Measure how fast a model runs here");
  bench->require_subcommand(1);
  add_throughput(*bench, run);
  add_bench_serve(*bench, run);
  add_bench_ops(*bench, run);
  auto options = std::make_shared<LatencyOptions>();
  CLI::App* command = bench->add_subcommand(
      "latency", "Time of single steps: one prompt, and decoding of several sequences at once");
  add_model_options(*command, options->model);
  add_kv_dtype_option(*command, options->kv_cache_dtype);
  command->add_option("--prompt", options->prompt, "Tokens of the prompt; 0: none")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--batch", options->batches, "Sequences that decode at once")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str(fmt::format("{}", fmt::join(options->batches, ",")))
      ->check(CLI::Range(1, 4096))
      ->type_name("N,N,...");
  command->add_option("--context", options->context, "Tokens that each has before")
      ->capture_default_str()
      ->check(CLI::Range(1, INT32_MAX))
      ->type_name("N");
  command->add_option("--steps", options->steps, "Decode steps of one measurement")
      ->capture_default_str()
      ->check(CLI::Range(1, INT32_MAX))
      ->type_name("N");
  command->add_option("--repeats", options->repeats, "Measurements; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, INT32_MAX))
      ->type_name("N");
  command->add_flag("--json", options->as_json, "One JSON object a line");
  command->callback([options, &run] { run = [options] { return latency(*options); }; });
  // Set after its commands are added, which would otherwise inherit it.
  bench->footer("\nquire bench COMMAND --help says more about each.");
}

}  // namespace quire::cli
