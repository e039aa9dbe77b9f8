#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace quire::serve {

/// Reads the fields of a request body and keeps the first error. Every call marks its field as known; null
/// counts as absent. After an error the getters still work and return nothing for wrong fields. Holds a
/// reference to the object.
class Fields {
 public:
  /// `path` precedes the names in messages: "messages[0].".
  explicit Fields(const json::object& object, std::string path = {});

  /// Null if absent.
  const json::value* get(std::string_view name);

  // Empty if absent, or if the type or range is wrong (which is recorded). Ranges are inclusive.
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  /// The range is checked after rounding to float.
  std::optional<float> number(std::string_view name, float min, float max);
  /// Like number(), but `min` itself is out of range.
  std::optional<float> number_above(std::string_view name, float min, float max);
  bool boolean(std::string_view name, bool otherwise);
  std::optional<std::string> string(std::string_view name, size_t max_bytes = SIZE_MAX);
  const json::array* array(std::string_view name);
  const json::object* object(std::string_view name);

  /// Records an error of `name` (a field, or an element of it: "stop[3]"): "NAME WHAT". Only the first error
  /// is kept.
  void fail(std::string_view name, std::string_view what);
  void fail(RequestError error);
  /// Records that a field asks for something that this server does not support.
  void unsupported(std::string_view name, std::string_view what = "is not supported");

  bool ok() const { return !error_; }
  /// The names of all calls so far, some more than once.
  const std::vector<std::string_view>& known() const { return known_; }
  /// The first error; else the first field that no call has marked as known.
  std::optional<RequestError> finish() const;

 private:
  void want(std::string_view name, std::string_view type);

  const json::object& object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::optional<RequestError> error_;
};

/// A whole number in [min, max], in either notation (5, 5.0); empty otherwise.
std::optional<int64_t> whole_number(const json::value& value, int64_t min, int64_t max);

}  // namespace quire::serve
