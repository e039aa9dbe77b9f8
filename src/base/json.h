#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "base/error.h"

// Reads untrusted JSON, with errors that name the place. Do not include it in common headers: it includes
// Boost.JSON.
namespace quire {

namespace json = boost::json;

inline constexpr uint64_t kMaxJsonFileBytes = uint64_t{256} << 20;

/// The whole file as bytes. Throws Error (PATH: WHAT) if it cannot be read or is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = kMaxJsonFileBytes);

/// Parses `text`, at most `max_depth` levels deep. Throws Error "WHERE: at byte N: WHAT", which distinguishes
/// invalid UTF-8, a byte order mark and a lone surrogate from invalid JSON.
json::value parse_json(std::string_view text, const std::filesystem::path& where, size_t max_depth = 64);

json::value read_json_file(const std::filesystem::path& path);

/// A JSON object with its file and path, so that errors name the wrong or missing key: "config.json: key
/// 'a.b': WHAT". Holds a reference to the value, which must outlive it.
class JsonObject {
 public:
  /// Throws if `value` is not an object. `key` is the path to it, empty at the root.
  JsonObject(const json::value& value, const std::filesystem::path& where, std::string key = {});

  /// nullptr if the key is absent or its value is null.
  const json::value* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Throw if the key is absent (first form only), of another type or out of range.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;
  double number(std::string_view key) const;  // finite
  bool boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  JsonObject object(std::string_view key) const;

  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string otherwise) const;

  const json::object& raw() const { return object_; }
  const std::filesystem::path& where() const { return where_; }

  /// The path to this object, followed by `key`.
  std::string path(std::string_view key) const;
  /// The Error to throw about `key` of this object.
  Error error(std::string_view key, std::string_view what) const;

 private:
  const json::value& required(std::string_view key) const;

  const json::object& object_;
  std::filesystem::path where_;
  std::string key_;
};

}  // namespace quire
