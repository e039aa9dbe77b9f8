#include "formats/ggml_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"

namespace quire::formats {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kSuperBlock = 256;

uint8_t byte_at(const std::byte* data, size_t i) { return std::to_integer<uint8_t>(data[i]); }
int8_t signed_at(const std::byte* data, size_t i) { return static_cast<int8_t>(byte_at(data, i)); }

uint16_t half_bits_at(const std::byte* data, size_t offset) {
  uint16_t bits = 0;
  std::memcpy(&bits, data + offset, sizeof(bits));
  return bits;
}
float half_at(const std::byte* data, size_t offset) { return f16_to_f32(half_bits_at(data, offset)); }

uint32_t word_at(const std::byte* data, size_t offset) {
  uint32_t bits = 0;
  std::memcpy(&bits, data + offset, sizeof(bits));
  return bits;
}

float to_float(int value) { return static_cast<float>(value); }

// In the formats of 32 values the low halves of 16 bytes are the first 16 values, the high halves the others.
int nibble(const std::byte* packed, size_t i) {
  const uint8_t byte = byte_at(packed, i % 16);
  return i < 16 ? byte & 0x0f : byte >> 4;
}

void dequantize_f32(const std::byte* block, float* out) { std::memcpy(out, block, sizeof(float)); }
void dequantize_f16(const std::byte* block, float* out) { *out = half_at(block, 0); }
void dequantize_bf16(const std::byte* block, float* out) { *out = bf16_to_f32(half_bits_at(block, 0)); }

// scale, 32 signed bytes
void dequantize_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kBlock; ++i) out[i] = to_float(signed_at(block, 2 + i)) * d;
}

// scale, 32 nibbles less 8
void dequantize_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kBlock; ++i) out[i] = to_float(nibble(block + 2, i) - 8) * d;
}

// scale, minimum, 32 nibbles
void dequantize_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float m = half_at(block, 2);
  for (size_t i = 0; i < kBlock; ++i) {
    out[i] = to_float(nibble(block + 4, i)) * d + m;
  }
}

// scale, 32 fifth bits, 32 nibbles; the number of 5 bits less 16
void dequantize_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const uint32_t high = word_at(block, 2);
  for (size_t i = 0; i < kBlock; ++i) {
    const int q = nibble(block + 6, i) | static_cast<int>((high >> i & 1U) << 4);
    out[i] = to_float(q - 16) * d;
  }
}

// scale, minimum, 32 fifth bits, 32 nibbles
void dequantize_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float m = half_at(block, 2);
  const uint32_t high = word_at(block, 4);
  for (size_t i = 0; i < kBlock; ++i) {
    const int q = nibble(block + 8, i) | static_cast<int>((high >> i & 1U) << 4);
    out[i] = to_float(q) * d + m;
  }
}

// scale, 32 nibbles that choose from a table
void dequantize_iq4_nl(const std::byte* block, float* out) {
  constexpr std::array<int8_t, 16> kValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
  const float d = half_at(block, 0);
  for (size_t i = 0; i < kBlock; ++i) {
    out[i] = d * to_float(kValues[static_cast<size_t>(nibble(block + 2, i))]);
  }
}

struct ScaleAndMin {
  int scale;
  int min;
};

/// Q4_K and Q5_K pack eight scales and eight minima of 6 bits into 12 bytes: bytes 0..3 and 4..7 have those
/// of the first four sub-blocks whole, and in their upper two bits the upper two of the last four, whose
/// lower nibbles are in bytes 8..11.
ScaleAndMin scale_and_min(const std::byte* packed, size_t sub) {
  if (sub < 4) return {byte_at(packed, sub) & 63, byte_at(packed, sub + 4) & 63};
  const uint8_t low = byte_at(packed, sub + 4);
  return {(low & 0x0f) | (byte_at(packed, sub - 4) >> 6) << 4, low >> 4 | (byte_at(packed, sub) >> 6) << 4};
}

// scale of scales, scale of minima, 12 bytes of both, 8 * 32 nibbles: of each 32 bytes first the low ones
void dequantize_q4_k(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float dmin = half_at(block, 2);
  const std::byte* packed = block + 16;
  for (size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin s = scale_and_min(block + 4, sub);
    const float scale = d * to_float(s.scale);
    const float min = dmin * to_float(s.min);
    for (size_t i = 0; i < kBlock; ++i) {
      const uint8_t byte = byte_at(packed, sub / 2 * kBlock + i);
      out[sub * kBlock + i] = scale * to_float(sub % 2 == 0 ? byte & 0x0f : byte >> 4) - min;
    }
  }
}

// as Q4_K, with 32 bytes of fifth bits before the nibbles: bit `sub` of byte i belongs to value i of `sub`
void dequantize_q5_k(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float dmin = half_at(block, 2);
  const std::byte* high = block + 16;
  const std::byte* packed = high + kBlock;
  for (size_t sub = 0; sub < 8; ++sub) {
    const ScaleAndMin s = scale_and_min(block + 4, sub);
    const float scale = d * to_float(s.scale);
    const float min = dmin * to_float(s.min);
    for (size_t i = 0; i < kBlock; ++i) {
      const uint8_t byte = byte_at(packed, sub / 2 * kBlock + i);
      const int low = sub % 2 == 0 ? byte & 0x0f : byte >> 4;
      out[sub * kBlock + i] = scale * to_float(low | (byte_at(high, i) >> sub & 1) << 4) - min;
    }
  }
}

