#pragma once

#include <span>
#include <string_view>

#include "jinja/functions.h"

namespace quire::jinja {

using Method = NamedFunction;

/// The method of the corresponding Python type; nullptr if there is none.
const Method* find_method(const Value& object, std::string_view name);

std::span<const Method> string_methods();  // string_methods.cpp

/// The last `needle`; npos if none.
size_t find_last(Sandbox& sandbox, std::string_view text, std::string_view needle);

}  // namespace quire::jinja
