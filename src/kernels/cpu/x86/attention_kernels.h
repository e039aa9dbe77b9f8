#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/vec_math.h"

// Attention of one query tile (tokens x the query heads of a K/V head; a row is one of each) over the key
// tiles it sees. However many rows go together, each row does the same operations in the same order:
//   scores  = sum over d ascending of q[d] * K[d][key], lanes are keys
//   rescale = exp(old maximum - new maximum), times the sum and the output (by 1 it is left out)
//   output  = output + weight * V[key], keys ascending and only those that the row sees
// in each span of kSpanKeys keys; then the spans' maxima, sums and outputs are merged in ascending order.
namespace quire::cpu {

template <class V>
struct AttentionRows {
  float* q;        // [rows][padded_dim], scaled
  float* out;      // [rows][padded_dim]
  float* weights;  // [rows][16]: scores, then exp(score - maximum)
  float* max;      // [rows]
  float* sum;
  float* rescale;
  size_t padded_dim;
};

/// The keys of a tile that a token's rows see: [begin, end) of 0..16.
template <class V>
struct KeyRange {
  int begin;
  int end;
  inline __attribute__((always_inline)) bool operator==(const KeyRange& other) const {
    return begin == other.begin && end == other.end;
  }
};

template <class V>
inline __attribute__((always_inline)) uint32_t first_key(const AttentionArgs& args, uint32_t position) {
  return args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
}

template <class V>
inline __attribute__((always_inline)) KeyRange<V> visible(const AttentionArgs& args, uint32_t token,
                                                          uint32_t base) {
  const uint32_t position = args.first_position + token;
  const uint32_t first = first_key<V>(args, position);
  KeyRange<V> range = {0, 0};
  if (position < base || first >= base + kTileKeys) return range;
  range.begin = first > base ? static_cast<int>(first - base) : 0;
  range.end =
      position - base + 1 < kTileKeys ? static_cast<int>(position - base + 1) : static_cast<int>(kTileKeys);
  return range;
}

template <class V, class Format, size_t kRows>
inline __attribute__((always_inline)) void score_rows(const AttentionRows<V>& rows, size_t row,
                                                      const typename Format::Element* keys, size_t head_dim) {
  constexpr size_t kVectors = kTileKeys / V::kLanes;
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
    for (size_t j = 0; j < kVectors; ++j) k[j] = Format::load(keys + d * kTileKeys + j * V::kLanes);
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
      V::store(rows.weights + (row + i) * kTileKeys + j * V::kLanes, sums[i][j]);
    }
  }
}

template <class V, class Format>
void score(const AttentionRows<V>& rows, size_t begin, size_t end, const typename Format::Element* keys,
           size_t head_dim) {
  constexpr size_t kMost = V::kAttentionRows;
  size_t row = begin;
  for (; row + kMost <= end; row += kMost) score_rows<V, Format, kMost>(rows, row, keys, head_dim);
  for (; row + kMost / 2 <= end; row += kMost / 2)
    score_rows<V, Format, kMost / 2>(rows, row, keys, head_dim);
  for (; row < end; ++row) score_rows<V, Format, 1>(rows, row, keys, head_dim);
}

/// The K and V tiles of this task's K/V head for the keys from some on.
template <class V, class Format>
struct TilePointers {
  static constexpr bool kScaled = sizeof(typename Format::Element) == 1;
  const typename Format::Element* keys;
  const typename Format::Element* values;
  const float* key_scales;  // of each key, if kScaled
  const float* value_scales;
};

/// Scores to weights (times the scale of the value); brings the row's maximum and sum up to date.
template <class V, class Format>
void soften(const AttentionRows<V>& rows, size_t row, KeyRange<V> range, float soft_cap,
            const TilePointers<V, Format>& tile) {
  constexpr bool kScaled = TilePointers<V, Format>::kScaled;
  constexpr size_t kVectors = kTileKeys / V::kLanes;
  const V nothing = V::set1(-__builtin_inff());
  float* weights = rows.weights + row * kTileKeys;
  V scores[kVectors];
  V top = nothing;
  QUIRE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) {
    const auto offset = static_cast<int>(j * V::kLanes);
    V value = V::load(weights + offset);
    if constexpr (kScaled) value = V::mul(value, V::load(tile.key_scales + offset));
    if (soft_cap != 0.0F) value = capped(value, V::set1(soft_cap));
    scores[j] = V::select_range(value, nothing, offset, range.begin, range.end);
    top = V::max(top, scores[j]);
  }
  const float tile_max = V::max_lane(top);
  const float old_max = rows.max[row];
  const float new_max = tile_max > old_max ? tile_max : old_max;
  V total = V::zero();
  QUIRE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) {
    const V weight = vec_exp(V::sub(scores[j], V::set1(new_max)));
    total = V::add(total, weight);
    if constexpr (kScaled) {
      V::store(weights + j * V::kLanes, V::mul(weight, V::load(tile.value_scales + j * V::kLanes)));
    } else {
      V::store(weights + j * V::kLanes, weight);
    }
  }
  float rescale = 1.0F;
  if (new_max != old_max) rescale = V::first_lane(vec_exp(V::set1(old_max - new_max)));
  rows.max[row] = new_max;
  rows.sum[row] = rows.sum[row] * rescale + V::sum(total);
  rows.rescale[row] = rescale;
}

