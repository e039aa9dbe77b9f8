// perplexity of a text under a model, which shows the cost of a number format.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/decoder.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "model/kv_groups.h"
#include "startup/model_files.h"
#include "startup/model_options.h"
#include "tokenize/tokenizer.h"

namespace quire::cli {
namespace {

constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kContext = 512;  // the default, limited by the model
constexpr uint32_t kChunk = 64;     // tokens whose logits are in memory at once

struct PerplexityOptions {
  startup::ModelOptions model;
  std::string kv_cache_dtype = "auto";
  std::string text_file;
  std::optional<uint32_t> context;
  uint64_t max_tokens = 0;
};

/// -log of the probability of `token`.
double surprise(std::span<const float> logits, TokenId token) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float each : logits) sum += std::exp(static_cast<double>(each - most));
  return std::log(sum) + most - logits[static_cast<size_t>(token)];
}

/// Runs one window after the other through the model and adds up.
class Scorer {
 public:
  /// `kv_dtype`: of the K/V; nullopt: the compute type.
  Scorer(backend::cpu::LoadedModel& model, uint32_t context, std::optional<DType> kv_dtype)
      : model_(model),
        groups_(static_cast<uint32_t>(model::group_layers(model.decoder->config()).windows.size())),
        blocks_((context + kBlockSize - 1) / kBlockSize),
        cache_(model.decoder->config(), kv_dtype.value_or(model.decoder->compute_dtype()), groups_ * blocks_,
               kBlockSize),
        tables_(model::consecutive_tables(groups_, blocks_, 0)) {}

  /// Scores every token except the first, given the tokens before it.
  void score(std::span<const TokenId> window) {
    const size_t vocab = model_.decoder->config().vocab_size;
    const auto length = static_cast<uint32_t>(window.size());
    for (uint32_t at = 0; at < length; at += kChunk) {
      const uint32_t count = std::min(kChunk, length - at);
      const decoder::BatchSeq seq{count, at, tables_, count};
      const auto logits =
          model_.decoder->forward(model_.context, cache_, window.subspan(at, count), {&seq, 1});
      surprises_.assign(count, 0.0);
      model_.pool.parallel_for(count, 1, [&](size_t begin, size_t end, uint32_t) {
        for (size_t i = begin; i < end; ++i) {
          if (at + i + 1 == length) continue;
          surprises_[i] = surprise(logits.subspan(i * vocab, vocab), window[at + i + 1]);
        }
      });
      for (const double each : surprises_) total_ += each;
    }
    scored_ += length - 1;
  }

  uint64_t scored() const { return scored_; }
  double mean() const { return total_ / static_cast<double>(scored_); }

 private:
  backend::cpu::LoadedModel& model_;
  uint32_t groups_;
  uint32_t blocks_;
  backend::cpu::KvCache cache_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<double> surprises_;
  double total_ = 0.0;
  uint64_t scored_ = 0;
};

int perplexity(const PerplexityOptions& options) {
  const model::ModelConfig config = startup::config_of(options.model);
  const std::optional<DType> kv_dtype = startup::pick_kv_dtype(options.kv_cache_dtype, config.head_dim);
  const auto tokenizer = startup::load_tokenizer(options.model.model);
  const std::vector<TokenId> bos = tokenizer->encode("", true);
  std::vector<TokenId> ids = tokenizer->encode(read_file(options.text_file), false);
  if (options.max_tokens > 0 && ids.size() > options.max_tokens) ids.resize(options.max_tokens);
  const uint32_t context = options.context.value_or(std::min(kContext, config.max_positions));
  if (context > config.max_positions) {
    throw Error(fmt::format("--context: {} is more than the {} positions of the model", context,
                            config.max_positions));
  }
  if (context < bos.size() + 2) throw Error(fmt::format("--context: {} is too short", context));
  if (ids.size() + bos.size() < 2) throw file_error(options.text_file, "has fewer than 2 tokens");

  const auto model = startup::load_model(options.model, config, context);
  Scorer scorer(*model, context, kv_dtype);
  const size_t step = context - bos.size();
  Progress progress("perplexity", ids.size());
  for (size_t at = 0; at < ids.size(); at += step) {
    const size_t count = std::min(step, ids.size() - at);
    std::vector<TokenId> window = bos;
    window.insert(window.end(), ids.begin() + static_cast<std::ptrdiff_t>(at),
                  ids.begin() + static_cast<std::ptrdiff_t>(at + count));
    if (window.size() > 1) scorer.score(window);
    progress.advance(count);
  }
  fmt::print("{{\"tokens\": {}, \"context\": {}, \"nats_per_token\": {:.6f}, \"perplexity\": {:.6f}}}\n",
             scorer.scored(), context, scorer.mean(), std::exp(scorer.mean()));
  return 0;
}

}  // namespace

void add_perplexity(const Flags& app, Command& run) {
  auto options = std::make_shared<PerplexityOptions>();
  const Flags command = app.add_command("perplexity", "Perplexity of a text under a model");
  add_model_options(command, options->model);
  add_kv_dtype_option(command, options->kv_cache_dtype);
  command.add_option("text", options->text_file, "File with the text").required().value_name("FILE");
  command
      .add_option("--context", options->context,
                  fmt::format("Tokens of a window; windows are independent, and each begins with BOS if the "
                              "model uses it (default {}, or the model's limit if that is less)",
                              kContext))
      .range(2, INT32_MAX)
      .value_name("N");
  command.add_option("--max-tokens", options->max_tokens, "Use the first N tokens; 0: all")
      .show_default()
      .value_name("N");
  command.callback([options, &run] { run = [options] { return perplexity(*options); }; });
}

}  // namespace quire::cli
