#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/regex_char_set.h"

namespace quire::grammar {

using tokenize::CharSet;

/// What a text may be: the right side of a grammar's rule, or a regular expression, which has no kRule.
/// Plain data; the functions below are pure.
struct Expression {
  enum class Kind : uint8_t {
    kSet,       // one character of `set`
    kSequence,  // all parts, one after the other
    kChoice,    // one of the parts
    kRepeat,    // parts[0], from `min` to `max` times
    kRule,      // the text of `rule`
    kBegin,     // the anchor ^
    kEnd,       // the anchor $
  };
  static constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::kSequence;
  CharSet set;
  std::vector<Expression> parts;
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  std::string rule;
};

/// The set of one character.
inline CharSet character(char32_t code) { return CharSet::of_range(code, code); }

Expression one_of(CharSet set);
Expression sequence(std::vector<Expression> parts);
Expression choice(std::vector<Expression> parts);
Expression repeat(Expression part, uint32_t min, uint32_t max);
/// The text itself; valid UTF-8.
Expression text(std::string_view text);
/// Every character but surrogates.
CharSet any_character();

/// The same without parts that match nothing, such as an empty set; empty if nothing is left.
std::optional<Expression> without_dead_parts(const Expression& of);

/// The characters that a JSON string may hold unescaped (RFC 8259, 7).
const CharSet& unescaped_in_json();
/// One character of a JSON string as JSON writes it: unescaped, or with any escape of RFC 8259, without lone
/// surrogates.
Expression json_character();
/// A regular expression for the contents of a JSON string as JSON writes them: where a set holds a quotation
/// mark, a backslash or a control character, its escape. A set of all characters permits every escape.
Expression in_json_string(const Expression& of);

/// A text that holds none of `marks`, which all begin with the same character and have it nowhere else;
/// ASCII.
Expression text_without(std::span<const std::string_view> marks);

/// The least and the most characters that a regular expression matches; kUnbounded: no limit.
struct Lengths {
  uint32_t min = 0;
  uint32_t max = 0;
};
Lengths lengths(const Expression& of);

/// The number of sets once every repetition is written out, as an automaton has them. Saturates.
size_t unrolled_size(const Expression& of);

/// The work that may still be done. What a request may ask of this process is bounded by it: a unit takes up
/// to about 0.1 us.
class WorkLeft {
 public:
  struct Spent {};  // thrown when nothing is left
  explicit WorkLeft(uint64_t units) : units_(units) {}
  void spend(uint64_t units) {
    if (units > units_) throw Spent{};
    units_ -= units;
  }

 private:
  uint64_t units_;
};

/// Whether a regular expression without anchors matches all of `text` (valid UTF-8). Takes at most size times
/// length squared of the work; throws WorkLeft::Spent.
bool matches(const Expression& of, std::string_view text, WorkLeft& work);

/// Whether it has a part of this kind.
bool has(const Expression& of, Expression::Kind kind);

}  // namespace quire::grammar
