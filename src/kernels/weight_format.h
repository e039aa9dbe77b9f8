#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace quire {

/// How the weights of a matmul are kept and multiplied:
///   f32, f16  as they are, with f32 activations
///   bf16      as they are, with activations rounded to bf16
///   int8      int8 with one f32 scale an output; activations int8 with one f32 scale a row. The sum over K
///             is an exact integer, so all ISA levels give the same bits
///   int4      4 bits times a small integer scale for every 32 inputs, which make an int8 with one f32 scale
///             an output; from there on as int8
/// Accumulation is in f32, or in exact int32.
enum class WeightFormat : uint8_t { kF32, kF16, kBF16, kInt8, kInt4 };
inline constexpr size_t kNumWeightFormats = 5;

std::string_view weight_format_name(WeightFormat format);  // "f32", "f16", "bf16", "int8", "int4"
/// Of a floating-point type.
WeightFormat weight_format_of(DType dtype);

}  // namespace quire
