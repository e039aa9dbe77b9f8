#include "grammar/schema_terms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/utf8.h"
#include "grammar/schema_json.h"

namespace quire::grammar {
namespace {

void append(Nodes& to, Node node) {
  const auto at = std::ranges::lower_bound(to, node);
  if (at == to.end() || *at != node) to.insert(at, node);
}

uint8_t type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return kNull;
    case json::kind::bool_:
      return kBoolean;
    case json::kind::string:
      return kString;
    case json::kind::array:
      return kArray;
    case json::kind::object:
      return kObject;
    case json::kind::double_: {
      const double number = value.get_double();
      return number == std::floor(number) ? kInteger : kNumber;
    }
    default:
      return kInteger;
  }
}

/// What it takes to copy a term, as work.
uint64_t weight(const Term& term) {
  uint64_t out =
      4 + term.patterns.size() * 4 + term.required.size() + term.names.size() + term.arrays.size() * 2;
  if (term.values) out += term.values->size() + term.value_bytes / 32;
  for (const ObjectLayer& layer : term.objects) out += 2 + layer.named.size() + layer.by_pattern.size();
  for (const ArrayLayer& layer : term.arrays) out += layer.prefix.size() / 8;
  return out;
}

/// What it takes to merge one term into another.
uint64_t merging(const Term& into, const Term& from) {
  const uint64_t values = into.values && from.values ? into.values->size() * from.values->size() : 0;
  const uint64_t bytes = values > 0 ? into.value_bytes / 32 * from.values->size() : 0;
  return weight(into) + weight(from) + values + bytes + into.required.size() * from.required.size();
}

void merge(Term& into, const Term& from) {
  into.types &= from.types;
  into.types_written &= from.types_written;
  into.types_given = into.types_given || from.types_given;
  into.types_meant |= from.types_meant;
  if (from.values && into.values) {
    std::erase_if(*into.values, [&](const json::value& value) {
      return std::ranges::none_of(*from.values,
                                  [&](const json::value& other) { return equal(value, other); });
    });
  } else if (from.values) {
    into.values = from.values;
    into.value_bytes = from.value_bytes;
  }
  if (from.bounds.min)
    tighten(into.bounds.min, into.bounds.min_exclusive, *from.bounds.min, from.bounds.min_exclusive, 1);
  if (from.bounds.max)
    tighten(into.bounds.max, into.bounds.max_exclusive, *from.bounds.max, from.bounds.max_exclusive, -1);
  into.min_length = std::max(into.min_length, from.min_length);
  into.max_length = std::min(into.max_length, from.max_length);
  into.min_items = std::max(into.min_items, from.min_items);
  into.max_items = std::min(into.max_items, from.max_items);
  into.min_properties = std::max(into.min_properties, from.min_properties);
  into.max_properties = std::min(into.max_properties, from.max_properties);
  into.patterns.insert(into.patterns.end(), from.patterns.begin(), from.patterns.end());
  into.arrays.insert(into.arrays.end(), from.arrays.begin(), from.arrays.end());
  into.objects.insert(into.objects.end(), from.objects.begin(), from.objects.end());
  for (const std::string& name : from.required) {
    if (std::ranges::find(into.required, name) == into.required.end()) into.required.push_back(name);
  }
  for (const Node node : from.names) append(into.names, node);
  const uint64_t a = into.multiple;
  const uint64_t b = from.multiple;
  if (a % b != 0) {
    if (b % a != 0) refuse(from.place, "multipleOf twice, where neither divides the other, is not supported");
    into.multiple = b;
  }
  if (into.place.empty()) into.place = from.place;
}

std::string decoded_token(std::string_view token, const std::string& place) {
  std::string percent;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '%') {
      percent += token[i];
      continue;
    }
    const auto hex = [&](size_t at) -> int {
      const char c = at < token.size() ? token[at] : 'x';
      if (c >= '0' && c <= '9') return c - '0';
      const char low = static_cast<char>(c | 0x20);
      if (low >= 'a' && low <= 'f') return low - 'a' + 10;
      refuse(place, "holds a % without two hexadecimal digits");
    };
    percent += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
    i += 2;
  }
  std::string out;
  for (size_t i = 0; i < percent.size(); ++i) {
    if (percent[i] == '~' && i + 1 < percent.size() && (percent[i + 1] == '0' || percent[i + 1] == '1')) {
      out += percent[++i] == '0' ? '~' : '/';
    } else {
      out += percent[i];
    }
  }
  return out;
}

}  // namespace

