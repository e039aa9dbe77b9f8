#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/x86/attention_rows.h"
#include "kernels/cpu/x86/vec_math.h"

// How the scores of rows in a stretch become weights.
namespace quire::kernels::cpu {

/// Where rows of several K/V heads become weights together, and where they are of one.
template <VecType V>
struct SeveralHeads {
  size_t rows;          // of a head
  size_t scales_apart;  // from the scales of a head's keys or values to those of the next, in floats
  size_t lines;         // of Stretch::next_values that are asked for with each row
};
template <VecType V>
struct OneHead {
  static constexpr size_t rows = SIZE_MAX;
  static constexpr size_t scales_apart = 0;
  static constexpr size_t lines = 0;
};

/// The scores of a row in a stretch: times the scales of the keys, capped, and minus infinity for keys that
/// it does not see.
template <VecType V, class Format, bool kAll, class Heads>
struct RowScores {
  static constexpr size_t kOfTile = kTileKeys / V::kLanes;
  static constexpr size_t kVectors = kStretchTiles * kOfTile;
  static constexpr bool kChanged = Format::kScaled || !kAll;

  KeyRange<V> range;
  float soft_cap;
  const Stretch<V, Format>& at;  // of the first row's K/V head
  Heads heads;

  /// Where the scales of a row are, from those of the first row on.
  QUIRE_INLINE size_t scales_of(size_t row) const { return row / heads.rows * heads.scales_apart; }
  QUIRE_INLINE void fetch(size_t row) const {
    for (size_t n = row * heads.lines; n < (row + 1) * heads.lines; ++n) at.fetch_line(at.next_values, n);
  }

  /// Of the vector j, which has only been multiplied.
  QUIRE_INLINE V finished(V value, size_t j, size_t scales = 0) const {
    if constexpr (Format::kScaled) {
      value = V::mul(value, V::load(at.key_scales[j / kOfTile] + scales + j % kOfTile * V::kLanes));
    }
    if (soft_cap != 0.0F) value = capped(value, V::set1(soft_cap));
    if (!kAll) {
      value = V::select_range(value, V::set1(-__builtin_inff()), static_cast<int>(j * V::kLanes), range.begin,
                              range.end);
    }
    return value;
  }

  /// Finishes the scores, and gives the maximum of each lane.
  QUIRE_INLINE V finish(float* weights, size_t scales) const {
    V top = V::set1(-__builtin_inff());
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      const V value = finished(V::load(weights + j * V::kLanes), j, scales);
      if (kChanged || soft_cap != 0.0F) V::store(weights + j * V::kLanes, value);
      top = V::max(top, value);
    }
    return top;
  }

  /// Makes weights of them, times the scales of the values, and gives the sum of each lane's.
  QUIRE_INLINE V weigh(float* weights, V max, size_t scales) const {
    V scores[kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) scores[j] = V::load(weights + j * V::kLanes);
    return weigh(scores, weights, max, scales);
  }
  QUIRE_INLINE V weigh(const V (&scores)[kVectors], float* weights, V max, size_t scales = 0) const {
    V total = V::zero();
    if constexpr (Format::kKeepsTwo) {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; j += 2) {
        const V first = Format::exp(V::sub(scores[j], max));
        const V second = Format::exp(V::sub(scores[j + 1], max));
        if constexpr (Format::kScaled) {
          total = V::add(total, V::add(first, second));
          Format::keep_two(weights, j * V::kLanes, scaled(first, j, scales), scaled(second, j + 1, scales));
        } else {
          total = V::add(total, Format::keep_two(weights, j * V::kLanes, first, second));
        }
      }
    } else {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        const V weight = Format::exp(V::sub(scores[j], max));
        if constexpr (Format::kScaled) {
          total = V::add(total, weight);
          Format::keep(weights, j * V::kLanes, scaled(weight, j, scales));
        } else {
          total = V::add(total, Format::keep(weights, j * V::kLanes, weight));
        }
      }
    }
    return total;
  }

  /// Weights times the scales of the values.
  QUIRE_INLINE V scaled(V weight, size_t j, size_t scales) const {
    const V scale = V::load(at.value_scales[j / kOfTile] + scales + j % kOfTile * V::kLanes);
    const V product = V::mul(weight, scale);
    if (kAll) return product;  // else a key that was never written has any scale
    return V::select_range(product, V::zero(), static_cast<int>(j * V::kLanes), range.begin, range.end);
  }
};

