#include "grammar/schema_objects.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/utf8.h"
#include "grammar/schema_json.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxCountedProperties = 40;  // of an object whose members are counted: a rule for each count

/// Texts without escapes that are none of `names`, which are sorted, each once, and share their first `depth`
/// characters.
Expression other_than(std::span<const std::u32string> names, size_t depth) {
  CharSet others = unescaped_in_json();
  std::vector<Expression> ways;
  if (names.front().size() > depth) ways.push_back(sequence({}));
  for (size_t i = names.front().size() == depth ? 1 : 0; i < names.size();) {
    const char32_t code = names[i][depth];
    size_t end = i;
    while (end < names.size() && names[end][depth] == code) ++end;
    const CharSet one = character(code);
    if (!others.intersected(one).empty()) {  // otherwise it could only be written with an escape
      others = others.intersected(one.complement());
      ways.push_back(sequence({one_of(one), other_than(names.subspan(i, end - i), depth + 1)}));
    }
    i = end;
  }
  ways.push_back(sequence({one_of(others), repeat(one_of(unescaped_in_json()), 0, Expression::kUnbounded)}));
  return choice(std::move(ways));
}

std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    out += next.code;
    at += next.size;
  }
  return out;
}

class ObjectWriter {
 public:
  ObjectWriter(SchemaWriter& writer, const Term& term) : writer_(writer), term_(term), ws_(writer.space()) {}

  void write(std::vector<Rules::Alternative>& out) {
    if (!collect_members()) return;
    collect_others();
    min_ = term_.min_properties;
    max_ = term_.max_properties;
    if (!check_counts()) return;
    const bool none_required = std::ranges::none_of(members_, &Member::required);
    if (none_required && min_ == 0) out.push_back({fmt::format("\"{{\" {} \"}}\"", ws_), {}});
    if (max_ == 0) return;
    if (const std::string first = rest(0, 0, true); !first.empty()) {
      out.push_back({fmt::format("\"{{\" {0} {1} {0} \"}}\"", ws_, first), {first}});
    }
  }

 private:
  struct Member {
    std::string name;
    Nodes nodes;
    bool required;
  };

  /// False: no object can satisfy the term.
  bool collect_members() {
    std::set<std::string, std::less<>> seen;
    for (const ObjectLayer& layer : term_.objects) {
      for (const auto& [name, node] : layer.named) {
        if (seen.insert(name).second) names_.push_back(name);
      }
    }
    for (const std::string& name : term_.required) {
      if (seen.insert(name).second) names_.push_back(name);
    }
    for (const std::string& name : names_) {
      const bool required = std::ranges::find(term_.required, name) != term_.required.end();
      Nodes nodes = nodes_of(name);
      if (writer_.terms(nodes).empty() || !is_name(name)) {
        if (required) return false;
        continue;
      }
      members_.push_back({name, std::move(nodes), required});
    }
    return true;
  }

  Nodes nodes_of(const std::string& name) const {
    std::vector<Node> out;
    for (const ObjectLayer& layer : term_.objects) {
      writer_.work().spend(1 + layer.named.size() / 8);
      bool known = false;
      for (const auto& [property, node] : layer.named) {
        if (property != name) continue;
        out.push_back(node);
        known = true;
      }
      for (const auto& [pattern, node] : layer.by_pattern) {
        if (!matches(*pattern, name, writer_.work())) continue;
        out.push_back(node);
        known = true;
      }
      if (!known) out.push_back(layer.additional);
    }
    return SchemaWriter::joined(out);
  }

  bool is_name(const std::string& name) {
    if (term_.names.empty()) return true;
    const std::vector<Term>& ways = writer_.terms(term_.names);
    return std::ranges::any_of(ways, [&](const Term& way) {
      const json::value value(name);
      const bool listed = !way.values || std::ranges::find(*way.values, value) != way.values->end();
      return listed && permits(way, value, writer_.work());
    });
  }

  /// Members that are not named: the rule of their names, and what holds for their values.
  void collect_others() {
    std::vector<Node> nodes;
    const std::pair<std::shared_ptr<const Expression>, Node>* pattern = nullptr;
    bool given = false;
    for (const ObjectLayer& layer : term_.objects) {
      if (layer.by_pattern.size() > 1 || (pattern != nullptr && !layer.by_pattern.empty())) {
        refuse(layer.pattern_place, "more than one pattern is not supported");
      }
      if (layer.by_pattern.empty()) {
        nodes.push_back(layer.additional);
        given = given || layer.additional != nullptr;
        continue;
      }
      pattern = &layer.by_pattern[0];
      nodes.push_back(pattern->second);
      for (const std::string& name : names_) {
        if (matches(*pattern->first, name, writer_.work())) {
          refuse(layer.pattern_place,
                 fmt::format("matches the property '{}' too, which is not supported", name));
        }
      }
      if (!term_.names.empty())
        refuse(layer.pattern_place, "patternProperties beside propertyNames is not supported");
    }
    const bool open = pattern != nullptr || given || members_.empty();
    if (!open || (!members_.empty() && !term_.names.empty())) return;
    others_ = SchemaWriter::joined(nodes);
    if (writer_.terms(others_).empty()) return;
    other_name_ = pattern == nullptr ? name_rule() : pattern_rule(*pattern->first);
  }

  std::string pattern_rule(const Expression& pattern) {
    return writer_.rules().shared("s", body(sequence({text("\""), in_json_string(pattern), text("\"")})));
  }