// 128 bytes of nibbles, 64 of upper pairs, 16 signed scales of 16 values each, the scale of scales; a number
// of 6 bits less 32. Each half of 128 values takes 64 bytes of nibbles and 32 of pairs.
void dequantize_q6_k(const std::byte* block, float* out) {
  const std::byte* low = block;
  const std::byte* high = block + 128;
  const std::byte* scales = block + 192;
  const float d = half_at(block, 208);
  for (size_t i = 0; i < kSuperBlock; ++i) {
    const size_t half = i / 128;
    const size_t quarter = i % 128 / 32;
    const size_t in_quarter = i % 32;
    const uint8_t nibbles = byte_at(low, half * 64 + quarter % 2 * 32 + in_quarter);
    const int pair = byte_at(high, half * 32 + in_quarter) >> (2 * quarter) & 3;
    const int q = ((quarter < 2 ? nibbles & 0x0f : nibbles >> 4) | pair << 4) - 32;
    const float scale = d * to_float(signed_at(scales, i / 16));
    out[i] = scale * to_float(q);
  }
}

// Types without a function are sized and located like the others, and refused when they are loaded.
constexpr std::array kTypes = {
    GgmlType{0, "F32", 1, 4, dequantize_f32},
    GgmlType{1, "F16", 1, 2, dequantize_f16},
    GgmlType{2, "Q4_0", 32, 18, dequantize_q4_0},
    GgmlType{3, "Q4_1", 32, 20, dequantize_q4_1},
    GgmlType{6, "Q5_0", 32, 22, dequantize_q5_0},
    GgmlType{7, "Q5_1", 32, 24, dequantize_q5_1},
    GgmlType{8, "Q8_0", 32, 34, dequantize_q8_0},
    GgmlType{9, "Q8_1", 32, 36, nullptr},
    GgmlType{10, "Q2_K", 256, 84, nullptr},
    GgmlType{11, "Q3_K", 256, 110, nullptr},
    GgmlType{12, "Q4_K", 256, 144, dequantize_q4_k},
    GgmlType{13, "Q5_K", 256, 176, dequantize_q5_k},
    GgmlType{14, "Q6_K", 256, 210, dequantize_q6_k},
    GgmlType{15, "Q8_K", 256, 292, nullptr},
    GgmlType{16, "IQ2_XXS", 256, 66, nullptr},
    GgmlType{17, "IQ2_XS", 256, 74, nullptr},
    GgmlType{18, "IQ3_XXS", 256, 98, nullptr},
    GgmlType{19, "IQ1_S", 256, 50, nullptr},
    GgmlType{20, "IQ4_NL", 32, 18, dequantize_iq4_nl},
    GgmlType{21, "IQ3_S", 256, 110, nullptr},
    GgmlType{22, "IQ2_S", 256, 82, nullptr},
    GgmlType{23, "IQ4_XS", 256, 136, nullptr},
    GgmlType{24, "I8", 1, 1, nullptr},
    GgmlType{25, "I16", 1, 2, nullptr},
    GgmlType{26, "I32", 1, 4, nullptr},
    GgmlType{27, "I64", 1, 8, nullptr},
    GgmlType{28, "F64", 1, 8, nullptr},
    GgmlType{29, "IQ1_M", 256, 56, nullptr},
    GgmlType{30, "BF16", 1, 2, dequantize_bf16},
    GgmlType{34, "TQ1_0", 256, 54, nullptr},
    GgmlType{35, "TQ2_0", 256, 66, nullptr},
    GgmlType{39, "MXFP4", 32, 17, nullptr},
};

}  // namespace

std::span<const GgmlType> ggml_types() { return kTypes; }

const GgmlType* find_ggml_type(uint32_t id) {
  const auto* found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const GgmlType& type) { return type.id == id; });
  return found == kTypes.end() ? nullptr : found;
}

void dequantize(const GgmlType& type, const std::byte* blocks, size_t count, float* out) {
  if (type.id == kGgmlF32) {
    if (count != 0) std::memcpy(out, blocks, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; i += type.block_values, blocks += type.block_bytes) {
    type.dequantize(blocks, out + i);
  }
}

void quantize_q8_0(const float* values, size_t count, std::byte* out) {
  for (size_t first = 0; first < count; first += kBlock, out += 2 + kBlock) {
    float largest = 0.0F;
    for (size_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(values[first + i]));
    const float d = largest / 127.0F;
    const float inverse = d != 0.0F ? 1.0F / d : 0.0F;
    const uint16_t bits = f32_to_f16(d);
    std::memcpy(out, &bits, sizeof(bits));
    for (size_t i = 0; i < kBlock; ++i) {
      // Half away from zero, as in ggml. NaN and overflowing values have no result here.
      const float rounded = std::round(values[first + i] * inverse);
      const int q = rounded >= -127.0F && rounded <= 127.0F ? static_cast<int>(rounded) : 0;
      out[2 + i] = static_cast<std::byte>(q);
    }
  }
}

}  // namespace quire::formats
