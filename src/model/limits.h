#pragma once

#include <cstdint>

namespace quire::model {

// Limits of the sizes of a model: far above any known model, and low enough that no product of two of them
// overflows 64 bits.
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxWidth = 1 << 18;
inline constexpr int64_t kMaxLayers = 1 << 12;
inline constexpr int64_t kMaxHeads = 1 << 12;
inline constexpr int64_t kMaxHeadDim = 1 << 10;
inline constexpr int64_t kMaxFfn = 1 << 21;
inline constexpr int64_t kMaxPositions = 1 << 26;

}  // namespace quire::model
