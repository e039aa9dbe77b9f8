#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "grammar/expression.h"

namespace quire::grammar {

// Bounds of one regular expression.
inline constexpr size_t kMaxRegexBytes = 16 << 10;
inline constexpr size_t kMaxRegexDepth = 100;        // of groups
inline constexpr size_t kMaxRegexSize = 20'000;      // unrolled_size
inline constexpr uint32_t kMaxRegexRepeat = 10'000;  // a count in braces

/// What the expression asks of a text in which it is searched: the whole text must match the result, which
/// has no anchors and no dead parts. The syntax is ECMA-262's with the flag u: also (?<name>...), lazy
/// quantifiers and \p{...}. Refused, by name: lookaround, backreferences, \b and \B, anchors elsewhere than
/// at the ends of the expression or of an outer alternative, and what the bounds forbid. `text` must be valid
/// UTF-8. The error says what is wrong, and at which character.
tl::expected<Expression, std::string> parse_searched(std::string_view text);
/// The same, but the expression must match the whole text by itself, as if between ^ and $.
tl::expected<Expression, std::string> parse_whole(std::string_view text);

}  // namespace quire::grammar