/// The values of kRows rows that see the same keys, kVectors vectors of the head (the last one of `tail`
/// lanes if that is not 0).
template <class V, class Format, size_t kRows, size_t kVectors>
inline __attribute__((always_inline)) void accumulate_part(const AttentionRows<V>& rows, size_t row, size_t d,
                                                           const typename Format::Element* values,
                                                           size_t head_dim, KeyRange<V> range, size_t tail) {
  V sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    const V rescale = V::set1(rows.rescale[row + i]);
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      sums[i][j] = V::mul(V::load(rows.out + (row + i) * rows.padded_dim + d + j * V::kLanes), rescale);
    }
  }
  for (int key = range.begin; key < range.end; ++key) {
    const typename Format::Element* from = values + static_cast<size_t>(key) * head_dim + d;
    V v[kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      v[j] = tail == 0 ? Format::load(from + j * V::kLanes) : Format::load(from + j * V::kLanes, tail);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V weight = V::set1(rows.weights[(row + i) * kTileKeys + static_cast<size_t>(key)]);
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) sums[i][j] = V::fma(v[j], weight, sums[i][j]);
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

template <class V, class Format, size_t kRows>
void accumulate(const AttentionRows<V>& rows, size_t row, const typename Format::Element* values,
                size_t head_dim, KeyRange<V> range) {
  size_t d = 0;
  for (; d + 4 * V::kLanes <= head_dim; d += 4 * V::kLanes) {
    accumulate_part<V, Format, kRows, 4>(rows, row, d, values, head_dim, range, 0);
  }
  for (; d + V::kLanes <= head_dim; d += V::kLanes) {
    accumulate_part<V, Format, kRows, 1>(rows, row, d, values, head_dim, range, 0);
  }
  if (d < head_dim) accumulate_part<V, Format, kRows, 1>(rows, row, d, values, head_dim, range, head_dim - d);
}

template <class V, class Format>
inline __attribute__((always_inline)) TilePointers<V, Format> find_tile(const AttentionArgs& args,
                                                                        uint32_t base) {
  using Element = typename Format::Element;
  const size_t head_elements = size_t{args.block_size} * args.head_dim;
  const auto* block = reinterpret_cast<const Element*>(args.cache + args.block_table[base / args.block_size] *
                                                                        args.block_bytes);
  const Element* keys = block + args.kv_head * head_elements + size_t{base % args.block_size} * args.head_dim;
  if constexpr (TilePointers<V, Format>::kScaled) {
    const auto* scales = reinterpret_cast<const float*>(block + 2 * args.num_kv_heads * head_elements) +
                         size_t{args.kv_head} * args.block_size + base % args.block_size;
    return {keys, keys + args.num_kv_heads * head_elements, scales,
            scales + size_t{args.num_kv_heads} * args.block_size};
  } else {
    return {keys, keys + args.num_kv_heads * head_elements, nullptr, nullptr};
  }
}

/// Tiles lie too far apart for the machine to foresee the next.
template <class V, class Element>
inline __attribute__((always_inline)) void prefetch_tile(const Element* tile, size_t head_dim) {
  const size_t bytes = head_dim * kTileKeys * sizeof(Element);
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<const char*>(tile) + i);
}

/// One tile of keys for the tokens [begin, end), all of which see some of it. `next` is the tile to come.
template <class V, class Format>
void attend_tile(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin, uint32_t end,
                 uint32_t base, TilePointers<V, Format> tile, TilePointers<V, Format> next) {
  constexpr size_t kMost = V::kAttentionOutRows;
  prefetch_tile<V>(next.keys, args.head_dim);
  score<V, Format>(rows, size_t{begin} * args.group, size_t{end} * args.group, tile.keys, args.head_dim);
  prefetch_tile<V>(next.values, args.head_dim);
  uint32_t token = begin;
  while (token < end) {  // tokens that see the same keys go together
    const KeyRange<V> range = visible<V>(args, token, base);
    const size_t first_row = size_t{token} * args.group;
    do {
      ++token;
    } while (token < end && visible<V>(args, token, base) == range);
    const size_t last_row = size_t{token} * args.group;
    for (size_t row = first_row; row < last_row; ++row)
      soften<V, Format>(rows, row, range, args.soft_cap, tile);
    size_t row = first_row;
    for (; row + kMost <= last_row; row += kMost) {
      accumulate<V, Format, kMost>(rows, row, tile.values, args.head_dim, range);
    }
    for (; row < last_row; ++row) accumulate<V, Format, 1>(rows, row, tile.values, args.head_dim, range);
  }
}

