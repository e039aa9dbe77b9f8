#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/options.h"

namespace quire::jinja {

struct Position {
  uint32_t line = 1;
  uint32_t column = 1;  // in characters
};

struct Token {
  enum class Type : uint8_t {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Type type = Type::kEnd;
  std::string text;  // data, a string's value, a number without "_", the name or operator as written
  Position at;
};

/// Splits a template into tags and text. `source` is valid UTF-8. Throws Fault.
std::vector<Token> tokenize(std::string_view source, const Whitespace& whitespace);

}  // namespace quire::jinja
