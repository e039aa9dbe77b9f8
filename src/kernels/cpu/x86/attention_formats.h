#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"
#include "kernels/cpu/x86/vec_math.h"

// How attention multiplies with K and V as they are stored. A tile of K or V is a matrix, whose rows lie
// along the lanes: of K [head_dim][kTileKeys], of V [kTileKeys][head_dim]. A product takes kStep rows of it
// at once. The factors are numbers of a query row: its query, or its weights.
//   Element            as they are stored; KeyElement: of keys
//   kScaled            whether the elements need scales, which scores and weights are times
//   kStep, kLane       elements of a lane in a product; how far apart neighbouring lanes are. If kLane is
//                      kStep, the elements of a lane lie side by side, else `width` apart: the rows' width
//   kMostRows          query rows for which sums of V::kAttentionVectors vectors fit the registers
//   kIntegerKeys       whether queries are integers, and so the products with keys: see attention_integers.h,
//                      whose keep_query makes them. What follows is of values then
//   load_keys          (tile, step, lane): V::kLanes keys of a tile from `lane` on, as the operand of the
//                      product `step`
//   widen_keys         (tile, step, lane, to): the same in the format Wide
//   kPrefetches        whether the tiles come from the cache, so that the next ones are prefetched
//   Operand            V::kLanes lanes: load(from, width), load(from, width, lanes)
//   Factor             kStep factors, the same for every lane: factor(numbers, step)
//   multiply_add       (sum, operand, factor): the elements of a lane in a fixed order
//   multiply_add_one   the same for element kOne alone; the others may be anything, also NaN
//   kSlack             by how much a score may exceed what counts as the maximum. A maximum that stays saves
//                      rescaling, as in FlashAttention-4; weights reach e^kSlack then
//   exp                e^x for x <= kSlack as a weight needs it; of minus infinity 0, or next to nothing
//   keep               (numbers, first, values) makes V::kLanes factors of f32; returns what they are now
//   kKeepsTwo          whether weights are kept by keep_two(numbers, first, a, b): those of two vectors;
//                      it returns V::kLanes sums of two each
//   Wide               the format in which kWidenRows rows or more multiply; void if there is none
//   widen              (from, to, width, lanes) writes V::kLanes lanes in that format; of these only the
//                      first `lanes` if that is not 0
namespace quire::kernels::cpu {

/// From this many rows on, it pays to widen K and V once for all of them.
inline constexpr size_t kWidenRows = 12;

template <VecType V, class Format>
struct Widened;

/// Elements one by one, which Stored reads as f32.
template <VecType V, class Stored>
struct Singles {
  using Element = typename Stored::Element;
  using Operand = V;
  using Factor = V;
  using KeyElement = Element;
  static constexpr bool kScaled = false;
  static constexpr bool kIntegerKeys = false;
  using Wide = std::conditional_t<sizeof(Element) < sizeof(float), Widened<V, Singles>, void>;
  static constexpr size_t kWidenRows = cpu::kWidenRows;
  static constexpr size_t kStep = 1;
  static constexpr size_t kLane = 1;
  static constexpr size_t kMostRows = V::kAttentionRows;
  static constexpr bool kPrefetches = true;
  static QUIRE_INLINE Operand load(const Element* p, size_t) { return Stored::load(p); }
  static QUIRE_INLINE Operand load(const Element* p, size_t, size_t lanes) { return Stored::load(p, lanes); }
  static QUIRE_INLINE Operand load_keys(const Element* tile, size_t step, size_t lane) {
    return load(tile + step * kTileKeys + lane, kTileKeys);
  }
  static QUIRE_INLINE void widen_keys(const Element* tile, size_t step, size_t lane, float* to) {
    V::store(to, load_keys(tile, step, lane));
  }
  static QUIRE_INLINE Factor factor(const float* numbers, size_t step) { return V::set1(numbers[step]); }
  static QUIRE_INLINE V multiply_add(V sum, Operand a, Factor b) { return V::fma(a, b, sum); }
  static constexpr float kSlack = 0.0F;
  static constexpr bool kKeepsTwo = false;
  static QUIRE_INLINE V exp(V x) { return vec_exp_negative(x); }
  template <size_t kOne>
  static QUIRE_INLINE V multiply_add_one(V sum, Operand a, Factor b) {
    return multiply_add(sum, a, b);
  }
  static QUIRE_INLINE V keep(float* numbers, size_t first, V values) {
    V::store(numbers + first, values);
    return values;
  }
  static QUIRE_INLINE void widen(const Element* from, float* to, size_t, size_t lanes) {
    if (lanes == 0) return V::store(to, Stored::load(from));
    V::store(to, Stored::load(from, lanes), lanes);
  }
};

/// Pairs of bf16, each widened to f32, which Stored does: first() and second() of the pairs in a vector.
template <VecType V, class Stored>
struct Pairs {
  using Element = uint16_t;
  struct Operand {
    V first;
    V second;
  };
  using Factor = Operand;
  using KeyElement = Element;
  static constexpr bool kScaled = false;
  static constexpr bool kIntegerKeys = false;
  using Wide = Widened<V, Pairs>;
  static constexpr size_t kWidenRows = cpu::kWidenRows;
  static constexpr size_t kStep = 2;
  static constexpr size_t kLane = 2;
  static constexpr size_t kMostRows = 4;
  static constexpr bool kPrefetches = true;
  static QUIRE_INLINE Operand load(const Element* p, size_t) { return {Stored::first(p), Stored::second(p)}; }
  static QUIRE_INLINE Operand load(const Element* p, size_t, size_t lanes) {
    return {Stored::first(p, lanes), Stored::second(p, lanes)};
  }
  static QUIRE_INLINE Operand load_keys(const Element* tile, size_t step, size_t lane) {
    return load(tile + (step * kTileKeys + lane) * kStep, kTileKeys);
  }
  static QUIRE_INLINE void widen_keys(const Element* tile, size_t step, size_t lane, float* to) {
    widen(tile + (step * kTileKeys + lane) * kStep, to, kTileKeys, 0);
  }
  static QUIRE_INLINE Factor factor(const float* numbers, size_t step) {
    return {V::set1(numbers[2 * step]), V::set1(numbers[2 * step + 1])};
  }
  static QUIRE_INLINE V multiply_add(V sum, Operand a, Factor b) {
    return V::fma(a.second, b.second, V::fma(a.first, b.first, sum));
  }
  static constexpr float kSlack = 0.0F;
  static constexpr bool kKeepsTwo = false;
  static QUIRE_INLINE V exp(V x) { return vec_exp_negative(x); }
  template <size_t kOne>
  static QUIRE_INLINE V multiply_add_one(V sum, Operand a, Factor b) {
    return kOne == 0 ? V::fma(a.first, b.first, sum) : V::fma(a.second, b.second, sum);
  }
  static QUIRE_INLINE V keep(float* numbers, size_t first, V values) {
    V::store(numbers + first, values);
    return values;
  }
  static QUIRE_INLINE void widen(const Element* from, float* to, size_t width, size_t lanes) {
    if (lanes == 0) {
      const Operand both = load(from, width);
      V::store(to, both.first);
      V::store(to + width, both.second);
    } else {
      const Operand both = load(from, width, lanes);
      V::store(to, both.first, lanes);
      V::store(to + width, both.second, lanes);
    }
  }
};

/// What widen() wrote: f32, one by one.
template <VecType V>
struct WideElements {
  using Element = float;
  static QUIRE_INLINE V load(const float* p) { return V::load(p); }
  static QUIRE_INLINE V load(const float* p, size_t count) { return V::load(p, count); }
};
template <VecType V, class Format>
struct Widened : Singles<V, WideElements<V>> {
  using Wide = void;
  static constexpr bool kPrefetches = false;
};

}  // namespace quire::kernels::cpu
