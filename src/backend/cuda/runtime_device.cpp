#include <cuda_runtime.h>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/runtime.h"
#include "base/amounts.h"
#include "base/error.h"

namespace quire::backend::cuda {

void check(int error, std::string_view what) {
  if (error == cudaSuccess) return;
  throw Error(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(static_cast<cudaError_t>(error))));
}

DeviceBuffer::DeviceBuffer(size_t bytes, std::string what) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    const DeviceFacts facts = device_facts();
    throw Error(fmt::format("CUDA: {} takes {}, and {} of {} are free on {}", what, human_bytes(bytes),
                            human_bytes(facts.free_bytes), human_bytes(facts.total_bytes), facts.name));
  }
  check(error, fmt::format("{} bytes for {}", with_commas(bytes), what));
  data_ = static_cast<std::byte*>(memory);
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(size_t bytes, std::string what) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes),
        fmt::format("{} bytes of host memory for {}", with_commas(bytes), what));
  data_ = static_cast<std::byte*>(memory);
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

OwnStream::OwnStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a new stream"); }

OwnStream::~OwnStream() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

Event::Event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreate(&made), "a new event");
  event_ = made;
}

Event::~Event() { cudaEventDestroy(static_cast<cudaEvent_t>(event_)); }

void Event::record(Stream stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream), "an event of a stream");
}

void Event::hold(Stream stream) const {
  check(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event_)), "a stream that waits for another");
}

void Event::wait() const {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "the work of a stream");
}

Nanos Event::since(const Event& other) const {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(other.event_),
                             static_cast<cudaEvent_t>(event_)),
        "the time between two events");
  return static_cast<Nanos>(milliseconds * 1e6F);
}

namespace {

/// Whoever looks for an error of a launch is not to find one that was thrown already.
void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  check(error, what);
}

}  // namespace

Graph::Graph(Stream stream, const std::function<void()>& give) {
  cudaGraph_t recorded = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "the recording of a stream");
  try {
    give();
  } catch (...) {
    if (cudaStreamEndCapture(stream, &recorded) == cudaSuccess) cudaGraphDestroy(recorded);
    static_cast<void>(cudaGetLastError());
    throw;
  }
  must(cudaStreamEndCapture(stream, &recorded), "the recording of a stream");
  cudaGraphExec_t made = nullptr;
  cudaError_t error = cudaGraphInstantiate(&made, recorded, 0);
  cudaGraphDestroy(recorded);
  // Else the first launch would do that, which may take memory.
  if (error == cudaSuccess) error = cudaGraphUpload(made, stream);
  if (error != cudaSuccess && made != nullptr) cudaGraphExecDestroy(made);
  must(error, "a graph of recorded work");
  graph_ = made;
}

Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}

Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

void Graph::launch(Stream stream) const {
  must(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream), "the launch of a graph");
}

DeviceFacts device_facts() {
  int device = 0;
  cudaDeviceProp properties{};
  size_t free = 0;
  size_t total = 0;
  check(cudaGetDevice(&device), "the choice of a device");
  check(cudaGetDeviceProperties(&properties, device), "the properties of a device");
  check(cudaMemGetInfo(&free, &total), "the memory of a device");
  return {.name = properties.name,
          .free_bytes = free,
          .total_bytes = total,
          .capability = static_cast<uint32_t>(properties.major * 10 + properties.minor)};
}

void use_device(uint32_t device) { check(cudaSetDevice(static_cast<int>(device)), "the choice of a device"); }

void copy_to_device(void* to, const void* from, size_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "a copy to the device");
}

void copy_to_host(void* to, const void* from, size_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "a copy from the device");
}

void copy_on_device(void* to, const void* from, size_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "a copy on the device");
}

void clear(void* to, size_t bytes, Stream stream) {
  check(cudaMemsetAsync(to, 0, bytes, stream), "clearing memory");
}

void synchronize(Stream stream) { check(cudaStreamSynchronize(stream), "the work of a stream"); }

}  // namespace quire::backend::cuda
