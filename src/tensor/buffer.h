#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

class ThreadPool;

/// Owned, zeroed memory, aligned to 64 bytes; large buffers come directly from the operating system (with
/// huge pages if available). Move-only. Buffers may be made and destroyed by any thread.
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error naming the size if the machine does not have that much memory.
  explicit Buffer(size_t bytes);
  /// The same for memory that is kept as long as what is made before and after it, like the matrices of a
  /// model: such buffers share huge pages, which are not given back before all in them are.
  static Buffer lasting(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

  /// Makes the buffer at least `bytes` large; it grows by at least half, and its contents are lost when it
  /// grows.
  void reserve(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Has the system find and clear the memory of these bytes now, with all threads of the pool, and not when
/// each page is first written to. The contents stay.
void touch(ThreadPool& pool, std::span<std::byte> bytes);

}  // namespace quire