/// Converts the scores of up to V::kLanes rows to weights and updates their maxima and sums. What is done
/// once for a row, and would wait for itself, is done for all rows at once.
template <VecType V, class Format, bool kAll, class Heads>
void soften(const AttentionRows<V>& rows, size_t row, size_t count,
            const RowScores<V, Format, kAll, Heads>& scores) {
  float* weights = rows.weights + row * kStretchKeys;
  V each[V::kLanes];
  for (size_t i = 0; i < V::kLanes; ++i) {
    each[i] = i < count ? scores.finish(weights + i * kStretchKeys, scores.scales_of(row + i)) : V::zero();
  }
  const bool whole = count == V::kLanes;
  const auto load = [&](const float* from) {
    return whole ? V::load(from + row) : V::load(from + row, count);
  };
  const auto store = [&](float* to, V values) {
    whole ? V::store(to + row, values) : V::store(to + row, values, count);
  };
  const V old_max = load(rows.max);
  const V found = V::max(V::max_lanes(each), old_max);
  const V max = V::select_less(V::add(old_max, V::set1(Format::kSlack)), found, found, old_max);
  const V fallen = vec_exp_negative(V::sub(old_max, max));
  const V rescale = V::select_less(old_max, max, fallen, V::set1(1.0F));
  store(rows.max, max);
  store(rows.rescale, rescale);
  for (size_t i = 0; i < count; ++i) {
    scores.fetch(row + i);
    each[i] = scores.weigh(weights + i * kStretchKeys, V::set1(rows.max[row + i]), scores.scales_of(row + i));
  }
  store(rows.sum, V::add(V::mul(load(rows.sum), rescale), V::sums(each)));
}

/// soften(), to the bit, of a tile whose weights go elsewhere. As long as no maximum changes, they need not
/// wait for them: they are made in one pass over the scores. Returns whether one has changed, so that the
/// output is rescaled. `products(i, j)`: the vector j of the tile's row i.
template <TileVecType V, class Format, class Products>
bool soften_tile(const AttentionRows<V>& rows, size_t row, size_t count, const Products& products,
                 const RowScores<V, Format, true, OneHead<V>>& of) {
  using Scores = RowScores<V, Format, true, OneHead<V>>;
  static_assert(V::kLanes == kTileRows);
  V tops[kTileRows];
  V sums[kTileRows];
  const auto weigh = [&](bool look) __attribute__((always_inline)) {
    for (size_t i = 0; i < count; ++i) {
      V values[Scores::kVectors];
      QUIRE_UNROLL
      for (size_t j = 0; j < Scores::kVectors; ++j) values[j] = of.finished(products(i, j), j);
      if (look) tops[i] = V::max(V::max(values[0], values[1]), V::max(values[2], values[3]));
      sums[i] = of.weigh(values, rows.tile_weights + i * kStretchKeys / 2, V::set1(rows.max[row + i]));
    }
    for (size_t i = count; i < kTileRows; ++i) tops[i] = sums[i] = V::zero();
  };
  weigh(true);
  const V old_max = V::load(rows.max + row, count);
  const V found = V::max(V::max_lanes(tops), old_max);
  const V sum = V::load(rows.sum + row, count);
  const V limit = V::add(old_max, V::set1(Format::kSlack));
  if ((V::less(limit, found) & ((1U << count) - 1U)) == 0) {
    V::store(rows.sum + row, V::add(sum, V::sums(sums)), count);
    return false;
  }
  const V max = V::select_less(limit, found, found, old_max);
  const V fallen = vec_exp_negative(V::sub(old_max, max));
  const V rescale = V::select_less(old_max, max, fallen, V::set1(1.0F));
  V::store(rows.max + row, max, count);
  V::store(rows.rescale + row, rescale, count);
  weigh(false);
  V::store(rows.sum + row, V::add(V::mul(sum, rescale), V::sums(sums)), count);
  return true;
}

template <VecType V, class Format, bool kAll, class Heads>
void soften_all(const AttentionRows<V>& rows, size_t begin, size_t end,
                const RowScores<V, Format, kAll, Heads>& scores) {
  for (size_t row = begin; row < end; row += V::kLanes) {
    soften(rows, row, end - row < V::kLanes ? end - row : V::kLanes, scores);
  }
}

template <VecType V, class Format, class Heads = OneHead<V>>
void soften_rows(const AttentionRows<V>& rows, size_t begin, size_t end, KeyRange<V> range, float soft_cap,
                 const Stretch<V, Format>& at, const Heads& heads = {}) {
  if (range.begin == 0 && range.end == kStretchKeys) {
    const RowScores<V, Format, true, Heads> scores = {range, soft_cap, at, heads};
    soften_all(rows, begin, end, scores);
  } else {
    const RowScores<V, Format, false, Heads> scores = {range, soft_cap, at, heads};
    soften_all(rows, begin, end, scores);
  }
}

}  // namespace quire::kernels::cpu
