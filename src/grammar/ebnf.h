#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"

// Writes the syntax that XGrammar 0.2.8 reads (grammar_parser.cc): rules "name ::= body", with regular
// expressions as the macro Regex("..."), which become one automaton each, so that the mask of a state is
// known before it is needed. What is written is ASCII and uses only what is said here: classes of code
// points, sequences, choices, repetitions of at most kMaxRepeat, and the rule attribute max_chars.
namespace quire::grammar {

/// XGrammar 0.2.8 fails on more inside Regex(); longer ones are written in pieces.
inline constexpr uint32_t kMaxRepeat = 128;

/// "text" as a string of the grammar.
std::string literal(std::string_view text);
/// The body of a rule. The expression has no anchors and no dead parts.
std::string body(const Expression& of);

/// The rules of one grammar.
class Rules {
 public:
  struct Alternative {
    std::string body;
    std::vector<std::string> needs;  // rules that are part of each text of it
  };

  /// A new name, to be defined later.
  std::string declare(std::string_view hint);
  /// `max_chars`: the rule's text has at most as many characters; kUnbounded: any number.
  void define(const std::string& name, std::vector<Alternative> alternatives,
              uint32_t max_chars = Expression::kUnbounded);
  /// A rule with this body; the same for the same body.
  std::string shared(std::string_view hint, const std::string& body,
                     uint32_t max_chars = Expression::kUnbounded);

  bool defined(const std::string& name) const { return rules_.contains(name); }
  size_t size() const { return rules_.size(); }
  size_t bytes() const { return bytes_; }  // of all bodies
  /// A rule without a finite text, such as one that needs itself; "" if each has one.
  std::string endless() const;
  /// All rules.
  std::string text() const;

 private:
  struct Rule {
    std::vector<Alternative> alternatives;
    uint32_t max_chars = Expression::kUnbounded;
  };
  std::map<std::string, Rule> rules_;
  std::map<std::string, std::string> by_body_;
  size_t names_ = 0;
  size_t bytes_ = 0;
};

}  // namespace quire::grammar
