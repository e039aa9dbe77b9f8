#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quire::formats {

/// A number format of ggml: a row is a whole number of blocks, and a block of so many values takes so many
/// bytes. (github.com/ggml-org/ggml, ggml-common.h.)
struct GgmlType {
  uint32_t id = 0;  // as GGUF files write it
  std::string_view name;
  uint32_t block_values = 1;
  uint32_t block_bytes = 0;
  /// The values of one block, to the bit as ggml's reference computes them. Null: the format is known, but
  /// not read.
  void (*dequantize)(const std::byte* block, float* out) = nullptr;
};

inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlQ8_0 = 8;
inline constexpr uint32_t kGgmlBF16 = 30;

/// All that ggml has had and still reads.
std::span<const GgmlType> ggml_types();
/// Null if there is none of that number.
const GgmlType* find_ggml_type(uint32_t id);

/// `count` values, a multiple of the type's block, from `blocks` (of any alignment). The type must be one
/// that is read.
void dequantize(const GgmlType& type, const std::byte* blocks, size_t count, float* out);

/// `count` values, a multiple of 32, as Q8_0: for each 32 a scale (f16) and 32 signed bytes.
void quantize_q8_0(const float* values, size_t count, std::byte* out);

}  // namespace quire::formats
