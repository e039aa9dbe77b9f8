#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace quire::grammar {

inline constexpr size_t kMaxGbnfBytes = 256 << 10;
inline constexpr size_t kMaxGbnfRules = 2'000;

/// A grammar in GBNF, the format of llama.cpp, in XGrammar's syntax (ebnf.h): rules "name ::= ..." of texts
/// in quotation marks, classes, `.` for any character, names, groups, | * + ? {m} {m,} {m,n}, and comments
/// after #. The rule `root` is the whole text; line breaks mean nothing. Refused: rules without a finite
/// text, references to rules that do not exist, and tokens (<...>). `text` must be valid UTF-8. The error
/// says what is wrong, and in which line. `root`: the name of the rule `root` in the result; the names of the
/// others begin with it if it is another one.
tl::expected<std::string, std::string> gbnf_grammar(std::string_view text, const std::string& root = "root");

/// The grammar of a regular expression (regex.h), which must match the whole text.
tl::expected<std::string, std::string> regex_grammar(std::string_view pattern);

/// The grammar of texts of which any may come; valid UTF-8, none empty, at least one.
std::string choice_grammar(std::span<const std::string> texts);

}  // namespace quire::grammar
