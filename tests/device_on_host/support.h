#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tensor/dtype.h"
#include "tests/device_on_host/target.h"

// How kernels are tested: against the CPU's reference, in many orders of blocks, warps and
// lanes, with the same bits in all of them and no finding.
namespace quire::test::fibers {

/// What is left of `value` when it is stored as `dtype`.
inline float stored(float value, DType dtype) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

/// In (-scale, scale), and as `dtype` would hold them.
inline std::vector<float> stored_floats(uint64_t seed, size_t count, DType dtype, float scale = 1.0F) {
  SplitMix64 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = stored(static_cast<float>(unit_interval(rng.next()) * 2.0 - 1.0) * scale, dtype);
  }
  return values;
}

/// An array on the device. What is written is there at the next data().
template <class T>
class DeviceArray {
 public:
  /// Nothing written.
  DeviceArray(Device& device, std::string name, size_t count)
      : region_(device.allocate(std::move(name), count * sizeof(T))) {}
  DeviceArray(Device& device, std::string name, std::span<const T> values)
      : DeviceArray(device, std::move(name), values.size()) {
    region_.write(0, values.data(), values.size_bytes());
  }
  T* data() { return reinterpret_cast<T*>(region_.data()); }
  std::span<const T> values() const {
    return {reinterpret_cast<const T*>(region_.host_data()), region_.size() / sizeof(T)};
  }
  Region& region() { return region_; }

 private:
  Region& region_;
};

/// An array on the device whose number format is known when the test runs.
class Elements {
 public:
  Elements(Device& device, std::string name, size_t count, DType dtype)
      : dtype_(dtype), region_(device.allocate(std::move(name), count * dtype_bytes(dtype))) {}
  Elements(Device& device, std::string name, const std::vector<float>& values, DType dtype)
      : Elements(device, std::move(name), values.size(), dtype) {
    fill(values);
  }

  void* data() { return region_.data(); }
  Region& region() const { return region_; }
  DType dtype() const { return dtype_; }
  size_t size() const { return region_.size() / dtype_bytes(dtype_); }
  void fill(const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) put(i, values[i]);
  }
  void put(size_t i, float value) {
    const uint16_t bits = dtype_ == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    const void* from = dtype_ == DType::kF32 ? static_cast<const void*>(&value) : &bits;
    region_.write(i * dtype_bytes(dtype_), from, dtype_bytes(dtype_));
  }
  float at(size_t i) const {
    if (dtype_ == DType::kF32) {
      float value = 0.0F;
      std::memcpy(&value, region_.host_data() + i * sizeof(value), sizeof(value));
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, region_.host_data() + i * sizeof(bits), sizeof(bits));
    return dtype_ == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }

 private:
  DType dtype_;
  Region& region_;
};

/// How far a kernel may be from the reference: f32 1e-5, f16 and bf16 0.02, for magnitudes above 1
/// relatively.
inline double tolerance(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 0.02; }

inline void expect_near(const Elements& found, const std::vector<float>& expected, double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = bound * std::max(1.0, std::abs(static_cast<double>(expected[i])));
    ASSERT_NEAR(found.at(i), expected[i], allowed) << found.region().name() << " element " << i;
  }
}
inline void expect_near(const Elements& found, const std::vector<float>& expected) {
  expect_near(found, expected, tolerance(found.dtype()));
}

/// Calls run(device) with a device for each of `orders` orders; the first counts traffic too.
template <class Run>
void in_many_orders(const Run& run, uint64_t orders = kOrders) {
  for (uint64_t seed = 0; seed < orders; ++seed) {
    SCOPED_TRACE("order " + std::to_string(seed));
    Device device(seed, seed == 0);
    run(device);
    ASSERT_TRUE(device.findings().empty()) << device.report();
    if (testing::Test::HasFatalFailure()) return;
  }
}

inline std::string format_name(const testing::TestParamInfo<DType>& format) {
  return std::string(dtype_name(format.param));
}

}  // namespace quire::test::fibers
