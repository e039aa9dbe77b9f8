#include "backend/sync/probe.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <vector>

#include "model/kv_groups.h"

namespace quire::backend::sync {
namespace {

constexpr uint32_t kProbeTokens = 128;
constexpr uint32_t kProbeFew = 32;        // few enough to cost little ...
constexpr uint32_t kProbeContext = 4096;  // ... after enough context to show what it adds
// Each part is computed until the two fastest times are this close: something else may have the machine.
constexpr double kClose = 1.04;
constexpr int kLeastRounds = 2;
constexpr int kMostRounds = 6;
constexpr double kMostSeconds = 2;  // after which no part is computed more often than kLeastRounds

/// The fastest of several times.
struct Fastest {
  double seconds = std::numeric_limits<double>::infinity();
  double second = std::numeric_limits<double>::infinity();  // the next one

  void add(double time) {
    second = std::min(second, std::max(time, seconds));
    seconds = std::min(seconds, time);
  }
  bool is_sure() const { return second <= kClose * seconds; }
};

/// The measured cost of a prompt token.
struct TokenCost {
  double seconds = 0;       // without context
  double context_part = 0;  // what each token of context adds, as a fraction of `seconds`
};

TokenCost measure(StepModel& model, const ProbedPool& pool) {
  const uint32_t room = std::min(pool.num_blocks / pool.num_groups * pool.block_size, pool.longest);
  const uint32_t length = std::min(kProbeTokens, room);
  const uint32_t context = std::min(kProbeContext, room - length);
  std::vector<TokenId> tokens(length);
  for (uint32_t i = 0; i < length; ++i) tokens[i] = static_cast<TokenId>(i * 7919 % pool.vocab_size);
  const uint32_t rows = (context + length + pool.block_size - 1) / pool.block_size;
  const auto tables = model::consecutive_tables(pool.num_groups, rows, 0);
  const auto seconds = [&](uint32_t position, uint32_t count) {
    const decoder::BatchSeq seq{count, position, tables, 1};
    const uint32_t last = count - 1;
    const auto start = std::chrono::steady_clock::now();
    model.compute(std::span(tokens).first(count), {&seq, 1});
    model.logits({&last, 1});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const uint32_t few = std::min(kProbeFew, length);
  for (const uint32_t position : {0U, context}) seconds(position, few);  // warm up the threads and the memory
  // The fastest ones, since StepBudget never goes above that.
  Fastest whole, begin, later;
  const auto started = std::chrono::steady_clock::now();
  for (int round = 0; round < kMostRounds; ++round) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started;
    if (round >= kLeastRounds && spent.count() > kMostSeconds) break;
    if (round < kLeastRounds || !whole.is_sure()) whole.add(seconds(0, length));
    if (round < kLeastRounds || !begin.is_sure() || !later.is_sure()) {
      begin.add(seconds(0, few));
      later.add(seconds(context, few));
    }
  }
  TokenCost cost{.seconds = whole.seconds / length};
  const double more = later.seconds - begin.seconds;
  if (context > 0 && more > 0) cost.context_part = more / few / context / cost.seconds;
  return cost;
}

/// A decoded token costs as much as several prompt tokens, since the weights are read for a few at a time.
/// Blocks are copied within the machine's memory.
control::CostHints costs_of(const TokenCost& token, uint64_t block_bytes) {
  constexpr double kCopyBytesPerSecond = 4e9;
  control::CostHints costs;
  costs.prefill_token = std::max<Nanos>(1, static_cast<Nanos>(token.seconds * 1e9));
  costs.decode_token = 4 * costs.prefill_token;
  costs.swap_block =
      std::max<Nanos>(1, static_cast<Nanos>(static_cast<double>(block_bytes) / kCopyBytesPerSecond * 1e9));
  return costs;
}

}  // namespace

StepSpeeds probe(StepModel& model, const ProbedPool& pool, Nanos step_time, uint64_t block_bytes) {
  const TokenCost cost = measure(model, pool);
  const double tokens = static_cast<double>(step_time) / 1e9 / cost.seconds;
  return {.tokens_a_step = static_cast<uint64_t>(std::min<double>(tokens, UINT32_MAX)) / 16 * 16,
          .context_cost = static_cast<uint32_t>(std::min(cost.context_part * 1e6, 1e6)),
          .costs = costs_of(cost, block_bytes),
          .varies = true};
}

}  // namespace quire::backend::sync
