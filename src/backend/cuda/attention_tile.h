#pragma once

#include <cstdint>

#include "backend/cuda/element.h"
#include "backend/cuda/kv_stream.h"
#include "backend/cuda/ptx_mma.h"

// What a warp computes of a tile of keys on tensor cores. Its rows (queries of tokens by heads of a group)
// lie in stacks of 16, and for all stacks it loads a part of K or V once. What a row becomes does not depend
// on how many there are.
namespace quire::backend::cuda {

inline constexpr uint32_t kStackRows = 16;  // of one multiplication
inline constexpr uint32_t kRowsOfLane = 2;  // l / 4 and l / 4 + 8 of a stack's
inline constexpr uint32_t kColumns = 8;     // of a multiplication
inline constexpr uint32_t kDepth = 16;      // of its sums

/// The maximum of a row that has seen no key: no score is below it but minus infinity, and it can be
/// subtracted from that.
inline constexpr float kLowest = -0x1.fffffep127F;

/// Softmax so far of the lane's two rows of a stack, of which it has the columns of an accumulator in each
/// stretch of eight dimensions. Scores are in units of log2.
template <uint32_t kDim>
struct RowState {
  float maxima[kRowsOfLane];
  float sums[kRowsOfLane];  // in a span: of the lane's own keys
  ptx::Accumulator results[kDim / kColumns];

  __device__ __forceinline__ void clear() {
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      maxima[r] = kLowest;
      sums[r] = 0.0F;
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns; ++i) results[i] = {};
  }
};

/// What a row's results so far and those of one more span are multiplied with to have a common maximum. Of a
/// row that has seen no key in either, with zeros.
struct Merge {
  float max;
  float before;
  float more;
  __device__ __forceinline__ Merge(float max_before, float max_more) {
    max = max_more > max_before ? max_more : max_before;
    const float base = max == kMinusInfinity ? 0.0F : max;
    before = ptx::exp2_approx(max_before - base);
    more = ptx::exp2_approx(max_more - base);
  }
  /// Rounded the same wherever it is compiled.
  __device__ __forceinline__ float of(float value_before, float value_more) const {
    return ptx::fused(value_more, more, ptx::product(value_before, before));
  }
};

__device__ __forceinline__ float quad_max(float value) {
  value = larger(value, shuffle_xor(kWholeWarp, value, 1));
  return larger(value, shuffle_xor(kWholeWarp, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value += shuffle_xor(kWholeWarp, value, 1);
  return value + shuffle_xor(kWholeWarp, value, 2);
}

/// Of lane l where row l % 8 of matrix l / 8 begins, where the matrices 1 and 3 lie 8 rows further down if
/// kDownFirst and the matrices 2 and 3 otherwise; the others lie 8 columns to the right.
template <bool kDownFirst>
__device__ __forceinline__ uint32_t matrix_row(uint32_t stride) {
  const uint32_t lane = thread_x() % kWarp;
  const uint32_t odd = lane / 8 % 2;
  const uint32_t high = lane / 16;
  return (lane % 8 + 8 * (kDownFirst ? odd : high)) * stride + 8 * (kDownFirst ? high : odd);
}

/// A warp's queries, as matrices of a product's left side.
template <uint32_t kDim, uint32_t kStacks>
struct Queries {
  ptx::Matrices at[kStacks][kDim / kDepth];

  /// `rows`: the warp's, in shared memory.
  template <class T>
  __device__ __forceinline__ void load(const T* rows) {
    constexpr uint32_t kRow = kMemoryRow<T, kDim>;
    QUIRE_UNROLL
    for (uint32_t s = 0; s < kStacks; ++s) {
      QUIRE_UNROLL
      for (uint32_t d = 0; d < kDim; d += kDepth) {
        at[s][d / kDepth] =
            ptx::load_matrices<false>(rows + matrix_row<true>(kRow) + s * kStackRows * kRow + d);
      }
    }
  }
  __device__ __forceinline__ const ptx::Matrices& part(uint32_t stack, uint32_t d) const {
    return at[stack][d / kDepth];
  }
};

/// The same of one stack, which stay in shared memory: of long heads, registers have no room for them.
template <class T, uint32_t kDim>
struct QueriesInMemory {
  const T* own;  // where the lane's part of them begins

  __device__ __forceinline__ void load(const T* rows) { own = rows + matrix_row<true>(kMemoryRow<T, kDim>); }
  __device__ __forceinline__ ptx::Matrices part(uint32_t /*stack*/, uint32_t d) const {
    return ptx::load_matrices<false>(own + d);
  }
};

/// Of a stack for the keys of a tile.
struct Scores {
  ptx::Accumulator at[kTileKeys / kColumns];
};

/// The scores of the warp's rows for the keys of a tile. `lane_row`: matrix_row<false>() of its rows.
template <uint32_t kDim, class T, class AllQueries, uint32_t kStacks>
__device__ __forceinline__ void score_tile(const T* keys, uint32_t lane_row, const AllQueries& queries,
                                           Scores (&scores)[kStacks]) {
  constexpr uint32_t kRow = kMemoryRow<T, kDim>;
  QUIRE_UNROLL
  for (uint32_t s = 0; s < kStacks; ++s) scores[s] = {};
  QUIRE_UNROLL
  for (uint32_t d = 0; d < kDim; d += kDepth) {
    QUIRE_UNROLL
    for (uint32_t key = 0; key < kTileKeys; key += 2 * kColumns) {
      const ptx::Matrices b = ptx::load_matrices<false>(keys + lane_row + key * kRow + d);
      QUIRE_UNROLL
      for (uint32_t s = 0; s < kStacks; ++s) {
        const ptx::Matrices& a = queries.part(s, d);
        ptx::multiply_add<T>(scores[s].at[key / kColumns], a, b.words[0], b.words[1]);
        ptx::multiply_add<T>(scores[s].at[key / kColumns + 1], a, b.words[2], b.words[3]);
      }
    }
  }
}

/// Turns scores s into cap * tanh(s / cap), in any unit of both. tanh(x) is 1 - 2 / (e^(2x) + 1), also where
/// the power is 0 or infinite. Rounded the same wherever it is compiled.
template <uint32_t kCount>
__device__ __forceinline__ void cap_scores(float cap, ptx::Accumulator (&scores)[kCount]) {
  const float factor = ptx::product(2.0F * kLog2E, ptx::reciprocal_approx(cap));
  const float twice = ptx::product(-2.0F, cap);
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kCount * 4; ++i) {
    float& score = scores[i / 4].at[i % 4];
    const float power = ptx::exp2_approx(ptx::product(score, factor));
    score = ptx::fused(twice, ptx::reciprocal_approx(power + 1.0F), cap);
  }
}

/// The keys that the lane's rows of a stack see.
struct SeenKeys {
  uint32_t begin[kRowsOfLane];
  uint32_t end[kRowsOfLane];
};

/// Leaves of the scores of a stack those of the keys that their rows see; the others become minus infinity.
__device__ __forceinline__ void mask_tile(Scores& scores, uint32_t tile, const SeenKeys& seen) {
  const uint32_t first = tile + thread_x() % 4 * 2;
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns * 2; ++i) {
      const uint32_t key = first + i / 2 * kColumns + i % 2;
      if (key < seen.begin[r] || key >= seen.end[r]) scores.at[i / 2].at[r * 2 + i % 2] = kMinusInfinity;
    }
  }
}

