#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/vec_math.h"

// Attention of one query tile (tokens x the query heads of a K/V head; a row is one of each) over the key
// tiles it sees. However many rows are computed together, each row does the same operations in the same
// order:
//   scores  = sum over d ascending of q[d] * K[d][key], lanes are keys
//   rescale = exp(old maximum - new maximum), times the sum and the output
//   output  = output + weight * V[key], keys ascending and only those that the row sees
// for each stretch of kStretchKeys keys of a span of kSpanKeys; then the spans' maxima, sums and outputs are
// merged in ascending order.
namespace quire::kernels::cpu {

/// From this many rows on, K and V are converted to f32 once for all of them.
inline constexpr size_t kWidenRows = 12;

template <VecType V>
struct AttentionRows {
  float* q;        // [rows][padded_dim], scaled
  float* out;      // [rows][padded_dim]
  float* weights;  // [rows][kStretchKeys]: scores, then exp(score - maximum)
  float* max;      // [rows]
  float* sum;
  float* rescale;
  size_t padded_dim;
};

/// The keys of a stretch that a token's rows read: [begin, end) of 0..kStretchKeys.
template <VecType V>
struct KeyRange {
  int begin;
  int end;
  inline __attribute__((always_inline)) bool operator==(const KeyRange& other) const {
    return begin == other.begin && end == other.end;
  }
};

template <VecType V>
inline __attribute__((always_inline)) uint32_t first_key(const AttentionArgs& args, uint32_t position) {
  return args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
}

template <VecType V>
inline __attribute__((always_inline)) KeyRange<V> visible(const AttentionArgs& args, uint32_t token,
                                                          uint32_t base) {
  const uint32_t position = args.first_position + token;
  const uint32_t first = first_key<V>(args, position);
  KeyRange<V> range = {0, 0};
  if (position < base || first >= base + kStretchKeys) return range;
  range.begin = first > base ? static_cast<int>(first - base) : 0;
  const uint32_t end = position - base + 1;
  range.end = static_cast<int>(end < kStretchKeys ? end : kStretchKeys);
  return range;
}

/// K and V of a stretch for this task's K/V head, by tiles of kTileKeys keys. Tiles that no row reads point
/// to a tile that some row reads. Tiles are too far apart for the hardware prefetcher: the next ones are
/// prefetched line by line while the tiles of this stretch are processed, so that memory access and
/// arithmetic overlap.
template <VecType V, class Format>
struct Stretch {
  using Element = typename Format::Element;
  const Element* keys[kStretchTiles];      // [head_dim][kTileKeys]
  const Element* values[kStretchTiles];    // [kTileKeys][head_dim]
  const float* key_scales[kStretchTiles];  // [kTileKeys], if Format::kScaled
  const float* value_scales[kStretchTiles];
  const Element* next_keys[kStretchTiles];  // of the next stretch, or the same ones
  const Element* next_values[kStretchTiles];

  inline __attribute__((always_inline)) void fetch(const Stretch& next) {
    for (size_t i = 0; i < kStretchTiles; ++i) {
      next_keys[i] = next.keys[i];
      next_values[i] = next.values[i];
    }
  }
};

/// K and V that were converted to f32 for many rows.
template <VecType V, class Format>
struct Widened {
  using Element = float;
  static constexpr bool kScaled = Format::kScaled;
  static inline __attribute__((always_inline)) V load(const float* p) { return V::load(p); }
  static inline __attribute__((always_inline)) V load(const float* p, size_t count) {
    return V::load(p, count);
  }
};

/// Scores of kRows rows for V::kScoreTiles tiles.
template <VecType V, class Format, size_t kRows>
inline __attribute__((always_inline)) void score_rows(const AttentionRows<V>& rows, size_t row,
                                                      const typename Format::Element* const* keys,
                                                      const typename Format::Element* const* next,
                                                      float* weights, size_t head_dim) {
  constexpr size_t kOfTile = kTileKeys / V::kLanes;
  constexpr size_t kVectors = V::kScoreTiles * kOfTile;
  V sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) sums[i][j] = V::zero();
  }
  const float* q = rows.q + row * rows.padded_dim;
  for (size_t d = 0; d < head_dim; ++d) {
    V k[kVectors];
    QUIRE_UNROLL
    for (size_t tile = 0; tile < V::kScoreTiles; ++tile) __builtin_prefetch(next[tile] + d * kTileKeys);
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      k[j] = Format::load(keys[j / kOfTile] + d * kTileKeys + j % kOfTile * V::kLanes);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V factor = V::set1(q[i * rows.padded_dim + d]);
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) sums[i][j] = V::fma(k[j], factor, sums[i][j]);
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

