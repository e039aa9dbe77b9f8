#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
inline constexpr size_t kMaxSchemaRules = 20'000;
inline constexpr size_t kMaxProperties = 1'000;  // of one object
inline constexpr size_t kMaxEnumValues = 2'000;
inline constexpr size_t kMaxEnumBytes = 64 << 10;
inline constexpr uint64_t kMaxSchemaWork = 5'000'000;  // WorkLeft
inline constexpr size_t kMaxSchemaGrammarBytes = 8 << 20;
/// Of a property's name, where other properties are permitted.
inline constexpr size_t kMaxNameCharacters = 256;

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
/// Pure. Time and memory are bounded by the constants above.
tl::expected<std::string, SchemaFault> schema_grammar(const boost::json::value& schema);

/// A rule for the instances of one schema of a document.
struct SchemaRule {
  std::string name;     // does not end with "_" and digits, as the names of the other rules do
  std::string pointer;  // JSON pointer to the schema
};
/// The same for several schemas of one document, which share what they can: the rules `wanted` and those that
/// they need, without a rule "root". References are within the document.
tl::expected<std::string, SchemaFault> schema_rules(const boost::json::value& document,
                                                    const std::vector<SchemaRule>& wanted);

/// Changes the references of a schema (`"$ref": "#..."`) to what they are where the schema stands in a
/// document: at the JSON pointer `to`.
void move_references(boost::json::value& schema, std::string_view to);

/// JSON pointer (RFC 6901) of a member of what `parent` points to.
std::string pointer_to(const std::string& parent, std::string_view key);

/// The grammar of any JSON object.
std::string any_object_grammar();

}  // namespace quire::grammar
