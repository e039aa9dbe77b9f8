#pragma once

#include <cstddef>

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

/// e^x for x <= 0 within 2^-17 of it, in two thirds of the instructions, for what is rounded to bf16 next.
/// Where e^x is below 2^-126, and for minus infinity, it gives some other number below that: rounded to bf16
/// by the machine's instruction it is 0. exp(0) is exactly 1. A NaN is kept if its lowest nine bits are
/// zeros, as in those that arithmetic makes or bf16 holds. 2^n times a polynomial of 2^f, |f| <= 1/2: of
/// those that are 1 at 0, the one that deviates least (2.9e-6).
template <VecType V>
inline __attribute__((always_inline)) V vec_exp_for_bf16(V x) {
  const V log2_e = V::set1(0x1.715476p+0F);
  // A number that is added to it is rounded to an integer, which the lowest bits of the sum then are.
  const V shift = V::set1(0x1.8p+23F);
  // There n is -127 and f > 0, so that the exponent becomes that of subnormals.
  x = V::max(V::set1(-0x1.5fdp+6F), x);
  const V shifted = V::fma(x, log2_e, shift);
  const V f = V::fma(x, log2_e, V::sub(shift, shifted));
  V p = V::set1(0x1.3a02ccp-7F);
  p = V::fma(p, f, V::set1(0x1.c9fc48p-5F));
  p = V::fma(p, f, V::set1(0x1.ec0378p-3F));
  p = V::fma(p, f, V::set1(0x1.62e12cp-1F));
  p = V::fma(p, f, V::set1(1.0F));
  return V::add_exponent(p, shifted);
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
