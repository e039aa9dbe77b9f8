#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/mapped_file.h"

// How the values of a GGUF file lie in it; for gguf.cpp alone. Nothing here allocates by what the file says.
namespace quire::formats::gguf {

/// Bytes of one value; 0 for those that say their own length.
size_t fixed_bytes(GgufType type);
/// As messages call it.
std::string_view type_name(GgufType type);

/// Where a value lies. Of an array, its elements.
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

/// Above INT64_MAX: that. nullopt if it is no integer.
std::optional<int64_t> as_integer(GgufType type, const std::byte* from);

/// Reads on from a place in the file and never past its end: throws Error with file and offset.
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
  /// A number of things that take `least` bytes each.
  uint64_t count(uint64_t least, std::string_view what);
  GgufType type();
  /// `depth`: of the arrays around it.
  Value value(GgufType type, int depth);

 private:
  void array(Value& out, int depth);

  const MappedFile& file_;
  uint64_t at_ = 0;
};

}  // namespace quire::formats::gguf
