#pragma once

#include <cstddef>
#include <cstdint>

// How matrices of int4 lie on the device: as those of int8 (int8_weights.h), but that an integer is the
// product of one in -8..7 and of a scale in -15..15 that 32 neighbours of a row have in common.
//
// The smaller integers, plus 8, are nibbles of a word that has 32 of k for a lane: mma.m16n8k16 wants of lane
// l the elements 2 (l % 4), the next, and both again 8 further on, of each 16 of k. Two neighbours are four
// nibbles apart, so that a shift and a mask leave both in halves of a word. Of each 128 of k, the words of
// the lanes with one l % 4 come one behind the other, so that a lane loads 16 bytes for eight products.
//
// The scales of 16 rows lie together, those of a row by eight, so that what a block copies at once is whole
// sectors.
namespace quire::backend::cuda {

inline constexpr uint32_t kInt4Stretch = 128;
inline constexpr uint32_t kInt4Scaled = 32;  // of k, by one scale
inline constexpr uint32_t kScaleRows = 16;
inline constexpr uint32_t kScalesTogether = 8;

/// The bytes of a row of k elements, without its scales.
constexpr uint32_t int4_row_bytes(uint32_t k) {
  return (k + kInt4Stretch - 1) / kInt4Stretch * kInt4Stretch / 2;
}

/// Where element `k` lies in its row, in nibbles, of which the lower of a byte comes first.
constexpr uint32_t int4_place(uint32_t k) {
  const uint32_t lane = k % 8 / 2;
  const uint32_t word = k % kInt4Stretch / 32;
  const uint32_t product = k % 32 / 16;
  const uint32_t half = k % 16 / 8;
  return k / kInt4Stretch * kInt4Stretch + lane * 32 + word * 8 + product * 2 + half + k % 2 * 4;
}

/// How far the scales of 16 rows of k elements are from those of the next 16.
constexpr uint32_t int4_scale_stride(uint32_t k) {
  const uint32_t stretch = kInt4Scaled * kScalesTogether;
  return (k + stretch - 1) / stretch * kScaleRows * kScalesTogether;
}
/// The bytes of the scales of a matrix [n, k].
constexpr size_t int4_scale_bytes(uint32_t n, uint32_t k) {
  return size_t{(n + kScaleRows - 1) / kScaleRows} * int4_scale_stride(k);
}
/// Where the scale of element `k` of a row lies among those of its matrix, whose rows are `k_all` long.
constexpr size_t int4_scale_place(uint32_t row, uint32_t k, uint32_t k_all) {
  const uint32_t scale = k / kInt4Scaled;
  return size_t{row / kScaleRows} * int4_scale_stride(k_all) +
         (scale / kScalesTogether * kScaleRows + row % kScaleRows) * kScalesTogether +
         scale % kScalesTogether;
}

}  // namespace quire::backend::cuda
