#include "backend/cuda/runtime.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "tests/device_on_host/device.h"

// The host code's part of CUDA over the memory of Device::current(). A copy is made when it is asked for, as
// the streams of a test have nothing else to do.
namespace quire::backend::cuda {
namespace {

test::fibers::Device& device() { return *test::fibers::Device::current(); }

void refuse_unless_fits(const void* at, size_t bytes, bool is_read, const char* what) {
  const std::string why = bytes == 0 ? "" : device().why_not(at, bytes, is_read);
  if (!why.empty()) throw Error(fmt::format("CUDA: {}: {}", what, why));
}

}  // namespace

void check(int error, std::string_view what) {
  if (error != 0) throw Error(fmt::format("CUDA: {}: error {}: {}", what, error, device().report()));
}

DeviceBuffer::DeviceBuffer(size_t bytes, std::string what) : size_(bytes) {
  if (bytes > 0) data_ = device().allocate(std::move(what), bytes).data();
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device().free(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(size_t bytes, std::string what) : size_(bytes) {
  if (bytes > 0) data_ = device().allocate(std::move(what), bytes).data();
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) device().free(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceFacts device_facts() {
  return {.name = "fibers", .free_bytes = 1 << 30, .total_bytes = 1 << 30, .capability = 90};
}

void use_device(uint32_t device) { check(static_cast<int>(device), "there is one device"); }

void copy_to_device(void* to, const void* from, size_t bytes, Stream /*stream*/) {
  refuse_unless_fits(to, bytes, false, "a copy to the device");
  device().copy(to, from, bytes);
}

void copy_to_host(void* to, const void* from, size_t bytes, Stream /*stream*/) {
  // A block that is moved to pinned memory may be filled in part; other memory of the host is read soon.
  refuse_unless_fits(from, bytes, !device().owns(to), "a copy from the device");
  device().copy(to, from, bytes);
}

void copy_on_device(void* to, const void* from, size_t bytes, Stream /*stream*/) {
  refuse_unless_fits(from, bytes, false, "a copy on the device");
  refuse_unless_fits(to, bytes, false, "a copy on the device");
  device().copy(to, from, bytes);
}

void clear(void* to, size_t bytes, Stream /*stream*/) {
  refuse_unless_fits(to, bytes, false, "clearing memory");
  std::memset(to, 0, bytes);
  device().mark_written(to, bytes);
}

void synchronize(Stream /*stream*/) {
  if (!device().findings().empty()) throw Error("CUDA: the work of a stream: " + device().report());
}

}  // namespace quire::backend::cuda
