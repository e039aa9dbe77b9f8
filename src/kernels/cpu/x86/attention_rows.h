#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/attention_formats.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

// Attention of query rows (a row is a token's query head) over one stretch of keys. However many rows are
// computed together, each row does the same operations in the same order:
//   scores  = sum over d ascending of q[d] * K[d][key], lanes are keys (of integer keys the sum is exact)
//   rescale = exp(old maximum - new maximum), times the sum and the output; a maximum is new where it exceeds
//             the old one by more than Format::kSlack
//   output  = output + weight * V[key], keys ascending and only those that the row sees
namespace quire::kernels::cpu {

inline constexpr size_t kLineBytes = 64;

template <VecType V>
struct AttentionRows {
  float* q;        // [rows][padded_dim], scaled: factors of the format
  float* out;      // [rows][padded_dim]
  float* weights;  // [rows][kStretchKeys]: scores, then exp(score - maximum) as factors of the format; or the
                   // scores of two tiles in turn
  float* max;      // [rows]
  float* sum;
  float* rescale;
  float* tile_weights;  // [kTileRows][kStretchKeys / 2], of a tile whose scores are kept until it has them
  float* free;          // memory for the products
  size_t padded_dim;

  /// The rows from `row` on, with the same memory for what lasts a stretch.
  QUIRE_INLINE AttentionRows from(size_t row) const {
    AttentionRows rows = *this;
    rows.q += row * padded_dim;
    rows.out += row * padded_dim;
    rows.max += row;
    rows.sum += row;
    return rows;
  }
  /// The same with memory of their own.
  QUIRE_INLINE AttentionRows apart_from(size_t row) const {
    AttentionRows rows = from(row);
    rows.weights += row * kStretchKeys;
    rows.rescale += row;
    return rows;
  }
};

/// The keys of a stretch that a token's rows read: [begin, end) of 0..kStretchKeys.
template <VecType V>
struct KeyRange {
  int begin;
  int end;
  QUIRE_INLINE bool operator==(const KeyRange& other) const {
    return begin == other.begin && end == other.end;
  }
};

template <VecType V>
QUIRE_INLINE uint32_t first_key(const AttentionArgs& args, uint32_t position) {
  return args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
}

template <VecType V>
QUIRE_INLINE KeyRange<V> visible(const AttentionArgs& args, uint32_t token, uint32_t base) {
  const uint32_t position = args.first_position + token;
  const uint32_t first = first_key<V>(args, position);
  KeyRange<V> range = {0, 0};
  if (position < base || first >= base + kStretchKeys) return range;
  range.begin = first > base ? static_cast<int>(first - base) : 0;
  const uint32_t end = position - base + 1;
  range.end = static_cast<int>(end < kStretchKeys ? end : kStretchKeys);
  return range;
}

/// K and V of a stretch for a K/V head, by tiles of kTileKeys keys. Tiles that no row reads point
/// to a tile that some row reads. Tiles are too far apart for the hardware prefetcher: the next ones are
/// prefetched line by line while the tiles of this stretch are processed, so that memory access and
/// arithmetic overlap.
template <VecType V, class Format>
struct Stretch {
  using Element = typename Format::Element;
  using KeyElement = typename Format::KeyElement;
  const KeyElement* keys[kStretchTiles];  // see attention_formats.h
  const Element* values[kStretchTiles];
  const float* key_scales[kStretchTiles];  // [kTileKeys], if Format::kScaled
  const float* value_scales[kStretchTiles];
  // What is asked for while keys or values are multiplied: what is read later, or the same ones.
  const KeyElement* next_keys[kStretchTiles];
  const Element* next_values[kStretchTiles];

