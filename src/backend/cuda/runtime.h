#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "backend/cuda/stream.h"
#include "base/ids.h"

// What host code uses of the CUDA runtime. runtime_device.cpp has it over CUDA; whoever runs kernels without
// a device defines it otherwise (tests/device_on_host).
namespace quire::backend::cuda {

/// Throws Error "CUDA: WHAT: MESSAGE" unless `error` is 0.
void check(int error, std::string_view what);

/// Memory of the device; nothing is written to it. Move-only.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `what`: for messages, as in "the weights". Throws Error if the device does not have that much.
  DeviceBuffer(size_t bytes, std::string what);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

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

/// Pinned memory of the host, which the device reads and writes by itself. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Throws Error, as DeviceBuffer does.
  PinnedBuffer(size_t bytes, std::string what);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A stream of work beside the others, which it waits for only where an Event says so.
class OwnStream {
 public:
  OwnStream();
  /// Waits for its work.
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

/// A place in the work of a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// From here on, it is behind all work that the stream has been given.
  void record(Stream stream);
  /// What the stream is given from here on begins once this place has been reached; at once if nothing was
  /// recorded.
  void hold(Stream stream) const;
  /// Waits until the place has been reached. Throws Error if work of the device has failed.
  void wait() const;
  /// The time from another place to this. REQUIRES: both have been waited for.
  Nanos since(const Event& other) const;

 private:
  void* event_ = nullptr;
};

/// Work of a stream that was recorded, to be given to it again and again as a whole ("CUDA Graphs" in
/// NVIDIA's CUDA C++ Programming Guide). Move-only.
class Graph {
 public:
  Graph() = default;
  /// Calls `give`, which gives the stream kernels and products: they are recorded, with their arguments, and
  /// not done. Meanwhile the calling thread waits for nothing, allocates and frees nothing on the device, and
  /// copies only within it. Throws Error if the device refuses to record something or lacks memory for it, or
  /// what `give` throws; then nothing is recorded, and the stream is as before. `stream`: not the default
  /// stream.
  Graph(Stream stream, const std::function<void()>& give);
  /// What was given to a stream is still done.
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  explicit operator bool() const { return graph_ != nullptr; }
  /// Gives the stream all that was recorded. Throws Error if the device refuses it. REQUIRES: it is not
  /// empty.
  void launch(Stream stream) const;

 private:
  void* graph_ = nullptr;
};

/// What is known of the device that the calling thread uses.
struct DeviceFacts {
  std::string name;         // "NVIDIA H200"
  uint64_t free_bytes = 0;  // at the moment of the call
  uint64_t total_bytes = 0;
  uint32_t capability = 0;  // 90: compute capability 9.0
};
DeviceFacts device_facts();
/// From here on the calling thread uses this device, counted from 0.
void use_device(uint32_t device);

// Copies are made in the order of the stream's other work. Throw Error if the device fails.

/// `from` may be reused after the call, but if it is pinned only once the stream has come past the copy.
/// Memory that is not pinned costs a wait for the stream.
void copy_to_device(void* to, const void* from, size_t bytes, Stream stream);
/// `to` is complete once the stream has come past the copy. Memory that is not pinned costs a wait for the
/// stream.
void copy_to_host(void* to, const void* from, size_t bytes, Stream stream);
void copy_on_device(void* to, const void* from, size_t bytes, Stream stream);
void clear(void* to, size_t bytes, Stream stream);
/// Waits for all work of the stream. Throws Error if any of it has failed.
void synchronize(Stream stream);

}  // namespace quire::backend::cuda
