#include "backend/cuda/block_copier.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/copy_blocks.h"

namespace quire::backend::cuda {

static_assert(sizeof(control::BlockCopy) == 2 * sizeof(uint32_t), "a pair of CopyBlocksArgs::pairs");

BlockCopier::BlockCopier(const KvCache& cache, uint32_t most)
    : cache_(cache),
      most_(most),
      staging_(most_ * sizeof(control::BlockCopy), "the copies of blocks"),
      pairs_(most_ * sizeof(control::BlockCopy), "the copies of blocks"),
      read_(cache.num_blocks(), 0),
      written_(cache.num_blocks(), 0) {}

void BlockCopier::copy(std::span<const control::BlockCopy> copies, Stream stream) {
  while (!copies.empty()) {
    const auto now = copies.first(num_independent(copies));
    copies = copies.subspan(now.size());
    std::memcpy(staging_.take(), now.data(), now.size_bytes());
    staging_.copy(pairs_.data(), now.size_bytes(), stream);
    check(copy_blocks({.cache = cache_.memory().data(),
                       .part_bytes = cache_.blocks().block_bytes(),
                       .array_bytes = cache_.array_bytes(),
                       .arrays = cache_.groups().layers_per_block,
                       .pairs = pairs_.as<const uint32_t>(),
                       .count = static_cast<uint32_t>(now.size())},
                      stream),
          "copy_blocks");
  }
}

/// How many of the first copies one launch may make.
size_t BlockCopier::num_independent(std::span<const control::BlockCopy> copies) {
  ++launch_;
  const size_t most = std::min(copies.size(), most_);
  for (size_t i = 0; i < most; ++i) {
    const auto [from, to] = copies[i];
    if (written_[from] == launch_ || written_[to] == launch_ || read_[to] == launch_) return i;
    read_[from] = launch_;
    written_[to] = launch_;
  }
  return most;
}

}  // namespace quire::backend::cuda