/// Raises the maxima of a stack's rows to `maxima`, and scales what the rows have.
template <uint32_t kDim>
__device__ __forceinline__ void raise_to(const float (&maxima)[kRowsOfLane], RowState<kDim>& state) {
  // A row whose maximum stays is multiplied by 1, or has nothing yet: where all stay, nothing would change.
  const bool grow = maxima[0] != state.maxima[0] || maxima[1] != state.maxima[1];
  if (!any_of_warp(grow)) return;
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const float rescale = ptx::exp2_approx(state.maxima[r] - maxima[r]);
    state.maxima[r] = maxima[r];
    state.sums[r] = ptx::product(state.sums[r], rescale);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns * 2; ++i) state.results[i / 2].at[r * 2 + i % 2] *= rescale;
  }
}

/// Raises the maxima of a stack's rows to those of the tile, times `scale`.
template <uint32_t kDim>
__device__ __forceinline__ void raise_maxima(const Scores& scores, float scale, RowState<kDim>& state) {
  float maxima[kRowsOfLane];
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    float max = kMinusInfinity;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns * 2; ++i) {
      max = larger(max, scores.at[i / 2].at[r * 2 + i % 2]);
    }
    maxima[r] = larger(state.maxima[r], ptx::product(quad_max(max), scale));
  }
  raise_to(maxima, state);
}

/// Turns the scores of a stack, times `scale`, into weights. A key that a row does not see has weight 0; a
/// tile of such keys changes no bit of the row.
template <uint32_t kDim>
__device__ __forceinline__ void weigh_tile(Scores& scores, float scale, RowState<kDim>& state) {
  raise_maxima(scores, scale, state);
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const float base = state.maxima[r];
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns * 2; ++i) {
      float& weight = scores.at[i / 2].at[r * 2 + i % 2];
      weight = ptx::exp2_approx(ptx::fused(weight, scale, -base));
      state.sums[r] += weight;
    }
  }
}

/// The accumulators of a stack's weights for 16 keys from `key` on, as a matrix of a product's left side.
template <class T>
__device__ __forceinline__ ptx::Matrices left_side(const Scores& weights, uint32_t key) {
  ptx::Matrices a;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const ptx::Accumulator& from = weights.at[key / kColumns + i / 2];
    a.words[i] = pack_pair<T>(from.at[i % 2 * 2], from.at[i % 2 * 2 + 1]);
  }
  return a;
}

