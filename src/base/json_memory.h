#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include <boost/json/memory_resource.hpp>
#include <boost/json/storage_ptr.hpp>

#include "base/json.h"

// JSON of strangers: what it becomes in memory is up to 25 times as long as its text.
namespace quire {

/// A JSON value would take more memory than it may.
class JsonTooLarge final : public std::exception {
 public:
  const char* what() const noexcept override { return "the JSON value takes too much memory"; }
};

/// Memory for JSON values: no more than so many bytes, then allocating throws JsonTooLarge. Small pieces come
/// from blocks that go back to the system with the resource and not before, so that a value of a million of
/// them leaves no holes behind. Not thread-safe.
class JsonMemory final : public json::memory_resource {
 public:
  explicit JsonMemory(uint64_t max_bytes) : max_bytes_(max_bytes) {}
  ~JsonMemory() override;
  JsonMemory(const JsonMemory&) = delete;
  JsonMemory& operator=(const JsonMemory&) = delete;

  /// Taken from the system.
  uint64_t used() const { return used_; }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override;
  bool do_is_equal(const json::memory_resource& other) const noexcept override { return this == &other; }
  void* take(size_t bytes);

  const uint64_t max_bytes_;
  uint64_t used_ = 0;
  std::vector<void*> blocks_;
  size_t next_block_ = 4 << 10;
  std::byte* free_ = nullptr;  // the rest of the last block
  size_t num_free_ = 0;
};

/// As parse_json above, with the value, and what parsing it needs, in `storage`.
json::value parse_json(std::string_view text, const std::filesystem::path& where, size_t max_depth,
                       const json::storage_ptr& storage);

}  // namespace quire
