#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

/// Zeroed memory of its own, aligned to 64 bytes, from the operating system directly when it is large
/// (with huge pages where they may be had). Move-only.
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error naming the size if the machine does not have it.
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

  /// At least `bytes` large afterwards, growing by half at least; what it held is lost when it grows.
  void reserve(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quire
