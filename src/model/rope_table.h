#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "tensor/buffer.h"

namespace quire::model {

/// The angle per position of each rotated pair, [rotary / 2], and the factor of cosines and sines.
struct RopeFrequencies {
  std::vector<double> inverse;
  double attention_factor = 1.0;
};

/// Plain: Su et al. 2021. Linear: Chen et al. 2023 (position interpolation). Llama 3: its scaling by wave
/// length. Yarn: Peng et al. 2023. Longrope: Ding et al. 2024. All use the parameters that
/// modeling_rope_utils of transformers reads. Longrope uses its long factors if sequences of `longest` tokens
/// exceed the original context, else its short ones. K/V that is written is not changed, so a loaded model
/// has one set of factors, whereas transformers recomputes the whole sequence when it crosses that length.
RopeFrequencies rope_frequencies(const RopeConfig& config, uint32_t rotary, uint32_t longest);

/// Cosines and sines for positions from 0 on, computed in double on demand.
class RopeTable {
 public:
  RopeTable() = default;
  RopeTable(const RopeConfig& config, uint32_t rotary, uint32_t max_positions);

  /// [positions][rotary]: cosines in the first half of a row, sines in the second, for at least `positions`
  /// (<= max_positions) rows. Valid until the next call.
  const float* at_least(uint32_t positions);

 private:
  RopeFrequencies frequencies_;
  uint32_t max_positions_ = 0;
  uint32_t positions_ = 0;
  Buffer table_;
};

}  // namespace quire::model
