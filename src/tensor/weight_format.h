#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace quire {

/// How the weights of a matmul are stored and multiplied:
///   f32, f16  as they are, with f32 activations
///   bf16      as they are, with activations rounded to bf16
///   int8      int8 with one f32 scale an output; activations int8 with one f32 scale a row. The sum over K
///             is an exact integer, so all ISA levels give the same bits
///   int4      4 bits times a small integer scale for every 32 inputs, which make an int8 with one f32 scale
///             an output; from there on as int8
///   Q8_0, Q4_0, Q4_K, Q6_K
///             ggml's blocks: integers with a scale for every 32 inputs (Q6_K: 16), Q4_K with a minimum
///             besides, all as the file has them; activations as with int8. The sum over such a group is an
///             exact integer, and the groups add in f32 in one order, so all ISA levels give the same bits
/// Accumulation is in f32, or in exact int32.
enum class WeightFormat : uint8_t { kF32, kF16, kBF16, kInt8, kInt4, kQ8_0, kQ4_0, kQ4_K, kQ6_K };
inline constexpr size_t kNumWeightFormats = 9;

/// The weights' integers are multiplied with those of quantized activations.
constexpr bool is_integer(WeightFormat format) { return format >= WeightFormat::kInt8; }
/// A format whose quantization blocks are taken unchanged from a GGUF file; the other formats are made from
/// numbers.
constexpr bool is_ggml(WeightFormat format) { return format >= WeightFormat::kQ8_0; }

/// A row in a ggml format is a whole number of quantization blocks, each of `values` values in `bytes` bytes.
struct GgmlBlock {
  size_t values = 0;
  size_t bytes = 0;
};
/// REQUIRES: is_ggml(format).
constexpr GgmlBlock ggml_block(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {32, 34};
    case WeightFormat::kQ4_0:
      return {32, 18};
    case WeightFormat::kQ4_K:
      return {256, 144};
    default:
      return {256, 210};
  }
}

/// "f32", "f16", "bf16", "int8", "int4"; for ggml formats ggml's own name: "Q8_0", ...
std::string_view weight_format_name(WeightFormat format);
/// REQUIRES: `dtype` is a floating-point type.
WeightFormat weight_format_of(DType dtype);

}  // namespace quire
