#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/context.h"
#include "tensor/tensor.h"

// Every op is tested by one body over all levels that this machine runs: against double arithmetic with a
// stated bound, and for the same bits whatever else is computed beside a row.
namespace quire::test {

class PerLevel : public testing::TestWithParam<kernels::IsaLevel> {
 protected:
  ThreadPool pool_{2};
  kernels::KernelContext context_{GetParam(), pool_};
};

#define QUIRE_FOR_ALL_LEVELS(Fixture)                                                                    \
  INSTANTIATE_TEST_SUITE_P(Levels, Fixture, testing::ValuesIn(::quire::kernels::available_isa_levels()), \
                           [](const testing::TestParamInfo<::quire::kernels::IsaLevel>& level) {         \
                             std::string name(::quire::kernels::isa_name(level.param));                  \
                             for (char& c : name) c = c == '-' ? '_' : c;                                \
                             return name;                                                                \
                           })

inline std::vector<float> random_floats(uint64_t seed, size_t count, float scale = 1.0F) {
  SplitMix64 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(unit_interval(rng.next()) * 2.0 - 1.0) * scale;
  return values;
}

/// What is left of `value` when it is stored as `dtype`.
inline float stored(float value, DType dtype) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

/// `values` as a tensor of `dtype` with memory of its own.
struct OwnedTensor {
  OwnedTensor(const std::vector<float>& values, DType dtype, std::vector<int64_t> shape) {
    bytes.resize(values.size() * dtype_bytes(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      const void* from = dtype == DType::kF32 ? static_cast<const void*>(&values[i]) : &bits;
      std::memcpy(bytes.data() + i * dtype_bytes(dtype), from, dtype_bytes(dtype));
    }
    view = {dtype, std::move(shape), bytes.data()};
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

inline testing::AssertionResult same_bits(const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) {
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace quire::test
