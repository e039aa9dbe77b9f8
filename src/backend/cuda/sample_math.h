#pragma once

#include <cstdint>
#include <limits>

#include "backend/cuda/device.h"
#include "backend/cuda/ptx_mma.h"

// Numbers of sampling on the device, bit for bit those of sample/logits.cpp.
namespace quire::backend::cuda {

/// The values of which the CPU makes one sum: sample::kLogitBlock.
inline constexpr uint32_t kSpan = 64;
inline constexpr float kForbiddenLogit = -std::numeric_limits<float>::infinity();
inline constexpr float kLeastExponent = -87.0F;

/// sample::exp_nonpositive, whose quotient its callers take: nvcc rounds quotients as IEEE 754 has it and
/// keeps subnormal numbers, unless it is told to be fast. The products are named, since nvcc would make one
/// rounding of a product and a sum.
__device__ __forceinline__ float exp_nonpositive(float z) {
  constexpr float kRound = 12582912.0F;
  const float shifted = ptx::product(z, 1.44269504F) + kRound;
  const float n = shifted - kRound;
  const float r = (z - ptx::product(n, 0.693359375F)) - ptx::product(n, -2.12194440e-4F);
  float p = 1.0F / 5040.0F;
  p = ptx::product(p, r) + 1.0F / 720.0F;
  p = ptx::product(p, r) + 1.0F / 120.0F;
  p = ptx::product(p, r) + 1.0F / 24.0F;
  p = ptx::product(p, r) + 1.0F / 6.0F;
  p = ptx::product(p, r) + 0.5F;
  p = ptx::product(p, r) + 1.0F;
  p = ptx::product(p, r) + 1.0F;
  const uint32_t power = (float_bits(shifted) << 23) + float_bits(1.0F);
  // Also of -infinity, for which all above is not a number.
  return z < kLeastExponent ? 0.0F : ptx::product(p, float_of_bits(power));
}

__device__ __forceinline__ bool is_finite(float x) { return (float_bits(x) & 0x7f800000U) != 0x7f800000U; }

/// To the finite value next to it.
__device__ __forceinline__ float clamp_to_finite(float x) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return x < -kMax ? -kMax : x > kMax ? kMax : x;
}

/// Bits that order as the numbers do; both zeros have the same.
__device__ __forceinline__ uint32_t ordered_bits(float x) {
  const uint32_t bits = x == 0.0F ? 0 : float_bits(x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float number_of_ordered(uint32_t bits) {
  return float_of_bits((bits >> 31) != 0 ? bits & 0x7fffffffU : ~bits);
}

/// A token with its logit: a number, lower for a higher logit and, on a tie, for a lower id.
__device__ __forceinline__ uint64_t make_entry(float value, uint32_t id) {
  return uint64_t{~ordered_bits(value)} << 32 | id;
}
__device__ __forceinline__ uint32_t id_of(uint64_t entry) { return static_cast<uint32_t>(entry); }
__device__ __forceinline__ float value_of(uint64_t entry) {
  return number_of_ordered(~static_cast<uint32_t>(entry >> 32));
}

}  // namespace quire::backend::cuda