template <VecType V, class Format>
void score(const AttentionRows<V>& rows, size_t begin, size_t end, const Stretch<V, Format>& at,
           size_t head_dim) {
  constexpr size_t kMost = V::kAttentionRows;
  for (size_t tile = 0; tile < kStretchTiles; tile += V::kScoreTiles) {
    const auto* keys = at.keys + tile;
    const auto* next = at.next_keys + tile;
    float* weights = rows.weights + tile * kTileKeys;
    size_t row = begin;
    for (; row + kMost <= end; row += kMost) {
      score_rows<V, Format, kMost>(rows, row, keys, next, weights, head_dim);
    }
    for (; row + kMost / 2 <= end; row += kMost / 2) {
      score_rows<V, Format, kMost / 2>(rows, row, keys, next, weights, head_dim);
    }
    for (; row < end; ++row) score_rows<V, Format, 1>(rows, row, keys, next, weights, head_dim);
  }
}

/// Converts scores to weights (times the scale of the value) and updates the row's maximum and sum.
template <VecType V, class Format>
void soften(const AttentionRows<V>& rows, size_t row, KeyRange<V> range, float soft_cap,
            const Stretch<V, Format>& at) {
  constexpr size_t kOfTile = kTileKeys / V::kLanes;
  constexpr size_t kVectors = kStretchTiles * kOfTile;
  const V nothing = V::set1(-__builtin_inff());
  float* weights = rows.weights + row * kStretchKeys;
  V scores[kVectors];
  V top = nothing;
  QUIRE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) {
    V value = V::load(weights + j * V::kLanes);
    if constexpr (Format::kScaled) {
      value = V::mul(value, V::load(at.key_scales[j / kOfTile] + j % kOfTile * V::kLanes));
    }
    if (soft_cap != 0.0F) value = capped(value, V::set1(soft_cap));
    scores[j] = V::select_range(value, nothing, static_cast<int>(j * V::kLanes), range.begin, range.end);
    top = V::max(top, scores[j]);
  }
  const float stretch_max = V::max_lane(top);
  const float old_max = rows.max[row];
  const float new_max = stretch_max > old_max ? stretch_max : old_max;
  V total = V::zero();
  QUIRE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) {
    V weight = vec_exp(V::sub(scores[j], V::set1(new_max)));
    total = V::add(total, weight);
    if constexpr (Format::kScaled) {
      weight = V::mul(weight, V::load(at.value_scales[j / kOfTile] + j % kOfTile * V::kLanes));
    }
    V::store(weights + j * V::kLanes, weight);
  }
  float rescale = 1.0F;
  if (new_max != old_max) rescale = V::first_lane(vec_exp(V::set1(old_max - new_max)));
  rows.max[row] = new_max;
  rows.sum[row] = rows.sum[row] * rescale + V::sum(total);
  rows.rescale[row] = rescale;
}

