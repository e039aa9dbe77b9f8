#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pack_table.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

// Packing over a vector type P (avx2::PackVec, avx512::PackVec), whose lanes are adjacent outputs: every lane
// processes its inputs in order, as quantize_int4 does for a row, so that the results have the same bits.
namespace quire::kernels::cpu {

/// Squares of P::kLanes x P::kLanes units, then the rest of each row.
template <class P>
void interleave(const std::byte* const* rows, size_t num_rows, size_t units, std::byte* to) {
  constexpr size_t kLanes = P::kLanes;
  const size_t step = num_rows * 4;
  for (size_t first = 0; first < num_rows; first += kLanes) {
    const size_t lanes = num_rows - first < kLanes ? num_rows - first : kLanes;
    const std::byte* from[kLanes] = {};
    for (size_t i = 0; i < lanes; ++i) from[i] = rows[first + i];
    for (size_t unit = 0; unit < units; unit += kLanes) {
      const size_t count = units - unit < kLanes ? units - unit : kLanes;
      P::transpose(from, unit * 4, count, to + first * 4 + unit * step, step, lanes);
    }
  }
}

/// See nearest() in kernels/quantize.cpp: NaN also gives `least`.
template <VecType V>
inline __attribute__((always_inline)) V nearest_integer(V value, V least, V most) {
  const V shift = V::set1(12582912.0F);  // 1.5 * 2^23
  return V::sub(V::add(V::min(V::max(value, least), most), shift), shift);
}

template <VecType V>
inline __attribute__((always_inline)) V absolute(V a) {
  return V::max(V::sub(V::zero(), a), a);
}

/// The scale of a group as in quantize_int4, for V::kLanes outputs. `columns`: [32 inputs][32 outputs].
template <VecType V>
inline __attribute__((always_inline)) V best_group_scale(const float* columns) {
  constexpr size_t kInputs = 32;
  constexpr size_t kAtOnce = 3;
  constexpr float kSteps[] = {-8.9F, -8.4F, -8.0F, -7.6F, -7.2F, -6.8F, -6.4F, 7.4F, 7.0F};
  const V zero = V::zero();
  const V one = V::set1(1.0F);
  const V least_integer = V::set1(-8.0F);
  const V most_integer = V::set1(7.0F);
  V peak = zero;
  for (size_t k = 0; k < kInputs; ++k) {
    const V w = V::load(columns + k * kPanelWidth);
    peak = V::select_less(absolute(peak), absolute(w), w, peak);
  }
  V best = zero;
  V least = V::set1(__builtin_inff());
  for (size_t first = 0; first < 9; first += kAtOnce) {
    V scales[kAtOnce];
    V inverses[kAtOnce];
    V errors[kAtOnce];
    QUIRE_UNROLL
    for (size_t i = 0; i < kAtOnce; ++i) {
      scales[i] = V::div(peak, V::set1(kSteps[first + i]));
      inverses[i] = V::div(one, scales[i]);
      errors[i] = zero;
    }
    for (size_t k = 0; k < kInputs; ++k) {
      const V w = V::load(columns + k * kPanelWidth);
      QUIRE_UNROLL
      for (size_t i = 0; i < kAtOnce; ++i) {
        const V q = nearest_integer(V::mul(w, inverses[i]), least_integer, most_integer);
        const V off = V::sub(w, V::mul(scales[i], q));
        errors[i] = V::add(errors[i], V::mul(off, off));
      }
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kAtOnce; ++i) {
      best = V::select_less(errors[i], least, scales[i], best);
      least = V::select_less(errors[i], least, errors[i], least);
    }
  }
  return V::select_less(zero, absolute(peak), best, zero);
}

/// The state over all groups of V::kLanes outputs.
template <class P>
struct Int4Lanes {
  using V = typename P::V;

  V usable;  // 1 for an output whose weights are all finite and not all 0, otherwise 0
  V scale;   // the value of one unit of a group's scale
  typename P::Doubles product = P::Doubles::zero();
  typename P::Doubles square = P::Doubles::zero();
  typename P::Integers sum = P::Integers::zero();

