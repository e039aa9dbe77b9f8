#include "formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include <boost/json/basic_parser_impl.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"

namespace quire::formats {
namespace {

// The reference implementation's bound; headers of the largest models take a few megabytes.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMaxDims = 16;
constexpr size_t kHeaderDepth = 8;

struct KnownDType {
  std::string_view text;
  uint64_t bits;
  std::optional<DType> dtype;
};

// Those without a DType are checked like the others and refused when they are loaded.
constexpr std::array kDTypes = {
    KnownDType{"F32", 32, DType::kF32},     KnownDType{"F16", 16, DType::kF16},
    KnownDType{"BF16", 16, DType::kBF16},   KnownDType{"I64", 64, DType::kI64},
    KnownDType{"I32", 32, DType::kI32},     KnownDType{"U8", 8, DType::kU8},
    KnownDType{"I8", 8, DType::kI8},        KnownDType{"BOOL", 8, DType::kU8},
    KnownDType{"F64", 64, std::nullopt},    KnownDType{"U64", 64, std::nullopt},
    KnownDType{"U32", 32, std::nullopt},    KnownDType{"I16", 16, std::nullopt},
    KnownDType{"U16", 16, std::nullopt},    KnownDType{"F8_E4M3", 8, std::nullopt},
    KnownDType{"F8_E5M2", 8, std::nullopt}, KnownDType{"F8_E8M0", 8, std::nullopt},
    KnownDType{"F6_E2M3", 6, std::nullopt}, KnownDType{"F6_E3M2", 6, std::nullopt},
    KnownDType{"F4", 4, std::nullopt},      KnownDType{"C64", 64, std::nullopt},
};

/// Finds the first key that an object has twice: the parsed value has only the last of them.
class TwiceFinder {
 public:
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);

  struct Found {
    std::string key;
    std::string tensor;  // within which it is, or itself
    bool is_tensor = false;
    std::optional<size_t> at;  // in the text, unless escapes hide it
  };
  std::string_view text;
  std::optional<Found> found;

  using Code = boost::system::error_code;
  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) {
    objects_.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Code&) {
    objects_.pop_back();
    return true;
  }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(size_t, Code&) { return true; }
  bool on_key_part(json::string_view part, size_t, Code&) {
    add(part);
    return true;
  }
  bool on_key(json::string_view part, size_t, Code& code) {
    add(part);
    const std::string key = std::exchange(key_, {});
    const auto at = std::exchange(at_, std::nullopt);
    if (objects_.size() == 1) tensor_ = key;
    if (objects_.back().insert(key).second) return true;
    found = Found{key, tensor_, objects_.size() == 1, at.value()};
    code = boost::system::errc::make_error_code(boost::system::errc::invalid_argument);
    return false;
  }
  bool on_string_part(json::string_view, size_t, Code&) { return true; }
  bool on_string(json::string_view, size_t, Code&) { return true; }
  bool on_number_part(json::string_view, Code&) { return true; }
  bool on_int64(int64_t, json::string_view, Code&) { return true; }
  bool on_uint64(uint64_t, json::string_view, Code&) { return true; }
  bool on_double(double, json::string_view, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(json::string_view, Code&) { return true; }
  bool on_comment(json::string_view, Code&) { return true; }

 private:
  /// A string without escapes is in the text itself.
  void add(json::string_view part) {
    const std::less<> before;
    const bool inside = !before(part.data(), text.data()) && before(part.data(), text.data() + text.size());
    if (!at_) at_.emplace(inside ? std::optional<size_t>(part.data() - text.data()) : std::nullopt);
    key_.append(part.data(), part.size());
  }

  std::vector<std::set<std::string>> objects_;
  std::string key_;
  std::optional<std::optional<size_t>> at_;
  std::string tensor_;
};

/// Refuses invalid JSON and duplicate keys, by their place in the file.
void check_text(std::string_view text, uint64_t text_begin, const std::filesystem::path& path) {
  json::parse_options options;
  options.max_depth = kHeaderDepth;
  json::basic_parser<TwiceFinder> parser(options);
  parser.handler().text = text;
  json::error_code failed;
  const size_t stopped = parser.write_some(false, text.data(), text.size(), failed);
  const auto& found = parser.handler().found;
  if (!found) {
    const size_t end = failed ? stopped : text.find_first_not_of(" \t\r\n", stopped);
    if (end == std::string_view::npos) return;
    throw file_error(
        path, text_begin + end,
        failed ? fmt::format("not valid JSON: {}", failed.message()) : "text after the end of the header");
  }
  const std::string what = found->is_tensor
                               ? fmt::format("tensor {} occurs twice", quoted_name(found->tensor))
                               : fmt::format("tensor {}: key {} occurs twice", quoted_name(found->tensor),
                                             quoted_name(found->key));
  throw file_error(path, text_begin + found->at.value_or(stopped), what);
}

Error tensor_error(const std::filesystem::path& path, std::string_view name, std::string_view what) {
  return file_error(path, fmt::format("tensor {}: {}", quoted_name(name), what));
}

// A whole number >= 0 as the header writes them, never 1.0 or 1e3.
std::optional<uint64_t> whole_number(const json::value& value) {
  if (const auto* i = value.if_int64(); i != nullptr && *i >= 0) return static_cast<uint64_t>(*i);
  if (const auto* u = value.if_uint64()) return *u;
  return std::nullopt;
}

std::vector<int64_t> parse_shape(const json::object& fields, const std::filesystem::path& path,
                                 std::string_view name) {
  const json::value* value = fields.if_contains("shape");
  const json::array* dims = value != nullptr ? value->if_array() : nullptr;
  if (dims == nullptr) throw tensor_error(path, name, "'shape' must be an array");
  if (dims->size() > kMaxDims) {
    throw tensor_error(path, name, fmt::format("{} dimensions, more than {}", dims->size(), kMaxDims));
  }
  std::vector<int64_t> shape;
  for (const json::value& dim : *dims) {
    const auto whole = whole_number(dim);
    if (!whole || *whole > INT64_MAX)
      throw tensor_error(path, name, "'shape' has a value that is not a valid size");
    shape.push_back(static_cast<int64_t>(*whole));
  }
  return shape;
}

// In bits, so that the 4 and 6 bit formats are measured too.
uint64_t checked_bytes(const std::vector<int64_t>& shape, uint64_t bits, const std::filesystem::path& path,
                       std::string_view name) {
  uint64_t product = bits;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(dim), &product)) {
      throw tensor_error(path, name, "'shape' is too large");
    }
  }
  if (product % 8 != 0) throw tensor_error(path, name, "'shape' does not give a whole number of bytes");
  return product / 8;
}

