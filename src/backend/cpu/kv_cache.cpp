#include "backend/cpu/kv_cache.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/attention.h"

namespace quire::backend::cpu {

KvCache::KvCache(const model::ModelConfig& config, DType dtype, uint32_t num_blocks, uint32_t block_size)
    : dtype_(dtype),
      num_blocks_(num_blocks),
      block_size_(block_size),
      block_bytes_(kernels::KvLayout{dtype, block_size, config.num_kv_heads, config.head_dim}.block_bytes()),
      groups_(model::group_layers(config)) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(block_bytes_, size_t{num_blocks} * groups_.layers_per_block, &bytes)) {
    throw Error(fmt::format("a K/V cache of {} blocks of {} tokens is too large", num_blocks, block_size));
  }
  data_ = Buffer(bytes);
}

void KvCache::touch(ThreadPool& pool, uint32_t blocks) {
  for (uint32_t place = 0; place < groups_.layers_per_block; ++place) {
    quire::touch(pool, {parts(place), blocks * block_bytes_});
  }
}

void KvCache::copy_block(const KvCache& source, BlockId from, BlockId to) {
  for (uint32_t place = 0; place < groups_.layers_per_block; ++place) {
    std::memcpy(parts(place) + to * block_bytes_, source.parts(place) + from * block_bytes_, block_bytes_);
  }
}

void KvCache::read_block(BlockId block, std::span<std::byte> bytes) const {
  for (uint32_t place = 0; place < groups_.layers_per_block; ++place) {
    std::memcpy(bytes.data() + place * block_bytes_, parts(place) + block * block_bytes_, block_bytes_);
  }
}

void KvCache::write_block(BlockId block, std::span<const std::byte> bytes) {
  for (uint32_t place = 0; place < groups_.layers_per_block; ++place) {
    std::memcpy(parts(place) + block * block_bytes_, bytes.data() + place * block_bytes_, block_bytes_);
  }
}

}  // namespace quire::backend::cpu
