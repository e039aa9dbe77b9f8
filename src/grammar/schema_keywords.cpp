// The part of SchemaTerms that reads the keywords of one schema object.
#include <algorithm>
#include <array>
#include <cmath>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "grammar/schema_json.h"
#include "grammar/schema_terms.h"

namespace quire::grammar {
namespace {

/// Of a larger integer, a double may be another one, and of a number beyond all doubles it is none.
void check_number(const json::value& value, const std::string& place) {
  constexpr double kExact = 0x1p64;
  constexpr int kDigits = 15;  // that any double keeps
  if (!value.is_double() || std::fabs(value.get_double()) < kExact) return;
  const double number = value.get_double();
  if (!std::isfinite(number)) refuse(place, "holds a number that is too large");
  if (fmt::format("{}", number) != fmt::format("{:.{}g}", number, kDigits))
    refuse(place, fmt::format("holds a number of more than {} digits, which is not supported", kDigits));
}

void check_numbers(const json::value& value, const std::string& place) {
  check_number(value, place);
  if (const auto* list = value.if_array()) {
    for (const json::value& each : *list) check_numbers(each, place);
  } else if (const auto* object = value.if_object()) {
    for (const auto& member : *object) check_numbers(member.value(), place);
  }
}

}  // namespace

[[noreturn]] void refuse(std::string place, std::string message) {
  throw Refused{{std::move(place), std::move(message)}};
}

uint64_t count_at(const json::value& value, const std::string& place) {
  const Number number = value.is_number() ? number_of(value) : -1;
  if (number < 0 || number != std::floor(number) || number > 1e9) {
    refuse(place, "must be an integer from 0 to 1,000,000,000");
  }
  return static_cast<uint64_t>(number);
}

Number number_of(const json::value& value) {
  if (value.is_int64()) return static_cast<Number>(value.get_int64());
  if (value.is_uint64()) return static_cast<Number>(value.get_uint64());
  return static_cast<Number>(value.get_double());
}

Number number_at(const json::value& value, const std::string& place) {
  if (!value.is_number()) refuse(place, "must be a number");
  check_number(value, place);
  return number_of(value);
}

std::string string_at(const json::value& value, const std::string& place) {
  if (!value.is_string()) refuse(place, "must be a string");
  return std::string(value.get_string());
}

const json::array& array_at(const json::value& value, const std::string& place) {
  if (!value.is_array()) refuse(place, "must be an array");
  return value.get_array();
}

const json::object& object_at(const json::value& value, const std::string& place) {
  if (!value.is_object()) refuse(place, "must be an object");
  return value.get_object();
}

/// As in JSON Schema: 1 and 1.0 are equal.
bool equal(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return number_of(a) == number_of(b);
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) return std::ranges::equal(a.get_array(), b.get_array(), equal);
  if (!a.is_object()) return a == b;
  const json::object& other = b.get_object();
  return a.get_object().size() == other.size() &&
         std::ranges::all_of(a.get_object(), [&](const auto& member) {
           const auto found = other.find(member.key());
           return found != other.end() && equal(member.value(), found->value());
         });
}

void tighten(std::optional<Number>& bound, bool& exclusive, Number value, bool value_exclusive, int sign) {
  if (!bound || value * sign > *bound * sign) {
    bound = value;
    exclusive = value_exclusive;
  } else if (value == *bound) {
    exclusive = exclusive || value_exclusive;
  }
}

namespace {

struct TypeName {
  std::string_view name;
  uint8_t types;
};
constexpr std::array<TypeName, 7> kTypeNames = {{{"null", kNull},
                                                 {"boolean", kBoolean},
                                                 {"integer", kInteger},
                                                 {"number", kNumber | kInteger},
                                                 {"string", kString},
                                                 {"array", kArray},
                                                 {"object", kObject}}};

uint8_t types_at(const json::value& value, const std::string& place) {
  const auto one = [&](const json::value& name) {
    const auto* const found =
        std::ranges::find(kTypeNames, std::string_view(string_at(name, place)), &TypeName::name);
    if (found == kTypeNames.end())
      refuse(place, "must be one of null, boolean, integer, number, string, array, object");
    return found->types;
  };
  if (!value.is_array()) return one(value);
  uint8_t out = 0;
  for (const json::value& name : value.get_array()) out |= one(name);
  if (out == 0) refuse(place, "must name at least one type");
  return out;
}

/// Returns the bytes of all.
size_t check_values(const std::vector<json::value>& values, const std::string& place) {
  if (values.empty()) refuse(place, "must hold at least one value");
  if (values.size() > kMaxEnumValues) refuse(place, fmt::format("holds more than {} values", kMaxEnumValues));
  size_t bytes = 0;
  for (const json::value& value : values) {
    check_numbers(value, place);
    bytes += json::serialize(value).size();
  }
  if (bytes > kMaxEnumBytes) refuse(place, fmt::format("holds more than {} bytes", kMaxEnumBytes));
  return bytes;
}

// Says nothing about an instance by itself.
constexpr std::array kAnnotations = {"title",
                                     "description",
                                     "default",
                                     "examples",
                                     "example",
                                     "$comment",
                                     "$schema",
                                     "deprecated",
                                     "readOnly",
                                     "writeOnly",
                                     "contentEncoding",
                                     "contentMediaType",
                                     "contentSchema",
                                     "$defs",
                                     "definitions",
                                     "$anchor",
                                     "$dynamicAnchor",
                                     "minContains",
                                     "maxContains",
                                     "$vocabulary",
                                     "discriminator",
                                     "externalDocs",
                                     "xml"};
constexpr std::array kInPlace = {"$ref", "allOf", "anyOf", "oneOf"};

bool is_in_place(const json::object& object) {
  return std::ranges::any_of(kInPlace, [&](std::string_view key) { return object.contains(key); });
}

bool says_nothing(const json::object& object, std::string_view key) {
  if (std::ranges::find(kAnnotations, key) != kAnnotations.end() || key.starts_with("x-")) return true;
  if (key == "then" || key == "else") return !object.contains("if");
  return std::ranges::find(kInPlace, key) != kInPlace.end();  // expand_object() reads it
}

constexpr std::array kNumberKeywords = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                        "multipleOf"};

