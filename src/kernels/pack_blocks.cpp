#include "kernels/pack_blocks.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/kernel_table.h"

// ggml's blocks (github.com/ggml-org/ggml, ggml-common.h), taken apart and laid out in panels.
namespace quire::kernels {
namespace {

using cpu::BlockLayout;
using cpu::kBlockInputs;
using cpu::kPanelWidth;

constexpr size_t kMostValues = 256;
constexpr size_t kMostScales = 16;

/// A block of any format, its integers without a sign.
struct Block {
  uint16_t halves[2];  // d, and of Q4_K dmin
  uint8_t scales[kMostScales];
  uint8_t integers[kMostValues];
};

uint8_t byte_at(const std::byte* data, size_t i) { return static_cast<uint8_t>(data[i]); }

void take_q8_0(const std::byte* from, Block& to) {
  std::memcpy(to.halves, from, 2);
  for (size_t i = 0; i < 32; ++i) to.integers[i] = byte_at(from, 2 + i) ^ 0x80;
}

void take_q4_0(const std::byte* from, Block& to) {
  std::memcpy(to.halves, from, 2);
  for (size_t i = 0; i < 16; ++i) {
    to.integers[i] = byte_at(from, 2 + i) & 0x0f;
    to.integers[i + 16] = byte_at(from, 2 + i) >> 4;
  }
}

/// Bytes 0..3 and 4..7 of 12 are the scales and the minima of the first four groups, and have in their upper
/// two bits the upper two of the last four, whose lower nibbles are bytes 8..11.
void take_q4_k(const std::byte* from, Block& to) {
  std::memcpy(to.halves, from, 4);
  const std::byte* packed = from + 4;
  for (size_t i = 0; i < 4; ++i) {
    const uint8_t scale = byte_at(packed, i);
    const uint8_t min = byte_at(packed, i + 4);
    const uint8_t low = byte_at(packed, i + 8);
    to.scales[2 * i] = scale & 63;
    to.scales[2 * i + 1] = min & 63;
    to.scales[2 * i + 8] = static_cast<uint8_t>((low & 0x0f) | scale >> 6 << 4);
    to.scales[2 * i + 9] = static_cast<uint8_t>(low >> 4 | min >> 6 << 4);
  }
  for (size_t pair = 0; pair < 4; ++pair) {
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t byte = byte_at(from, 16 + pair * 32 + i);
      to.integers[pair * 64 + i] = byte & 0x0f;
      to.integers[pair * 64 + 32 + i] = byte >> 4;
    }
  }
}

/// Each half of 128 values has 64 bytes of nibbles and 32 of their upper two bits.
void take_q6_k(const std::byte* from, Block& to) {
  std::memcpy(to.halves, from + 208, 2);
  std::memcpy(to.scales, from + 192, 16);
  for (size_t half = 0; half < 2; ++half) {
    const std::byte* low = from + half * 64;
    const std::byte* high = from + 128 + half * 32;
    uint8_t* out = to.integers + half * 128;
    for (size_t i = 0; i < 32; ++i) {
      const int bits = byte_at(high, i);
      out[i] = static_cast<uint8_t>((byte_at(low, i) & 0x0f) | (bits & 3) << 4);
      out[i + 32] = static_cast<uint8_t>((byte_at(low, i + 32) & 0x0f) | (bits >> 2 & 3) << 4);
      out[i + 64] = static_cast<uint8_t>(byte_at(low, i) >> 4 | (bits >> 4 & 3) << 4);
      out[i + 96] = static_cast<uint8_t>(byte_at(low, i + 32) >> 4 | bits >> 6 << 4);
    }
  }
}

void take(WeightFormat format, const std::byte* from, Block& to) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return take_q8_0(from, to);
    case WeightFormat::kQ4_0:
      return take_q4_0(from, to);
    case WeightFormat::kQ4_K:
      return take_q4_k(from, to);
    default:
      return take_q6_k(from, to);
  }
}

/// Two steps of four inputs in the bytes of one.
void pair_nibbles(uint8_t* integers, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    for (size_t j = 0; j < 4; ++j) {
      integers[i / 2 + j] = static_cast<uint8_t>(integers[i + j] | integers[i + 4 + j] << 4);
    }
  }
}

bool is_finite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

/// What stands under one header.
void lay_out(const cpu::PackTable& kernels, const BlockLayout& layout, const Block* blocks,
             const bool* is_there, std::byte* to) {
  const size_t kinds = layout.header_bytes / (kPanelWidth * sizeof(uint16_t));
  for (size_t kind = 0; kind < kinds; ++kind) {
    for (size_t row = 0; row < kPanelWidth; ++row, to += sizeof(uint16_t)) {
      const uint16_t half = is_there[row] ? blocks[row].halves[kind] : uint16_t{0};
      std::memcpy(to, &half, sizeof(half));
    }
  }
  const size_t scales = layout.scale_bytes / kPanelWidth;
  const size_t bytes = kBlockInputs / (layout.nibbles ? 2 : 1);
  for (size_t at = 0; at < layout.inputs / kBlockInputs; ++at) {
    for (size_t i = 0; i < scales; ++i) {
      for (size_t row = 0; row < kPanelWidth; ++row) {
        *to++ = is_there[row] ? std::byte{blocks[row].scales[at * scales + i]} : std::byte{0};
      }
    }
    const std::byte* lines[kPanelWidth] = {};
    for (size_t row = 0; row < kPanelWidth; ++row) {
      if (is_there[row]) lines[row] = reinterpret_cast<const std::byte*>(blocks[row].integers) + at * bytes;
    }
    kernels.interleave(lines, kPanelWidth, bytes / 4, to);
    to += bytes * kPanelWidth;
  }
}

}  // namespace

bool pack_blocks(const cpu::PackTable& kernels, WeightFormat format, const std::byte* const* rows, size_t k,
                 std::byte* to) {
  const BlockLayout layout = cpu::block_layout(format);
  const size_t block_bytes = ggml_block(format).bytes;
  bool finite = true;
  bool is_there[kPanelWidth];
  for (size_t row = 0; row < kPanelWidth; ++row) is_there[row] = rows[row] != nullptr;
  Block blocks[kPanelWidth];
  for (size_t at = 0; at < k / layout.inputs; ++at, to += layout.bytes()) {
    for (size_t row = 0; row < kPanelWidth; ++row) {
      if (!is_there[row]) continue;
      Block& block = blocks[row];
      take(format, rows[row] + at * block_bytes, block);
      finite = finite && is_finite(block.halves[0]);
      if (format == WeightFormat::kQ4_K) finite = finite && is_finite(block.halves[1]);
      if (layout.nibbles) pair_nibbles(block.integers, layout.inputs);
    }
    lay_out(kernels, layout, blocks, is_there, to);
  }
  return finite;
}

}  // namespace quire::kernels