/// Adds the values for kRows rows that read the same keys, kVectors vectors of the head (the last one has
/// `tail` lanes if that is not 0).
template <VecType V, class Format, size_t kRows, size_t kVectors>
inline __attribute__((always_inline)) void accumulate_part(const AttentionRows<V>& rows, size_t row, size_t d,
                                                           const Stretch<V, Format>& at, size_t head_dim,
                                                           KeyRange<V> range, size_t tail) {
  V sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    const V rescale = V::set1(rows.rescale[row + i]);
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      sums[i][j] = V::mul(V::load(rows.out + (row + i) * rows.padded_dim + d + j * V::kLanes), rescale);
    }
  }
  int key = range.begin;
  while (key < range.end) {
    constexpr int kTile = kTileKeys;
    const typename Format::Element* values = at.values[key / kTile] + d;
    const typename Format::Element* next = at.next_values[key / kTile] + d;
    const int tile_end = key / kTile * kTile + kTile;
    const int end = range.end < tile_end ? range.end : tile_end;
    for (; key < end; ++key) {
      const size_t shift = static_cast<size_t>(key % kTile) * head_dim;
      const typename Format::Element* from = values + shift;
      QUIRE_UNROLL
      for (size_t byte = 0; byte < kVectors * V::kLanes * sizeof(*next); byte += 64) {
        __builtin_prefetch(reinterpret_cast<const char*>(next + shift) + byte);
      }
      V v[kVectors];
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        v[j] = tail == 0 ? Format::load(from + j * V::kLanes) : Format::load(from + j * V::kLanes, tail);
      }
      QUIRE_UNROLL
      for (size_t i = 0; i < kRows; ++i) {
        const V weight = V::set1(rows.weights[(row + i) * kStretchKeys + static_cast<size_t>(key)]);
        QUIRE_UNROLL
        for (size_t j = 0; j < kVectors; ++j) sums[i][j] = V::fma(v[j], weight, sums[i][j]);
      }
    }
  }
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      V::store(rows.out + (row + i) * rows.padded_dim + d + j * V::kLanes, sums[i][j]);
    }
  }
}

template <VecType V, class Format, size_t kRows>
void accumulate(const AttentionRows<V>& rows, size_t row, const Stretch<V, Format>& at, size_t head_dim,
                KeyRange<V> range) {
  size_t d = 0;
  for (; d + 4 * V::kLanes <= head_dim; d += 4 * V::kLanes) {
    accumulate_part<V, Format, kRows, 4>(rows, row, d, at, head_dim, range, 0);
  }
  for (; d + V::kLanes <= head_dim; d += V::kLanes) {
    accumulate_part<V, Format, kRows, 1>(rows, row, d, at, head_dim, range, 0);
  }
  if (d < head_dim) accumulate_part<V, Format, kRows, 1>(rows, row, d, at, head_dim, range, head_dim - d);
}

/// The stretch from `base` on; only the tiles of the keys [first, end) may be read.
template <VecType V, class Format>
inline __attribute__((always_inline)) Stretch<V, Format> find_stretch(const AttentionArgs& args,
                                                                      uint32_t base, uint32_t first,
                                                                      uint32_t end) {
  using Element = typename Format::Element;
  const size_t head_elements = size_t{args.block_size} * args.head_dim;
  Stretch<V, Format> at = {};
  for (uint32_t i = 0; i < kStretchTiles; ++i) {
    uint32_t key = base + i * kTileKeys;
    if (key + kTileKeys <= first) key = first;
    if (key >= end) key = end - 1;
    const uint32_t in_block = key % args.block_size / kTileKeys * kTileKeys;
    const auto* block = reinterpret_cast<const Element*>(
        args.cache + args.block_table[key / args.block_size] * args.block_bytes);
    at.keys[i] = block + args.kv_head * head_elements + size_t{in_block} * args.head_dim;
    at.values[i] = at.keys[i] + args.num_kv_heads * head_elements;
    if constexpr (Format::kScaled) {
      at.key_scales[i] = reinterpret_cast<const float*>(block + 2 * args.num_kv_heads * head_elements) +
                         size_t{args.kv_head} * args.block_size + in_block;
      at.value_scales[i] = at.key_scales[i] + size_t{args.num_kv_heads} * args.block_size;
    }
  }
  return at;
}

/// Converts tiles to f32, at `to`.
template <VecType V, class Format>
inline __attribute__((always_inline)) float* widen(
    const typename Format::Element* const (&from)[kStretchTiles],
    const typename Format::Element* const (&next)[kStretchTiles], const float* (&tiles)[kStretchTiles],
    float* to, size_t head_dim) {
  const size_t count = head_dim * kTileKeys;
  for (size_t tile = 0; tile < kStretchTiles; ++tile, to += count) {
    for (size_t i = 0; i < count; i += V::kLanes) {
      __builtin_prefetch(next[tile] + i);
      V::store(to + i, Format::load(from[tile] + i));
    }
    tiles[tile] = to;
  }
  return to;
}

