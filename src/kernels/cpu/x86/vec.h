#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#define QUIRE_INLINE inline __attribute__((always_inline))

// What the kernel templates of this folder need of an ISA's types. Every ISA has its own in a namespace of
// its own, and asserts there that they are what is said here; a new ISA is one more such header.
namespace quire::kernels::cpu {

/// A vector of kLanes f32. All operations are static and by lane: lanes do not mix but in sum(),
/// max_lane() and their likes, so a value does not depend on its lane.
template <class V>
concept VecType = requires(V a, const V* vectors, float x, size_t count, int n, const float* from, float* to,
                           int8_t* bytes, int16_t* words) {
  // Lanes, and how many registers there are: a tile of a kernel should fit them.
  { V::kLanes } -> std::convertible_to<size_t>;
  { V::kRegisters } -> std::convertible_to<size_t>;
  { V::kAttentionRows } -> std::convertible_to<size_t>;  // query rows x kAttentionVectors of sums
  { V::kAttentionVectors } -> std::convertible_to<size_t>;

  { V::zero() } -> std::same_as<V>;
  { V::set1(x) } -> std::same_as<V>;
  { V::load(from) } -> std::same_as<V>;
  { V::store(to, a) } -> std::same_as<void>;
  // The first `count` < kLanes lanes; the others are zero, and the memory behind them is not accessed.
  { V::load(from, count) } -> std::same_as<V>;
  { V::store(to, a, count) } -> std::same_as<void>;
  // Lanes rounded to integers of 8 or 16 bits; any integer for those that do not fit.
  { V::store_int8(bytes, a) } -> std::same_as<void>;
  { V::store_int16(words, a) } -> std::same_as<void>;

  { V::add(a, a) } -> std::same_as<V>;
  { V::sub(a, a) } -> std::same_as<V>;
  { V::mul(a, a) } -> std::same_as<V>;
  { V::div(a, a) } -> std::same_as<V>;
  // a * b + c and -a * b + c, rounded once.
  { V::fma(a, a, a) } -> std::same_as<V>;
  { V::fnma(a, a, a) } -> std::same_as<V>;
  // The second operand if either is NaN.
  { V::max(a, a) } -> std::same_as<V>;
  { V::min(a, a) } -> std::same_as<V>;
  // To the nearest integer, halves to even.
  { V::round(a) } -> std::same_as<V>;
  // (a, b, yes, no): `yes` where a < b, `no` elsewhere, also where either is NaN.
  { V::select_less(a, a, a, a) } -> std::same_as<V>;
  // (a, sign): a, which is >= 0 or NaN, with the sign of `sign`.
  { V::with_sign_of(a, a) } -> std::same_as<V>;
  // (a, other, offset, begin, end): a where lane + offset is in [begin, end), elsewhere `other`.
  { V::select_range(a, a, n, n, n) } -> std::same_as<V>;
  // (a, n): a * 2^n for integral |n| <= 252, exact except for the last rounding to subnormals.
  { V::scale_by_pow2(a, a) } -> std::same_as<V>;
  // The same for kLeastExponent / ln(2) <= n <= 0; at the least n the result is 0 for a < 2.
  { V::scale_down(a, a) } -> std::same_as<V>;
  { V::kLeastExponent } -> std::convertible_to<float>;
  // (a, n): a with the lowest bits of n, as they are stored, added to its exponent.
  { V::add_exponent(a, a) } -> std::same_as<V>;

  { V::first_lane(a) } -> std::same_as<float>;
  // Over all lanes, in an order that is fixed within an ISA.
  { V::sum(a) } -> std::same_as<float>;
  { V::max_lane(a) } -> std::same_as<float>;
  // Of kLanes vectors: lane i is sum(vectors[i]), to the bit, or max_lane(vectors[i]).
  { V::sums(vectors) } -> std::same_as<V>;
  { V::max_lanes(vectors) } -> std::same_as<V>;
};

/// What attention with tiles needs besides, of which only AVX-512 has registers.
template <class V>
concept TileVecType = VecType<V> && requires(V a, const uint32_t (&table)[32]) {
  // A bit for each lane where a < b.
  { V::less(a, a) } -> std::same_as<uint32_t>;
  // (table, index): the element that the lowest five bits of index choose, as they are stored.
  { V::of_table(table, a) } -> std::same_as<V>;
  // (a, n): the bits of a plus those of n, 18 further up: n in 32nds added to the exponent.
  { V::add_32nds(a, a) } -> std::same_as<V>;
};

/// A vector of as many i32 lanes, stored among f32 as their bits.
template <class I, class V>
concept IntVecType = requires(I a, size_t count, const float* from, float* to, const uint8_t* bytes,
                              const int8_t* first, const int8_t* second) {
  { I::zero() } -> std::same_as<I>;
  { I::load(from) } -> std::same_as<I>;
  { I::load(from, count) } -> std::same_as<I>;
  { I::store(to, a) } -> std::same_as<void>;
  { I::store(to, a, count) } -> std::same_as<void>;
  { I::set4(bytes) } -> std::same_as<I>;  // four bytes, in every lane
  // Of as many bytes each, two to a lane as i16: the lane i has first[i] below second[i].
  { I::load_pairs(first, second) } -> std::same_as<I>;
  { I::add(a, a) } -> std::same_as<I>;
  { I::sub(a, a) } -> std::same_as<I>;
  { I::mul(a, a) } -> std::same_as<I>;
  { I::to_float(a) } -> std::same_as<V>;
  // a, in a register and in its order among such values: GCC 12 may else compute so many products ahead of
  // their sums that the registers do not suffice, or copy each sum.
  { I::in_order(a) } -> std::same_as<I>;
};

/// A format in which elements are stored: how V::kLanes of them are read into a V.
template <class F, class V>
concept ReadFormat = requires(size_t count, const typename F::Element* from) {
  { F::load(from) } -> std::same_as<V>;
  { F::load(from, count) } -> std::same_as<V>;
};

/// One to which a V can also be written.
template <class F, class V>
concept StoredFormat = ReadFormat<F, V> && requires(V a, size_t count, typename F::Element* to) {
  { F::store(to, a) } -> std::same_as<void>;
  { F::store(to, a, count) } -> std::same_as<void>;
};

}  // namespace quire::kernels::cpu
