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

/// What one rendering may use, and the memory of all values it makes. Values are never freed one by one (so
/// no cycle leaks and no destructor recurses): all goes when the sandbox does.
class Sandbox {
 public:
  explicit Sandbox(const Limits& limits) : limits_(limits) {}
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// One step is about 50 ns of work at most.
  void step(uint64_t count = 1) {
    if (count > limits_.max_steps - steps_) fail_steps();
    steps_ += count;
  }
  /// The steps of a pass over so many bytes.
  void work(uint64_t bytes) { step(bytes / 64); }
  /// Refuses a string of `bytes`, best before it is made.
  void limit_string(uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes) fail_string();
  }
  /// The steps of a pass that looks at every character, or of a search.
  void char_work(uint64_t bytes) { step(bytes / 4); }
  /// As limit_string, and takes the steps that copying it costs.
  void need_string(uint64_t bytes) {
    limit_string(bytes);
    work(bytes);
  }
  /// Refuses to make a sequence of `count` values, before it is made.
  void need_items(uint64_t count) { step(count); }

  std::string_view copy(std::string_view text);
  /// Extends `left` in place where it can, so that building a text piece by piece is linear.
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
  std::array<Region, 4> growing_{};  // behind the long strings that concat made last
  size_t next_growing_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace quire::jinja