  /// The same keys of the next K/V head, whose K and V follow.
  QUIRE_INLINE Stretch next_head(const AttentionArgs& args) const {
    const size_t elements = size_t{args.block_size} * args.head_dim;
    Stretch next = *this;
    for (size_t i = 0; i < kStretchTiles; ++i) {
      next.keys[i] += elements;
      next.values[i] += elements;
      if constexpr (Format::kScaled) {
        next.key_scales[i] += args.block_size;
        next.value_scales[i] += args.block_size;
      }
    }
    return next;
  }
  /// Asks for the n-th line of tiles, of all in turn: from several places at a time memory gives more.
  template <class E>
  static QUIRE_INLINE void fetch_line(const E* const* tiles, size_t n) {
    const auto* tile = reinterpret_cast<const char*>(tiles[n % kStretchTiles]);
    __builtin_prefetch(tile + n / kStretchTiles * kLineBytes);
  }
  /// Asks for the scales of this stretch itself.
  QUIRE_INLINE void fetch_scales() const {
    if constexpr (Format::kScaled) {
      for (size_t i = 0; i < kStretchTiles; ++i) {
        __builtin_prefetch(key_scales[i]);
        __builtin_prefetch(value_scales[i]);
      }
    }
  }
  QUIRE_INLINE void fetch(const Stretch& next) {
    for (size_t i = 0; i < kStretchTiles; ++i) {
      next_keys[i] = next.keys[i];
      next_values[i] = next.values[i];
    }
  }
};

/// Calls body.template operator()<rows>(first row) for tiles of rows, most of them as high as kMost.
template <VecType V, size_t kMost, class Body>
QUIRE_INLINE void for_row_tiles(size_t row, size_t end, const Body& body) {
  for (; row + kMost <= end; row += kMost) body.template operator()<kMost>(row);
  if constexpr (kMost > 4) {
    if (row + 4 <= end) {
      body.template operator()<4>(row);
      row += 4;
    }
  }
  if (row + 2 <= end) {
    body.template operator()<2>(row);
    row += 2;
  }
  if (row < end) body.template operator()<1>(row);
}

/// Scores of kRows rows for as many tiles as V::kAttentionVectors vectors have keys.
template <VecType V, class Format, size_t kRows>
QUIRE_INLINE void score_rows(const AttentionRows<V>& rows, size_t row,
                             const typename Format::KeyElement* const* keys,
                             const typename Format::KeyElement* const* next, float* weights,
                             size_t head_dim) {
  constexpr size_t kOfTile = kTileKeys / V::kLanes;
  constexpr size_t kVectors = V::kAttentionVectors;
  constexpr size_t kRow = kTileKeys * Format::kStep;
  constexpr size_t kRowBytes = kRow * sizeof(typename Format::Element);
  constexpr size_t kStepsOfLine = kRowBytes < kLineBytes ? kLineBytes / kRowBytes : 1;
  V sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) sums[i][j] = V::zero();
  }
  const float* q = rows.q + row * rows.padded_dim;
  for (size_t step = 0; step < head_dim / Format::kStep; ++step) {
    if (Format::kPrefetches && step % kStepsOfLine == 0) {
      QUIRE_UNROLL
      for (size_t tile = 0; tile < kVectors / kOfTile; ++tile) __builtin_prefetch(next[tile] + step * kRow);
    }
    typename Format::Operand k[kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      k[j] = Format::load_keys(keys[j / kOfTile], step, j % kOfTile * V::kLanes);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const typename Format::Factor factor = Format::factor(q + i * rows.padded_dim, step);
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) sums[i][j] = Format::multiply_add(sums[i][j], k[j], factor);
    }
  }
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      V::store(weights + (row + i) * kStretchKeys + j * V::kLanes, sums[i][j]);
    }
  }
}

/// Scores of the tokens [begin, end), but of those tiles only that they see.
template <VecType V, class Format>
void score(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin, uint32_t end,
           uint32_t base, const Stretch<V, Format>& at) {
  constexpr size_t kTiles = V::kAttentionVectors * V::kLanes / kTileKeys;
  for (size_t tile = 0; tile < kStretchTiles; tile += kTiles) {
    const auto first = static_cast<int>(tile * kTileKeys);
    uint32_t from = begin;
    while (from < end && visible<V>(args, from, base).end <= first) ++from;
    uint32_t to = from;
    while (to < end && visible<V>(args, to, base).begin < first + static_cast<int>(kTiles * kTileKeys)) ++to;
    for_row_tiles<V, Format::kMostRows>(
        size_t{from} * args.group, size_t{to} * args.group, [&]<size_t kRows>(size_t row) {
          score_rows<V, Format, kRows>(rows, row, at.keys + tile, at.next_keys + tile,
                                       rows.weights + tile * kTileKeys, args.head_dim);
        });
  }
}

/// Rows of output in registers: kVectors vectors of the head from `d` on, for kRows rows that read the same
/// keys. The last vector has `tail` lanes if that is not 0.
template <VecType V, class Format, size_t kRows, size_t kVectors>
struct OutputTile {
  using Element = typename Format::Element;
  const AttentionRows<V>& rows;
  const Stretch<V, Format>& at;
  size_t row;
  size_t d;
  size_t tail;
  size_t head_dim;
  V sums[kRows][kVectors];

  QUIRE_INLINE float* place(size_t i, size_t j) {
    return rows.out + (row + i) * rows.padded_dim + d + j * V::kLanes;
  }