template <class V>
void scale_queries(const AttentionArgs& args, const AttentionRows<V>& rows, size_t count) {
  for (size_t row = 0; row < count; ++row) {
    const float* q = args.q + row / args.group * args.ldq + row % args.group * args.head_dim;
    float* scaled = rows.q + row * rows.padded_dim;
    for (size_t d = 0; d < args.head_dim; ++d) scaled[d] = q[d] * args.scale;
  }
}

template <class V>
void start_rows(const AttentionRows<V>& rows, size_t count) {
  for (size_t row = 0; row < count; ++row) {
    for (size_t d = 0; d < rows.padded_dim; d += V::kLanes) {
      V::store(rows.out + row * rows.padded_dim + d, V::zero());
    }
    rows.max[row] = -__builtin_inff();
    rows.sum[row] = 0.0F;
  }
}

/// A row's result of one span, or of all so far. A sum of 0: it sees none of the keys.
template <class V>
struct Partial {
  float* out;  // [padded_dim]
  float* max;
  float* sum;
};

template <class V>
inline __attribute__((always_inline)) Partial<V> partial_of(const AttentionRows<V>& rows, size_t row) {
  return {rows.out + row * rows.padded_dim, rows.max + row, rows.sum + row};
}
/// As AttentionArgs::partials has them.
template <class V>
inline __attribute__((always_inline)) Partial<V> partial_at(float* partials, size_t row, size_t padded_dim) {
  float* at = partials + row * partial_floats(padded_dim);
  return {at, at + padded_dim, at + padded_dim + 1};
}

template <class V>
void copy_partial(const Partial<V>& to, const Partial<V>& from, size_t padded_dim) {
  for (size_t d = 0; d < padded_dim; d += V::kLanes) V::store(to.out + d, V::load(from.out + d));
  *to.max = *from.max;
  *to.sum = *from.sum;
}

/// `span`, which comes after those in `total`, joins them.
template <class V>
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

template <class V>
void finish_row(const AttentionArgs& args, size_t row, const Partial<V>& total) {
  float* out = args.out + row / args.group * args.ldo + row % args.group * args.head_dim;
  const V sum = V::set1(*total.sum);
  size_t d = 0;
  for (; d + V::kLanes <= args.head_dim; d += V::kLanes)
    V::store(out + d, V::div(V::load(total.out + d), sum));
  if (d < args.head_dim) V::store(out + d, V::div(V::load(total.out + d), sum), args.head_dim - d);
}

/// The tiles of keys [base, end), all in one span, for the rows that see them.
template <class V, class Format>
void attend_span(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t base, uint32_t end_key) {
  uint32_t begin =
      0;  // tokens before it lie before the tile, those from `end` on have it behind their window
  TilePointers<V, Format> tile = find_tile<V, Format>(args, base);
  for (; base < end_key; base += kTileKeys) {
    while (visible<V>(args, begin, base).end == 0) ++begin;
    uint32_t end = begin + 1;
    while (end < args.num_tokens && visible<V>(args, end, base).end != 0) ++end;
    TilePointers<V, Format> next = tile;
    if (end_key - base > kTileKeys) next = find_tile<V, Format>(args, base + kTileKeys);
    attend_tile<V, Format>(args, rows, begin, end, base, tile, next);
    tile = next;
  }
}

template <class V, class Format>
void attention(const AttentionArgs& args) {
  const size_t count = size_t{args.num_tokens} * args.group;
  float* free = args.scratch;
  AttentionRows<V> rows = {};
  rows.padded_dim = args.padded_dim;
  rows.q = free;
  rows.out = free += count * args.padded_dim;
  rows.weights = free += count * args.padded_dim;
  rows.max = free += count * kTileKeys;
  rows.sum = free += count;
  rows.rescale = free += count;
  float* totals = free += count;
  scale_queries(args, rows, count);

  const uint32_t end = args.first_position + args.num_tokens;
  const uint32_t first = first_key<V>(args, args.first_position) / kTileKeys * kTileKeys;
  const auto run = [&](uint32_t span) {
    const uint32_t begin = span * kSpanKeys;
    start_rows(rows, count);
    attend_span<V, Format>(args, rows, first > begin ? first : begin,
                           end - begin < kSpanKeys ? end : begin + kSpanKeys);
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

template <class V>
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

}  // namespace quire::cpu