  /// Names that are none of `names_`.
  std::string unnamed_rule() {
    std::vector<std::u32string> names;
    for (const std::string& name : names_) {
      names.push_back(code_points(name));
      if (names.back().size() > kMaxNameCharacters) {
        refuse(
            term_.place,
            fmt::format("the name of a property has more than {} characters, which is not supported beside "
                        "additionalProperties",
                        kMaxNameCharacters));
      }
      // An expression is nested as deep as a name is long, and each level is copied when it is written.
      writer_.work().spend(8 * names.back().size() + names.back().size() * names.back().size() / 2);
    }
    std::ranges::sort(names);
    return writer_.rules().shared("s", body(sequence({text("\""), other_than(names, 0), text("\"")})));
  }

  /// "" if no name is possible.
  std::string name_rule() {
    if (term_.names.empty()) return names_.empty() ? *writer_.string_rule(Term()) : unnamed_rule();
    if (!names_.empty()) return "";
    std::string out;
    for (const Term& way : writer_.terms(term_.names)) {
      if ((way.types & kString) == 0) continue;
      std::string name;
      if (way.values) {
        for (const json::value& value : *way.values) {
          if (value.is_string() && permits(way, value, writer_.work()))
            name += (name.empty() ? "" : " | ") + literal(json::serialize(value));
        }
      } else {
        name = writer_.string_rule(way).value_or("");
      }
      if (!name.empty()) out += (out.empty() ? "" : " | ") + name;
    }
    return out.empty() ? "" : writer_.rules().shared("k", out);
  }

  /// Decides whether members must be counted. False: no object has so many.
  bool check_counts() {
    const auto required = static_cast<uint64_t>(std::ranges::count_if(members_, &Member::required));
    if (required > max_ || min_ > max_) return false;
    if (min_ <= required) min_ = 0;
    if (members_.empty()) {
      if (min_ > 1) refuse(term_.place, "minProperties above 1 is not supported where names may repeat");
      return min_ == 0 || !other_name_.empty();
    }
    if (!other_name_.empty()) {
      if (min_ > 0)
        refuse(term_.place,
               "minProperties beside additionalProperties or patternProperties is not supported");
      if (max_ != UINT64_MAX) other_name_.clear();
    }
    if (other_name_.empty() && max_ >= members_.size()) max_ = UINT64_MAX;
    if (other_name_.empty() && min_ > members_.size()) return false;
    counts_ = min_ > 0 || max_ != UINT64_MAX;
    if (counts_ && members_.size() > kMaxCountedProperties) {
      refuse(term_.place,
             fmt::format("minProperties or maxProperties beside more than {} properties is not supported",
                         kMaxCountedProperties));
    }
    return true;
  }

  std::string other() const { return fmt::format("{} \":\" {} {}", other_name_, ws_, other_value_); }

  std::string others(bool first) {
    if (other_name_.empty()) return "";
    other_value_ = writer_.rule_of(others_);
    if (!first) return fmt::format("(\",\" {} {})*", ws_, other());
    const std::string more = max_ == UINT64_MAX ? "*" : fmt::format("{{0,{}}}", max_ - 1);
    return fmt::format("{} (\",\" {} {}){}", other(), ws_, other(), more);
  }

  /// The rule of the members from number `from` on, after `count` others; `first`: none stands before. "" if
  /// none may follow, or if nothing is possible.
  std::string rest(size_t from, size_t count, bool first) {
    const auto key = std::pair(from * 2 + (first ? 1 : 0), counts_ ? count : 0);
    if (const auto known = rests_.find(key); known != rests_.end()) return known->second;
    std::vector<Rules::Alternative> ways;
    if (from == members_.size()) {
      if (std::string more = others(first); !more.empty()) {
        std::vector<std::string> needs;
        if (first) needs.push_back(other_value_);
        ways.push_back({std::move(more), std::move(needs)});
      } else if (!first && (!counts_ || count >= min_)) {
        ways.push_back({"\"\"", {}});
      }
    } else {
      const Member& member = members_[from];
      const std::string tail = count < max_ ? rest(from + 1, count + 1, false) : "";
      if (!tail.empty()) {
        const std::string value = writer_.rule_of(member.nodes);
        const std::string comma = first ? "" : fmt::format("\",\" {} ", ws_);
        const std::string name = literal(json::serialize(json::string(member.name)) + ":");
        ways.push_back({fmt::format("{}{} {} {} {}", comma, name, ws_, value, tail), {value, tail}});
      }
      if (!member.required) {
        if (const std::string skipped = rest(from + 1, count, first); !skipped.empty())
          ways.push_back({skipped, {skipped}});
      }
    }
    std::string name;
    if (!ways.empty()) {
      name = writer_.rules().declare("m");
      writer_.rules().define(name, std::move(ways));
    }
    rests_[key] = name;
    return name;
  }

  SchemaWriter& writer_;
  const Term& term_;
  const std::string ws_;
  std::vector<std::string> names_;  // of all layers
  std::vector<Member> members_;     // those of them that there may be
  Nodes others_;
  std::string other_name_;  // the rule of the names of other members; "": there may be none
  std::string other_value_;
  uint64_t min_ = 0;
  uint64_t max_ = UINT64_MAX;
  bool counts_ = false;
  std::map<std::pair<size_t, size_t>, std::string> rests_;
};

}  // namespace

void write_object(SchemaWriter& writer, const Term& term, std::vector<Rules::Alternative>& out) {
  ObjectWriter(writer, term).write(out);
}

}  // namespace quire::grammar
