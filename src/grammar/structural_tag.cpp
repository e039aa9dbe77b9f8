#include "grammar/structural_tag.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "grammar/ebnf.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema_json.h"
#include "grammar/schema_terms.h"

namespace quire::grammar {
namespace {

using Texts = std::vector<std::string>;

/// An object of the tag and its place. Throws Refused for what is missing or of the wrong kind, and in
/// check() for members that nobody has asked for.
class Part {
 public:
  Part(const json::value& value, std::string place)
      : object_(object_at(value, place)), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  std::string place_of(std::string_view key) const { return pointer_to(place_, key); }

  const json::value* find(std::string_view key) {
    known_.push_back(key);
    const json::value* const value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  const json::value& at(std::string_view key) {
    const json::value* const value = find(key);
    if (value == nullptr) refuse(place_, fmt::format("needs '{}'", key));
    return *value;
  }
  std::string string(std::string_view key) { return string_at(at(key), place_of(key)); }
  bool boolean(std::string_view key) {
    const json::value* const value = find(key);
    if (value != nullptr && !value->is_bool()) refuse(place_of(key), "must be true or false");
    return value != nullptr && value->get_bool();
  }
  /// Strings, none empty; a lone string counts as a list.
  Texts strings(std::string_view key) {
    Texts out;
    const json::value* const value = find(key);
    if (value != nullptr && value->is_string()) return {string_at(*value, place_of(key))};
    for (size_t i = 0; value != nullptr && i < array_at(*value, place_of(key)).size(); ++i) {
      const std::string place = pointer_to(place_of(key), std::to_string(i));
      out.push_back(string_at(value->get_array()[i], place));
      if (out.back().empty()) refuse(place, "must not be empty");
    }
    return out;
  }
  void check() const {
    for (const auto& member : object_) {
      if (std::ranges::find(known_, std::string_view(member.key())) == known_.end())
        refuse(place_of(member.key()), "is not supported");
    }
  }

 private:
  const json::object& object_;
  std::string place_;
  std::vector<std::string_view> known_;
};

std::string list_of(const Texts& texts) {
  Texts quoted;
  for (const std::string& each : texts) quoted.push_back(literal(each));
  return fmt::format("{}", fmt::join(quoted, ", "));
}

std::string one_of_texts(const Texts& texts) {
  Texts quoted;
  for (const std::string& each : texts) quoted.push_back(literal(each));
  return fmt::format("({})", fmt::join(quoted, " | "));
}

/// Where a format stands: what its free text may not hold, because it ends what is around it.
struct Around {
  Texts ends = {};
  bool is_last = true;  // nothing but one of the ends follows
  bool repeats = false;
};

class TagWriter {
 public:
  std::string write(const json::value& tag) {
    Part whole(tag, "");
    if (const json::value* const type = whole.find("type"); type != nullptr && *type != "structural_tag")
      refuse("/type", "must be structural_tag");
    std::string root;
    if (whole.find("structures") != nullptr) {
      root = structures(whole);
    } else {
      root = format(whole.at("format"), "/format", {});
    }
    whole.check();
    auto schemas = schema_rules(document_, wanted_);
    if (!schemas) {
      const std::string_view pointer = schemas.error().pointer;
      const size_t end = std::min(pointer.find('/', 1), pointer.size());
      const size_t number = pointer.empty() ? 0 : std::stoul(std::string(pointer.substr(1, end - 1)));
      refuse(places_[number] + std::string(pointer.substr(end)), schemas.error().message);
    }
    return fmt::format("root ::= {}\n{}{}", root, rules_, *schemas);
  }

 private:
  std::string rule(std::string_view hint, const std::string& body) {
    const std::string name = fmt::format("{}{}", hint, ++rules_named_);
    rules_ += fmt::format("{} ::= {}\n", name, body);
    return name;
  }

  void count(const std::string& place) {
    if (++parts_ > kMaxTagParts)
      refuse(place, fmt::format("the structural tag has more than {} formats", kMaxTagParts));
  }

  std::string schema(const json::value& value, const std::string& place) {
    const size_t number = document_.size();
    document_.push_back(value);
    move_references(document_.back(), fmt::format("/{}", number));
    places_.push_back(place);
    wanted_.push_back({fmt::format("schema{}", number), fmt::format("/{}", number)});
    return wanted_.back().name;
  }

