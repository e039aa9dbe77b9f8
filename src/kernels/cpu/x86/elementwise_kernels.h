#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/x86/vec_math.h"
#include "kernels/quantize.h"

// The element-wise ops over Vec. Full and partial vectors do the same to every element, so that a result
// depends neither on its place in a row nor on the width of the row.
namespace quire::kernels::cpu {

template <VecType V, class From, class To>
void convert(const void* from, void* to, size_t count) {
  const auto* source = static_cast<const typename From::Element*>(from);
  auto* target = static_cast<typename To::Element*>(to);
  size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) To::store(target + i, From::load(source + i));
  if (i < count) To::store(target + i, From::load(source + i, count - i), count - i);
}

template <VecType V, class F32, class Format>
void to_f32(const void* from, float* to, size_t count) {
  convert<V, Format, F32>(from, to, count);
}

template <VecType V, class F32, class Format>
void from_f32(const float* from, void* to, size_t count) {
  convert<V, F32, Format>(from, to, count);
}

/// As quantize_int8(). The poison is 0 times each value: NaN if one is not finite.
template <VecType V>
float quantize(const float* x, int8_t* to, size_t count) {
  constexpr size_t kChains = 4;
  const V zero = V::zero();
  V most[kChains] = {zero, zero, zero, zero};
  V least[kChains] = {zero, zero, zero, zero};
  V poison[kChains] = {zero, zero, zero, zero};
  const auto look = [&](V a, size_t chain) __attribute__((always_inline)) {
    most[chain] = V::max(most[chain], a);
    least[chain] = V::min(least[chain], a);
    poison[chain] = V::fma(a, zero, poison[chain]);
  };
  size_t i = 0;
  for (; i + kChains * V::kLanes <= count; i += kChains * V::kLanes) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kChains; ++j) look(V::load(x + i + j * V::kLanes), j);
  }
  for (; i + V::kLanes <= count; i += V::kLanes) look(V::load(x + i), 0);
  if (i < count) look(V::load(x + i, count - i), 0);
  for (size_t j = 0; j < kChains; ++j) {
    most[0] = V::max(most[0], V::max(most[j], V::sub(zero, least[j])));
    poison[0] = V::add(poison[0], j == 0 ? zero : poison[j]);
  }
  const float largest = V::max_lane(most[0]);
  const bool is_zero = !(largest >= kLeastInt8Magnitude);
  const V inverse = V::set1(is_zero ? 0.0F : 127.0F / largest);
  i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::store_int8(to + i, V::mul(V::load(x + i), inverse));
  if (i < count) {
    int8_t rest[V::kLanes];
    V::store_int8(rest, V::mul(V::load(x + i, count - i), inverse));
    for (size_t j = 0; i + j < count; ++j) to[i + j] = rest[j];
  }
  if (V::sum(poison[0]) != 0.0F) return __builtin_nanf("");
  return is_zero ? 0.0F : largest / 127.0F;
}

template <VecType V>
inline __attribute__((always_inline)) float sum_of_squares(const float* x, size_t width) {
  constexpr size_t kSums = 4;
  V sums[kSums] = {V::zero(), V::zero(), V::zero(), V::zero()};
  size_t i = 0;
  for (; i + kSums * V::kLanes <= width; i += kSums * V::kLanes) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kSums; ++j) {
      const V a = V::load(x + i + j * V::kLanes);
      sums[j] = V::fma(a, a, sums[j]);
    }
  }
  for (; i + V::kLanes <= width; i += V::kLanes) {
    const V a = V::load(x + i);
    sums[0] = V::fma(a, a, sums[0]);
  }
  if (i < width) {
    const V a = V::load(x + i, width - i);
    sums[1] = V::fma(a, a, sums[1]);
  }
  return V::sum(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
}