std::string pointer_to(const std::string& parent, std::string_view key) {
  std::string out = parent + '/';
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

namespace {

constexpr std::array kValues = {"const", "enum", "default", "example", "examples"};
constexpr std::array kSchemasByName = {"properties", "patternProperties", "$defs", "definitions",
                                       "dependentSchemas"};

/// `by_name`: not a schema, but an object whose members are schemas.
void move_references_below(json::value& schema, std::string_view to, size_t depth, bool by_name) {
  constexpr size_t kMaxDepth = 128;
  if (depth > kMaxDepth) return;  // the schema is refused for its depth
  if (auto* list = schema.if_array()) {
    for (json::value& each : *list) move_references_below(each, to, depth + 1, false);
  } else if (auto* object = schema.if_object()) {
    for (auto& [key, value] : *object) {
      if (!by_name && std::ranges::find(kValues, key) != kValues.end()) continue;
      if (!by_name && key == "$ref" && value.is_string() && value.get_string().starts_with('#')) {
        value = fmt::format("#{}{}", to, std::string_view(value.get_string()).substr(1));
      } else {
        const bool names = !by_name && std::ranges::find(kSchemasByName, key) != kSchemasByName.end();
        move_references_below(value, to, depth + 1, names);
      }
    }
  }
}

}  // namespace

void move_references(json::value& schema, std::string_view to) {
  move_references_below(schema, to, 0, false);
}

namespace {

/// The types of the instances that are written for a term.
uint8_t written_types(const Term& term) {
  const bool meant = !term.types_given && !term.values && term.types_meant != 0;
  return meant ? term.types_written & term.types_meant : term.types_written;
}

}  // namespace

void mean_types(Term& term) { term.types_written = written_types(term); }

bool permits(const Term& term, const json::value& value, WorkLeft& work) {
  const uint8_t type = type_of(value);
  if ((term.types & type) == 0) return false;
  if (type == kInteger || type == kNumber) {
    const Number number = number_of(value);
    const NumberBounds& bounds = term.bounds;
    if (bounds.min && (number < *bounds.min || (bounds.min_exclusive && number == *bounds.min))) return false;
    if (bounds.max && (number > *bounds.max || (bounds.max_exclusive && number == *bounds.max))) return false;
    return term.multiple == 1 || std::fmod(number, static_cast<Number>(term.multiple)) == 0;
  }
  if (type == kString) {
    const std::string_view text = value.get_string();
    const size_t length = count_utf8(text);
    if (length < term.min_length || length > term.max_length) return false;
    return std::ranges::all_of(
        term.patterns, [&](const Pattern& pattern) { return matches(*pattern.expression, text, work); });
  }
  const bool constrained =
      type == kArray
          ? !term.arrays.empty() || term.min_items > 0 || term.max_items != UINT64_MAX
          : type == kObject && (!term.objects.empty() || !term.required.empty() || !term.names.empty() ||
                                term.min_properties > 0 || term.max_properties != UINT64_MAX);
  if (constrained)
    refuse(term.place,
           "an object or array in enum or const beside keywords about its parts is not supported");
  return true;
}

SchemaTerms::SchemaTerms(const json::value& root) : root_(root) { places_[&root] = ""; }

Node SchemaTerms::subschema(const json::value& value, const std::string& place) {
  if (!value.is_object() && !value.is_bool()) refuse(place, "must be a schema: an object or a boolean");
  places_.emplace(&value, place);
  return &value;
}

Node SchemaTerms::at(const std::string& pointer) {
  std::string reference = "#";
  for (const char c : pointer) reference += c == '%' ? "%25" : std::string(1, c);
  return resolve(reference, pointer);
}

Node SchemaTerms::resolve(const std::string& reference, const std::string& place) {
  if (reference == "#") return &root_;
  if (!reference.starts_with("#/"))
    refuse(place, "only references to places in the same schema (\"#/...\") are supported");
  const json::value* at = &root_;
  std::string where;
  std::string_view rest = std::string_view(reference).substr(2);
  for (bool more = true; more;) {
    const size_t slash = rest.find('/');
    more = slash != std::string_view::npos;
    const std::string token = decoded_token(rest.substr(0, slash), place);
    rest = more ? rest.substr(slash + 1) : "";
    where = pointer_to(where, token);
    const json::value* next = nullptr;
    if (at->is_object()) next = at->get_object().if_contains(token);
    if (at->is_array() && !token.empty() && token.size() < 10 &&
        token.find_first_not_of("0123456789") == std::string::npos) {
      next = at->get_array().if_contains(std::stoul(token));
    }
    if (next == nullptr)
      refuse(place, fmt::format("refers to '{}', which the schema does not have", reference));
    at = next;
  }
  return subschema(*at, where);
}

std::vector<Term> SchemaTerms::of(const Nodes& nodes) {
  std::vector<Term> out(1);
  for (const Node node : nodes) out = both(out, expand(node), place(node));
  return out;
}

std::vector<Term> SchemaTerms::both(const std::vector<Term>& a, const std::vector<Term>& b,
                                    const std::string& place) {
  if (a.size() * b.size() > kMaxSchemaTerms) {
    refuse(place,
           fmt::format("anyOf, oneOf and allOf together make more than {} alternatives", kMaxSchemaTerms));
  }
  std::vector<Term> out;
  for (const Term& left : a) {
    for (const Term& right : b) {
      work_.spend(merging(left, right));
      Term merged = left;
      merge(merged, right);
      if (merged.types != 0 && (!merged.values || !merged.values->empty())) out.push_back(std::move(merged));
    }
  }
  return out;
}

std::vector<Term> SchemaTerms::expand(Node node) {
  if (++steps_ > kMaxSchemaSteps) refuse("", "the schema is too large once its references are followed");
  if (node->is_bool()) return node->get_bool() ? std::vector<Term>(1) : std::vector<Term>();
  if (std::ranges::find(expanding_, node) != expanding_.end()) {
    refuse(place(node), "refers to itself without a property or item between");
  }
  if (expanding_.size() > 100) refuse(place(node), "references and applicators are more than 100 deep");
  expanding_.push_back(node);
  std::vector<Term> out = expand_object(node, node->get_object());
  expanding_.pop_back();
  return out;
}

std::vector<Term> SchemaTerms::expand_object(Node node, const json::object& object) {
  const std::string here = place(node);
  std::vector<Term> out = {own_keywords(node, object)};
  if (const json::value* const reference = object.if_contains("$ref")) {
    const std::string where = pointer_to(here, "$ref");
    out = both(out, expand(resolve(string_at(*reference, where), where)), where);
  }
  if (const json::value* const all = object.if_contains("allOf")) {
    const std::string where = pointer_to(here, "allOf");
    const json::array& branches = array_at(*all, where);
    if (branches.empty()) refuse(where, "must hold at least one schema");
    for (size_t i = 0; i < branches.size(); ++i) {
      out = both(out, expand(subschema(branches[i], pointer_to(where, std::to_string(i)))), where);
    }
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    if (object.contains(keyword))
      out = both(out, expand_branches(node, object, keyword), pointer_to(here, keyword));
  }
  return out;
}

std::vector<Term> SchemaTerms::expand_branches(Node node, const json::object& object,
                                               std::string_view keyword) {
  const std::string where = pointer_to(place(node), keyword);
  const json::array& branches = array_at(object.at(keyword), where);
  if (branches.empty()) refuse(where, "must hold at least one schema");
  std::vector<std::vector<Term>> each;
  std::vector<Term> out;
  for (size_t i = 0; i < branches.size(); ++i) {
    each.push_back(expand(subschema(branches[i], pointer_to(where, std::to_string(i)))));
    for (const Term& term : each.back()) {
      work_.spend(weight(term));
      out.push_back(term);
      if (keyword == "oneOf") mean_types(out.back());
    }
    if (out.size() > kMaxSchemaTerms)
      refuse(where, fmt::format("makes more than {} alternatives", kMaxSchemaTerms));
  }
  if (keyword == "oneOf") check_disjoint(each, where);
  return out;
}

/// Of a branch only instances of the types that it means are written; they must satisfy no other branch,
/// whatever types that means.
void SchemaTerms::check_disjoint(const std::vector<std::vector<Term>>& branches, const std::string& place) {
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; j < branches.size(); ++j) {
      if (i == j) continue;
      for (const Term& a : branches[i]) {
        for (const Term& b : branches[j]) {
          if (!disjoint(a, b)) {
            refuse(
                place,
                fmt::format("branches {} and {} may both hold for one instance, which oneOf forbids and the "
                            "grammar cannot; use anyOf, or give each a type, and objects a required "
                            "property with a const",
                            std::min(i, j), std::max(i, j)));
          }
        }
      }
    }
  }
}