/// One stretch for the tokens [begin, end), all of which read some of its keys.
template <VecType V, class Format>
void attend_stretch(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin, uint32_t end,
                    uint32_t base, const Stretch<V, Format>& at) {
  constexpr size_t kMost = V::kAttentionOutRows;
  score<V, Format>(rows, size_t{begin} * args.group, size_t{end} * args.group, at, args.head_dim);
  uint32_t token = begin;
  while (token < end) {  // tokens that read the same keys are computed together
    const KeyRange<V> range = visible<V>(args, token, base);
    const size_t first_row = size_t{token} * args.group;
    do {
      ++token;
    } while (token < end && visible<V>(args, token, base) == range);
    const size_t last_row = size_t{token} * args.group;
    for (size_t row = first_row; row < last_row; ++row)
      soften<V, Format>(rows, row, range, args.soft_cap, at);
    size_t row = first_row;
    for (; row + kMost <= last_row; row += kMost) {
      accumulate<V, Format, kMost>(rows, row, at, args.head_dim, range);
    }
    for (; row < last_row; ++row) accumulate<V, Format, 1>(rows, row, at, args.head_dim, range);
  }
}

template <VecType V>
void scale_queries(const AttentionArgs& args, const AttentionRows<V>& rows, size_t count) {
  for (size_t row = 0; row < count; ++row) {
    const float* q = args.q + row / args.group * args.ldq + row % args.group * args.head_dim;
    float* scaled = rows.q + row * rows.padded_dim;
    for (size_t d = 0; d < args.head_dim; ++d) scaled[d] = q[d] * args.scale;
  }
}

template <VecType V>
void start_rows(const AttentionRows<V>& rows, size_t count) {
  for (size_t row = 0; row < count; ++row) {
    for (size_t d = 0; d < rows.padded_dim; d += V::kLanes) {
      V::store(rows.out + row * rows.padded_dim + d, V::zero());
    }
    rows.max[row] = -__builtin_inff();
    rows.sum[row] = 0.0F;
  }
}

/// A row's result of one span, or of all spans so far. A sum of 0: it reads none of the keys.
template <VecType V>
struct Partial {
  float* out;  // [padded_dim]
  float* max;
  float* sum;
};

template <VecType V>
inline __attribute__((always_inline)) Partial<V> partial_of(const AttentionRows<V>& rows, size_t row) {
  return {rows.out + row * rows.padded_dim, rows.max + row, rows.sum + row};
}
/// As in AttentionArgs::partials.
template <VecType V>
inline __attribute__((always_inline)) Partial<V> partial_at(float* partials, size_t row, size_t padded_dim) {
  float* at = partials + row * partial_floats(padded_dim);
  return {at, at + padded_dim, at + padded_dim + 1};
}

template <VecType V>
void copy_partial(const Partial<V>& to, const Partial<V>& from, size_t padded_dim) {
  for (size_t d = 0; d < padded_dim; d += V::kLanes) V::store(to.out + d, V::load(from.out + d));
  *to.max = *from.max;
  *to.sum = *from.sum;
}

/// Merges `span`, which comes after the spans in `total`, into `total`.
template <VecType V>
void merge(const Partial<V>& total, const Partial<V>& span, size_t padded_dim) {
  if (*span.sum == 0.0F) return;
  if (*total.sum == 0.0F) return copy_partial(total, span, padded_dim);
  const float max = *span.max > *total.max ? *span.max : *total.max;
  const V before = vec_exp(V::set1(*total.max - max));
  const V now = vec_exp(V::set1(*span.max - max));
  *total.max = max;
  *total.sum = *total.sum * V::first_lane(before) + *span.sum * V::first_lane(now);
  for (size_t d = 0; d < padded_dim; d += V::kLanes) {
    V::store(total.out + d, V::fma(V::load(span.out + d), now, V::mul(V::load(total.out + d), before)));
  }
}

template <VecType V>
void finish_row(const AttentionArgs& args, size_t row, const Partial<V>& total) {
  float* out = args.out + row / args.group * args.ldo + row % args.group * args.head_dim;
  const V sum = V::set1(*total.sum);
  size_t d = 0;
  for (; d + V::kLanes <= args.head_dim; d += V::kLanes)
    V::store(out + d, V::div(V::load(total.out + d), sum));
  if (d < args.head_dim) V::store(out + d, V::div(V::load(total.out + d), sum), args.head_dim - d);
}

