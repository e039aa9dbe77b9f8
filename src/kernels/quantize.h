#pragma once

#include <cstddef>
#include <cstdint>

// Quantization to integers: of the weights of an output when a matrix is packed, and of activations and K/V.
// Thread-safe.
namespace quire::kernels {

/// Inputs that share one scale of an int4 weight.
inline constexpr size_t kInt4Group = 32;

/// Values are zeros if none has this magnitude: the inverse of a smaller scale need not be finite.
inline constexpr float kLeastInt8Magnitude = 0x1p-120F;

/// to[i] = the integer in -127..127 nearest to values[i] / scale, ties to even. Returns the scale: the
/// largest magnitude / 127; the default NaN, with `to` undefined, if a value is not finite. This is
/// KernelTable::quantize of the reference level; all other levels give the same result faster.
float quantize_int8(const float* values, int8_t* to, size_t count);

/// weights[i] is about scale * group_scales[i / 32] * to[i], to in -8..7, group_scales in -15..15. Each
/// group's scale is the best, by squared error, of several candidates near its largest magnitude, then
/// rounded to an integer multiple of the common scale. Returns the scale; NaN if a weight is not finite.
float quantize_int4(const float* weights, size_t count, int8_t* to, int8_t* group_scales);

/// Rows that quantize_int4_rows() takes as fast as one.
inline constexpr size_t kInt4Rows = 32;

/// quantize_int4() of up to kInt4Rows rows [num_rows, k], by this machine's fastest level: to [num_rows, k],
/// group_scales [num_rows, groups of a row], scales [num_rows].
void quantize_int4_rows(const float* rows, size_t num_rows, size_t k, int8_t* to, int8_t* group_scales,
                        float* scales);

}  // namespace quire::kernels
