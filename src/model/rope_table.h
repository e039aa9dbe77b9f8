#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "tensor/buffer.h"

namespace quire::model {

/// The angle per position of each rotated pair, [rotary / 2], and what cosines and sines are multiplied by.
struct RopeFrequencies {
  std::vector<double> inverse;
  double attention_factor = 1.0;
};

/// Plain: Su et al. 2021. Linear: Chen et al. 2023 (position interpolation). Llama 3: its scaling by wave
/// length. Yarn: Peng et al. 2023. Longrope: Ding et al. 2024. All with the parameters that transformers'
/// modeling_rope_utils reads. Longrope's long factors if sequences of `longest` tokens leave the original
/// context, else its short ones: K/V once written stays, so a model has one set for as long as it is loaded,
/// where transformers computes all of a sequence anew when it crosses that length.
RopeFrequencies rope_frequencies(const RopeConfig& config, uint32_t rotary, uint32_t longest);

/// Cosines and sines for positions from 0 on, computed in double as far as they are needed.
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
