#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "backend/token_masks.h"
#include "grammar/compiler.h"
#include "grammar/expression.h"

// Whether texts follow a grammar, by the masks that a sequence gets: a vocabulary of all bytes, and an end.
namespace quire::grammar {

inline constexpr TokenId kEnd = 256;

inline Vocabulary byte_vocabulary() {
  Vocabulary out;
  for (int byte = 0; byte < 256; ++byte) out.tokens.emplace_back(1, static_cast<char>(byte));
  out.tokens.emplace_back();
  out.ends = {kEnd};
  return out;
}

inline CompilerConfig test_config() {
  CompilerConfig config;
  config.trial_command = {QUIRE_PROGRAM, "--compile-grammars"};
  return config;
}

inline Compiler& byte_compiler() {
  static Compiler compiler(byte_vocabulary(), test_config());
  return compiler;
}

/// However much work it takes.
inline bool matches(const Expression& of, std::string_view text) {
  WorkLeft work(UINT64_MAX);
  return matches(of, text, work);
}

inline std::vector<uint32_t> mask_of(engine::MaskSource& source) {
  std::vector<uint32_t> mask(9, ~0U);
  source.fill(mask);
  return mask;
}

using backend::allows;

/// A compiled grammar. It fails the test if it does not compile.
class Follower {
 public:
  explicit Follower(const std::string& grammar) {
    auto made = byte_compiler().compile(grammar);
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message) << "\n" << grammar;
    if (made) make_ = std::move(*made);
  }

  /// Whether an answer may be `text` and end there.
  bool accepts(std::string_view text) const {
    if (!make_) return false;
    const std::unique_ptr<engine::MaskSource> source = make_();
    for (const char c : text) {
      const auto token = static_cast<TokenId>(static_cast<unsigned char>(c));
      if (!allows(mask_of(*source), token)) return false;
      source->accept(token);
    }
    return allows(mask_of(*source), kEnd);
  }

 private:
  engine::MakeMaskSource make_;
};

/// Expects of a grammar that it accepts the texts `yes` and none of `no`.
inline void expect_texts(const std::string& grammar, const std::vector<std::string>& yes,
                         const std::vector<std::string>& no) {
  const Follower follower(grammar);
  for (const std::string& text : yes) EXPECT_TRUE(follower.accepts(text)) << text << "\n" << grammar;
  for (const std::string& text : no) EXPECT_FALSE(follower.accepts(text)) << text << "\n" << grammar;
}

#define QUIRE_NEEDS_XGRAMMAR() \
  if (!quire::grammar::can_compile()) GTEST_SKIP() << "built without XGrammar (QUIRE_XGRAMMAR)"

}  // namespace quire::grammar
