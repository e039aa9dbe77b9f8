#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/ebnf.h"
#include "grammar/schema_terms.h"

namespace quire::grammar {

/// Writes the rules of schemas of one document: one for each set of subschemas that hold for the same
/// instance.
class SchemaWriter {
 public:
  /// `document` must outlive it.
  explicit SchemaWriter(const json::value& document);

  /// The rules `wanted`, and those that they need. Throws Refused.
  std::string write(const std::vector<SchemaRule>& wanted);

  // For write_object().
  Rules& rules() { return rules_; }
  WorkLeft& work() { return terms_.work(); }
  /// The rule of instances for which all hold; written later.
  std::string rule_of(const Nodes& nodes);
  /// The ways to satisfy all; empty: there is none.
  const std::vector<Term>& terms(const Nodes& nodes);
  /// The rule of strings, as JSON writes them, that satisfy the term's keywords; empty: there is none.
  std::optional<std::string> string_rule(const Term& term);
  /// The rule of what may stand between two tokens.
  std::string space();
  /// Without what says nothing; nullptr says nothing.
  static Nodes joined(const std::vector<Node>& nodes);

 private:
  void write_rule(const Nodes& nodes);
  void write_term(const Term& term, std::vector<Rules::Alternative>& out);
  void write_numbers(const Term& term, std::vector<Rules::Alternative>& out);
  void write_array(const Term& term, std::vector<Rules::Alternative>& out);
  std::optional<std::string> counted_string(const CharSet& set, uint32_t min, uint32_t max);

  SchemaTerms terms_;
  Rules rules_;
  std::map<Nodes, std::string> names_;
  std::map<Nodes, std::vector<Term>> known_;
  std::deque<Nodes> waiting_;
};

}  // namespace quire::grammar
