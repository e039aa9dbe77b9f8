#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/numbers.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

// A JSON Schema as what it asks of an instance, with everything in place ($ref, allOf, anyOf, oneOf and their
// siblings) put together.
namespace quire::grammar {

/// A subschema, by its place in the document, which must outlive it.
using Node = const json::value*;
/// Subschemas that all hold for one instance; sorted, each once.
using Nodes = std::vector<Node>;

enum JsonType : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,
  kString = 16,
  kArray = 32,
  kObject = 64
};
inline constexpr uint8_t kAllTypes = 127;  // kNumber: those that are no integers

/// `properties`, `patternProperties` and `additionalProperties` of one schema object.
struct ObjectLayer {
  std::vector<std::pair<std::string, Node>> named;
  std::vector<std::pair<std::shared_ptr<const Expression>, Node>> by_pattern;
  std::string pattern_place;  // JSON pointer, for errors
  Node additional = nullptr;  // nullptr: left out
};
/// `prefixItems` and `items` of one schema object.
struct ArrayLayer {
  std::vector<Node> prefix;
  Node items = nullptr;  // nullptr: left out
};
struct Pattern {
  std::shared_ptr<const Expression> expression;
  std::string source;
  std::string place;  // JSON pointer, for errors
};

/// One way to satisfy a schema: all members hold.
struct Term {
  uint8_t types = kAllTypes;
  bool types_given = false;
  uint8_t types_meant = 0;            // those of which keywords speak
  uint8_t types_written = kAllTypes;  // an instance of another type may satisfy it, but none is written
  std::optional<std::vector<json::value>> values;
  size_t value_bytes = 0;  // of `values`, as JSON; at least
  NumberBounds bounds;
  uint64_t multiple = 1;
  uint64_t min_length = 0;
  uint64_t max_length = UINT64_MAX;
  std::vector<Pattern> patterns;
  std::vector<ArrayLayer> arrays;
  uint64_t min_items = 0;
  uint64_t max_items = UINT64_MAX;
  std::vector<ObjectLayer> objects;
  std::vector<std::string> required;
  uint64_t min_properties = 0;
  uint64_t max_properties = UINT64_MAX;
  Nodes names;        // propertyNames
  std::string place;  // JSON pointer to the schema with the last keyword, for errors
};

/// Thrown where a schema is refused.
struct Refused {
  SchemaFault fault;
};

class SchemaTerms {
 public:
  /// `root` must outlive it.
  explicit SchemaTerms(const json::value& root);
  SchemaTerms(const SchemaTerms&) = delete;

  /// The terms of which an instance must satisfy one; empty: none can. Throws Refused.
  std::vector<Term> of(const Nodes& nodes);
  const std::string& place(Node node) const { return places_.at(node); }
  /// The subschema at a JSON pointer. Throws Refused if there is none.
  Node at(const std::string& pointer);
  /// What may still be done for this schema.
  WorkLeft& work() { return work_; }

 private:
  std::vector<Term> expand(Node node);
  std::vector<Term> expand_object(Node node, const json::object& object);
  std::vector<Term> expand_branches(Node node, const json::object& object, std::string_view keyword);
  void check_disjoint(const std::vector<std::vector<Term>>& branches, const std::string& place);
  bool disjoint(const Term& a, const Term& b);
  std::optional<std::vector<json::value>> values_of(const Term& term, std::string_view property);
  std::vector<Term> both(const std::vector<Term>& a, const std::vector<Term>& b, const std::string& place);
  Term own_keywords(Node node, const json::object& object);
  // False if the keyword is not one of theirs.
  bool read_array_keyword(Term& term, const json::object& object, std::string_view key,
                          const json::value& value, const std::string& where);
  bool read_object_keyword(Term& term, const json::object& object, std::string_view key,
                           const json::value& value, const std::string& where);
  Node resolve(const std::string& reference, const std::string& place);
  Node subschema(const json::value& value, const std::string& place);

  const json::value& root_;
  std::unordered_map<Node, std::string> places_;
  std::vector<Node> expanding_;
  size_t steps_ = 0;
  WorkLeft work_{kMaxSchemaWork};
};

/// Takes a term without `type` to be about the types of which its keywords speak: of others, none is written.
void mean_types(Term& term);
/// Whether a term permits a value of an enum. Throws Refused for an object or array beside keywords about its
/// parts.
bool permits(const Term& term, const json::value& value, WorkLeft& work);

}  // namespace quire::grammar