/// The keys [first, end), all in one span, for the rows that read them.
template <VecType V, class Format>
void attend_span(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t first, uint32_t end_key,
                 float* widened) {
  // Tokens before `begin` precede the stretch; for tokens from `end` on, it is behind their window.
  uint32_t begin = 0;
  uint32_t base = first / kStretchKeys * kStretchKeys;
  Stretch<V, Format> at = find_stretch<V, Format>(args, base, first, end_key);
  for (; base < end_key; base += kStretchKeys) {
    while (visible<V>(args, begin, base).end == 0) ++begin;
    uint32_t end = begin + 1;
    while (end < args.num_tokens && visible<V>(args, end, base).end != 0) ++end;
    Stretch<V, Format> next = at;
    if (end_key - base > kStretchKeys) {
      next = find_stretch<V, Format>(args, base + kStretchKeys, first, end_key);
    }
    at.fetch(next);
    if (sizeof(typename Format::Element) < sizeof(float) && (end - begin) * args.group >= kWidenRows) {
      Stretch<V, Widened<V, Format>> wide = {};
      float* rest = widen<V, Format>(at.keys, at.next_keys, wide.keys, widened, args.head_dim);
      widen<V, Format>(at.values, at.next_values, wide.values, rest, args.head_dim);
      for (size_t i = 0; i < kStretchTiles; ++i) {
        wide.key_scales[i] = at.key_scales[i];
        wide.value_scales[i] = at.value_scales[i];
      }
      wide.fetch(wide);
      attend_stretch<V, Widened<V, Format>>(args, rows, begin, end, base, wide);
    } else {
      attend_stretch<V, Format>(args, rows, begin, end, base, at);
    }
    at = next;
  }
}

template <VecType V, class Format>
void attention(const AttentionArgs& args) {
  const size_t count = size_t{args.num_tokens} * args.group;
  float* free = args.scratch;
  AttentionRows<V> rows = {};
  rows.padded_dim = args.padded_dim;
  rows.q = free;
  rows.out = free += count * args.padded_dim;
  rows.weights = free += count * args.padded_dim;
  rows.max = free += count * kStretchKeys;
  rows.sum = free += count;
  rows.rescale = free += count;
  float* totals = free += count;
  float* widened = free += count * partial_floats(args.padded_dim);
  scale_queries(args, rows, count);

  const uint32_t end = args.first_position + args.num_tokens;
  const uint32_t first = first_key<V>(args, args.first_position);
  const auto run = [&](uint32_t span) {
    const uint32_t begin = span * kSpanKeys;
    start_rows(rows, count);
    attend_span<V, Format>(args, rows, first > begin ? first : begin,
                           end - begin < kSpanKeys ? end : begin + kSpanKeys, widened);
  };
  const auto for_rows = [&](const auto& each) {
    for (size_t row = 0; row < count; ++row) each(row, partial_of(rows, row));
  };
  const auto keep = [&](float* partials) {
    for_rows([&](size_t row, const Partial<V>& from) {
      copy_partial(partial_at<V>(partials, row, args.padded_dim), from, args.padded_dim);
    });
  };
  if (args.partials != nullptr) {
    run(args.span);
    return keep(args.partials);
  }
  uint32_t span = first / kSpanKeys;
  const uint32_t last_span = (end - 1) / kSpanKeys;
  run(span);
  if (span == last_span) {
    return for_rows([&](size_t row, const Partial<V>& all) { finish_row(args, row, all); });
  }
  keep(totals);
  while (++span <= last_span) {
    run(span);
    for_rows([&](size_t row, const Partial<V>& from) {
      merge(partial_at<V>(totals, row, args.padded_dim), from, args.padded_dim);
    });
  }
  for (size_t row = 0; row < count; ++row) finish_row(args, row, partial_at<V>(totals, row, args.padded_dim));
}

template <VecType V>
void merge_spans(const AttentionArgs& args, float* partials, size_t num_spans) {
  const size_t count = size_t{args.num_tokens} * args.group;
  for (size_t row = 0; row < count; ++row) {
    const Partial<V> total = partial_at<V>(partials, row, args.padded_dim);
    for (size_t span = 1; span < num_spans; ++span) {
      merge(total, partial_at<V>(partials, span * count + row, args.padded_dim), args.padded_dim);
    }
    finish_row(args, row, total);
  }
}

}  // namespace quire::kernels::cpu
