// A libquire_cuda.so whose GPU is made of fibers: the program loads it as it loads the real one.
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/entry.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/fake_cublaslt.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

std::string why_not(uint32_t device) {
  return device == 0 ? "" : fmt::format("there is no GPU {}: this machine has 1, counted from 0", device);
}

/// With the device that it computes on. Its allocations end before that.
class OwningBackend final : public backend::Backend {
 public:
  OwningBackend(const cuda::CudaOptions& options, model::ModelConfig config, backend::ModelShape shape)
      : device_(5), backend_(options, std::move(config), std::move(shape), fake_cublaslt()) {}

  std::string describe() const override { return backend_.describe(); }
  const backend::ModelShape& shape() const override { return backend_.shape(); }
  std::optional<backend::DeviceMemory> memory() const override { return backend_.memory(); }
  void allocate(const backend::PoolSize& size) override { backend_.allocate(size); }
  uint64_t untouched_bytes() const override { return backend_.untouched_bytes(); }
  backend::StepSpeeds probe(Nanos step_time) override { return backend_.probe(step_time); }
  std::unique_ptr<backend::Executor> make_executor() override { return backend_.make_executor(); }
  json::object kv_facts() const override { return backend_.kv_facts(); }
  void read_block(BlockId block, std::span<std::byte> bytes) override { backend_.read_block(block, bytes); }
  void write_block(BlockId block, std::span<const std::byte> bytes) override {
    backend_.write_block(block, bytes);
  }

 private:
  Device device_;
  cuda::CudaBackend backend_;
};

std::unique_ptr<backend::Backend> make(const cuda::CudaOptions& options, model::ModelConfig config,
                                       backend::ModelShape shape) {
  return std::make_unique<OwningBackend>(options, std::move(config), std::move(shape));
}

}  // namespace
}  // namespace quire::test::fibers

/// For tests: the work of the device fails that is `count` pieces from now.
extern "C" __attribute__((visibility("default"))) void quire_fail_after(uint64_t count) {
  quire::test::fibers::Device::current()->streams().fail_after(count);
}

extern "C" __attribute__((visibility("default"))) const quire::backend::cuda::Entry* quire_cuda_entry() {
  static constexpr quire::backend::cuda::Entry kEntry{.why_not = quire::test::fibers::why_not,
                                                      .make = quire::test::fibers::make};
  return &kEntry;
}
