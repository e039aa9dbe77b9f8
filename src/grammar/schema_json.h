#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/numbers.h"

// Reading the values of a schema's keywords: each throws Refused, with `place`, for one of the wrong kind.
namespace quire::grammar {

[[noreturn]] void refuse(std::string place, std::string message);

/// An integer from 0 to 10^9.
uint64_t count_at(const json::value& value, const std::string& place);
Number number_at(const json::value& value, const std::string& place);
/// REQUIRES: a number.
Number number_of(const json::value& value);
std::string string_at(const json::value& value, const std::string& place);
const json::array& array_at(const json::value& value, const std::string& place);
const json::object& object_at(const json::value& value, const std::string& place);

/// As in JSON Schema: 1 and 1.0 are equal.
bool equal(const json::value& a, const json::value& b);

/// Makes a lower bound the stronger of itself and `value`; an upper one with `sign` -1.
void tighten(std::optional<Number>& bound, bool& exclusive, Number value, bool value_exclusive, int sign);

}  // namespace quire::grammar