TensorEntry parse_entry(const json::value& value, std::string_view name, uint64_t data_begin,
                        uint64_t file_size, const std::filesystem::path& path) {
  const json::object* fields = value.if_object();
  if (fields == nullptr) throw tensor_error(path, name, "an object was expected");
  TensorEntry entry;
  entry.name = name;

  const json::value* dtype = fields->if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) throw tensor_error(path, name, "'dtype' must be a string");
  entry.dtype_text = std::string(dtype->get_string());
  const auto* const known = std::find_if(kDTypes.begin(), kDTypes.end(),
                                         [&](const KnownDType& k) { return k.text == entry.dtype_text; });
  if (known == kDTypes.end()) {
    throw tensor_error(path, name, fmt::format("unknown dtype {}", quoted_name(entry.dtype_text)));
  }
  entry.dtype = known->dtype;
  entry.shape = parse_shape(*fields, path, name);

  const json::value* offsets = fields->if_contains("data_offsets");
  const json::array* pair = offsets != nullptr ? offsets->if_array() : nullptr;
  if (pair == nullptr || pair->size() != 2) {
    throw tensor_error(path, name, "'data_offsets' must be two numbers");
  }
  const auto begin = whole_number((*pair)[0]);
  const auto end = whole_number((*pair)[1]);
  if (!begin || !end) throw tensor_error(path, name, "'data_offsets' must be two numbers");
  const uint64_t data_bytes = file_size - data_begin;
  if (*begin > *end || *end > data_bytes) {
    throw tensor_error(
        path, name,
        fmt::format("'data_offsets' [{}, {}] are not within the {} bytes of data from byte {} on", *begin,
                    *end, data_bytes, data_begin));
  }
  const uint64_t expected = checked_bytes(entry.shape, known->bits, path, name);
  if (*end - *begin != expected) {
    throw tensor_error(path, name,
                       fmt::format("'data_offsets' [{}, {}] are {} bytes, but dtype and shape say {}", *begin,
                                   *end, *end - *begin, expected));
  }
  entry.begin = data_begin + *begin;
  entry.end = data_begin + *end;
  return entry;
}

/// The format requires data without gaps: one tensor after the other, from the header to the end.
void check_layout(const std::vector<TensorEntry>& sorted, uint64_t data_begin, uint64_t file_size,
                  const std::filesystem::path& path) {
  // Overlaps first: if a tensor overlaps another, there may be a gap before both.
  const TensorEntry* farthest = nullptr;
  for (const TensorEntry& entry : sorted) {
    if (farthest != nullptr && entry.begin < farthest->end) {
      throw file_error(
          path, entry.begin,
          fmt::format("tensors {} and {} overlap", quoted_name(farthest->name), quoted_name(entry.name)));
    }
    farthest = &entry;
  }
  uint64_t next = data_begin;
  for (const TensorEntry& entry : sorted) {
    if (entry.begin > next) {
      throw file_error(path, next,
                       fmt::format("the {} bytes before tensor {} belong to no tensor", entry.begin - next,
                                   quoted_name(entry.name)));
    }
    next = entry.end;
  }
  if (next != file_size) {
    throw file_error(path, next, fmt::format("the last {} bytes belong to no tensor", file_size - next));
  }
}

}  // namespace

std::string quoted_name(std::string_view name) {
  constexpr size_t kMaxShown = 160;
  std::string out = "'";
  for (const char c : name.substr(0, kMaxShown)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  if (name.size() > kMaxShown) out += "...";
  return out + "'";
}

std::vector<TensorEntry> parse_safetensors_header(std::span<const std::byte> file,
                                                  const std::filesystem::path& path) {
  static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");
  if (file.size() < kLengthBytes) {
    throw file_error(path, fmt::format("{} bytes, too short for a safetensors file", file.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    throw file_error(
        path, uint64_t{0},
        fmt::format("the header claims a length of {}, but the file has {} bytes", length, file.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text.empty() || text.front() != '{') {
    throw file_error(path, kLengthBytes, "a safetensors header must begin with '{'");
  }
  check_text(text, kLengthBytes, path);
  const json::value header = parse_json(text, path, kHeaderDepth);

  std::vector<TensorEntry> entries;
  for (const auto& member : header.get_object()) {
    if (member.key() == "__metadata__") continue;
    entries.push_back(parse_entry(member.value(), member.key(), kLengthBytes + length, file.size(), path));
  }
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_layout(entries, kLengthBytes + length, file.size(), path);
  return entries;
}

}  // namespace quire::formats
