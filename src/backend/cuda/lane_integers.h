#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/int4_weights.h"
#include "backend/cuda/int8_weights.h"
#include "backend/cuda/ptx_mma.h"

// What a lane makes of weights of int8 and int4: elements of f16 and bf16, as mma.m16n8k16 wants them.
namespace quire::backend::cuda {

/// Formats of weights. A row's are in four pieces for each kPiecesK of k: one for each lane that has the row.
struct Int8 {
  static constexpr bool kHasGroupScales = false;
  static constexpr uint32_t kPiecesK = kInt8Group;
  __device__ __forceinline__ static uint32_t row_bytes(uint32_t k) { return int8_row_bytes(k); }
};
struct Int4 {
  static constexpr bool kHasGroupScales = true;
  static constexpr uint32_t kPiecesK = kInt4Stretch;
  __device__ __forceinline__ static uint32_t row_bytes(uint32_t k) { return int4_row_bytes(k); }
};

/// Two bytes of a word as elements, the first of which is the lower.
template <class T>
__device__ __forceinline__ uint32_t widened(uint32_t word, uint32_t pair) {
  const auto byte = [word](uint32_t i) { return static_cast<float>(static_cast<int8_t>(word >> (i * 8))); };
  return pack_pair<T>(byte(pair * 2), byte(pair * 2 + 1));
}

/// The elements of 32 of k that a lane has of a column: of two products, two halves each.
struct LaneElements {
  uint32_t words[2][2];
};

/// A lane's weights of a column, which load() takes from shared memory: a piece and, of int4, the four scales
/// of its groups. Each next() gives the elements of the next 32 of k.
template <class Weights, class T>
struct LaneIntegers;

template <class T>
struct LaneIntegers<Int8, T> {
  ptx::Vec128 piece;

  __device__ __forceinline__ void load(const unsigned char* from, const unsigned char*) {
    piece = ptx::load_shared_128(from);
  }
  __device__ __forceinline__ LaneElements next() {
    const uint32_t first = piece.words[0];
    const uint32_t second = piece.words[1];
    piece.words[0] = piece.words[2];
    piece.words[1] = piece.words[3];
    return {{{widened<T>(first, 0), widened<T>(first, 1)}, {widened<T>(second, 0), widened<T>(second, 1)}}};
  }
};

/// A nibble is the lowest bits of 128 or 1,024 and itself, as a number of T. That times the group's scale,
/// less the same with 8 and all that was added to the nibble: 17 or 129 times a scale of four bits, times a
/// power of 2. All these are exact, the result too, and fused so is their difference.
template <class T>
struct LaneIntegers<Int4, T> {
  static constexpr bool kIsBf16 = std::is_same_v<T, Bf16>;
  static constexpr uint32_t kAddedBits = kIsBf16 ? 0x43004300 : 0x64006400;
  static constexpr float kAdded = kIsBf16 ? 128.0F + 8.0F : 1024.0F + 8.0F;
  ptx::Vec128 piece;
  uint32_t scales;

  __device__ __forceinline__ void load(const unsigned char* from, const unsigned char* scales_from) {
    piece = ptx::load_shared_128(from);
    scales = *reinterpret_cast<const uint32_t*>(scales_from);
  }
  __device__ __forceinline__ LaneElements next() {
    const auto scale = static_cast<float>(static_cast<int8_t>(scales));
    const uint32_t word = piece.words[0];
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 3; ++i) piece.words[i] = piece.words[i + 1];
    scales >>= 8;
    const uint32_t scale_pair = pack_pair<T>(scale, scale);
    const uint32_t less_pair = pack_pair<T>(scale * -kAdded, scale * -kAdded);
    const auto pair = [&](uint32_t i) {
      const uint32_t nibbles = word >> (i * 4) & 0x000f000f;
      return ptx::fused_pair<T>(nibbles | kAddedBits, scale_pair, less_pair);
    };
    return {{{pair(0), pair(1)}, {pair(2), pair(3)}}};
  }
};

}  // namespace quire::backend::cuda
