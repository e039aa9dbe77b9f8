#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/tensor.h"
#include "tensor/weight_format.h"

namespace quire::test {

inline constexpr WeightFormat kGgmlFormats[] = {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K,
                                                WeightFormat::kQ6_K};

/// Where a block has its scales in f16.
inline std::vector<size_t> places_of_halves(WeightFormat format) {
  if (format == WeightFormat::kQ4_K) return {0, 2};
  return {format == WeightFormat::kQ6_K ? size_t{208} : size_t{0}};
}

/// `count` blocks of any bytes, with scales between `scale` and twice that of one sign or the other, so that
/// every integer and every small scale that a file may have occurs.
inline std::vector<std::byte> random_blocks(uint64_t seed, WeightFormat format, size_t count,
                                            float scale = 0.01F) {
  SplitMix64 rng(seed);
  const size_t bytes = ggml_block(format).bytes;
  std::vector<std::byte> blocks(count * bytes);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng.next());
  for (size_t i = 0; i < count; ++i) {
    for (const size_t place : places_of_halves(format)) {
      const auto size = static_cast<float>(1.0 + unit_interval(rng.next())) * scale;
      const uint16_t half = f32_to_f16(rng.next() % 4 == 0 ? -size : size);
      std::memcpy(blocks.data() + i * bytes + place, &half, sizeof(half));
    }
  }
  return blocks;
}

/// Rows of k values of a format, with memory of their own.
struct BlockTensor {
  BlockTensor(uint64_t seed, WeightFormat format, size_t n, size_t k, float scale = 0.01F)
      : bytes(random_blocks(seed, format, n * k / ggml_block(format).values, scale)),
        view{DType::kU8,
             {static_cast<int64_t>(n),
              static_cast<int64_t>(k / ggml_block(format).values * ggml_block(format).bytes)},
             bytes.data()} {}
  BlockTensor(const BlockTensor&) = delete;
  BlockTensor& operator=(const BlockTensor&) = delete;

  std::vector<std::byte> bytes;
  TensorView view;
};

}  // namespace quire::test
