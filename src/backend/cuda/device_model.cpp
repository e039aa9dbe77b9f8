#include "backend/cuda/device_model.h"

#include <utility>

namespace quire::backend::cuda {

DeviceModel::DeviceModel(const CudaOptions& options, const model::ModelConfig& config,
                         const ModelWeights& weights, Gemm& gemm, const PoolSize& size, Stream stream)
    : device_(options.device),
      config_(config),
      stream_(stream),
      cache_(config, options.dtype, size.num_blocks, size.block_size),
      copier_(cache_, options.limits.seqs * cache_.num_groups()),
      host_(cache_.whole_block_bytes() * size.num_host_blocks, "the blocks that are swapped out"),
      ops_(config, weights, cache_, gemm, stream, options.limits),
      pass_(config, options.dtype, options.limits.positions) {
  pass_.give_rotations(ops_);
}

void DeviceModel::compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs) {
  compute(tokens, seqs, {}, nullptr);
}

void DeviceModel::compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs,
                          std::span<const LateRow> late, const TokenId* late_tokens) {
  use();
  ops_.expect_late(late, late_tokens);
  pass_.compute(ops_, {cache_.groups(), cache_.num_blocks(), cache_.blocks().block_size}, tokens, seqs);
}

std::span<const float> DeviceModel::logits(std::span<const uint32_t> rows) {
  use();
  return pass_.logits(ops_, rows);
}

std::span<const float> DeviceModel::hidden(std::span<const uint32_t> rows) {
  use();
  return pass_.hidden(ops_, rows);
}

DeviceLogits DeviceModel::logits_on_device(std::span<const uint32_t> rows) {
  use();
  return ops_.logits_on_device(rows, static_cast<float>(config_.logit_scale),
                               static_cast<float>(config_.logit_soft_cap));
}

void DeviceModel::move_out(const control::BlockMove& move, Stream stream) {
  use();
  std::byte* to = host_block(move.host);
  cache_.for_each_part(move.device, [&](std::byte* part, size_t bytes) {
    copy_to_host(std::exchange(to, to + bytes), part, bytes, stream);
  });
}

void DeviceModel::move_in(const control::BlockMove& move, Stream stream) {
  use();
  const std::byte* from = host_block(move.host);
  cache_.for_each_part(move.device, [&](std::byte* part, size_t bytes) {
    copy_to_device(part, std::exchange(from, from + bytes), bytes, stream);
  });
}

void DeviceModel::copy(std::span<const control::BlockCopy> copies) {
  use();
  copier_.copy(copies, stream_);
}

void DeviceModel::read(BlockId block, std::byte* to) {
  use();
  cache_.for_each_part(block, [&](std::byte* part, size_t bytes) {
    copy_to_host(std::exchange(to, to + bytes), part, bytes, stream_);
  });
  synchronize(stream_);
}

void DeviceModel::write(BlockId block, const std::byte* from) {
  use();
  cache_.for_each_part(block, [&](std::byte* part, size_t bytes) {
    copy_to_device(part, std::exchange(from, from + bytes), bytes, stream_);
  });
  synchronize(stream_);
}

}  // namespace quire::backend::cuda