/// False if it is no keyword about numbers.
bool add_number_keyword(Term& term, std::string_view key, const json::value& value,
                        const std::string& place) {
  if (std::ranges::find(kNumberKeywords, key) == kNumberKeywords.end()) return false;
  term.types_meant |= kNumber | kInteger;
  NumberBounds& bounds = term.bounds;
  if (key == "minimum") tighten(bounds.min, bounds.min_exclusive, number_at(value, place), false, 1);
  if (key == "exclusiveMinimum") tighten(bounds.min, bounds.min_exclusive, number_at(value, place), true, 1);
  if (key == "maximum") tighten(bounds.max, bounds.max_exclusive, number_at(value, place), false, -1);
  if (key == "exclusiveMaximum") tighten(bounds.max, bounds.max_exclusive, number_at(value, place), true, -1);
  if (key != "multipleOf") return true;
  const Number multiple = number_at(value, place);
  if (multiple < 1 || multiple != std::floor(multiple) || multiple > 1e9) {
    refuse(place, "must be an integer from 1 to 1,000,000,000: others are not supported");
  }
  term.multiple = static_cast<uint64_t>(multiple);
  return true;
}

Pattern pattern_at(std::string source, const std::string& place) {
  tl::expected<Expression, std::string> parsed = parse_searched(source);
  if (!parsed)
    refuse(place, fmt::format("is a regular expression that is not supported: {}", parsed.error()));
  return {std::make_shared<const Expression>(std::move(*parsed)), std::move(source), place};
}

constexpr std::string_view kDate =
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kLabel = "[A-Za-z0-9]{1,15}(?:-[A-Za-z0-9]{1,15})?";
constexpr std::string_view kLocalPart = "[A-Za-z0-9_+]{1,30}(?:[.-][A-Za-z0-9_+]{1,30})?";

/// The pattern of a format, which permits no other text than RFC 3339, 4122, 2673 or 5321 do; "" for others.
std::string format_pattern(std::string_view name) {
  if (name == "date") return std::string(kDate);
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (name == "uuid") return "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  if (name == "ipv4") {
    constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    return fmt::format("{0}\\.{0}\\.{0}\\.{0}", kByte);
  }
  if (name == "email") return fmt::format("{0}@{1}(?:\\.{1}){{1,4}}", kLocalPart, kLabel);
  return "";
}

/// Values: type, const, enum, and what is said of numbers and strings.
bool read_value_keyword(Term& term, const json::object& object, std::string_view key,
                        const json::value& value, const std::string& where) {
  if (key == "type") {
    term.types = types_at(value, where);
    term.types_given = true;
  } else if (key == "const") {
    const size_t bytes = check_values({value}, where);
    if (object.contains("enum")) return true;
    term.values = std::vector<json::value>{value};
    term.value_bytes = bytes;
  } else if (key == "enum") {
    const json::array& values = array_at(value, where);
    term.values = std::vector<json::value>{values.begin(), values.end()};
    term.value_bytes = check_values(*term.values, where);
    if (const json::value* const only = object.if_contains("const")) {
      std::erase_if(*term.values, [&](const json::value& each) { return !equal(each, *only); });
    }
  } else if (key == "minLength" || key == "maxLength") {
    term.types_meant |= kString;
    (key == "minLength" ? term.min_length : term.max_length) = count_at(value, where);
  } else if (key == "pattern") {
    term.types_meant |= kString;
    term.patterns.push_back(pattern_at(string_at(value, where), where));
  } else if (key == "format") {
    const std::string known = format_pattern(string_at(value, where));
    if (!known.empty())
      term.patterns.push_back({std::make_shared<const Expression>(*parse_whole(known)), known, where});
  } else {
    return add_number_keyword(term, key, value, where);
  }
  return true;
}