  /// Quantizes a group and writes it at `to`, the beginning of the group in the panel, from lane `first` on.
  inline __attribute__((always_inline)) void group(const float* columns, V wanted, size_t first,
                                                   std::byte* to) {
    const V zero = V::zero();
    const V one = V::set1(1.0F);
    const V group_scale = scale_of_group(wanted);
    const V has_scale = absolute(group_scale);
    const V inverse = V::select_less(zero, has_scale, V::div(one, V::mul(scale, group_scale)), zero);
    V kept_sum = zero;
    V kept_squares = zero;
    for (size_t pair = 0; pair < 4; ++pair) {
      V nibbles[8];
      QUIRE_UNROLL
      for (size_t i = 0; i < 8; ++i) {
        const V w = V::select_less(zero, has_scale, V::load(columns + (pair * 8 + i) * kPanelWidth), zero);
        const V q = nearest_integer(V::mul(w, inverse), V::set1(-8.0F), V::set1(7.0F));
        const V kept = V::mul(group_scale, q);
        product.add_product(kept, w);
        kept_squares = V::add(kept_squares, V::mul(kept, kept));  // exact: integers below 2^24
        kept_sum = V::add(kept_sum, kept);
        nibbles[i] = V::add(q, V::set1(8.0F));
      }
      typename P::Integers word = P::Integers::zero();
      QUIRE_UNROLL
      for (size_t i = 0; i < 4; ++i) {
        word.put_byte(V::add(nibbles[i], V::mul(nibbles[i + 4], V::set1(16.0F))), i);
      }
      word.store(to + kPanelWidth + (pair * kPanelWidth + first) * 4);
    }
    square.add_product(kept_squares, one);
    sum.add(kept_sum);
    V::store_int8(reinterpret_cast<int8_t*>(to) + first, group_scale);
  }

 private:
  inline __attribute__((always_inline)) V scale_of_group(V wanted) const {
    const V zero = V::zero();
    const V whole = nearest_integer(V::div(wanted, scale), V::set1(-15.0F), V::set1(15.0F));
    const V least = V::select_less(wanted, zero, V::set1(-1.0F), V::set1(1.0F));
    // The smallest scale if the nearest would be 0 but the group is not 0.
    const V is_zero = V::mul(V::select_less(zero, absolute(whole), zero, V::set1(1.0F)),
                             V::select_less(zero, absolute(wanted), V::set1(1.0F), zero));
    const V found = V::select_less(zero, is_zero, least, whole);
    return V::select_less(zero, usable, found, zero);
  }
};

template <class P>
void int4_panel(const float* rows, size_t k, float* wanted, std::byte* to, float* scales, int32_t* offsets) {
  using V = typename P::V;
  constexpr size_t kGroup = 32;
  constexpr size_t kVectors = kPanelWidth / P::kLanes;
  alignas(64) float columns[kGroup * kPanelWidth];
  const std::byte* from[kPanelWidth];
  const auto read_group = [&](size_t group) __attribute__((always_inline)) {
    for (size_t row = 0; row < kPanelWidth; ++row) {
      from[row] = reinterpret_cast<const std::byte*>(rows + row * k + group * kGroup);
    }
    interleave<P>(from, kPanelWidth, kGroup, reinterpret_cast<std::byte*>(columns));
  };
  const V zero = V::zero();
  V magnitude[kVectors];
  V most[kVectors];
  V poison[kVectors];
  for (size_t i = 0; i < kVectors; ++i) magnitude[i] = most[i] = poison[i] = zero;
  const size_t groups = k / kGroup;
  for (size_t group = 0; group < groups; ++group) {
    read_group(group);
    for (size_t i = 0; i < kVectors; ++i) {
      const float* lanes = columns + i * P::kLanes;
      for (size_t input = 0; input < kGroup; ++input) {
        const V w = V::load(lanes + input * kPanelWidth);
        magnitude[i] = V::max(absolute(w), magnitude[i]);
        poison[i] = V::add(poison[i], V::mul(w, zero));
      }
      const V best = best_group_scale<V>(lanes);
      most[i] = V::max(absolute(best), most[i]);
      V::store(wanted + group * kPanelWidth + i * P::kLanes, best);
    }
  }
  Int4Lanes<P> lanes[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    magnitude[i] = V::add(magnitude[i], poison[i]);
    lanes[i].usable = V::select_less(zero, magnitude[i], V::set1(1.0F), zero);
    lanes[i].scale = V::div(most[i], V::set1(15.0F));
  }
  for (size_t group = 0; group < groups; ++group, to += kInt4GroupBytes) {
    read_group(group);
    for (size_t i = 0; i < kVectors; ++i) {
      const size_t first = i * P::kLanes;
      lanes[i].group(columns + first, V::load(wanted + group * kPanelWidth + first), first, to);
    }
  }
  for (size_t i = 0; i < kVectors; ++i) {
    const size_t first = i * P::kLanes;
    V fitted = P::Doubles::ratio(lanes[i].product, lanes[i].square);
    fitted = V::select_less(zero, P::Doubles::narrowed(lanes[i].square), fitted, lanes[i].scale);
    V::store(scales + first, V::select_less(zero, lanes[i].usable, fitted, magnitude[i]));
    lanes[i].sum.store_times_128(offsets + first);
  }
}

}  // namespace quire::kernels::cpu
