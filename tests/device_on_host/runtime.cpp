#include "backend/cuda/runtime.h"

#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "tests/device_on_host/device.h"

// The host code's part of CUDA over the memory and the streams of Device::current().
namespace quire::backend::cuda {
namespace {

test::fibers::Device& device() { return *test::fibers::Device::current(); }

using test::fibers::Streams;

Streams& streams() { return device().streams(); }

/// Places of events, behind their void*.
uint64_t place_of(void* event) { return reinterpret_cast<uint64_t>(event); }

void throw_if_failed() {
  if (!streams().failure().empty()) throw Error("CUDA: the work of a stream: " + streams().failure());
  if (!device().findings().empty()) throw Error("CUDA: the work of a stream: " + device().report());
}

/// What CUDA forbids while it records, or Graph does.
void refuse_if_recording(std::string_view what) {
  if (streams().is_recording()) throw Error(fmt::format("CUDA: {}: not while a stream is recorded", what));
}

void refuse_unless_fits(const void* at, size_t bytes, bool is_read, const char* what) {
  const std::string why = bytes == 0 ? "" : device().why_not(at, bytes, is_read);
  if (!why.empty()) throw Error(fmt::format("CUDA: {}: {}", what, why));
}

}  // namespace

void check(int error, std::string_view what) {
  if (error != 0) throw Error(fmt::format("CUDA: {}: error {}: {}", what, error, device().report()));
}

DeviceBuffer::DeviceBuffer(size_t bytes, std::string what) : size_(bytes) {
  refuse_if_recording(what);
  if (bytes > 0) data_ = device().allocate(std::move(what), bytes).data();
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  streams().run_all();
  device().free(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(size_t bytes, std::string what) : size_(bytes) {
  if (bytes == 0) return;
  refuse_if_recording(what);
  data_ = device().allocate(std::move(what), bytes).data();
  device().mark_written(data_, bytes);  // by the host, whose stores nobody sees
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  streams().run_all();
  device().free(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

OwnStream::OwnStream() : stream_(streams().create()) {}
OwnStream::~OwnStream() { streams().destroy(stream_); }

Event::Event() = default;
Event::~Event() = default;
void Event::record(Stream stream) { event_ = reinterpret_cast<void*>(streams().record(stream)); }
void Event::hold(Stream stream) const { streams().hold(stream, place_of(event_)); }
void Event::wait() const {
  streams().run_to(place_of(event_));
  throw_if_failed();
}
Nanos Event::since(const Event& other) const {
  return streams().reached(place_of(event_)) - streams().reached(place_of(other.event_));
}

namespace {

Streams::Recorded* recorded_by(void* graph) { return static_cast<Streams::Recorded*>(graph); }

}  // namespace

Graph::Graph(Stream stream, const std::function<void()>& give) {
  streams().begin_recording(stream);
  try {
    give();
  } catch (...) {
    streams().end_recording();
    throw;
  }
  graph_ = new Streams::Recorded(streams().end_recording());
}
Graph::~Graph() { delete recorded_by(graph_); }
Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}
void Graph::launch(Stream stream) const { streams().add(stream, *recorded_by(graph_)); }

DeviceFacts device_facts() {
  return {.name = "fibers", .free_bytes = 1 << 30, .total_bytes = 1 << 30, .capability = 90};
}

void use_device(uint32_t device) { check(static_cast<int>(device), "there is one device"); }

void copy_to_device(void* to, const void* from, size_t bytes, Stream stream) {
  refuse_if_recording("a copy to the device");
  refuse_unless_fits(to, bytes, false, "a copy to the device");
  if (device().owns(from)) {
    streams().add(stream, [=] { device().copy(to, from, bytes); });
    return;
  }
  const auto* first = static_cast<const std::byte*>(from);
  streams().add(stream,
                [=, taken = std::vector(first, first + bytes)] { device().copy(to, taken.data(), bytes); });
}

void copy_to_host(void* to, const void* from, size_t bytes, Stream stream) {
  refuse_if_recording("a copy from the device");
  refuse_unless_fits(from, bytes, false, "a copy from the device");
  const bool is_pinned = device().owns(to);
  streams().add(stream, [=] {
    // A block that is moved to pinned memory may be filled in part; other memory of the host is read soon.
    refuse_unless_fits(from, bytes, !is_pinned, "a copy from the device");
    device().copy(to, from, bytes);
  });
  if (is_pinned) return;
  streams().run_all(stream);
  throw_if_failed();
}

void copy_on_device(void* to, const void* from, size_t bytes, Stream stream) {
  refuse_unless_fits(from, bytes, false, "a copy on the device");
  refuse_unless_fits(to, bytes, false, "a copy on the device");
  streams().add(stream, [=] { device().copy(to, from, bytes); });
}

void clear(void* to, size_t bytes, Stream stream) {
  refuse_unless_fits(to, bytes, false, "clearing memory");
  streams().add(stream, [=] {
    std::memset(to, 0, bytes);
    device().mark_written(to, bytes);
  });
}

void synchronize(Stream stream) {
  refuse_if_recording("the work of a stream");
  streams().run_all(stream);
  throw_if_failed();
}

}  // namespace quire::backend::cuda
