#pragma once

#include <cstdint>

// The device that the test bodies of this folder run on: the fibers', or a real one where tests/device
// compiles them again.
#ifdef QUIRE_REAL_DEVICE
#include "tests/device/device.h"

namespace quire::test::fibers {
using gpu::cublaslt;
using gpu::Device;
using gpu::kOrders;
using gpu::Region;
using gpu::SlowProducts;
}  // namespace quire::test::fibers
#else
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/fake_cublaslt.h"

namespace quire::test::fibers {
inline constexpr uint64_t kOrders = 20;
inline const backend::cuda::lt::Api& cublaslt() { return fake_cublaslt(); }
struct SlowProducts {
  static constexpr bool kIsSure = true;
  Offering late{Offers::kLate};
};
}  // namespace quire::test::fibers
#endif
