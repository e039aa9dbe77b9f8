#pragma once

#include <cstddef>
#include <cstdint>

// How numbers become integers: the weights of an output when a matrix is packed, activations and K/V as they
// come. Thread-safe.
namespace quire::kernels {

/// Inputs that share one scale of an int4 weight.
inline constexpr size_t kInt4Group = 32;

/// to[i] = the integer in -127..127 next to values[i] / scale, ties to even. Returns the scale: the largest
/// magnitude / 127; NaN, with `to` of no meaning, where a value is not finite. What KernelTable::quantize
/// does in the reference and faster, with the same result, at every other level.
float quantize_int8(const float* values, int8_t* to, size_t count);

/// weights[i] is about scale * group_scales[i / 32] * to[i], to in -8..7, group_scales in -15..15.
/// Each group's scale is the best of some about its largest magnitude (by squared error), then an integer
/// multiple of the common one. Returns the scale; NaN where a weight is not finite.
float quantize_int4(const float* weights, size_t count, int8_t* to, int8_t* group_scales);

}  // namespace quire::kernels
