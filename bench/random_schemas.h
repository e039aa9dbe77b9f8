#pragma once

#include <functional>
#include <iterator>
#include <random>
#include <string>

#include <fmt/format.h>

// Seeded JSON Schemas of several kinds, for the programs that measure grammars.
namespace quire::bench {

using Random = std::mt19937;

inline std::string word(Random& rng) {
  std::string out;
  for (size_t size = 3 + rng() % 6; size > 0; --size) out += static_cast<char>('a' + rng() % 26);
  return out;
}

inline std::string scalar(Random& rng) {
  switch (rng() % 5) {
    case 0:
      return fmt::format(R"({{"type": "string", "maxLength": {}}})", 4 + rng() % 60);
    case 1:
      return fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", rng() % 50,
                         50 + rng() % 5000);
    case 2:
      return R"({"type": "number"})";
    case 3:
      return R"({"type": "boolean"})";
    default:
      return R"({"type": "string"})";
  }
}

inline std::string object_of(Random& rng, size_t members, const std::function<std::string(Random&)>& member) {
  std::string properties;
  std::string required;
  for (size_t i = 0; i < members; ++i) {
    const std::string name = fmt::format("{}_{}", word(rng), i);
    properties += fmt::format(R"({}"{}": {})", i == 0 ? "" : ", ", name, member(rng));
    if (rng() % 3 != 0) required += fmt::format(R"({}"{}")", required.empty() ? "" : ", ", name);
  }
  return fmt::format(
      R"({{"type": "object", "properties": {{{}}}, "required": [{}], "additionalProperties": false}})",
      properties, required);
}

inline std::string flat(Random& rng) { return object_of(rng, 3 + rng() % 8, scalar); }

inline std::string bounded(Random& rng) {
  return object_of(rng, 2 + rng() % 4, [](Random& of) {
    return fmt::format(R"({{"type": "string", "maxLength": {}}})", 17 + of() % 60);
  });
}

inline std::string nested(Random& rng) {
  return object_of(rng, 2 + rng() % 3, [](Random& of) {
    const std::string inner = object_of(of, 2 + of() % 4, scalar);
    return of() % 2 == 0
               ? inner
               : fmt::format(R"({{"type": "array", "items": {}, "maxItems": {}}})", inner, 2 + of() % 8);
  });
}

inline std::string enumerated(Random& rng) {
  return object_of(rng, 2 + rng() % 4, [](Random& of) {
    std::string values;
    for (size_t i = 0, count = 3 + of() % 80; i < count; ++i) {
      values += fmt::format(R"({}"{} {}")", i == 0 ? "" : ", ", word(of), i);
    }
    return fmt::format(R"({{"enum": [{}]}})", values);
  });
}

inline std::string patterned(Random& rng) {
  return object_of(rng, 2 + rng() % 3, [](Random& of) -> std::string {
    static constexpr const char* kKinds[] = {R"("pattern": "^[A-Z][a-z]{1,20}( [A-Z][a-z]{1,20}){0,3}$")",
                                             R"("pattern": "^\\+?[0-9]{2,4}([ -][0-9]{2,4}){2,3}$")",
                                             R"("pattern": "^(\\w+\\.)*\\w+@\\w+\\.[a-z]{2,6}$")",
                                             R"("format": "date-time")",
                                             R"("format": "uuid")",
                                             R"("pattern": "fox")"};
    return fmt::format(R"({{"type": "string", {}}})", kKinds[of() % std::size(kKinds)]);
  });
}

inline std::string recursive(Random& rng) {
  return fmt::format(
      R"({{"$defs": {{"node": {{"type": "object", "properties": {{"{}": {}, "next": {{"anyOf": [{{"$ref": "#/$defs/node"}},
      {{"type": "null"}}]}}, "more": {{"type": "array", "items": {{"$ref": "#/$defs/node"}}}}}}, "required": ["next"],
      "additionalProperties": {}}}}}, "$ref": "#/$defs/node"}})",
      word(rng), scalar(rng), rng() % 2 == 0 ? "true" : "false");
}

/// A list of 40 objects with 3 to 6 members: an answer of a few hundred tokens at least. No string in it has
/// a maxLength.
inline std::string listed(Random& rng) {
  const std::string item = object_of(rng, 3 + rng() % 4, [](Random& of) -> std::string {
    switch (of() % 4) {
      case 0:
        return fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", of() % 50,
                           50 + of() % 5000);
      case 1:
        return fmt::format(R"({{"enum": ["{}", "{}", "{}"]}})", word(of), word(of), word(of));
      case 2:
        return R"({"type": "boolean"})";
      default:
        return R"({"type": "string"})";
    }
  });
  return fmt::format(R"({{"type": "array", "minItems": 40, "items": {}}})", item);
}

/// The same of objects whose strings have a maxLength of 17 to 76.
inline std::string listed_bounded(Random& rng) {
  return fmt::format(R"({{"type": "array", "minItems": 40, "items": {}}})", bounded(rng));
}

}  // namespace quire::bench
