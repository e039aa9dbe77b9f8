#include "formats/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/file_error.h"
#include "formats/gguf_cursor.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_header.h"

namespace quire::formats {
namespace {

using gguf::as_integer;
using gguf::Cursor;
using gguf::fixed_bytes;
using gguf::load;
using gguf::type_name;
using gguf::Value;

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMinAlignment = 8;  // the format's: no view is ever misaligned
constexpr uint32_t kMaxGgufDims = 4;
constexpr std::string_view kAlignmentKey = "general.alignment";

/// The nearest double of the shortest decimal that reads back as this f32.
double decimal_of(float value) {
  if (!std::isfinite(value)) return value;
  std::array<char, 64> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double out = 0.0;
  std::from_chars(text.data(), written.ptr, out);
  return out;
}

}  // namespace

struct Gguf::Impl {
  Impl(const std::filesystem::path& path, FileAccess access) : file(path, access) { read(); }

  MappedFile file;
  uint64_t header_bytes = 0;
  std::map<std::string_view, Value> values;  // keys lie in the file
  std::map<std::string, GgufTensor, std::less<>> tensors;

  void read();
  void read_metadata(Cursor& in, uint64_t count);
  void read_tensors(Cursor& in, uint64_t count);
  GgufTensor read_tensor(Cursor& in) const;
  uint32_t alignment() const;

  const Value& at(std::string_view key) const {
    const auto found = values.find(key);
    if (found == values.end()) throw error(key, "missing");
    return found->second;
  }
  Error error(std::string_view key, std::string_view what) const {
    return file_error(file.path(), fmt::format("key {}: {}", quoted_name(key), what));
  }
  const Value& array(std::string_view key) const {
    const Value& value = at(key);
    if (value.type != GgufType::kArray) {
      throw error(key, fmt::format("an array was expected, not {}", type_name(value.type)));
    }
    return value;
  }
};

void Gguf::Impl::read() {
  static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian");
  Cursor in(file);
  const auto* magic = reinterpret_cast<const char*>(in.take(kMagic.size(), "GGUF's magic"));
  if (std::string_view(magic, kMagic.size()) != kMagic) throw in.error(0, "no GGUF file");
  const uint32_t version = in.word("the version");
  if (version != 2 && version != 3) {
    // Big-endian files have the same magic.
    const bool swapped = version != 0 && (version & 0xffffU) == 0;
    throw in.error(kMagic.size(), swapped ? std::string("a big-endian file, which is not supported")
                                          : fmt::format("version {} is not supported (2, 3)", version));
  }
  constexpr uint64_t kLeastTensor = 24;  // name's length, number of dimensions, type, offset
  constexpr uint64_t kLeastValue = 13;   // key's length, type, one byte
  const uint64_t num_tensors = in.count(kLeastTensor, "tensors");
  const uint64_t num_values = in.count(kLeastValue, "keys");
  read_metadata(in, num_values);
  read_tensors(in, num_tensors);
}

void Gguf::Impl::read_metadata(Cursor& in, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = in.at();
    const std::string_view key = in.string("a key");
    if (key.empty()) throw in.error(begin, "an empty key");
    const GgufType type = in.type();
    if (!values.emplace(key, in.value(type, 0)).second) {
      throw in.error(begin, fmt::format("key {} occurs twice", quoted_name(key)));
    }
  }
}

uint32_t Gguf::Impl::alignment() const {
  const auto found = values.find(kAlignmentKey);
  if (found == values.end()) return kDefaultAlignment;
  if (found->second.type != GgufType::kU32) throw error(kAlignmentKey, "u32 was expected");
  const auto given = load<uint32_t>(found->second.data);
  if (!std::has_single_bit(given) || given < kMinAlignment) {
    throw error(kAlignmentKey, fmt::format("{} is not a power of two of at least {}", given, kMinAlignment));
  }
  return given;
}

/// The entry; `data` is null and `bytes` the offset from the beginning of the data.
GgufTensor Gguf::Impl::read_tensor(Cursor& in) const {
  const uint64_t begin = in.at();
  GgufTensor out;
  out.name = std::string(in.string("a tensor's name"));
  const auto refuse = [&](std::string_view what) {
    return in.error(begin, fmt::format("tensor {}: {}", quoted_name(out.name), what));
  };
  const uint32_t dims = in.word("a tensor's number of dimensions");
  if (dims > kMaxGgufDims) throw refuse(fmt::format("{} dimensions, more than {}", dims, kMaxGgufDims));
  for (uint32_t i = 0; i < dims; ++i) {
    const uint64_t dim = in.longword("a tensor's dimension");
    if (dim > INT64_MAX) throw refuse("a dimension is not a valid size");
    out.shape.insert(out.shape.begin(), static_cast<int64_t>(dim));
  }
  const uint32_t type = in.word("a tensor's type");
  out.type = find_ggml_type(type);
  if (out.type == nullptr) throw refuse(fmt::format("type {} is not known", type));
  out.bytes = in.longword("a tensor's offset");
  return out;
}

