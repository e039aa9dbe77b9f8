#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/x86/attention_rows.h"
#include "kernels/cpu/x86/attention_softmax.h"

// One stretch of keys for query rows: products, softmax, products.
namespace quire::kernels::cpu {

/// The products of a stretch, by rows of lanes.
template <VecType V, class Format>
struct VectorProducts {
  static constexpr size_t kTile = 0;
  static QUIRE_INLINE void score(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin,
                                 uint32_t end, uint32_t base, const Stretch<V, Format>& at) {
    cpu::score<V, Format>(args, rows, begin, end, base, at);
  }
  /// For the rows [first, last), which read the same keys.
  static QUIRE_INLINE void accumulate(const AttentionArgs& args, const AttentionRows<V>& rows, size_t first,
                                      size_t last, const Stretch<V, Format>& at, KeyRange<V> range) {
    for_row_tiles<V, Format::kMostRows>(first, last, [&]<size_t kRows>(size_t row) {
      cpu::accumulate<V, Format, kRows>(rows, row, at, args.head_dim, range);
    });
  }
};

/// The products of a stretch. A level with other products for a format specializes it.
///   kTile   rows that are scored at a time beside vectors that work on others; 0: vectors do both. If it is
///           not 0, there are has_tiles, score_tile, scores_of, find_values, rescale and add_tile for
///           attend_whole_stretch()
template <VecType V, class Format>
struct StretchProducts : VectorProducts<V, Format> {};

/// One stretch for the rows [first, last), all of which read all of it. A tile of them is scored while the
/// scores of the one before become weights, and two take turns with memory that so stays in the L1 cache.
template <VecType V, class Format>
void attend_whole_stretch(const AttentionArgs& args, const AttentionRows<V>& rows, size_t first, size_t last,
                          const Stretch<V, Format>& at) {
  using Products = StretchProducts<V, Format>;
  const KeyRange<V> all = {0, static_cast<int>(kStretchKeys)};
  const auto values = Products::find_values(args, rows, at, all);
  const RowScores<V, Format, true, OneHead<V>> scores = {all, args.soft_cap, at, {}};
  float* turns[2] = {rows.weights, rows.weights + Products::kTile * kStretchKeys};
  Products::score_tile(args, rows, first, turns[0], true, at);
  for (size_t turn = 0; first < last; turn ^= 1U) {
    const size_t next = first + Products::kTile;
    if (next < last) Products::score_tile(args, rows, next, turns[turn ^ 1U], false, at);
    const size_t end = next < last ? next : last;
    const auto found = Products::scores_of(rows, first, turns[turn]);
    const bool changed = soften_tile(rows, first, end - first, found, scores);
    if (changed) Products::rescale(rows, first, end - first);
    Products::add_tile(rows, first, end, rows.tile_weights, kStretchKeys / 2, values);
    first = next;
  }
}

/// One stretch for the tokens [begin, end), all of which read some of its keys.
template <VecType V, class Format>
void attend_stretch(const AttentionArgs& args, const AttentionRows<V>& rows, uint32_t begin, uint32_t end,
                    uint32_t base, const Stretch<V, Format>& at) {
  if constexpr (StretchProducts<V, Format>::kTile > 0) {
    const KeyRange<V> all = {0, static_cast<int>(kStretchKeys)};
    if (StretchProducts<V, Format>::has_tiles(args, rows) && visible<V>(args, begin, base) == all &&
        visible<V>(args, end - 1, base) == all) {
      return attend_whole_stretch<V, Format>(args, rows, size_t{begin} * args.group, size_t{end} * args.group,
                                             at);
    }
  }
  StretchProducts<V, Format>::score(args, rows, begin, end, base, at);
  uint32_t token = begin;
  while (token < end) {  // tokens that read the same keys are computed together
    const KeyRange<V> range = visible<V>(args, token, base);
    const size_t first_row = size_t{token} * args.group;
    do {
      ++token;
    } while (token < end && visible<V>(args, token, base) == range);
    const size_t last_row = size_t{token} * args.group;
    soften_rows<V, Format>(rows, first_row, last_row, range, args.soft_cap, at);
    StretchProducts<V, Format>::accumulate(args, rows, first_row, last_row, at, range);
  }
}

}  // namespace quire::kernels::cpu
