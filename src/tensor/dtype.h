#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kU8, kI8 };

constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
    case DType::kI8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

/// "f32", "f16", "bf16", "i32", ...
std::string_view dtype_name(DType dtype);

/// Accepts our names and PyTorch's ("float32", "bfloat16", "torch.float16", ...).
std::optional<DType> parse_dtype(std::string_view name);

// Conversions of single values, round to nearest even; the references that kernels are tested against.
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

}  // namespace quire
