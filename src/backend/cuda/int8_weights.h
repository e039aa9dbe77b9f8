#pragma once

#include <cstddef>
#include <cstdint>

// How matrices of int8 lie on the device: a scale for each row, by which its integers are multiplied, and
// rows of bytes with gaps of zeros up to a multiple of kInt8Group.
//
// A row's bytes are in the order in which a warp multiplies them: mma.m16n8k16 wants of lane l the elements
// 2 (l % 4), the next, and both again 8 further on, of each 16 of k. Of each 64 of k, those of the lanes with
// one l % 4 come one behind the other, so that a lane loads 16 bytes for four products.
namespace quire::backend::cuda {

inline constexpr uint32_t kInt8Group = 64;

/// The bytes of a row of k elements.
constexpr uint32_t int8_row_bytes(uint32_t k) { return (k + kInt8Group - 1) / kInt8Group * kInt8Group; }

/// Where element `k` lies in its row.
constexpr uint32_t int8_place(uint32_t k) {
  const uint32_t product = k % kInt8Group / 16;
  const uint32_t half = k % 16 / 8;
  const uint32_t lane = k % 8 / 2;
  return k / kInt8Group * kInt8Group + lane * 16 + product * 4 + half * 2 + k % 2;
}

}  // namespace quire::backend::cuda