/// Whether it is certain that no instance that is written for `a` satisfies `b`.
bool SchemaTerms::disjoint(const Term& a, const Term& b) {
  const uint8_t types = a.types & written_types(a) & b.types;
  work_.spend(weight(a) + a.required.size() * b.required.size());
  if (types == 0) return true;
  const auto share_none = [this](const std::vector<json::value>& left,
                                 const std::vector<json::value>& right) {
    work_.spend(left.size() * right.size());
    return std::ranges::none_of(left, [&](const json::value& value) {
      return std::ranges::any_of(right, [&](const json::value& other) { return equal(value, other); });
    });
  };
  if (a.values && b.values) return share_none(*a.values, *b.values);
  const auto permits_none = [this](const Term& term, const std::vector<json::value>& values) {
    return std::ranges::none_of(values, [&](const json::value& value) {
      if ((type_of(value) & term.types) == 0) return false;
      return value.is_structured() || permits(term, value, work_);
    });
  };
  if (a.values) return permits_none(b, *a.values);
  if (b.values) return permits_none(a, *b.values);
  // Only where both must be objects does a property that both require tell them apart.
  if (types != kObject) return false;
  return std::ranges::any_of(a.required, [&](const std::string& name) {
    if (std::ranges::find(b.required, name) == b.required.end()) return false;
    const std::optional<std::vector<json::value>> left = values_of(a, name);
    const std::optional<std::vector<json::value>> right = values_of(b, name);
    return left && right && share_none(*left, *right);
  });
}

/// The values that a property may have, if they are listed.
std::optional<std::vector<json::value>> SchemaTerms::values_of(const Term& term, std::string_view property) {
  for (const ObjectLayer& layer : term.objects) {
    for (const auto& [name, node] : layer.named) {
      if (name != property) continue;
      std::vector<json::value> out;
      for (const Term& way : expand(node)) {
        if (!way.values) return std::nullopt;
        work_.spend(weight(way));
        out.insert(out.end(), way.values->begin(), way.values->end());
      }
      return out;
    }
  }
  return std::nullopt;
}

}  // namespace quire::grammar
