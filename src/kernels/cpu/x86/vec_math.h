#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

namespace quire::kernels::cpu {

/// e^(x - n ln(2)) for n = x / ln(2), rounded: the Taylor polynomial of degree 7.
template <VecType V>
inline __attribute__((always_inline)) V exp_of_rest(V x, V n) {
  V r = V::fnma(n, V::set1(0x1.62e4p-1F), x);  // ln(2) in 15 bits: n times it is exact
  r = V::fnma(n, V::set1(0x1.7f7d1cp-20F), r);
  V p = V::set1(0x1.a01a02p-13F);
  p = V::fma(p, r, V::set1(0x1.6c16c2p-10F));
  p = V::fma(p, r, V::set1(0x1.111112p-7F));
  p = V::fma(p, r, V::set1(0x1.555556p-5F));
  p = V::fma(p, r, V::set1(0x1.555556p-3F));
  p = V::fma(p, r, V::set1(0.5F));
  p = V::fma(p, r, V::set1(1.0F));
  p = V::fma(p, r, V::set1(1.0F));
  return p;
}

/// e^x within 2 ulp over the whole range (0 below, infinity above, NaN kept); exp(0) is exactly 1.
/// Cody and Waite reduction to |r| <= ln(2) / 2, then a polynomial.
template <VecType V>
inline __attribute__((always_inline)) V vec_exp(V x) {
  // max and min give their second operand for a NaN.
  x = V::min(V::set1(89.0F), V::max(V::set1(-104.5F), x));
  const V n = V::round(V::mul(x, V::set1(0x1.715476p+0F)));
  return V::scale_by_pow2(exp_of_rest(x, n), n);
}

/// vec_exp() for x <= 0, in fewer instructions: 0 where e^x is not much above the subnormals.
template <VecType V>
inline __attribute__((always_inline)) V vec_exp_negative(V x) {
  x = V::max(V::set1(V::kLeastExponent), x);
  const V n = V::round(V::mul(x, V::set1(0x1.715476p+0F)));
  return V::scale_down(exp_of_rest(x, n), n);
}

/// e^x for x <= 0 within 2^-17 of it, in two thirds of the instructions; of x < least, e^least. exp(0) is
/// exactly 1. A NaN is kept if its lowest nine bits are zeros, as in those that arithmetic makes or bf16
/// holds. 2^n times a polynomial of 2^f, |f| <= 1/2: of those that are 1 at 0, the one that deviates least
/// (2.9e-6).
template <VecType V>
inline __attribute__((always_inline)) V vec_exp_17_bits(V x, float least) {
  const V log2_e = V::set1(0x1.715476p+0F);
  // A number that is added to it is rounded to an integer, which the lowest bits of the sum then are.
  const V shift = V::set1(0x1.8p+23F);
  x = V::max(V::set1(least), x);
  const V shifted = V::fma(x, log2_e, shift);
  const V f = V::fma(x, log2_e, V::sub(shift, shifted));
  V p = V::set1(0x1.3a02ccp-7F);
  p = V::fma(p, f, V::set1(0x1.c9fc48p-5F));
  p = V::fma(p, f, V::set1(0x1.ec0378p-3F));
  p = V::fma(p, f, V::set1(0x1.62e12cp-1F));
  p = V::fma(p, f, V::set1(1.0F));
  return V::add_exponent(p, shifted);
}

/// The same for what is rounded to bf16 next. Where e^x is below 2^-126, and for minus infinity, it gives
/// some other number below that: rounded to bf16 by the machine's instruction it is 0.
template <VecType V>
inline __attribute__((always_inline)) V vec_exp_for_bf16(V x) {
  return vec_exp_17_bits(x, -0x1.5fdp+6F);  // n is -127 and f > 0, so that the exponent is that of subnormals
}

/// The bits of 2^(i / 32), less i << 18.
inline constexpr uint32_t kRootsOfTwo[32] = {
    0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
    0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
    0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
    0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3,
};

/// e^x for x <= 80 within 6e-5 of it, NaN kept, in half of the instructions; of x < -87, e^-87 (1.6e-38).
/// exp(0) is exactly 1. For n the nearest of the 32nds to x / ln(2): 2^n from a table, times 1 + (x - n
/// ln(2)).
template <TileVecType V>
inline __attribute__((always_inline)) V vec_exp_by_table(V x) {
  // A number that is added to it is rounded to 32nds, of which the lowest bits of the sum then are the count.
  const V shift = V::set1(0x1.8p+18F);
  x = V::max(V::set1(-87.0F), x);
  const V shifted = V::fma(x, V::set1(0x1.715476p+0F), shift);
  const V rest = V::fma(V::sub(shift, shifted), V::set1(0x1.62e430p-1F), x);
  const V power = V::add_32nds(V::of_table(kRootsOfTwo, shifted), shifted);
  return V::fma(power, rest, power);
}

/// tanh x within 4 ulp, NaN kept. Near 0 an odd polynomial (the coefficients of Cephes' tanhf), elsewhere
/// 1 - 2 / (e^2|x| + 1) with the sign of x.
template <VecType V>
inline __attribute__((always_inline)) V vec_tanh(V x) {
  const V size = V::max(V::sub(V::zero(), x), x);
  const V square = V::mul(x, x);
  V p = V::set1(-5.70498872745e-3F);
  p = V::fma(p, square, V::set1(2.06390887954e-2F));
  p = V::fma(p, square, V::set1(-5.37397155531e-2F));
  p = V::fma(p, square, V::set1(1.33314422036e-1F));
  p = V::fma(p, square, V::set1(-3.33332819422e-1F));
  const V small = V::fma(V::mul(p, square), x, x);
  const V power = vec_exp(V::add(size, size));
  const V large = V::sub(V::set1(1.0F), V::div(V::set1(2.0F), V::add(power, V::set1(1.0F))));
  return V::select_less(size, V::set1(0.625F), small, V::with_sign_of(large, x));
}

/// cap * tanh(x / cap).
template <VecType V>
inline __attribute__((always_inline)) V capped(V x, V cap) {
  return V::mul(vec_tanh(V::div(x, cap)), cap);
}

}  // namespace quire::kernels::cpu
