#pragma once

#include <cmath>

#include "backend/cuda/device.h"

// The instructions that compute with f32, as in ptx.h, which includes them.
namespace quire::backend::cuda::ptx {

/// "Floating Point Instructions: ex2". 2^x within 2 ulp; subnormal results are 0.
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.0F : y;
#endif
}

/// "Floating Point Instructions: rsqrt". 1 / sqrt(x), relative error at most 2^-22.9; x positive and normal.
__device__ __forceinline__ float rsqrt_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / std::sqrt(x);
#endif
}

/// "Floating Point Instructions: rcp". 1 / x within 1 ulp, of infinity 0; subnormals are zeros.
__device__ __forceinline__ float reciprocal_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / x;
#endif
}

/// "Floating Point Instructions: fma". a b + c, rounded once.
__device__ __forceinline__ float fused(float a, float b, float c) {
#ifdef __CUDACC__
  float d;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
#else
  return std::fma(a, b, c);
#endif
}

/// "Floating Point Instructions: mul". a b, which no compiler makes a part of a fused operation.
__device__ __forceinline__ float product(float a, float b) {
#ifdef __CUDACC__
  float c;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a * b;
#endif
}

}  // namespace quire::backend::cuda::ptx
