#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "backend/cuda/stream.h"

// What host code uses of the CUDA runtime. runtime_device.cpp has it over CUDA; whoever runs kernels without
// a device defines it otherwise (tests/device_on_host).
namespace quire::backend::cuda {

/// Throws Error "CUDA: WHAT: MESSAGE" unless `error` is 0.
void check(int error, std::string_view what);

/// Memory of the device; nothing is written to it. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// `what`: for messages, as in "the weights". Throws Error if the device does not have that much.
  DeviceMemory(size_t bytes, std::string what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Copies are made in the order of the stream's other work. Throw Error if the device fails.

/// `from` may be reused after the call.
void copy_to_device(void* to, const void* from, size_t bytes, Stream stream);
/// `to` is complete after synchronize(stream).
void copy_to_host(void* to, const void* from, size_t bytes, Stream stream);
void copy_on_device(void* to, const void* from, size_t bytes, Stream stream);
void clear(void* to, size_t bytes, Stream stream);
/// Waits for all work of the stream. Throws Error if any of it has failed.
void synchronize(Stream stream);

}  // namespace quire::backend::cuda
