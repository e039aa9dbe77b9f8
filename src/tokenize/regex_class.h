#pragma once

#include <map>
#include <string>
#include <vector>

#include "tokenize/regex_char_set.h"

namespace quire::tokenize {

/// What stands between the brackets of a pattern: operands of &&, each the union of its members.
struct CharClass {
  struct Member {
    std::string text;  // to stand between [ and ] in PCRE2
    bool negated = false;
    bool is_property = false;
    std::vector<CharClass> nested;  // one, instead of all this
  };
  bool negated = false;
  std::vector<std::vector<Member>> operands = {{}};
};

/// Writes the classes of one pattern as PCRE2 understands them.
class ClassWriter {
 public:
  /// With its brackets. As it is where PCRE2 has all that it has; else the characters that it comes to, one
  /// range after the other, whole properties by name. `caseless`: (?i) is on. Throws std::invalid_argument
  /// with what is not supported.
  std::string write(const CharClass& of, bool caseless);

 private:
  const CharSet& characters(const std::string& members);
  CharSet evaluate(const CharClass& of);
  std::string members_of(const CharSet& whole, bool caseless) const;

  std::map<std::string, CharSet> kinds_;  // what PCRE2 matches, by what stands in the brackets
};

}  // namespace quire::tokenize
