#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/select_experts.h"
#include "kernels/cpu/x86/vec_math.h"

// Routing to experts, and combining their outputs. As in the element-wise ops, a result does not depend on
// its place in a vector.
namespace quire::kernels::cpu {

/// In place; the sum adds kLanes partial sums, each over every kLanes-th element in ascending order.
template <VecType V>
inline __attribute__((always_inline)) void soften_row(float* p, size_t width) {
  float max = p[0];
  for (size_t i = 1; i < width; ++i) max = p[i] > max ? p[i] : max;
  const V top = V::set1(max);
  V total = V::zero();
  size_t i = 0;
  for (; i + V::kLanes <= width; i += V::kLanes) {
    const V weight = vec_exp(V::sub(V::load(p + i), top));
    V::store(p + i, weight);
    total = V::add(total, weight);
  }
  if (i < width) {
    const size_t rest = width - i;
    V::store(p + i, vec_exp(V::sub(V::load(p + i, rest), top)), rest);
    total = V::add(total, V::load(p + i, rest));
  }
  const V sum = V::set1(V::sum(total));
  for (i = 0; i + V::kLanes <= width; i += V::kLanes) V::store(p + i, V::div(V::load(p + i), sum));
  if (i < width) V::store(p + i, V::div(V::load(p + i, width - i), sum), width - i);
}

template <VecType V>
void route(float* logits, size_t rows, uint32_t num_experts, uint32_t top, bool normalize, uint32_t* experts,
           float* weights) {
  for (size_t row = 0; row < rows; ++row) {
    float* p = logits + row * num_experts;
    soften_row<V>(p, num_experts);
    select_experts(p, num_experts, top, normalize, experts + row * top, weights + row * top);
  }
}

template <VecType V>
void combine(const float* y, size_t ldy, const uint32_t* places, const float* weights, uint32_t top,
             float* out, size_t ldo, size_t rows, size_t width) {
  for (size_t row = 0; row < rows; ++row) {
    const uint32_t* place = places + row * top;
    const float* weight = weights + row * top;
    float* to = out + row * ldo;
    size_t i = 0;
    for (; i + V::kLanes <= width; i += V::kLanes) {
      V sum = V::zero();
      for (uint32_t j = 0; j < top; ++j) {
        sum = V::fma(V::load(y + place[j] * ldy + i), V::set1(weight[j]), sum);
      }
      V::store(to + i, sum);
    }
    if (i < width) {
      const size_t rest = width - i;
      V sum = V::zero();
      for (uint32_t j = 0; j < top; ++j) {
        sum = V::fma(V::load(y + place[j] * ldy + i, rest), V::set1(weight[j]), sum);
      }
      V::store(to + i, sum, rest);
    }
  }
}

}  // namespace quire::kernels::cpu
