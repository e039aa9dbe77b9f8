#pragma once

#include <cstddef>
#include <string>

#include <boost/json/fwd.hpp>
#include <tl/expected.hpp>

namespace quire::grammar {

/// Why a schema is refused.
struct SchemaFault {
  std::string pointer;  // JSON pointer (RFC 6901) to the keyword or value at fault; empty: the whole schema
  std::string message;  // one sentence without a full stop
};

// Bounds of one schema.
inline constexpr size_t kMaxSchemaTerms =
    200;  // alternatives of one place, once anyOf and allOf are put together
inline constexpr size_t kMaxSchemaSteps = 20'000;  // subschemas looked at, each time that one is
inline constexpr size_t kMaxSchemaRules = 5'000;
inline constexpr size_t kMaxProperties = 1'000;  // of one object
inline constexpr size_t kMaxEnumValues = 2'000;
inline constexpr size_t kMaxEnumBytes = 64 << 10;

/// Writes the grammar, in XGrammar's syntax (ebnf.h), of texts that are instances of a JSON Schema (draft
/// 2020-12). No text of it is forbidden by the schema. It may forbid more than the schema does: members come
/// in the order of `properties`; an object with `properties` has no others unless `additionalProperties` is
/// given; a schema without `type` whose keywords speak of some types means those; names have no escapes;
/// between tokens stands at most a space, or line breaks with indentation.
///
/// What it cannot enforce it refuses: `not`, `if`, `dependent*`, `contains`, `uniqueItems`, `unevaluated*`
/// beside anything in place, `oneOf` whose branches may overlap, references out of the document, unknown
/// keywords, and the combinations that docs/structured-output.md lists. `title`, `description`, `default`,
/// `examples` and the like say nothing, and so does a `format` that is not one of date, time, date-time,
/// uuid, ipv4, email.
///
/// `root`: the name of the rule of instances. The other rules have names that end with "_" and digits.
///
/// Pure. Time and memory are bounded by the constants above.
tl::expected<std::string, SchemaFault> schema_grammar(const boost::json::value& schema,
                                                      const std::string& root = "root");

/// The grammar of any JSON object.
std::string any_object_grammar();

}  // namespace quire::grammar