/// Adds the tile's values, of the kDim dimensions from `values` on, by their weights. Their rows are kRow
/// elements apart; `lane_row`: matrix_row<true>() of them.
template <uint32_t kRow, class T, uint32_t kDim, uint32_t kStacks>
__device__ __forceinline__ void add_values(const T* values, uint32_t lane_row,
                                           const Scores (&weights)[kStacks],
                                           RowState<kDim> (&states)[kStacks]) {
  QUIRE_UNROLL
  for (uint32_t key = 0; key < kTileKeys; key += kDepth) {
    ptx::Matrices a[kStacks];
    QUIRE_UNROLL
    for (uint32_t s = 0; s < kStacks; ++s) a[s] = left_side<T>(weights[s], key);
    QUIRE_UNROLL
    for (uint32_t d = 0; d < kDim; d += 2 * kColumns) {
      const ptx::Matrices b = ptx::load_matrices<true>(values + lane_row + key * kRow + d);
      QUIRE_UNROLL
      for (uint32_t s = 0; s < kStacks; ++s) {
        ptx::multiply_add<T>(states[s].results[d / kColumns], a[s], b.words[0], b.words[1]);
        ptx::multiply_add<T>(states[s].results[d / kColumns + 1], a[s], b.words[2], b.words[3]);
      }
    }
  }
}

/// Adds a span to those before it, and leaves nothing of it.
template <uint32_t kDim>
__device__ __forceinline__ void merge_span(RowState<kDim>& span, RowState<kDim>& all) {
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const Merge merge(all.maxima[r], span.maxima[r]);
    all.maxima[r] = merge.max;
    all.sums[r] = merge.of(all.sums[r], quad_sum(span.sums[r]));
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns * 2; ++i) {
      float& value = all.results[i / 2].at[r * 2 + i % 2];
      value = merge.of(value, span.results[i / 2].at[r * 2 + i % 2]);
    }
  }
  span.clear();
}

/// What the stacks of a warp have of the spans before, in registers.
template <uint32_t kDim, uint32_t kStacks>
class SpansInRegisters {
 public:
  static constexpr uint32_t kBytes = 0;
  __device__ __forceinline__ explicit SpansInRegisters(void* /*memory*/) {
    QUIRE_UNROLL
    for (uint32_t s = 0; s < kStacks; ++s) all_[s].clear();
  }
  __device__ __forceinline__ void add(uint32_t stack, RowState<kDim>& span, bool /*is_first*/) {
    merge_span(span, all_[stack]);
  }
  __device__ __forceinline__ RowState<kDim> of(uint32_t stack) const { return all_[stack]; }

 private:
  RowState<kDim> all_[kStacks];
};

/// The same in shared memory, where no other thread touches what one has: it is read and written once a span,
/// and in registers takes a third of those that two stacks need. Lanes move 16 bytes each, side by side.
template <uint32_t kDim, uint32_t kStacks, uint32_t kBlockThreads>
class SpansInSharedMemory {
  static constexpr uint32_t kVectors = 1 + kDim / kColumns;  // of a stack: maxima and sums, and results

 public:
  static constexpr uint32_t kBytes = kStacks * kVectors * kBlockThreads * sizeof(ptx::Vec128);
  __device__ __forceinline__ explicit SpansInSharedMemory(void* memory)
      : own_(static_cast<ptx::Vec128*>(memory) + thread_x()) {}
  /// `is_first`: there is nothing of the stack yet.
  __device__ __forceinline__ void add(uint32_t stack, RowState<kDim>& span, bool is_first) {
    RowState<kDim> all;
    if (is_first) {
      all.clear();
    } else {
      all = of(stack);
    }
    merge_span(span, all);
    store(stack, 0, {{all.maxima[0], all.maxima[1], all.sums[0], all.sums[1]}});
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns; ++i) store(stack, 1 + i, all.results[i]);
  }
  __device__ __forceinline__ RowState<kDim> of(uint32_t stack) const {
    RowState<kDim> all;
    const ptx::Accumulator scores = load(stack, 0);
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      all.maxima[r] = scores.at[r];
      all.sums[r] = scores.at[kRowsOfLane + r];
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns; ++i) all.results[i] = load(stack, 1 + i);
    return all;
  }

 private:
  __device__ __forceinline__ ptx::Vec128* at(uint32_t stack, uint32_t vector) const {
    return own_ + (stack * kVectors + vector) * kBlockThreads;
  }
  __device__ __forceinline__ ptx::Accumulator load(uint32_t stack, uint32_t vector) const {
    return __builtin_bit_cast(ptx::Accumulator, ptx::load_shared_128(at(stack, vector)));
  }
  __device__ __forceinline__ void store(uint32_t stack, uint32_t vector, const ptx::Accumulator& value) {
    ptx::store_shared_128(at(stack, vector), __builtin_bit_cast(ptx::Vec128, value));
  }

  ptx::Vec128* own_;
};

}  // namespace quire::backend::cuda