void Gguf::Impl::read_tensors(Cursor& in, uint64_t count) {
  struct Place {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Place> places;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = in.at();
    GgufTensor tensor = read_tensor(in);
    std::string name = tensor.name;
    const auto [entry, is_new] = tensors.emplace(std::move(name), std::move(tensor));
    if (!is_new) {
      throw in.error(begin, fmt::format("tensor {} occurs twice", quoted_name(entry->first)));
    }
  }
  if (count == 0) return;
  const uint64_t align = alignment();
  const uint64_t data_begin = (in.at() + align - 1) / align * align;
  header_bytes = in.at();
  const uint64_t data_bytes = file.size() - std::min(file.size(), data_begin);
  for (auto& [name, tensor] : tensors) {
    const auto refuse = [&, &name = name](std::string_view what) {
      return file_error(file.path(), fmt::format("tensor {}: {}", quoted_name(name), what));
    };
    const uint64_t offset = tensor.bytes;
    if (tensor.row_values() % tensor.type->block_values != 0) {
      throw refuse(fmt::format("rows of {} values, but {} has blocks of {}", tensor.row_values(),
                               tensor.type->name, tensor.type->block_values));
    }
    uint64_t blocks = 1;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      auto dim = static_cast<uint64_t>(tensor.shape[i]);
      if (i + 1 == tensor.shape.size()) dim /= tensor.type->block_values;
      if (__builtin_mul_overflow(blocks, dim, &blocks)) throw refuse("its dimensions are too large");
    }
    uint64_t bytes = 0;
    uint64_t elements = 0;
    if (__builtin_mul_overflow(blocks, uint64_t{tensor.type->block_bytes}, &bytes) ||
        __builtin_mul_overflow(blocks, uint64_t{tensor.type->block_values}, &elements) ||
        elements > INT64_MAX) {
      throw refuse("its dimensions are too large");
    }
    if (offset % align != 0) {
      throw refuse(fmt::format("offset {} is not a multiple of the alignment {}", offset, align));
    }
    if (offset > data_bytes || bytes > data_bytes - offset) {
      throw refuse(fmt::format("{} bytes at offset {} are not within the {} bytes of data from byte {} on",
                               bytes, offset, data_bytes, data_begin));
    }
    tensor.bytes = bytes;
    if (bytes == 0) continue;
    tensor.data = file.data() + data_begin + offset;
    places.push_back({data_begin + offset, data_begin + offset + bytes, &name});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin >= places[i - 1].end) continue;
    throw file_error(file.path(), places[i].begin,
                     fmt::format("tensors {} and {} overlap", quoted_name(*places[i - 1].name),
                                 quoted_name(*places[i].name)));
  }
}

Gguf::Gguf() = default;
Gguf::~Gguf() = default;
Gguf::Gguf(Gguf&&) noexcept = default;
Gguf& Gguf::operator=(Gguf&&) noexcept = default;

Gguf Gguf::open(const std::filesystem::path& path, FileAccess access) {
  Gguf out;
  out.impl_ = std::make_unique<Impl>(path, access);
  return out;
}

std::span<const std::byte> Gguf::header() const { return {impl_->file.data(), impl_->header_bytes}; }
const MappedFile& Gguf::file() const { return impl_->file; }
const std::filesystem::path& Gguf::path() const { return impl_->file.path(); }
bool Gguf::has(std::string_view key) const { return impl_->values.contains(key); }

std::vector<std::string_view> Gguf::keys() const {
  std::vector<std::string_view> out;
  for (const auto& [key, value] : impl_->values) out.push_back(key);
  return out;
}

int64_t Gguf::integer(std::string_view key, int64_t min, int64_t max) const {
  const Value& value = impl_->at(key);
  const auto whole = as_integer(value.type, value.data);
  if (!whole) throw error(key, fmt::format("an integer was expected, not {}", type_name(value.type)));
  if (*whole < min || *whole > max) {
    throw error(key, fmt::format("{} is out of range [{}, {}]", *whole, min, max));
  }
  return *whole;
}

