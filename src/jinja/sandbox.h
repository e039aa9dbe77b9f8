#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "jinja/options.h"

namespace quire::jinja {

[[noreturn]] void fail(std::string message);

/// The resources that one rendering may use, and the memory of all its values. Values are never freed
/// individually (so no cycle leaks and no destructor recurses): all memory is freed with the sandbox.
class Sandbox {
 public:
  explicit Sandbox(const Limits& limits) : limits_(limits) {}
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// One step is at most about 50 ns of work.
  void step(uint64_t count = 1) {
    if (count > limits_.max_steps - steps_) fail_steps();
    steps_ += count;
  }
  /// Counts the steps of a pass over `bytes` bytes.
  void work(uint64_t bytes) { step(bytes / 64); }
  /// Refuses a string of `bytes`; best called before it is created.
  void limit_string(uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes) fail_string();
  }
  /// Counts the steps of a pass over every character, or of a search.
  void char_work(uint64_t bytes) { step(bytes / 4); }
  /// Like limit_string, and counts the steps of copying the string.
  void need_string(uint64_t bytes) {
    limit_string(bytes);
    work(bytes);
  }
  /// Refuses a sequence of `count` values that would need too many steps; call it before it is created.
  void need_items(uint64_t count) { step(count); }

  std::string_view copy(std::string_view text);
  /// Extends `left` in place if possible, so that building a text in pieces is linear.
  std::string_view concat(std::string_view left, std::string_view right);

  template <class T, class... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T))) T{std::forward<Args>(args)...};
  }
  template <class T>
  std::span<T> array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    need_items(count);
    T* items = static_cast<T*>(allocate(count * sizeof(T)));
    for (size_t i = 0; i < count; ++i) new (items + i) T();
    return {items, count};
  }
  template <class T>
  std::span<const T> keep(const std::vector<T>& items) {
    const std::span<T> kept = array<T>(items.size());
    for (size_t i = 0; i < items.size(); ++i) kept[i] = items[i];
    return kept;
  }

  /// Holds one level of nesting.
  class Level {
   public:
    explicit Level(Sandbox& sandbox) : sandbox_(sandbox) {
      if (++sandbox_.depth_ > sandbox_.limits_.max_depth) {
        --sandbox_.depth_;
        fail_depth();
      }
    }
    ~Level() { --sandbox_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Sandbox& sandbox_;
  };

  const Limits& limits() const { return limits_; }

 private:
  [[noreturn]] static void fail_steps();
  [[noreturn]] static void fail_string();
  [[noreturn]] static void fail_depth();
  /// Aligned to 16 bytes.
  void* allocate(size_t bytes);
  char* allocate_text(size_t bytes);
  std::unique_ptr<std::byte[]> block(size_t bytes);

  struct Region {
    std::byte* next = nullptr;
    size_t left = 0;
  };
  Limits limits_;
  uint64_t steps_ = 0;
  uint32_t depth_ = 0;
  uint64_t bytes_ = 0;
  Region objects_;
  Region text_;
  std::array<Region, 4> growing_{};  // free memory after the long strings that concat made last
  size_t next_growing_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace quire::jinja
