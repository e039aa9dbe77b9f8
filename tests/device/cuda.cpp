// What the tests and measurements of a real device use of CUDA's runtime itself.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#include <fmt/format.h>

#include "tests/device/device.h"
#include "tests/device/measure.h"

namespace quire::test::gpu {

namespace cuda = backend::cuda;

namespace {

constexpr int kSamples = 5;
constexpr double kSampleSeconds = 2e-3;

class Event {
 public:
  Event() { cuda::check(cudaEventCreate(&event_), "an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { cuda::check(cudaEventRecord(event_, nullptr), "an event"); }
  double seconds_since(const Event& earlier) const {
    float milliseconds = 0;
    cuda::check(cudaEventSynchronize(event_), "the work before an event");
    cuda::check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "the time between two events");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// The median of samples of `time_of(calls)`, for one call.
double median(const std::function<double(int calls)>& time_of) {
  time_of(1);  // what happens once only, as the choice of an algorithm
  int calls = 1;
  while (calls < 10'000 && time_of(calls) < kSampleSeconds) calls *= 2;
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) samples.push_back(time_of(calls) / calls);
  std::ranges::sort(samples);
  return samples[kSamples / 2];
}

}  // namespace

double seconds_of(const std::function<void()>& run) {
  Event begin;
  Event end;
  return median([&](int calls) {
    begin.record();
    for (int i = 0; i < calls; ++i) run();
    end.record();
    return end.seconds_since(begin);
  });
}

double seconds_of_waiting(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  return median([&](int calls) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < calls; ++i) run();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  });
}

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
