#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace quire::tokenize {

/// Bytes [begin, end) of a text.
struct Span {
  size_t begin;
  size_t end;
  bool operator==(const Span&) const = default;
};

/// A pattern of a tokenizer file, on PCRE2 with its JIT. The files' syntax is Oniguruma's (Ruby's), which the
/// reference library runs; where the two differ, the pattern is rewritten, or refused if that is impossible.
/// Immutable and thread-safe; copies share the compiled code.
class Regex {
 public:
  /// The error says what is wrong, and where in the pattern.
  static tl::expected<Regex, std::string> compile(std::string_view pattern);

  /// Appends every match in `text` (valid UTF-8), from left to right. An empty match directly after the
  /// previous match is skipped. Throws Error if a match needs more steps or memory than the limits allow,
  /// which only happens with nested repetition.
  void find_all(std::string_view text, std::vector<Span>& out) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// Rewrites a pattern in Oniguruma's syntax into PCRE2's (with UTF, UCP and MULTILINE). The error says why
/// not.
tl::expected<std::string, std::string> oniguruma_to_pcre2(std::string_view pattern);

}  // namespace quire::tokenize
