#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include <boost/json/stream_parser.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json_memory.h"
#include "base/utf8.h"

namespace quire {
namespace {

struct TextFault {
  size_t at = 0;
  std::string what;
};

/// Four hex digits; nothing otherwise.
std::optional<uint32_t> read_hex4(std::string_view text) {
  uint32_t code = 0;
  if (text.size() < 4) return std::nullopt;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + 4, code, 16);
  if (failed != std::errc() || end != text.data() + 4) return std::nullopt;
  return code;
}

/// The code of the escape `\uXXXX` at the head of `text`; nothing if another character is there.
std::optional<uint32_t> read_u_escape(std::string_view text) {
  return text.starts_with("\\u") ? read_hex4(text.substr(2)) : std::nullopt;
}

/// The first half of a surrogate pair without the other in text[0, end), written as an escape.
std::optional<TextFault> find_lone_surrogate(std::string_view text, size_t end) {
  constexpr size_t kEscapeSize = 6;
  const auto within = [](std::optional<uint32_t> code, uint32_t low, uint32_t high) {
    return code && *code >= low && *code <= high;
  };
  for (size_t i = text.find('\\'); i < end; i = text.find('\\', i)) {
    const auto code = read_u_escape(text.substr(i));
    const bool leads = within(code, 0xD800, 0xDBFF);
    if (leads && within(read_u_escape(text.substr(i + kEscapeSize)), 0xDC00, 0xDFFF)) {
      i += 2 * kEscapeSize;
    } else if (leads || within(code, 0xDC00, 0xDFFF)) {
      return TextFault{i, fmt::format("a lone surrogate (\\u{:04x}), which is not a character", *code)};
    } else {
      i += code ? kEscapeSize : 2;
    }
  }
  return std::nullopt;
}

std::optional<TextFault> find_byte_order_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) return TextFault{0, "a byte order mark, which JSON does not have"};
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    return TextFault{0, "a UTF-16 byte order mark; JSON must be UTF-8"};
  }
  return std::nullopt;
}

std::optional<TextFault> find_invalid_utf8(std::string_view text, size_t end) {
  for (size_t i = 0; i < end;) {
    const Utf8Scan scan = scan_utf8(text.substr(i));
    if (scan.status == Utf8Status::kInvalid) {
      return TextFault{i, fmt::format("not valid UTF-8 (byte 0x{:02x})", static_cast<uint8_t>(text[i]))};
    }
    i += scan.size;
  }
  return std::nullopt;
}

/// Whether text[at] stands in a string.
bool is_in_string(std::string_view text, size_t at) {
  bool inside = false;
  for (size_t i = 0; i < at; ++i) {
    if (text[i] == '"') inside = !inside;
    if (text[i] == '\\') ++i;
  }
  return inside;
}

/// What is wrong with the text itself where a parser stopped at `used`; nothing if only the JSON is.
std::optional<TextFault> find_text_fault(std::string_view text, size_t used) {
  const size_t end = std::min(text.size(), used + 1);
  if (auto fault = find_byte_order_mark(text)) return fault;
  if (auto fault = find_invalid_utf8(text, end)) return fault;
  if (auto fault = find_lone_surrogate(text, end)) return fault;
  if (used < text.size() && static_cast<uint8_t>(text[used]) < 0x20 && is_in_string(text, used)) {
    const auto code = static_cast<unsigned>(text[used]);
    return TextFault{used,
                     fmt::format("a control character (0x{0:02x}) that a string has as \\u{0:04x}", code)};
  }
  return std::nullopt;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, uint64_t max_bytes) {
  std::error_code failed;
  const auto status = std::filesystem::status(path, failed);
  if (failed || !std::filesystem::exists(status)) throw file_error(path, "no such file");
  if (!std::filesystem::is_regular_file(status)) throw file_error(path, "not a regular file");
  const uint64_t size = std::filesystem::file_size(path, failed);
  if (failed) throw file_error(path, failed.message());
  if (size > max_bytes) {
    throw file_error(path, fmt::format("has {} bytes; such a file may have at most {}", size, max_bytes));
  }
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(size))) throw file_error(path, "cannot be read");
  refuse_lfs_pointer(path, text);
  return text;
}

