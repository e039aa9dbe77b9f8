#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/block_mover.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device_model.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/sampler_memory.h"
#include "base/amounts.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

/// `seqs` sequences of `length` tokens, which grow by up to `room`.
struct Served {
  uint32_t seqs;
  uint32_t length;
  uint32_t room;

  uint32_t most_tokens() const { return length + room; }
  uint32_t blocks_of_each() const { return (most_tokens() + kBlock - 1) / kBlock; }
  cuda::StepLimits limits() const {
    return {.rows = seqs * kBlock, .seqs = seqs, .positions = most_tokens(), .logit_rows = seqs};
  }
  backend::PoolSize pool() const {
    return {.num_blocks = seqs * blocks_of_each(),
            .num_host_blocks = 0,
            .block_size = kBlock,
            .num_slots = seqs,
            .max_model_len = most_tokens()};
  }
  /// What its K/V and its work take beside the weights.
  size_t memory(const model::ModelConfig& config) const {
    const cuda::KvBlocks one{DType::kBF16, kBlock, config.num_kv_heads, config.head_dim};
    return pool().num_blocks * one.block_bytes() * config.num_layers +
           cuda::CudaOps::bytes_for(config, DType::kBF16, kBlock, limits()) +
           cuda::sampling_bytes(seqs, most_tokens(), config.vocab_size);
  }
};

/// Sequences that decode together. All but the block that is written last counts as computed before.
class Decodes {
 public:
  Decodes(const model::ModelConfig& config, const cuda::ModelWeights& weights, const Served& served,
          uint32_t depth)
      : served_(served),
        depth_(depth),
        next_(served.seqs),
        gemm_(cublaslt(), stream_.get()),
        model_({.model = {}, .limits = served.limits()}, config, weights, gemm_, served.pool(),
               stream_.get()),
        executor_(model_, limits_of(config), pool_, depth) {
    cuda::CudaOps::prepare(gemm_, weights, served.limits());
    model_.clear_cache();
  }

  /// Submits the next step, and waits for the oldest one if as many as `depth` are in flight.
  void step() {
    if (position_ == 0 || position_ == served_.most_tokens()) begin();
    control::StepPlan plan;
    plan.step = ++step_;
    for (uint32_t i = 0; i < served_.seqs; ++i) {
      control::SeqStep& seq = add(plan, i, position_);
      seq.tokens.push_back(depth_ > 1 ? control::kLateToken : next_[i]);
      if (position_ % kBlock == 0) seq.new_blocks.push_back(block_of(i, position_));
    }
    ++position_;
    submit(plan);
    if (open_.size() == depth_) wait();
  }
  void drain() {
    while (!open_.empty()) wait();
  }

 private:
  backend::SlotTable::Limits limits_of(const model::ModelConfig& config) const {
    return {.num_slots = served_.seqs,
            .num_blocks = served_.pool().num_blocks,
            .num_host_blocks = 0,
            .block_size = kBlock,
            .windows = {0},
            .max_positions = served_.most_tokens(),
            .vocab_size = config.vocab_size};
  }
  BlockId block_of(uint32_t seq, uint32_t position) const {
    return static_cast<BlockId>(seq * served_.blocks_of_each() + position / kBlock);
  }
  control::SeqStep& add(control::StepPlan& plan, uint32_t seq, uint32_t position) const {
    control::SeqStep& out = plan.seqs.emplace_back();
    out.slot = seq;
    out.generation = generation_;
    out.first_position = position;
    out.rows = control::LogitRows::kLast;
    return out;
  }

  /// All sequences take their slots, with the tokens of their last block to be computed.
  void begin() {
    drain();
    control::StepPlan plan;
    plan.step = ++step_;
    ++generation_;
    const uint32_t known = (served_.length - 1) / kBlock * kBlock;
    for (uint32_t i = 0; i < served_.seqs; ++i) {
      if (generation_ > 1) plan.removed.push_back(i);
      control::NewSeq& seq = plan.added.emplace_back();
      seq.slot = i;
      seq.generation = generation_;
      seq.sampling.temperature = 0.0F;
      seq.prompt_length = served_.length;
      for (uint32_t at = 0; at < known; at += kBlock) seq.blocks.push_back(block_of(i, at));
      control::SeqStep& chunk = add(plan, i, known);
      for (uint32_t at = known; at < served_.length; ++at)
        chunk.tokens.push_back(static_cast<TokenId>(at % 50 + 1));
      chunk.new_blocks.push_back(block_of(i, known));
    }
    position_ = served_.length;
    submit(plan);
    if (depth_ == 1) wait();
  }

