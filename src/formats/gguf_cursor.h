#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/file_error.h"
#include "formats/gguf.h"
#include "formats/mapped_file.h"

// Reads the values of a GGUF file; only for gguf.cpp. No allocation here depends on a number in the file.
namespace quire::formats::gguf {

/// Bytes of one value; 0 for types with their own length.
size_t fixed_bytes(GgufType type);
/// The name for messages.
std::string_view type_name(GgufType type);

/// The place of a value; of an array, the place of its elements.
struct Value {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 1;
  const std::byte* data = nullptr;
};

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Values above INT64_MAX become INT64_MAX. nullopt if it is not an integer.
std::optional<int64_t> as_integer(GgufType type, const std::byte* from);

/// Reads from a place in the file onwards, never past its end: throws Error with file and offset.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }
  Error error(uint64_t offset, std::string_view what) const { return file_error(file_.path(), offset, what); }

  const std::byte* take(uint64_t bytes, std::string_view what);
  uint32_t word(std::string_view what) { return load<uint32_t>(take(sizeof(uint32_t), what)); }
  uint64_t longword(std::string_view what) { return load<uint64_t>(take(sizeof(uint64_t), what)); }
  std::string_view string(std::string_view what);
  /// Reads the number of items that take at least `least` bytes each.
  uint64_t count(uint64_t least, std::string_view what);
  GgufType type();
  /// `depth`: the number of enclosing arrays.
  Value value(GgufType type, int depth);

 private:
  void array(Value& out, int depth);

  const MappedFile& file_;
  uint64_t at_ = 0;
};

}  // namespace quire::formats::gguf