json::value parse_json(std::string_view text, const std::filesystem::path& where, size_t max_depth) {
  return parse_json(text, where, max_depth, {});
}

json::value parse_json(std::string_view text, const std::filesystem::path& where, size_t max_depth,
                       const json::storage_ptr& storage) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::stream_parser parser(storage, options);
  parser.reset(storage);
  json::error_code failed;
  const size_t used = parser.write_some(text.data(), text.size(), failed);
  if (!failed && used < text.size()) {
    // What follows the value must be white space.
    const size_t rest = text.find_first_not_of(" \t\r\n", used);
    if (rest != std::string_view::npos) throw file_error(where, rest, "text after the end of the JSON value");
  }
  if (!failed) parser.finish(failed);
  if (failed) {
    if (const auto fault = find_text_fault(text, used)) throw file_error(where, fault->at, fault->what);
    throw file_error(where, used, fmt::format("not valid JSON: {}", failed.message()));
  }
  return parser.release();
}

json::value read_json_file(const std::filesystem::path& path) { return parse_json(read_file(path), path); }

JsonObject::JsonObject(const json::value& value, const std::filesystem::path& where, std::string key)
    : object_([&]() -> const json::object& {
        if (const auto* object = value.if_object()) return *object;
        if (key.empty()) throw file_error(where, "a JSON object was expected");
        throw file_error(where, fmt::format("key '{}': a JSON object was expected", key));
      }()),
      where_(where),
      key_(std::move(key)) {}

std::string JsonObject::path(std::string_view key) const {
  return key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key);
}

Error JsonObject::error(std::string_view key, std::string_view what) const {
  return file_error(where_, fmt::format("key '{}': {}", path(key), what));
}

const json::value* JsonObject::find(std::string_view key) const {
  const json::value* found = object_.if_contains(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const json::value& JsonObject::required(std::string_view key) const {
  const json::value* found = find(key);
  if (found == nullptr) throw error(key, "missing");
  return *found;
}

int64_t JsonObject::integer(std::string_view key, int64_t min, int64_t max) const {
  const json::value& value = required(key);
  json::error_code failed;
  // Some writers put whole numbers as 1.0.
  const auto whole = value.to_number<int64_t>(failed);
  if (failed) throw error(key, "an integer was expected");
  if (whole < min || whole > max) {
    throw error(key, fmt::format("{} is out of range [{}, {}]", whole, min, max));
  }
  return whole;
}

double JsonObject::number(std::string_view key) const {
  const json::value& value = required(key);
  json::error_code failed;
  const auto real = value.to_number<double>(failed);
  if (failed || !std::isfinite(real)) throw error(key, "a number was expected");
  return real;
}

bool JsonObject::boolean(std::string_view key) const {
  const json::value& value = required(key);
  if (!value.is_bool()) throw error(key, "true or false was expected");
  return value.get_bool();
}

std::string JsonObject::string(std::string_view key) const {
  const json::value& value = required(key);
  if (!value.is_string()) throw error(key, "a string was expected");
  return std::string(value.get_string());
}

JsonObject JsonObject::object(std::string_view key) const {
  return JsonObject(required(key), where_, path(key));
}

int64_t JsonObject::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const {
  return has(key) ? integer(key, min, max) : otherwise;
}
double JsonObject::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}
bool JsonObject::boolean_or(std::string_view key, bool otherwise) const {
  return has(key) ? boolean(key) : otherwise;
}
std::string JsonObject::string_or(std::string_view key, std::string otherwise) const {
  return has(key) ? string(key) : std::move(otherwise);
}

}  // namespace quire
