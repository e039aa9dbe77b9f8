#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include <boost/json/memory_resource.hpp>
#include <boost/json/storage_ptr.hpp>

#include "base/json.h"

// Memory limits for untrusted JSON: a parsed value can take up to 25 times as many bytes as its text.
namespace quire {

/// A JSON value would take more memory than it may.
class JsonTooLarge final : public std::exception {
 public:
  const char* what() const noexcept override { return "the JSON value takes too much memory"; }
};

/// Memory for JSON values: beyond the limit in bytes, an allocation throws JsonTooLarge. Small pieces come
/// from chunks that return to the system only with the resource, so that a value of a million pieces leaves
/// no fragmented memory. Not thread-safe.
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
  std::byte* free_ = nullptr;  // the rest of the last chunk
  size_t num_free_ = 0;
};

/// Like parse_json in json.h, but the value and the memory that the parser needs are in `storage`.
json::value parse_json(std::string_view text, const std::filesystem::path& where, size_t max_depth,
                       const json::storage_ptr& storage);

}  // namespace quire