template <VecType V>
void rms_norm(const float* x, size_t ldx, const float* weight, float eps, float* y, size_t ldy, size_t rows,
              size_t width) {
  for (size_t row = 0; row < rows; ++row) {
    const float* in = x + row * ldx;
    float* out = y + row * ldy;
    const float mean = sum_of_squares<V>(in, width) / static_cast<float>(width);
    const V scale = V::set1(1.0F / __builtin_sqrtf(mean + eps));
    size_t i = 0;
    for (; i + V::kLanes <= width; i += V::kLanes) {
      V::store(out + i, V::mul(V::mul(V::load(in + i), scale), V::load(weight + i)));
    }
    if (i < width) {
      const size_t rest = width - i;
      V::store(out + i, V::mul(V::mul(V::load(in + i, rest), scale), V::load(weight + i, rest)), rest);
    }
  }
}

template <VecType V>
void add_in_place(float* y, const float* x, float factor, size_t count) {
  const V times = V::set1(factor);
  size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    V::store(y + i, V::fma(V::load(x + i), times, V::load(y + i)));
  }
  if (i < count) {
    const size_t rest = count - i;
    V::store(y + i, V::fma(V::load(x + i, rest), times, V::load(y + i, rest)), rest);
  }
}

template <VecType V>
void scale_in_place(float* x, float factor, size_t count) {
  const V times = V::set1(factor);
  size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::store(x + i, V::mul(V::load(x + i), times));
  if (i < count) V::store(x + i, V::mul(V::load(x + i, count - i), times), count - i);
}

template <VecType V>
void soft_cap(float* x, float cap, size_t count) {
  const V most = V::set1(cap);
  size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::store(x + i, capped(V::load(x + i), most));
  if (i < count) V::store(x + i, capped(V::load(x + i, count - i), most), count - i);
}

struct Silu {
  template <VecType V>
  static inline __attribute__((always_inline)) V exponent(V gate) {
    return V::sub(V::zero(), gate);
  }
};

/// The tanh form of GELU (Hendrycks and Gimpel 2016): 0.5 (1 + tanh u) = 1 / (1 + exp(-2 u)).
struct GeluTanh {
  template <VecType V>
  static inline __attribute__((always_inline)) V exponent(V gate) {
    const V cubic = V::mul(V::mul(gate, gate), V::mul(gate, V::set1(0.044715F)));
    return V::mul(V::add(gate, cubic), V::set1(-2.0F * 0.7978845608F));  // sqrt(2 / pi)
  }
};

template <class Act, VecType V>
inline __attribute__((always_inline)) V gate_times(V gate, V up) {
  return V::mul(V::div(gate, V::add(V::set1(1.0F), vec_exp(Act::exponent(gate)))), up);
}

template <VecType V, class Act>
void gated(const float* gate, const float* up, float* out, size_t count) {
  size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    V::store(out + i, gate_times<Act>(V::load(gate + i), V::load(up + i)));
  }
  if (i < count) {
    const size_t rest = count - i;
    V::store(out + i, gate_times<Act>(V::load(gate + i, rest), V::load(up + i, rest)), rest);
  }
}

template <VecType V>
inline __attribute__((always_inline)) void rotate(V a, V b, V cosine, V sine, V& low, V& high) {
  low = V::fnma(b, sine, V::mul(a, cosine));
  high = V::fma(a, sine, V::mul(b, cosine));
}

template <VecType V>
void rope(float* x, size_t ldx, size_t rows, uint32_t num_heads, uint32_t head_dim, uint32_t rotary,
          const float* cos_sin, const uint32_t* positions) {
  const size_t half = rotary / 2;
  for (size_t row = 0; row < rows; ++row) {
    const float* cosine = cos_sin + size_t{positions[row]} * rotary;
    const float* sine = cosine + half;
    for (uint32_t head = 0; head < num_heads; ++head) {
      float* low = x + row * ldx + size_t{head} * head_dim;
      float* high = low + half;
      V a;
      V b;
      size_t i = 0;
      for (; i + V::kLanes <= half; i += V::kLanes) {
        rotate(V::load(low + i), V::load(high + i), V::load(cosine + i), V::load(sine + i), a, b);
        V::store(low + i, a);
        V::store(high + i, b);
      }
      if (i < half) {
        const size_t rest = half - i;
        rotate(V::load(low + i, rest), V::load(high + i, rest), V::load(cosine + i, rest),
               V::load(sine + i, rest), a, b);
        V::store(low + i, a, rest);
        V::store(high + i, b, rest);
      }
    }
  }
}

}  // namespace quire::kernels::cpu
