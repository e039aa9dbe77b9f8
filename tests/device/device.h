#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/runtime.h"

// A real device as the test bodies of tests/device_on_host see it: what they use of fibers::Device, without
// the checkers.
namespace quire::test::gpu {

/// How often a kernel runs where the fibers run it in many orders: the device draws an order by itself.
inline constexpr uint64_t kOrders = 4;
/// While it lives, few_rows() is faster than cuBLASLt, as far as a test can see to that.
struct SlowProducts {
  static constexpr bool kIsSure = false;
};

/// Memory of the device and the host's copy of it. New memory is full of bytes 0xff, which are NaN in every
/// number format: what a test should have written shows.
class Region {
 public:
  /// Throws Error if the device does not have that much.
  Region(std::string name, size_t bytes);

  /// On the device, with all that the host has written. REQUIRES: asked for anew before each launch.
  std::byte* data();
  /// On the host, with all that kernels have written. Throws Error if one of them failed.
  const std::byte* host_data() const;
  void write(size_t first, const void* from, size_t bytes);
  size_t size() const { return host_.size(); }
  const std::string& name() const { return name_; }

 private:
  enum class Newer : uint8_t { kNeither, kHost, kDevice };

  std::string name_;
  backend::cuda::DeviceBuffer device_;
  mutable std::vector<std::byte> host_;
  mutable Newer newer_ = Newer::kHost;
};

class Device {
 public:
  /// The parameters are the fibers'.
  explicit Device(uint64_t seed, bool counts_traffic = false);

  Region& allocate(std::string name, size_t bytes);
  /// Waits for the device. Its error, if there is one; nothing else is seen.
  const std::vector<std::string>& findings() const;
  std::string report() const;

 private:
  std::vector<std::unique_ptr<Region>> regions_;
  mutable std::vector<std::string> findings_;
};

/// The library in the folder $QUIRE_CUBLASLT, or where the system finds it.
const backend::cuda::lt::Api& cublaslt();

/// "" if there is a device that these programs run on, or a line that says what is missing.
std::string why_no_device();

}  // namespace quire::test::gpu
