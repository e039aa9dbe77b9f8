#include "grammar/schema.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/schema_objects.h"
#include "grammar/schema_terms.h"
#include "grammar/schema_writer.h"

namespace quire::grammar {
namespace {

/// Strings up to this length have a state for each length and escape; longer ones are counted as they are
/// matched (max_chars), which can count no escape, for none may be cut.
constexpr uint32_t kUnrolledLength = 16;

std::string json_text(const json::value& value) {
  if (value.is_double()) return fmt::format("{}", value.get_double());
  std::string out;
  if (value.is_array()) {
    for (const json::value& each : value.get_array()) out += (out.empty() ? "" : ", ") + json_text(each);
    return "[" + out + "]";
  }
  if (value.is_object()) {
    for (const auto& member : value.get_object()) {
      out += (out.empty() ? "" : ", ") + json::serialize(json::string(member.key())) + ": " +
             json_text(member.value());
    }
    return "{" + out + "}";
  }
  return json::serialize(value);
}

Expression in_quotes(Expression contents) { return sequence({text("\""), std::move(contents), text("\"")}); }

}  // namespace

SchemaWriter::SchemaWriter(const json::value& document) : terms_(document) {}

std::string SchemaWriter::write(const std::vector<SchemaRule>& wanted) {
  for (const SchemaRule& rule : wanted) {
    const std::string instance = rule_of({terms_.at(rule.pointer)});
    rules_.define(rule.name, {{instance, {instance}}});
  }
  while (!waiting_.empty()) {
    const Nodes next = std::move(waiting_.front());
    waiting_.pop_front();
    write_rule(next);
    if (rules_.size() > kMaxSchemaRules) {
      throw Refused{{"", fmt::format("the grammar of the schema has more than {} rules", kMaxSchemaRules)}};
    }
    if (rules_.bytes() > kMaxSchemaGrammarBytes) {
      throw Refused{
          {"", fmt::format("the grammar of the schema has more than {} MiB", kMaxSchemaGrammarBytes >> 20)}};
    }
  }
  if (const std::string endless = rules_.endless(); !endless.empty()) {
    const auto found = std::ranges::find(names_, endless, [](const auto& named) { return named.second; });
    const Nodes nodes = found == names_.end() ? Nodes{} : found->first;
    throw Refused{
        {nodes.empty() ? "" : terms_.place(nodes[0]), "requires itself, so that no instance has an end"}};
  }
  return rules_.text();
}

std::string SchemaWriter::rule_of(const Nodes& nodes) {
  const auto found = names_.find(nodes);
  if (found != names_.end()) return found->second;
  waiting_.push_back(nodes);
  return names_.emplace(nodes, rules_.declare("v")).first->second;
}

const std::vector<Term>& SchemaWriter::terms(const Nodes& nodes) {
  const auto found = known_.find(nodes);
  if (found != known_.end()) return found->second;
  std::vector<Term> out = terms_.of(nodes);
  for (Term& term : out) {
    mean_types(term);
    term.types &= term.types_written;
  }
  std::erase_if(out, [](const Term& term) { return term.types == 0; });
  return known_.emplace(nodes, std::move(out)).first->second;
}

void SchemaWriter::write_rule(const Nodes& nodes) {
  std::vector<Rules::Alternative> out;
  for (const Term& term : terms(nodes)) write_term(term, out);
  if (out.empty()) {
    const bool has_numbers = std::ranges::any_of(
        terms(nodes), [](const Term& term) { return !term.values && (term.types & kInteger) != 0; });
    throw Refused{
        {nodes.empty() ? "" : terms_.place(nodes[0]),
         fmt::format(
             "no instance can satisfy this schema{}",
             has_numbers ? " (within bounds, numbers have at most 19 digits before the point)" : "")}};
  }
  rules_.define(names_.at(nodes), std::move(out));
}

void SchemaWriter::write_term(const Term& term, std::vector<Rules::Alternative>& out) {
  if (term.values) {
    for (const json::value& value : *term.values) {
      if (permits(term, value, terms_.work())) out.push_back({literal(json_text(value)), {}});
    }
    return;
  }
  if ((term.types & kNull) != 0) out.push_back({literal("null"), {}});
  if ((term.types & kBoolean) != 0) out.push_back({literal("true") + " | " + literal("false"), {}});
  if ((term.types & kInteger) != 0) write_numbers(term, out);
  if ((term.types & kString) != 0) {
    if (const std::optional<std::string> rule = string_rule(term)) out.push_back({*rule, {*rule}});
  }
  if ((term.types & kArray) != 0) write_array(term, out);
  if ((term.types & kObject) != 0) write_object(*this, term, out);
}

void SchemaWriter::write_numbers(const Term& term, std::vector<Rules::Alternative>& out) {
  std::optional<Expression> numbers;
  if ((term.types & kNumber) != 0 && term.multiple == 1) {
    numbers = term.bounds.none() ? any_number() : numbers_within(term.bounds);
  } else {
    bool unsupported = false;
    numbers = term.bounds.none() && term.multiple == 1
                  ? any_integer()
                  : integers_within(term.bounds, term.multiple, unsupported);
    if (unsupported) {
      throw Refused{
          {pointer_to(term.place, "multipleOf"),
           fmt::format("this multipleOf needs minimum and maximum with at most {} multiples between them",
                       kMaxListedMultiples)}};
    }
  }
  if (numbers) out.push_back({rules_.shared("n", body(*numbers)), {}});
}

std::optional<std::string> SchemaWriter::string_rule(const Term& term) {
  const std::vector<Pattern>& patterns = term.patterns;
  const auto same = [&](const Pattern& pattern) { return pattern.source == patterns[0].source; };
  if (!std::ranges::all_of(patterns, same)) {
    throw Refused{{patterns[1].place,
                   "two different patterns for one string are not supported, nor a pattern beside a format"}};
  }
  Expression contents =
      patterns.empty() ? repeat(one_of(any_character()), 0, Expression::kUnbounded) : *patterns[0].expression;
  const Lengths of = lengths(contents);
  const auto at_least = static_cast<uint32_t>(std::min<uint64_t>(term.min_length, 1'000'000'000));
  const auto at_most = static_cast<uint32_t>(std::min<uint64_t>(term.max_length, Expression::kUnbounded));
  if (at_least <= of.min && at_most >= of.max)
    return rules_.shared("s", body(in_quotes(in_json_string(contents))));
  if (contents.kind == Expression::Kind::kSet) contents = repeat(contents, 1, 1);
  if (contents.kind != Expression::Kind::kRepeat || contents.parts[0].kind != Expression::Kind::kSet) {
    throw Refused{{patterns[0].place,
                   "minLength or maxLength beside a pattern or format that does not imply it is only "
                   "supported where the pattern is one class, repeated"}};
  }
  return counted_string(contents.parts[0].set, std::max(at_least, contents.min),
                        std::min(at_most, contents.max));
}

std::optional<std::string> SchemaWriter::counted_string(const CharSet& set, uint32_t min, uint32_t max) {
  if (min > max) return std::nullopt;
  if (min > kMaxRegexRepeat)
    throw Refused{{"", fmt::format("a minLength above {} is not supported", kMaxRegexRepeat)}};
  if (max == Expression::kUnbounded || max <= kUnrolledLength) {
    return rules_.shared("s", body(in_quotes(in_json_string(repeat(one_of(set), min, max)))));
  }
  const CharSet plain = set.intersected(unescaped_in_json());
  if (plain.empty())
    return rules_.shared("s", body(in_quotes(in_json_string(repeat(one_of(set), min, max)))));
  const std::string counted =
      rules_.shared("c", body(repeat(one_of(plain), min, Expression::kUnbounded)), max);
  return rules_.shared("s", fmt::format("\"\\\"\" {} \"\\\"\"", counted));
}

std::string SchemaWriter::space() {
  const CharSet white = CharSet::of_range(' ', ' ').united(CharSet::of_range('\t', '\t'));
  // A space, or line breaks with indentation: a model that could go on with white space for ever sometimes
  // does.
  return rules_.shared(
      "ws", body(choice({text(" "), sequence({repeat(text("\n"), 1, 2), repeat(one_of(white), 0, 20)}),
                         sequence({})})));
}

Nodes SchemaWriter::joined(const std::vector<Node>& nodes) {
  Nodes out;
  for (const Node node : nodes) {
    if (node != nullptr && !(node->is_bool() && node->get_bool())) out.push_back(node);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void SchemaWriter::write_array(const Term& term, std::vector<Rules::Alternative>& out) {
  size_t prefix = 0;
  bool has_items = false;
  for (const ArrayLayer& layer : term.arrays) {
    prefix = std::max(prefix, layer.prefix.size());
    has_items = has_items || layer.items != nullptr;
  }
  const auto at = [&](size_t index) {
    std::vector<Node> nodes;
    for (const ArrayLayer& layer : term.arrays)
      nodes.push_back(index < layer.prefix.size() ? layer.prefix[index] : layer.items);
    return joined(nodes);
  };
  uint64_t max = term.max_items;
  if (prefix > 0 && !has_items) max = std::min<uint64_t>(max, std::max<uint64_t>(prefix, term.min_items));
  for (size_t i = 0; i <= prefix && i < max; ++i) {
    if (terms(at(i)).empty()) max = i;
  }
  const uint64_t min = term.min_items;
  if (min > max) return;
  const std::string ws = space();
  if (min == 0) out.push_back({fmt::format("\"[\" {} \"]\"", ws), {}});
  if (max == 0) return;
  // From the last item to the first: what may follow the items before it.
  std::string rest;
  std::vector<std::string> needs;
  if (max > prefix) {
    const std::string item = rule_of(at(prefix));
    const uint64_t least = min > prefix ? min - prefix : 0;
    const auto bounds = [&](uint64_t taken) {
      const uint64_t from = least > taken ? least - taken : 0;
      return max == UINT64_MAX ? fmt::format("{{{},}}", from)
                               : fmt::format("{{{},{}}}", from, max - prefix - taken);
    };
    if (least > 0) needs.push_back(item);
    rest = prefix > 0 ? fmt::format("(\",\" {} {}){}", ws, item, bounds(0))
                      : fmt::format("{} (\",\" {} {}){}", item, ws, item, bounds(1));
  }
  for (size_t i = std::min<uint64_t>(prefix, max); i-- > 0;) {
    const std::string item = rule_of(at(i));
    const std::string more =
        rest.empty() ? "" : (i + 1 < min || i + 1 == prefix ? " " + rest : fmt::format(" ({})?", rest));
    rest = fmt::format("{}{}{}", i == 0 ? "" : fmt::format("\",\" {} ", ws), item, more);
    if (i < min || i == 0) needs.push_back(item);
  }
  if (prefix == 0 && needs.empty()) needs.push_back(rule_of(at(0)));
  out.push_back({fmt::format("\"[\" {0} {1} {0} \"]\"", ws, rest), std::move(needs)});
}

tl::expected<std::string, SchemaFault> schema_rules(const boost::json::value& document,
                                                    const std::vector<SchemaRule>& wanted) {
  try {
    return SchemaWriter(document).write(wanted);
  } catch (const Refused& refused) {
    return tl::unexpected(refused.fault);
  } catch (const WorkLeft::Spent&) {
    return tl::unexpected(SchemaFault{
        "", "it takes too much work: use fewer or smaller values, properties, patterns or references"});
  }
}

tl::expected<std::string, SchemaFault> schema_grammar(const boost::json::value& schema) {
  if (!schema.is_object() && !schema.is_bool())
    return tl::unexpected(SchemaFault{"", "must be an object or a boolean"});
  return schema_rules(schema, {{"root", ""}});
}

std::string any_object_grammar() {
  static const std::string kGrammar = *schema_grammar(json::object{{"type", "object"}});
  return kGrammar;
}

}  // namespace quire::grammar
