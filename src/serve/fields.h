#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace quire::serve {

/// Reads the fields of a request body and keeps the first thing that is wrong with them. Every call marks its
/// field as known; null counts as absent. After a failure the getters still answer, with nothing. Holds a
/// reference to the object.
class Fields {
 public:
  /// `path` comes before the names in messages: "messages[0].".
  explicit Fields(const json::object& object, std::string path = {});

  /// Null if absent.
  const json::value* get(std::string_view name);

  // Nothing if absent, or if the type or range is wrong (which is noted). Ranges are inclusive.
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  /// The range holds after rounding to float.
  std::optional<float> number(std::string_view name, float min, float max);
  /// As number(), but `min` itself is out of range.
  std::optional<float> number_above(std::string_view name, float min, float max);
  bool boolean(std::string_view name, bool otherwise);
  std::optional<std::string> string(std::string_view name, size_t max_bytes = SIZE_MAX);
  const json::array* array(std::string_view name);
  const json::object* object(std::string_view name);

  /// Notes that `name` (a field, or one inside it: "stop[3]") is at fault: "NAME WHAT". The first one stays.
  void fail(std::string_view name, std::string_view what);
  void fail(RequestError error);
  /// A field that asks for something this server does not do.
  void unsupported(std::string_view name, std::string_view what = "is not supported");

  bool ok() const { return !error_; }
  /// The first fault; else the first field that nobody asked about.
  std::optional<RequestError> finish() const;

 private:
  void want(std::string_view name, std::string_view type);

  const json::object& object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::optional<RequestError> error_;
};

/// A whole number in [min, max], however it is written (5, 5.0); nothing otherwise.
std::optional<int64_t> whole_number(const json::value& value, int64_t min, int64_t max);

}  // namespace quire::serve
