#include "bench/latency.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "model/kv_groups.h"

namespace quire::bench {
namespace {

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
  Batch(backend::cpu::Decoder& decoder, kernels::KernelContext& context, uint32_t num_seqs, uint32_t max_len,
        std::optional<DType> kv_dtype)
      : decoder_(decoder),
        context_(context),
        blocks_per_seq_((max_len + kBlockSize - 1) / kBlockSize *
                        static_cast<uint32_t>(decoder.shape().kv_windows.size())),
        cache_(decoder.config(), kv_dtype.value_or(decoder.compute_dtype()), num_seqs * blocks_per_seq_,
               kBlockSize),
        num_seqs_(num_seqs) {
    const uint32_t groups = cache_.num_groups();
    for (uint32_t i = 0; i < num_seqs; ++i) {
      tables_.push_back(model::consecutive_tables(groups, blocks_per_seq_ / groups, i * blocks_per_seq_));
    }
  }

  /// Each sequence gets the same `count` tokens before it, in blocks of its own.
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
    const uint32_t vocab = decoder_.config().vocab_size;
    tokens_.resize(size_t{num_seqs} * count);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<TokenId>((i * 7919 + position * 104729) % vocab);
    }
    seqs_.clear();
    for (uint32_t i = 0; i < num_seqs; ++i) {
      seqs_.push_back({count, position, tables_[i], 1});
    }
    decoder_.forward(context_, cache_, tokens_, seqs_);
  }

 private:
  static constexpr uint32_t kBlockSize = 16;
  static constexpr uint32_t kFillTokens = 512;
  backend::cpu::Decoder& decoder_;
  kernels::KernelContext& context_;
  uint32_t blocks_per_seq_;
  backend::cpu::KvCache cache_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  // by sequence and K/V group
  uint32_t num_seqs_;
  std::vector<TokenId> tokens_;
  std::vector<decoder::BatchSeq> seqs_;
};

}  // namespace

std::vector<LatencyRow> measure_latency(backend::cpu::Decoder& decoder, kernels::KernelContext& context,
                                        const LatencyPlan& plan, std::optional<DType> kv_dtype,
                                        const std::function<void()>& measured) {
  const uint32_t most = decoder.config().max_positions;
  if (plan.prompt > most || plan.context + plan.steps > most) {
    throw Error(fmt::format("the model has {} positions: lower --prompt, --context or --steps", most));
  }
  std::vector<LatencyRow> rows;
  const auto add_row = [&](std::string name, uint32_t tokens, uint32_t steps, auto&& work) {
    std::vector<double> times;
    for (uint32_t i = 0; i < plan.repeats; ++i) {
      times.push_back(seconds_of(work) / steps);
      measured();
    }
    rows.push_back({std::move(name), tokens, median(times)});
  };
  if (plan.prompt > 0) {
    Batch batch(decoder, context, 1, plan.prompt, kv_dtype);
    batch.forward(0, plan.prompt, 1);
    add_row(fmt::format("prefill {}", plan.prompt), plan.prompt, 1,
            [&] { batch.forward(0, plan.prompt, 1); });
  }
  for (const uint32_t size : plan.batches) {
    Batch batch(decoder, context, size, plan.context + plan.steps, kv_dtype);
    batch.fill(plan.context);
    add_row(fmt::format("decode x {}", size), size, plan.steps, [&] {
      for (uint32_t step = 0; step < plan.steps; ++step) batch.forward(plan.context + step, 1, size);
    });
  }
  return rows;
}

}  // namespace quire::bench