  std::string format(const json::value& value, const std::string& place, const Around& around) {
    count(place);
    Part part(value, place);
    const std::string type = part.string("type");
    std::string out;
    if (type == "const_string") {
      const std::string value_text = part.string("value");
      if (value_text.empty()) refuse(part.place_of("value"), "must not be empty");
      out = literal(value_text);
    } else if (type == "json_schema") {
      if (const json::value* const style = part.find("style"); style != nullptr && *style != "json")
        refuse(part.place_of("style"), "only json is supported");
      out = schema(part.at("json_schema"), part.place_of("json_schema"));
    } else if (type == "regex") {
      const auto parsed = parse_whole(part.string("pattern"));
      if (!parsed) refuse(part.place_of("pattern"), parsed.error());
      out = rule("regex", body(*parsed));
    } else if (type == "grammar") {
      const std::string name = fmt::format("grammar{}", ++rules_named_);
      const auto rules = gbnf_grammar(part.string("grammar"), name);
      if (!rules) refuse(part.place_of("grammar"), rules.error());
      rules_ += *rules;
      out = name;
    } else if (type == "any_text") {
      out = rule("text", dispatch({}, false, free_text(part, around)));
    } else if (type == "sequence" || type == "or") {
      out = elements(part, type == "or", around);
    } else if (type == "optional" || type == "star" || type == "plus" || type == "repeat") {
      out = repeated(part, type);
    } else if (type == "tag") {
      out = tag(part).whole();
    } else if (type == "triggered_tags") {
      out = triggered_tags(part, around);
    } else if (type == "tags_with_separator") {
      out = separated_tags(part);
    } else {
      refuse(part.place_of("type"), fmt::format("'{}' is not supported", type));
    }
    part.check();
    return out;
  }

  /// What free text may not hold.
  static Texts free_text(Part& part, const Around& around) {
    Texts out = part.strings("excludes");
    if (around.repeats) refuse(part.place(), "holds any text, which cannot be repeated");
    if (out.empty() && !around.is_last)
      refuse(part.place(), "holds any text before the end of what is around it, and so needs 'excludes'");
    for (const std::string& end : around.ends) {
      if (!end.empty() && std::ranges::find(out, end) == out.end()) out.push_back(end);
    }
    return out;
  }

  /// Free text with what follows a trigger in it.
  static std::string dispatch(const Texts& triggers, bool again, const Texts& excludes) {
    std::string out = "TagDispatch(";
    for (const std::string& each : triggers) out += each + ", ";
    out += fmt::format("loop_after_dispatch={}", again);
    if (!excludes.empty()) out += fmt::format(", excludes=({})", list_of(excludes));
    return out + ")";
  }

  std::string elements(Part& part, bool is_choice, const Around& around) {
    const std::string place = part.place_of("elements");
    const json::array& list = array_at(part.at("elements"), place);
    if (list.empty()) refuse(place, "must not be empty");
    Texts each;
    for (size_t i = 0; i < list.size(); ++i) {
      Around inner = around;
      if (!is_choice && i + 1 < list.size()) inner = {.is_last = false, .repeats = around.repeats};
      each.push_back(format(list[i], pointer_to(place, std::to_string(i)), inner));
    }
    return is_choice ? fmt::format("({})", fmt::join(each, " | ")) : fmt::format("{}", fmt::join(each, " "));
  }

  std::string repeated(Part& part, std::string_view type) {
    const std::string inner =
        format(part.at("content"), part.place_of("content"), {.is_last = false, .repeats = true});
    if (type != "repeat")
      return fmt::format("({}){}", inner, type == "optional" ? '?' : type == "star" ? '*' : '+');
    const uint64_t min = count_at(part.at("min"), part.place_of("min"));
    const json::value& most = part.at("max");
    if (most.is_int64() && most.get_int64() == -1) return fmt::format("({}){{{},}}", inner, min);
    const uint64_t max = count_at(most, part.place_of("max"));
    if (max < min) refuse(part.place_of("max"), "must not be less than min");
    return max == 0 ? "\"\"" : fmt::format("({}){{{},{}}}", inner, min, max);
  }

  /// A tag: its beginning, and the rule of what follows that.
  struct Tag {
    std::string begin;
    std::string rest;
    std::string place;

    std::string whole() const { return literal(begin) + " " + rest; }
  };

  Tag tag(Part& part) {
    const std::string begin = part.string("begin");
    if (begin.empty()) refuse(part.place_of("begin"), "must not be empty");
    const Texts ends = part.strings("end");
    if (ends.empty()) refuse(part.place(), "needs 'end'");
    const std::string content = format(part.at("content"), part.place_of("content"), {.ends = ends});
    return {begin, rule("tag", fmt::format("{} {}", content, one_of_texts(ends))), part.place()};
  }