  QUIRE_INLINE void load() {
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V rescale = V::set1(rows.rescale[row + i]);
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) sums[i][j] = V::mul(V::load(place(i, j)), rescale);
    }
  }

  QUIRE_INLINE void store() {
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) V::store(place(i, j), sums[i][j]);
    }
  }

  /// Asks for as many of the next values as a step has: all steps of all parts of the head ask for all of
  /// them, in turn. If not all keys are read, for those of the same keys.
  template <bool kAll>
  QUIRE_INLINE void fetch(size_t step) const {
    constexpr size_t kStep = Format::kStep;
    constexpr size_t kBytes = kVectors * V::kLanes * kStep * sizeof(Element);
    if constexpr (kAll) {
      if (kBytes < kLineBytes && step * kBytes % kLineBytes != 0) return;
      const size_t first = (d * kStretchKeys * sizeof(Element) + step * kBytes) / kLineBytes;
      QUIRE_UNROLL
      for (size_t i = 0; i < (kBytes + kLineBytes - 1) / kLineBytes; ++i) {
        at.fetch_line(at.next_values, first + i);
      }
    } else {
      constexpr size_t kRowsOfStep = kStep / Format::kLane;
      const size_t shift = step % (kTileKeys / kStep) * head_dim * kStep + d * Format::kLane;
      const Element* values = at.next_values[step * kStep / kTileKeys] + shift;
      QUIRE_UNROLL
      for (size_t i = 0; i < kRowsOfStep; ++i) {
        const auto* bytes = reinterpret_cast<const char*>(values + i * head_dim);
        QUIRE_UNROLL
        for (size_t at_byte = 0; at_byte < kBytes / kRowsOfStep; at_byte += kLineBytes) {
          __builtin_prefetch(bytes + at_byte);
        }
      }
    }
  }

  /// Adds the products of kStep keys, or of the kOne-th of them if that is less than kStep. `from` has their
  /// values from `d` on, `step` is their place among the weights.
  template <size_t kOne, bool kAll>
  QUIRE_INLINE void add(const Element* from, size_t step) {
    if constexpr (Format::kPrefetches) fetch<kAll>(step);
    typename Format::Operand v[kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      const Element* values = from + j * V::kLanes * Format::kLane;
      v[j] = tail == 0 ? Format::load(values, head_dim) : Format::load(values, head_dim, tail);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const auto factor = Format::factor(rows.weights + (row + i) * kStretchKeys, step);
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        sums[i][j] = kOne < Format::kStep ? Format::template multiply_add_one<kOne>(sums[i][j], v[j], factor)
                                          : Format::multiply_add(sums[i][j], v[j], factor);
      }
    }
  }
};

template <VecType V, class Format, size_t kRows, size_t kVectors>
QUIRE_INLINE void accumulate_part(const AttentionRows<V>& rows, size_t row, size_t d,
                                  const Stretch<V, Format>& at, size_t head_dim, KeyRange<V> range,
                                  size_t tail) {
  constexpr size_t kStep = Format::kStep;
  constexpr size_t kTileSteps = kTileKeys / kStep;
  OutputTile<V, Format, kRows, kVectors> tile = {rows, at, row, d, tail, head_dim, {}};
  tile.load();
  const auto shift = [&](size_t step) { return step % kTileSteps * head_dim * kStep + d * Format::kLane; };
  const auto add_one = [&]<size_t kOne>(size_t step) __attribute__((always_inline)) {
    tile.template add<kOne, false>(at.values[step / kTileSteps] + shift(step), step);
  };
  // Of the first lanes and of the last ones, the range may have only a part.
  const auto begin = static_cast<size_t>(range.begin);
  const auto end = static_cast<size_t>(range.end);
  size_t step = begin / kStep;
  if constexpr (kStep == 2) {
    if (begin % kStep != 0) add_one.template operator()<1>(step++);
  }
  const size_t whole = end / kStep;
  const auto add_whole = [&]<bool kAll>() __attribute__((always_inline)) {
    while (step < whole) {
      const size_t of_tile = step / kTileSteps;
      const size_t tile_end = (of_tile + 1) * kTileSteps < whole ? (of_tile + 1) * kTileSteps : whole;
      const typename Format::Element* from = at.values[of_tile] + shift(step);
      for (; step < tile_end; ++step) {
        tile.template add<kStep, kAll>(from, step);
        from += head_dim * kStep;
      }
    }
  };
  if (begin == 0 && end == kStretchKeys) {
    add_whole.template operator()<true>();
  } else {
    add_whole.template operator()<false>();
  }
  if constexpr (kStep == 2) {
    if (step * kStep < end) add_one.template operator()<0>(step);
  }
  tile.store();
}

/// Adds the values for kRows rows that read the same keys.
template <VecType V, class Format, size_t kRows>
void accumulate(const AttentionRows<V>& rows, size_t row, const Stretch<V, Format>& at, size_t head_dim,
                KeyRange<V> range) {
  constexpr size_t kMost = kRows <= 2 ? 4 : V::kAttentionVectors;
  size_t d = 0;
  for (; d + kMost * V::kLanes <= head_dim; d += kMost * V::kLanes) {
    accumulate_part<V, Format, kRows, kMost>(rows, row, d, at, head_dim, range, 0);
  }
  for (; d + V::kLanes <= head_dim; d += V::kLanes) {
    accumulate_part<V, Format, kRows, 1>(rows, row, d, at, head_dim, range, 0);
  }
  if (d < head_dim) accumulate_part<V, Format, kRows, 1>(rows, row, d, at, head_dim, range, head_dim - d);
}

}  // namespace quire::kernels::cpu