  void submit(const control::StepPlan& plan) { open_.push_back(executor_.submit(plan)); }
  void wait() {
    const control::StepResult result = executor_.wait(open_.front());
    open_.pop_front();
    for (uint32_t i = 0; i < served_.seqs; ++i) {
      if (!result.seqs[i].error.empty()) throw Error(result.seqs[i].error);
      next_[i] = result.seqs[i].token.value().token;
    }
  }

  Served served_;
  uint32_t depth_;
  uint32_t position_ = 0;  // of the token that the next step computes
  uint32_t generation_ = 0;
  uint64_t step_ = 0;
  std::vector<TokenId> next_;
  std::deque<backend::Ticket> open_;
  ThreadPool pool_{1};
  cuda::OwnStream stream_;
  cuda::Gemm gemm_;
  cuda::DeviceModel model_;
  cuda::CudaExecutor executor_;
};

/// Block i of the device is block i of the host.
std::vector<control::BlockMove> moves_of(uint32_t count) {
  std::vector<control::BlockMove> out;
  for (BlockId i = 0; i < count; ++i) out.push_back({.device = i, .host = i});
  return out;
}

}  // namespace

void measure_executor(const Sizes& sizes, const Ceilings& ceilings) {
  const model::ModelConfig& config = sizes.model;
  const cuda::ModelWeights weights = random_weights(config);
  for (const uint32_t seqs : sizes.served) {
    const Served served{seqs, sizes.served_length, sizes.served_room};
    const Needs needs = needs_of_step(config, {seqs, 1, served.length});
    for (const uint32_t depth : {1U, 2U}) {
      const std::string what = fmt::format("{} in flight, {} x 1 tokens, contexts of {}",
                                           depth == 1 ? "one" : "two", seqs, with_commas(served.length));
      if (served.memory(config) > cuda::device_facts().free_bytes) {
        std::puts(fmt::format("| {}: not measured, too little memory is free | | | | | |", what).c_str());
        continue;
      }
      Decodes decodes(config, weights, served, depth);
      const double seconds = seconds_of_waiting([&] { decodes.step(); });
      decodes.drain();
      print_row(what, seconds, needs, ceilings);
    }
  }
}

void measure_swap(const Sizes& sizes, const Ceilings& ceilings) {
  // Of the model, only its K/V matters.
  model::ModelConfig config = sizes.model;
  config.vocab_size = config.ffn_size = config.hidden_size = 64;
  const cuda::ModelWeights weights = random_weights(config);
  for (const uint32_t count : sizes.swapped_blocks) {
    const cuda::OwnStream stream;
    cuda::Gemm gemm(cublaslt(), stream.get());
    cuda::DeviceModel model(
        {.model = {}, .limits = {.rows = 1, .seqs = 1, .positions = kBlock, .logit_rows = 1}}, config,
        weights, gemm,
        {.num_blocks = count,
         .num_host_blocks = count,
         .block_size = kBlock,
         .num_slots = 1,
         .max_model_len = kBlock},
        stream.get());
    model.clear_cache();
    cuda::synchronize(stream.get());
    cuda::BlockMover mover(model, count);
    backend::Ticket step = 0;
    // A step that writes one of the blocks waits for them all.
    const auto move = [&](const control::StepPlan& plan) {
      mover.start(plan, nullptr);
      mover.writes(0, ++step);
      mover.order();
      cuda::synchronize(stream.get());
      mover.done(step);
    };
    control::StepPlan out;
    control::StepPlan in;
    out.moves_out = in.moves_in = moves_of(count);
    const double bytes = static_cast<double>(count * model.cache().whole_block_bytes());
    const Ceilings link{.copied = ceilings.host_link};
    for (const auto& [name, plan] : {std::pair("out", &out), std::pair("in", &in)}) {
      const double seconds = seconds_of_waiting([&] { move(*plan); });
      print_row(fmt::format("{} blocks {}, {:.1f} GB/s", count, name, bytes / seconds * 1e-9), seconds,
                {.bytes = bytes}, link);
    }
  }
}

}  // namespace quire::test::gpu