  std::vector<Tag> tags_of(Part& part) {
    const std::string place = part.place_of("tags");
    const json::array& list = array_at(part.at("tags"), place);
    if (list.empty()) refuse(place, "must not be empty");
    std::vector<Tag> out;
    for (size_t i = 0; i < list.size(); ++i) {
      count(place);
      Part each(list[i], pointer_to(place, std::to_string(i)));
      each.find("type");
      out.push_back(tag(each));
      each.check();
    }
    return out;
  }

  /// One of the tags.
  std::string any_of(const std::vector<Tag>& tags) {
    Texts whole;
    for (const Tag& each : tags) whole.push_back(each.whole());
    return rule("tags", fmt::format("{}", fmt::join(whole, " | ")));
  }

  std::string triggered_tags(Part& part, const Around& around) {
    const Texts triggers = part.strings("triggers");
    const bool again = !part.boolean("stop_after_first");
    const bool at_least_one = part.boolean("at_least_one");
    const Texts excludes = free_text(part, around);
    const std::vector<Tag> tags = tags_of(part);
    for (const Tag& each : tags) {
      const auto begins = [&](const std::string& trigger) { return each.begin.starts_with(trigger); };
      if (std::ranges::count_if(triggers, begins) != 1)
        refuse(pointer_to(each.place, "begin"), "must begin with exactly one of the triggers");
    }
    Texts pairs;
    for (const std::string& trigger : triggers) {
      if (std::ranges::any_of(excludes, [&](const std::string& no) { return trigger.starts_with(no); }))
        refuse(part.place_of("triggers"), fmt::format("'{}' cannot occur in the text around it", trigger));
      Texts ways;
      for (const Tag& each : tags) {
        if (!each.begin.starts_with(trigger)) continue;
        ways.push_back(literal(std::string_view(each.begin).substr(trigger.size())) + " " + each.rest);
      }
      if (ways.empty()) refuse(part.place_of("triggers"), fmt::format("no tag begins with '{}'", trigger));
      pairs.push_back(fmt::format("({}, {})", literal(trigger),
                                  rule("trigger", fmt::format("{}", fmt::join(ways, " | ")))));
    }
    if (at_least_one && !again) return any_of(tags);
    const std::string all = rule("text", dispatch(pairs, again, excludes));
    return at_least_one ? fmt::format("{} {}", any_of(tags), all) : all;
  }

  std::string separated_tags(Part& part) {
    const bool again = !part.boolean("stop_after_first");
    const bool at_least_one = part.boolean("at_least_one");
    const std::string separator = literal(part.string("separator"));
    const std::string each = any_of(tags_of(part));
    const std::string all = again ? fmt::format("({0} ({1} {0})*)", each, separator) : each;
    return at_least_one ? all : fmt::format("({})?", all);
  }

  /// The older form, as the newer one.
  std::string structures(Part& whole) {
    json::array tags;
    const json::array& list = array_at(whole.at("structures"), "/structures");
    for (size_t i = 0; i < list.size(); ++i) {
      Part each(list[i], fmt::format("/structures/{}", i));
      const json::value& schema = each.at("schema");
      tags.push_back({{"begin", each.string("begin")},
                      {"content", {{"type", "json_schema"}, {"json_schema", schema}}},
                      {"end", each.string("end")}});
      each.check();
    }
    const json::value triggered = {
        {"type", "triggered_tags"}, {"triggers", whole.at("triggers")}, {"tags", std::move(tags)}};
    return format(triggered, "", {});
  }

  json::array document_;  // the schemas
  std::vector<SchemaRule> wanted_;
  Texts places_;  // of the schemas
  std::string rules_;
  size_t rules_named_ = 0;
  size_t parts_ = 0;
};

/// The place in "structures" of a place in the tags that they became.
std::string place_in_structures(std::string pointer) {
  constexpr std::string_view kTags = "/tags/";
  constexpr std::string_view kContent = "/content/json_schema";
  if (!pointer.starts_with(kTags)) return pointer;
  pointer.replace(0, kTags.size(), "/structures/");
  if (const size_t at = pointer.find(kContent); at != std::string::npos)
    pointer.replace(at, kContent.size(), "/schema");
  return pointer;
}

}  // namespace

tl::expected<std::string, SchemaFault> structural_tag_grammar(const boost::json::value& tag) {
  try {
    return TagWriter().write(tag);
  } catch (const Refused& refused) {
    SchemaFault fault = refused.fault;
    if (tag.is_object() && tag.get_object().contains("structures"))
      fault.pointer = place_in_structures(std::move(fault.pointer));
    return tl::unexpected(std::move(fault));
  }
}

}  // namespace quire::grammar