constexpr size_t kMaxPrefixItems = 100;

}  // namespace

bool SchemaTerms::read_array_keyword(Term& term, const json::object& object, std::string_view key,
                                     const json::value& value, const std::string& where) {
  ArrayLayer& layer = term.arrays.front();
  if (key == "minItems" || key == "maxItems") {
    (key == "minItems" ? term.min_items : term.max_items) = count_at(value, where);
  } else if (key == "prefixItems") {
    const json::array& list = array_at(value, where);
    if (list.size() > kMaxPrefixItems)
      refuse(where, fmt::format("holds more than {} schemas", kMaxPrefixItems));
    for (size_t i = 0; i < list.size(); ++i) {
      layer.prefix.push_back(subschema(list[i], pointer_to(where, std::to_string(i))));
    }
  } else if (key == "items") {
    if (value.is_array()) refuse(where, "a list of schemas is draft 7's; use prefixItems");
    layer.items = subschema(value, where);
  } else if (key == "unevaluatedItems" && !is_in_place(object)) {
    if (!object.contains("items")) layer.items = subschema(value, where);
  } else if (key == "uniqueItems" &&
             (value == json::value(false) ||
              (object.contains("maxItems") && count_at(object.at("maxItems"), where) <= 1))) {
    return true;  // asks for nothing
  } else {
    return false;
  }
  term.types_meant |= kArray;
  return true;
}

bool SchemaTerms::read_object_keyword(Term& term, const json::object& object, std::string_view key,
                                      const json::value& value, const std::string& where) {
  ObjectLayer& layer = term.objects.front();
  if (key == "properties") {
    const json::object& list = object_at(value, where);
    if (list.size() > kMaxProperties)
      refuse(where, fmt::format("holds more than {} properties", kMaxProperties));
    for (const auto& property : list) {
      layer.named.emplace_back(property.key(),
                               subschema(property.value(), pointer_to(where, property.key())));
    }
  } else if (key == "patternProperties") {
    layer.pattern_place = where;
    for (const auto& property : object_at(value, where)) {
      const std::string each = pointer_to(where, property.key());
      layer.by_pattern.emplace_back(pattern_at(std::string(property.key()), each).expression,
                                    subschema(property.value(), each));
    }
  } else if (key == "additionalProperties") {
    layer.additional = subschema(value, where);
  } else if (key == "unevaluatedProperties" && !is_in_place(object)) {
    if (!object.contains("additionalProperties")) layer.additional = subschema(value, where);
  } else if (key == "propertyNames") {
    term.names = {subschema(value, where)};
  } else if (key == "required") {
    for (const json::value& each : array_at(value, where)) {
      std::string name = string_at(each, where);
      if (std::ranges::find(term.required, name) == term.required.end())
        term.required.push_back(std::move(name));
    }
    if (term.required.size() > kMaxProperties)
      refuse(where, fmt::format("names more than {} properties", kMaxProperties));
  } else if (key == "minProperties" || key == "maxProperties") {
    (key == "minProperties" ? term.min_properties : term.max_properties) = count_at(value, where);
  } else {
    return false;
  }
  term.types_meant |= kObject;
  return true;
}

namespace {

/// Of reading a keyword, as work; its subschemas are read by themselves.
uint64_t cost_of(const json::value& value) {
  if (value.is_string()) return 4 + value.get_string().size();  // it may be a pattern
  if (value.is_array()) return 4 + value.get_array().size();
  uint64_t out = 4;
  if (const auto* object = value.if_object()) {
    for (const auto& member : *object) out += 8 + member.key().size();
  }
  return out;
}

}  // namespace

Term SchemaTerms::own_keywords(Node node, const json::object& object) {
  const std::string here = place(node);
  Term term;
  term.place = here;
  term.arrays.emplace_back();
  term.objects.emplace_back();
  for (const auto& member : object) {
    const std::string_view key = member.key();
    const json::value& value = member.value();
    const std::string where = pointer_to(here, key);
    work_.spend(cost_of(value));
    if (read_value_keyword(term, object, key, value, where) ||
        read_array_keyword(term, object, key, value, where) ||
        read_object_keyword(term, object, key, value, where) || says_nothing(object, key)) {
      continue;
    }
    if (key == "$id" || key == "id") {
      if (node != &root_)
        refuse(where, "a schema with an identifier of its own inside another is not supported");
    } else {
      refuse(where, fmt::format("the keyword '{}' is not supported", key));
    }
  }
  if (object.contains("multipleOf")) term.types &= static_cast<uint8_t>(~kNumber);  // of an integer
  if (!term.arrays[0].items && term.arrays[0].prefix.empty()) term.arrays.clear();
  if (term.objects[0].named.empty() && term.objects[0].by_pattern.empty() && !term.objects[0].additional) {
    term.objects.clear();
  }
  return term;
}

}  // namespace quire::grammar