double Gguf::number(std::string_view key) const {
  const Value& value = impl_->at(key);
  double out = 0.0;
  if (const auto whole = as_integer(value.type, value.data)) {
    out = static_cast<double>(*whole);
  } else if (value.type == GgufType::kF32) {
    out = decimal_of(load<float>(value.data));
  } else if (value.type == GgufType::kF64) {
    out = load<double>(value.data);
  } else {
    throw error(key, fmt::format("a number was expected, not {}", type_name(value.type)));
  }
  if (!std::isfinite(out)) throw error(key, "is not finite");
  return out;
}

bool Gguf::boolean(std::string_view key) const {
  const Value& value = impl_->at(key);
  if (value.type != GgufType::kBool) {
    throw error(key, fmt::format("a boolean was expected, not {}", type_name(value.type)));
  }
  return load<uint8_t>(value.data) != 0;
}

std::string_view Gguf::string(std::string_view key) const {
  const Value& value = impl_->at(key);
  if (value.type != GgufType::kString) {
    throw error(key, fmt::format("a string was expected, not {}", type_name(value.type)));
  }
  return {reinterpret_cast<const char*>(value.data) + sizeof(uint64_t), load<uint64_t>(value.data)};
}

bool Gguf::is_array(std::string_view key) const {
  const auto found = impl_->values.find(key);
  return found != impl_->values.end() && found->second.type == GgufType::kArray;
}

std::vector<int64_t> Gguf::integers(std::string_view key) const {
  const Value& array = impl_->array(key);
  std::vector<int64_t> out;
  const size_t bytes = fixed_bytes(array.element);
  for (uint64_t i = 0; i < array.count; ++i) {
    const auto whole = as_integer(array.element, array.data + i * bytes);
    if (!whole) throw error(key, fmt::format("integers were expected, not {}", type_name(array.element)));
    out.push_back(*whole);
  }
  return out;
}

std::vector<float> Gguf::floats(std::string_view key) const {
  const Value& array = impl_->array(key);
  if (array.element != GgufType::kF32 && array.element != GgufType::kF64) {
    throw error(key, fmt::format("floating-point numbers were expected, not {}", type_name(array.element)));
  }
  std::vector<float> out(array.count);
  for (uint64_t i = 0; i < array.count; ++i) {
    out[i] = array.element == GgufType::kF32
                 ? load<float>(array.data + i * sizeof(float))
                 : static_cast<float>(load<double>(array.data + i * sizeof(double)));
  }
  return out;
}

std::vector<std::string_view> Gguf::strings(std::string_view key) const {
  const Value& array = impl_->array(key);
  if (array.element != GgufType::kString) {
    throw error(key, fmt::format("strings were expected, not {}", type_name(array.element)));
  }
  std::vector<std::string_view> out;
  const std::byte* at = array.data;
  for (uint64_t i = 0; i < array.count; ++i) {
    const auto length = load<uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at) + sizeof(length), length);
    at += sizeof(length) + length;
  }
  return out;
}

int64_t Gguf::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const {
  return has(key) ? integer(key, min, max) : otherwise;
}
double Gguf::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}
bool Gguf::boolean_or(std::string_view key, bool otherwise) const {
  return has(key) ? boolean(key) : otherwise;
}
std::string_view Gguf::string_or(std::string_view key, std::string_view otherwise) const {
  return has(key) ? string(key) : otherwise;
}

Error Gguf::error(std::string_view key, std::string_view what) const { return impl_->error(key, what); }

const GgufTensor* Gguf::find(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) return nullptr;
  if (found->second.type->dequantize != nullptr) return &found->second;
  throw file_error(path(), fmt::format("tensor {} has type {}, which is not supported", quoted_name(name),
                                       found->second.type->name));
}

const GgufTensor& Gguf::at(std::string_view name) const {
  if (const GgufTensor* found = find(name)) return *found;
  throw file_error(path(), fmt::format("tensor {} is missing", quoted_name(name)));
}

uint64_t Gguf::offset_of(const GgufTensor& tensor) const {
  return static_cast<uint64_t>(tensor.data - impl_->file.data());
}

const std::map<std::string, GgufTensor, std::less<>>& Gguf::tensors() const { return impl_->tensors; }

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  if (path.extension() == ".gguf") return true;
  std::array<char, kMagic.size()> begin{};
  std::ifstream in(path, std::ios::binary);
  in.read(begin.data(), begin.size());
  return in.gcount() == static_cast<std::streamsize>(begin.size()) &&
         std::string_view(begin.data(), begin.size()) == kMagic;
}

}  // namespace quire::formats
