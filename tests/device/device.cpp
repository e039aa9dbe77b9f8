#include "tests/device/device.h"

#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::test::gpu {

namespace cuda = backend::cuda;

Region::Region(std::string name, size_t bytes)
    : name_(std::move(name)), device_(bytes, name_), host_(bytes, std::byte{0xff}) {}

std::byte* Region::data() {
  if (newer_ == Newer::kHost) {
    cuda::copy_to_device(device_.data(), host_.data(), host_.size(), nullptr);
    // The copy may still read host_, which the next write() changes.
    cuda::synchronize(nullptr);
  }
  newer_ = Newer::kDevice;
  return device_.data();
}

const std::byte* Region::host_data() const {
  if (newer_ == Newer::kDevice) {
    cuda::copy_to_host(host_.data(), device_.data(), host_.size(), nullptr);
    cuda::synchronize(nullptr);
    newer_ = Newer::kNeither;
  }
  return host_.data();
}

void Region::write(size_t first, const void* from, size_t bytes) {
  host_data();
  std::memcpy(host_.data() + first, from, bytes);
  newer_ = Newer::kHost;
}

Device::Device(uint64_t /*seed*/, bool /*counts_traffic*/) {}

Region& Device::allocate(std::string name, size_t bytes) {
  return *regions_.emplace_back(std::make_unique<Region>(std::move(name), bytes));
}

const std::vector<std::string>& Device::findings() const {
  try {
    cuda::synchronize(nullptr);
  } catch (const Error& error) {
    findings_.assign(1, error.what());
  }
  return findings_;
}

std::string Device::report() const { return fmt::format("{}", fmt::join(findings_, "\n")); }

const cuda::lt::Api& cublaslt() {
  const char* folder = std::getenv("QUIRE_CUBLASLT");
  return cuda::lt::load(folder == nullptr ? "" : folder);
}

std::string why_no_device() {
  int driver = 0;  // 12040: of CUDA 12.4
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "no CUDA device: this machine has no NVIDIA driver";
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is for CUDA {}.{}, and these programs need CUDA {}", driver / 1000,
                       driver % 1000 / 10, CUDART_VERSION / 1000);
  }
  if (error != cudaSuccess) return fmt::format("no CUDA device: {}", cudaGetErrorString(error));
  if (count == 0) return "no CUDA device: the driver has none";
  const cuda::DeviceFacts facts = cuda::device_facts();
  if (facts.capability >= 80) return "";
  return fmt::format("{} has compute capability {}.{}, and the kernels need 8.0", facts.name,
                     facts.capability / 10, facts.capability % 10);
}

}  // namespace quire::test::gpu
