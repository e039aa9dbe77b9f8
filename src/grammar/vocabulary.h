#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "base/ids.h"
#include "tokenize/tokenizer.h"

namespace quire::grammar {

/// No text has them.
inline constexpr std::string_view kSpecialBytes = "\xFF";

/// What a grammar has to know of a model.
struct Vocabulary {
  /// The bytes of each inside a text; empty: never part of an answer; kSpecialBytes: part of one only where
  /// the grammar names the token, as Token(id).
  std::vector<std::string> tokens;
  std::vector<TokenId> ends;  // of an answer; at least one
};

/// The first `size` ids. Special tokens have kSpecialBytes, ids without an entry no bytes. The error is a
/// sentence for the client: the model names no end of an answer, or the text of tokens is not the texts of
/// each, joined.
tl::expected<Vocabulary, std::string> vocabulary_of(const tokenize::Tokenizer& tokenizer, uint32_t size,
                                                    std::span<const TokenId> ends);

}  // namespace quire::grammar
