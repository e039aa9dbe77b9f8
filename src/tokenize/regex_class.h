#pragma once

#include <map>
#include <string>
#include <vector>

#include "tokenize/regex_char_set.h"

namespace quire::tokenize {

/// The contents of the brackets of a pattern: operands of &&, each the union of its members.
struct CharClass {
  struct Member {
    std::string text;  // text for use between [ and ] in PCRE2
    bool negated = false;
    bool is_property = false;
    std::vector<CharClass> nested;  // if not empty, this one instead of all the above
  };
  bool negated = false;
  std::vector<std::vector<Member>> operands = {{}};
};

/// Writes the classes of one pattern in PCRE2's syntax.
class ClassWriter {
 public:
  /// Returns the class with its brackets: unchanged if PCRE2 supports all of it; else as the resulting
  /// characters, one range after the other, with whole properties by name. `caseless`: (?i) is on. Throws
  /// std::invalid_argument naming what is not supported.
  std::string write(const CharClass& of, bool caseless);

 private:
  const CharSet& characters(const std::string& members);
  CharSet evaluate(const CharClass& of);
  std::string members_of(const CharSet& whole, bool caseless) const;

  std::map<std::string, CharSet> kinds_;  // the characters that PCRE2 matches, by the text in the brackets
};

}  // namespace quire::tokenize
