#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/device.h"
#include "backend/cuda/ptx.h"
#include "tensor/dtype.h"

// The number formats of activations, weights and K/V on the device, converted one by one or 16 bytes at once.
namespace quire::backend::cuda {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(Bf16 value) { return float_of_bits(uint32_t{value.bits} << 16); }
__device__ __forceinline__ float to_float(F16 value) { return ptx::from_f16(value.bits); }

/// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return {ptx::to_bf16(value)};
  } else if constexpr (std::is_same_v<T, F16>) {
    return {ptx::to_f16(value)};
  } else {
    return value;
  }
}

/// How many elements 16 bytes hold. A *piece* is that many, at a multiple of 16 bytes.
template <class T>
inline constexpr uint32_t kPiece = 16 / sizeof(T);

/// The elements of a piece as f32.
template <class T>
struct Floats {
  float at[kPiece<T>];
};

template <class T>
__device__ __forceinline__ Floats<T> unpack(const ptx::Vec128& piece) {
  Floats<T> out;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kPiece<T>; ++i) {
    if constexpr (sizeof(T) == 4) {
      out.at[i] = float_of_bits(piece.words[i]);
    } else {
      const uint32_t word = piece.words[i / 2];
      out.at[i] = to_float(T{static_cast<uint16_t>(i % 2 == 0 ? word : word >> 16)});
    }
  }
  return out;
}

template <class T>
__device__ __forceinline__ ptx::Vec128 pack(const Floats<T>& values) {
  ptx::Vec128 out{};
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kPiece<T>; ++i) {
    if constexpr (sizeof(T) == 4) {
      out.words[i] = float_bits(values.at[i]);
    } else {
      out.words[i / 2] |= uint32_t{from_float<T>(values.at[i]).bits} << (i % 2 * 16);
    }
  }
  return out;
}

/// Two elements of 16 bits in a word, the first in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  return uint32_t{from_float<T>(low).bits} | uint32_t{from_float<T>(high).bits} << 16;
}

/// Calls body(T{}) with the type that `dtype` names: f32, f16 or bf16.
template <class Body>
LaunchError for_element(DType dtype, const Body& body) {
  if (dtype == DType::kF32) return body(float{});
  return dtype == DType::kF16 ? body(F16{}) : body(Bf16{});
}

}  // namespace quire::backend::cuda
