#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/attention_stretch.h"

// Attention of query tiles (tokens x the query heads of a K/V head) over the key tiles they see: the
// stretches of kStretchKeys keys of a span of kSpanKeys in ascending order, then the spans' maxima, sums and
// outputs merged in ascending order. Of several K/V heads, a stretch is read of one after the other, for in a
// block they follow each other: memory is read in longer runs. As in attention_rows.h, a row's result does
// not depend on the others.
namespace quire::kernels::cpu {

/// The stretch from `base` on, of the first K/V head; only the tiles of the keys [first, end) may be read.
template <VecType V, class Format>
QUIRE_INLINE Stretch<V, Format> find_stretch(const AttentionArgs& args, uint32_t base, uint32_t first,
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

/// Widens tiles of keys, at `to`.
template <VecType V, class Format, class Wide = typename Format::Wide>
QUIRE_INLINE typename Wide::Element* widen_keys(const Stretch<V, Format>& at, Stretch<V, Wide>& wide,
                                                typename Wide::Element* to, size_t head_dim) {
  for (size_t tile = 0; tile < kStretchTiles; ++tile) {
    wide.keys[tile] = to;
    for (size_t step = 0; step < head_dim / Format::kStep; ++step, to += kTileKeys * Format::kStep) {
      for (size_t lane = 0; lane < kTileKeys; lane += V::kLanes) {
        __builtin_prefetch(at.next_keys[tile] + (step * kTileKeys + lane) * Format::kStep);
        Format::widen_keys(at.keys[tile], step, lane, to + lane * Wide::kLane);
      }
    }
  }
  return to;
}

/// Widens tiles of `rows` x `width` elements, at `to`.
template <VecType V, class Format, class Wide = typename Format::Wide>
QUIRE_INLINE void widen(const typename Format::Element* const (&from)[kStretchTiles],
                        const typename Format::Element* const (&next)[kStretchTiles],
                        const typename Wide::Element* (&tiles)[kStretchTiles], typename Wide::Element* to,
                        size_t rows, size_t width) {
  for (size_t tile = 0; tile < kStretchTiles; ++tile) {
    tiles[tile] = to;
    for (size_t row = 0; row < rows; row += Format::kStep, to += width * Format::kStep) {
      const typename Format::Element* at = from[tile] + row * width;
      size_t lane = 0;
      for (; lane + V::kLanes <= width; lane += V::kLanes) {
        __builtin_prefetch(next[tile] + row * width + lane * Format::kStep);
        Format::widen(at + lane * Format::kLane, to + lane * Wide::kLane, width, 0);
      }
      if (lane < width)
        Format::widen(at + lane * Format::kLane, to + lane * Wide::kLane, width, width - lane);
    }
  }
}

/// attend_stretch() over V, and K unless it is multiplied as integers, that are widened first, once for all
/// rows.
template <VecType V, class Format>
void attend_widened(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin, uint32_t end,
                    uint32_t base, const Stretch<V, Format>& at, float* widened) {
  using Wide = typename Format::Wide;
  Stretch<V, Wide> wide = {};
  auto* to = reinterpret_cast<typename Wide::Element*>(widened);
  if constexpr (!Wide::kIntegerKeys) to = widen_keys<V, Format>(at, wide, to, args.head_dim);
  widen<V, Format>(at.values, at.next_values, wide.values, to, kTileKeys, args.head_dim);
  for (size_t i = 0; i < kStretchTiles; ++i) {
    wide.key_scales[i] = at.key_scales[i];
    wide.value_scales[i] = at.value_scales[i];
  }
  wide.fetch(wide);  // what follows is fetched while K and V are widened
  if constexpr (Wide::kIntegerKeys) {
    for (size_t i = 0; i < kStretchTiles; ++i) {
      wide.keys[i] = at.keys[i];
      wide.next_keys[i] = at.next_keys[i];
    }
  }
  attend_stretch<V, Wide>(args, rows, begin, end, base, wide);
}

template <VecType V, class Format>
QUIRE_INLINE void attend_or_widen(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin,
                                  uint32_t end, uint32_t base, const Stretch<V, Format>& at, float* widened) {
  if constexpr (Format::kWidenRows > 1) {
    if ((end - begin) * args.group < Format::kWidenRows) {
      return attend_stretch<V, Format>(args, rows, begin, end, base, at);
    }
  }
  attend_widened<V, Format>(args, rows, begin, end, base, at, widened);
}

/// Calls visit(row, token, its place among the token's numbers): the rows of a K/V head after one another.
template <class Visit>
QUIRE_INLINE void for_rows(const AttentionArgs& args, const Visit& visit) {
  size_t row = 0;
  for (size_t head = 0; head < args.num_heads; ++head) {
    for (size_t token = 0; token < args.num_tokens; ++token) {
      for (size_t i = 0; i < args.group; ++i) visit(row++, token, (head * args.group + i) * args.head_dim);
    }
  }
}

/// The queries as factors.
template <VecType V, class Format>
void scale_queries(const AttentionArgs& args, const AttentionRows<V>& rows) {
  for_rows(args, [&](size_t row, size_t token, size_t place) {
    const float* q = args.q + token * args.ldq + place;
    float* factors = rows.q + row * rows.padded_dim;
    if constexpr (Format::kIntegerKeys) {
      Format::keep_query(args, q, factors, rows.padded_dim);
    } else {
      const V scale = V::set1(args.scale);
      size_t d = 0;
      for (; d + V::kLanes <= args.head_dim; d += V::kLanes) {
        Format::keep(factors, d, V::mul(V::load(q + d), scale));
      }
      if (d < args.head_dim) Format::keep(factors, d, V::mul(V::load(q + d, args.head_dim - d), scale));
    }
  });
}

template <VecType V>
QUIRE_INLINE void start_rows(const AttentionRows<V>& rows, size_t count) {
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
QUIRE_INLINE Partial<V> partial_of(const AttentionRows<V>& rows, size_t row) {
  return {rows.out + row * rows.padded_dim, rows.max + row, rows.sum + row};
}
/// As in AttentionArgs::partials.
template <VecType V>
QUIRE_INLINE Partial<V> partial_at(float* partials, size_t row, size_t padded_dim) {
  float* at = partials + row * partial_floats(padded_dim);
  return {at, at + padded_dim, at + padded_dim + 1};
}

template <VecType V>
QUIRE_INLINE void copy_partial(const Partial<V>& to, const Partial<V>& from, size_t padded_dim) {
  for (size_t d = 0; d < padded_dim; d += V::kLanes) V::store(to.out + d, V::load(from.out + d));
  *to.max = *from.max;
  *to.sum = *from.sum;
}

/// Merges `span`, which comes after the spans in `total`, into `total`.
template <VecType V>
QUIRE_INLINE void merge(const Partial<V>& total, const Partial<V>& span, size_t padded_dim) {
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
QUIRE_INLINE void finish_row(const AttentionArgs& args, float* out, const Partial<V>& total) {
  const V sum = V::set1(*total.sum);
  size_t d = 0;
  for (; d + V::kLanes <= args.head_dim; d += V::kLanes)
    V::store(out + d, V::div(V::load(total.out + d), sum));
  if (d < args.head_dim) V::store(out + d, V::div(V::load(total.out + d), sum), args.head_dim - d);
}

/// One stretch for few rows of one or several K/V heads, all of which read the same keys of it. The scores of
/// all heads become weights together, for the few of one would wait for themselves.
template <VecType V, class Format>
void attend_heads(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t base, KeyRange<V> range,
                  const Stretch<V, Format>& first, const Stretch<V, Format>& next) {
  using Products = StretchProducts<V, Format>;
  static_assert(std::is_same_v<typename Format::KeyElement, typename Format::Element>);
  const size_t heads = args.num_heads;
  const size_t count = size_t{args.num_tokens} * args.group;
  // What is read one after the other: the keys of all heads, their values, then those of the next stretch.
  const auto find = [&](size_t item, const typename Format::Element** to) {
    const Stretch<V, Format>& of = item < 2 * heads ? first : next;
    const size_t shift = item % heads * args.block_size * args.head_dim;
    for (size_t i = 0; i < kStretchTiles; ++i) {
      to[i] = (item / heads % 2 == 0 ? of.keys[i] : of.values[i]) + shift;
    }
  };
  Stretch<V, Format> at = first;
  for (size_t head = 0; head < heads; ++head) {
    if (head > 0) at = at.next_head(args);
    find(head + 1, at.next_keys);
    at.fetch_scales();
    Products::score(args, rows.apart_from(head * count), 0, args.num_tokens, base, at);
  }
  // Memory is read while scores become weights too; from there on it is one head further ahead.
  at = first;
  find(heads + 1, at.next_values);
  const size_t lines = kStretchKeys * args.head_dim * sizeof(typename Format::Element) / kLineBytes;
  const SeveralHeads<V> several = {
      .rows = count, .scales_apart = args.block_size, .lines = (lines + heads * count - 1) / (heads * count)};
  soften_rows<V, Format>(rows, 0, heads * count, range, args.soft_cap, at, several);
  for (size_t head = 0; head < heads; ++head) {
    if (head > 0) at = at.next_head(args);
    find(heads + head + 2, at.next_values);
    Products::accumulate(args, rows.apart_from(head * count), 0, count, at, range);
  }
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
    const KeyRange<V> range = visible<V>(args, begin, base);
    if (size_t{args.num_tokens} * args.group <= kFewRows && begin == 0 && end == args.num_tokens &&
        visible<V>(args, end - 1, base) == range) {
      attend_heads<V, Format>(args, rows, base, range, at, next);
      at = next;
      continue;
    }
    for (uint32_t head = 0; head < args.num_heads; ++head) {
      const Stretch<V, Format> following = head + 1 < args.num_heads ? at.next_head(args) : next;
      const AttentionRows<V> own = rows.from(size_t{head} * args.num_tokens * args.group);
      at.fetch(following);
      if constexpr (std::is_void_v<typename Format::Wide>) {
        attend_stretch<V, Format>(args, own, begin, end, base, at);
      } else {
        attend_or_widen<V, Format>(args, own, begin, end, base, at, widened);
      }
      at = following;
    }
  }
}

template <VecType V, class Format>
void attention(const AttentionArgs& args) {
  const size_t count = size_t{args.num_heads} * args.num_tokens * args.group;
  float* free = args.scratch;
  AttentionRows<V> rows = {};
  const size_t room = attention_rows(count);
  rows.padded_dim = args.padded_dim;
  rows.q = free;
  rows.out = free += room * args.padded_dim;
  rows.weights = free += room * args.padded_dim;
  rows.max = free += room * kStretchKeys;
  rows.sum = free += room;
  rows.rescale = free += room;
  float* totals = free += room;
  float* widened = free += room * partial_floats(args.padded_dim);
  rows.tile_weights = free += 2 * kStretchKeys * args.padded_dim;
  rows.free = free += kTileRows * kStretchKeys / 2;
  scale_queries<V, Format>(args, rows);

  const uint32_t end = args.first_position + args.num_tokens;
  const uint32_t first = first_key<V>(args, args.first_position);
  const auto run = [&](uint32_t span) {
    const uint32_t begin = span * kSpanKeys;
    start_rows(rows, count);
    attend_span<V, Format>(args, rows, first > begin ? first : begin,
                           end - begin < kSpanKeys ? end : begin + kSpanKeys, widened);
  };
  const auto keep = [&](float* partials) {
    for (size_t row = 0; row < count; ++row) {
      copy_partial(partial_at<V>(partials, row, args.padded_dim), partial_of(rows, row), args.padded_dim);
    }
  };
  const auto finish = [&](const auto& total_of) {
    for_rows(args, [&](size_t row, size_t token, size_t place) {
      finish_row<V>(args, args.out + token * args.ldo + place, total_of(row));
    });
  };
  if (args.partials != nullptr) {
    run(args.span);
    return keep(args.partials);
  }
  uint32_t span = first / kSpanKeys;
  const uint32_t last_span = (end - 1) / kSpanKeys;
  run(span);
  if (span == last_span) return finish([&](size_t row) { return partial_of(rows, row); });
  keep(totals);
  while (++span <= last_span) {
    run(span);
    for (size_t row = 0; row < count; ++row) {
      merge(partial_at<V>(totals, row, args.padded_dim), partial_of(rows, row), args.padded_dim);
    }
  }
  finish([&](size_t row) { return partial_at<V>(totals, row, args.padded_dim); });
}

template <VecType V>
void merge_spans(const AttentionArgs& args, float* partials, size_t num_spans) {
  const size_t count = size_t{args.num_heads} * args.num_tokens * args.group;
  for_rows(args, [&](size_t row, size_t token, size_t place) {
    const Partial<V> total = partial_at<V>(partials, row, args.padded_dim);
    for (size_t span = 1; span < num_spans; ++span) {
      merge(total, partial_at<V>(partials, span * count + row, args.padded_dim), args.padded_dim);
    }
    finish_row<V>(args, args.out + token * args.ldo + place, total);
  });
}

}  // namespace quire::kernels::cpu
