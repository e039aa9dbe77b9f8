#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quire::formats {

/// A number format of ggml: a row is a whole number of quantization blocks, each with a fixed number of
/// values and bytes. (github.com/ggml-org/ggml, ggml-common.h.)
struct GgmlType {
  uint32_t id = 0;  // its number in GGUF files
  std::string_view name;
  uint32_t block_values = 1;
  uint32_t block_bytes = 0;
  /// Computes the values of one quantization block, with the same bits as ggml's reference. Null: the format
  /// is known, but not supported.
  void (*dequantize)(const std::byte* block, float* out) = nullptr;
};

inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlQ8_0 = 8;
inline constexpr uint32_t kGgmlBF16 = 30;

/// All formats that ggml still reads.
std::span<const GgmlType> ggml_types();
/// Null if no format has that number.
const GgmlType* find_ggml_type(uint32_t id);

/// Expands `count` values, a multiple of the quantization block, from `blocks` (of any alignment). REQUIRES:
/// the type is supported.
void dequantize(const GgmlType& type, const std::byte* blocks, size_t count, float* out);

/// Quantizes `count` values, a multiple of 32, to Q8_0: for every 32 values a scale (f16) and 32 signed
/// bytes.
void quantize_q8_0(const float* values, size_t count, std::byte* out);

}  // namespace quire::formats
