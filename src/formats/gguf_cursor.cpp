#include "formats/gguf_cursor.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace quire::formats::gguf {
namespace {

constexpr int kMaxArrayDepth = 4;

}  // namespace

size_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::string_view type_name(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",  "i8",  "u16",       "i16",      "u32",
                                                       "i32", "f32", "a boolean", "a string", "an array",
                                                       "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<int64_t> as_integer(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(from);
    case GgufType::kI8:
      return load<int8_t>(from);
    case GgufType::kU16:
      return load<uint16_t>(from);
    case GgufType::kI16:
      return load<int16_t>(from);
    case GgufType::kU32:
      return load<uint32_t>(from);
    case GgufType::kI32:
      return load<int32_t>(from);
    case GgufType::kU64:
      return static_cast<int64_t>(std::min<uint64_t>(load<uint64_t>(from), INT64_MAX));
    case GgufType::kI64:
      return load<int64_t>(from);
    default:
      return std::nullopt;
  }
}

const std::byte* Cursor::take(uint64_t bytes, std::string_view what) {
  if (bytes > left()) {
    throw error(at_,
                fmt::format("{} of {} bytes, but only {} bytes of the file are left", what, bytes, left()));
  }
  const std::byte* begin = file_.data() + at_;
  at_ += bytes;
  return begin;
}

std::string_view Cursor::string(std::string_view what) {
  const uint64_t length = longword(what);
  return {reinterpret_cast<const char*>(take(length, what)), length};
}

uint64_t Cursor::count(uint64_t least, std::string_view what) {
  const uint64_t begin = at_;
  const uint64_t count = longword(what);
  if (count > left() / least) {
    throw error(begin, fmt::format("{} {}, more than the rest of the file can hold", count, what));
  }
  return count;
}

GgufType Cursor::type() {
  const uint64_t begin = at_;
  const uint32_t type = word("a value's type");
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    throw error(begin, fmt::format("{} is not a type of value", type));
  }
  return static_cast<GgufType>(type);
}

Value Cursor::value(GgufType type, int depth) {
  Value out;
  out.type = type;
  if (type == GgufType::kArray) {
    array(out, depth);
  } else if (type == GgufType::kString) {
    out.data = file_.data() + at_;
    string("a string");
  } else {
    out.data = take(fixed_bytes(type), "a value");
    if (type == GgufType::kBool && std::to_integer<int>(*out.data) > 1) {
      throw error(at_ - 1, "a boolean that is neither 0 nor 1");
    }
  }
  return out;
}

void Cursor::array(Value& out, int depth) {
  const uint64_t begin = at_;
  if (depth >= kMaxArrayDepth) throw error(begin, "arrays are nested too deeply");
  out.element = type();
  const size_t fixed = fixed_bytes(out.element);
  constexpr uint64_t kLeastString = 8;
  constexpr uint64_t kLeastArray = 12;
  const uint64_t least = fixed != 0 ? fixed : (out.element == GgufType::kString ? kLeastString : kLeastArray);
  out.count = count(least, "elements of an array");
  out.data = file_.data() + at_;
  if (fixed != 0) {
    take(out.count * fixed, "an array");
  } else {
    for (uint64_t i = 0; i < out.count; ++i) value(out.element, depth + 1);
  }
}

}  // namespace quire::formats::gguf
