#include "tests/device/device.h"

#include <cstring>
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

}  // namespace quire::test::gpu
