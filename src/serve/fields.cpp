#include "serve/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace quire::serve {
namespace {

std::optional<float> as_float(const json::value& value) {
  json::error_code failed;
  const auto number = value.to_number<double>(failed);
  if (failed || !std::isfinite(number)) return std::nullopt;
  return static_cast<float>(number);
}

}  // namespace

Fields::Fields(const json::object& object, std::string path) : object_(object), path_(std::move(path)) {}

const json::value* Fields::get(std::string_view name) {
  known_.push_back(name);
  const json::value* found = object_.if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::optional<int64_t> whole_number(const json::value& value, int64_t min, int64_t max) {
  json::error_code failed;
  const auto whole = value.to_number<int64_t>(failed);
  if (failed || whole < min || whole > max) return std::nullopt;
  return whole;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) {
  const json::value* value = get(name);
  if (value == nullptr) return std::nullopt;
  const auto whole = whole_number(*value, min, max);
  if (!whole) want(name, fmt::format("an integer from {} to {}", min, max));
  return whole;
}

std::optional<float> Fields::number(std::string_view name, float min, float max) {
  const json::value* value = get(name);
  if (value == nullptr) return std::nullopt;
  const auto found = as_float(*value);
  if (found && *found >= min && *found <= max) return found;
  want(name, fmt::format("a number from {} to {}", min, max));
  return std::nullopt;
}

std::optional<float> Fields::number_above(std::string_view name, float min, float max) {
  const json::value* value = get(name);
  if (value == nullptr) return std::nullopt;
  const auto found = as_float(*value);
  if (found && *found > min && *found <= max) return found;
  want(name, fmt::format("a number above {} and at most {}", min, max));
  return std::nullopt;
}

bool Fields::boolean(std::string_view name, bool otherwise) {
  const json::value* value = get(name);
  if (value == nullptr) return otherwise;
  if (value->is_bool()) return value->get_bool();
  want(name, "true or false");
  return otherwise;
}

std::optional<std::string> Fields::string(std::string_view name, size_t max_bytes) {
  const json::value* value = get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    want(name, "a string");
    return std::nullopt;
  }
  if (value->get_string().size() > max_bytes) {
    want(name, fmt::format("at most {} bytes long", max_bytes));
    return std::nullopt;
  }
  return std::string(value->get_string());
}

const json::array* Fields::array(std::string_view name) {
  const json::value* value = get(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) want(name, "an array");
  return value->if_array();
}

const json::object* Fields::object(std::string_view name) {
  const json::value* value = get(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) want(name, "an object");
  return value->if_object();
}

void Fields::fail(std::string_view name, std::string_view what) {
  std::string full = path_ + std::string(name);
  std::string message = fmt::format("{} {}", full, what);
  fail(RequestError{RequestErrorCode::kInvalid, std::move(message), std::move(full)});
}

void Fields::fail(RequestError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::unsupported(std::string_view name, std::string_view what) { fail(name, what); }

void Fields::want(std::string_view name, std::string_view type) {
  fail(name, fmt::format("must be {}", type));
}

std::optional<RequestError> Fields::finish() const {
  if (error_) return error_;
  for (const auto& field : object_) {
    if (std::find(known_.begin(), known_.end(), field.key()) != known_.end()) continue;
    // A name of any length and content may stand here.
    std::string full = path_ + std::string(field.key().substr(0, 100));
    std::string message = fmt::format("unknown field '{}'", full);
    return RequestError{RequestErrorCode::kInvalid, std::move(message), std::move(full)};
  }
  return std::nullopt;
}

}  // namespace quire::serve
