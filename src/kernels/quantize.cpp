#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/context.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/table.h"

namespace quire::kernels {
namespace {

constexpr float kMost8 = 127.0F;
constexpr int kLeast4 = -8;
constexpr int kMost4 = 7;
constexpr int kMostGroupScale = 15;

/// NaN if a value is not finite.
float largest_magnitude(const float* values, size_t count) {
  float most = 0.0F;
  float poison = 0.0F;
  for (size_t i = 0; i < count; ++i) {
    most = std::max(most, std::abs(values[i]));
    poison += values[i] * 0.0F;
  }
  return most + poison;
}

int nearest(float value, int least, int most) {
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even.
  constexpr float kShift = 12582912.0F;
  const float clamped = std::min(static_cast<float>(most), std::max(static_cast<float>(least), value));
  return static_cast<int>((clamped + kShift) - kShift);
}

/// The sum of squared errors if the group is kept with this scale.
float squared_error(const float* weights, size_t count, float scale) {
  const float inverse = 1.0F / scale;
  float error = 0.0F;
  for (size_t i = 0; i < count; ++i) {
    const float kept = scale * static_cast<float>(nearest(weights[i] * inverse, kLeast4, kMost4));
    error += (weights[i] - kept) * (weights[i] - kept);
  }
  return error;
}

/// Signed, so that the largest magnitude may become -8. 0 for a group of zeros.
float best_group_scale(const float* weights, size_t count) {
  float peak = 0.0F;
  for (size_t i = 0; i < count; ++i) {
    if (std::abs(weights[i]) > std::abs(peak)) peak = weights[i];
  }
  if (peak == 0.0F) return 0.0F;
  float best = 0.0F;
  float least = std::numeric_limits<float>::infinity();
  for (const float steps : {-8.9F, -8.4F, -8.0F, -7.6F, -7.2F, -6.8F, -6.4F, 7.4F, 7.0F}) {
    const float scale = peak / steps;
    const float error = squared_error(weights, count, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

}  // namespace

float quantize_int8(const float* values, int8_t* to, size_t count) {
  const float most = largest_magnitude(values, count);
  if (!(most >= kLeastInt8Magnitude)) {  // zeros, or not finite
    std::fill_n(to, count, int8_t{0});
    return std::isnan(most) ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  }
  const float inverse = kMost8 / most;
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<int8_t>(nearest(values[i] * inverse, -127, 127));
  return most / kMost8;
}

float quantize_int4(const float* weights, size_t count, int8_t* to, int8_t* group_scales) {
  const size_t groups = (count + kInt4Group - 1) / kInt4Group;
  std::fill_n(to, count, int8_t{0});
  std::fill_n(group_scales, groups, int8_t{0});
  const float magnitude = largest_magnitude(weights, count);
  if (!(magnitude > 0.0F)) return magnitude;  // zeros, or not finite
  std::vector<float> wanted(groups);
  float most = 0.0F;
  for (size_t group = 0; group < groups; ++group) {
    const size_t first = group * kInt4Group;
    wanted[group] = best_group_scale(weights + first, std::min(kInt4Group, count - first));
    most = std::max(most, std::abs(wanted[group]));
  }
  const float scale = most / static_cast<float>(kMostGroupScale);
  // What the rounded scales leave is taken back by fitting the common one.
  double product = 0.0;
  double square = 0.0;
  for (size_t group = 0; group < groups; ++group) {
    const int whole = nearest(wanted[group] / scale, -kMostGroupScale, kMostGroupScale);
    const int least = wanted[group] < 0.0F ? -1 : 1;
    const int group_scale = whole != 0 || wanted[group] == 0.0F ? whole : least;
    group_scales[group] = static_cast<int8_t>(group_scale);
    if (group_scale == 0) continue;
    const float inverse = 1.0F / (scale * static_cast<float>(group_scale));
    for (size_t i = group * kInt4Group; i < std::min(count, (group + 1) * kInt4Group); ++i) {
      const int q = nearest(weights[i] * inverse, kLeast4, kMost4);
      to[i] = static_cast<int8_t>(q);
      const double kept = group_scale * q;
      product += kept * static_cast<double>(weights[i]);
      square += kept * kept;
    }
  }
  return square > 0.0 ? static_cast<float>(product / square) : scale;
}

void quantize_int4_rows(const float* rows, size_t num_rows, size_t k, int8_t* to, int8_t* group_scales,
                        float* scales) {
  static_assert(kInt4Rows == cpu::kPanelWidth);
  const size_t padded_k = cpu::padded_k(WeightFormat::kInt4, k);
  std::vector<float> padded(kInt4Rows * padded_k);
  for (size_t row = 0; row < num_rows; ++row) std::copy_n(rows + row * k, k, padded.data() + row * padded_k);
  std::vector<float> scratch(padded_k);
  std::vector<std::byte> panel(padded_k / kInt4Group * cpu::kInt4GroupBytes);
  float row_scales[kInt4Rows];
  int32_t offsets[kInt4Rows];
  cpu::pack_table(best_isa_level())
      .int4_panel(padded.data(), padded_k, scratch.data(), panel.data(), row_scales, offsets);
  const size_t groups = (k + kInt4Group - 1) / kInt4Group;
  for (size_t row = 0; row < num_rows; ++row) {
    scales[row] = row_scales[row];
    for (size_t group = 0; group < groups; ++group) {
      const std::byte* from = panel.data() + group * cpu::kInt4GroupBytes;
      group_scales[row * groups + group] = static_cast<int8_t>(from[row]);
      const size_t first = group * kInt4Group;
      for (size_t i = 0; i < std::min(kInt4Group, k - first); ++i) {
        const std::byte pair = from[cpu::kPanelWidth + (i / 8 * cpu::kPanelWidth + row) * 4 + i % 4];
        const std::byte nibble = i % 8 < 4 ? pair & std::byte{15} : pair >> 4;
        to[row * k + first + i] = static_cast<int8_t>(static_cast<int>(nibble) - 8);
      }
    }
  }
}

}  // namespace quire::kernels
