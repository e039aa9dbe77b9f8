#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "base/ids.h"
#include "tokenize/tokenizer.h"

namespace quire::grammar {

/// What a grammar has to know of a model.
struct Vocabulary {
  std::vector<std::string> tokens;  // the bytes of each inside a text; empty: never part of one
  std::vector<TokenId> ends;        // of an answer; at least one
};

/// The first `size` ids. Special tokens and ids without an entry have no bytes. The error is a sentence for
/// the client: the model names no end of an answer, or the text of tokens is not the texts of each, joined.
tl::expected<Vocabulary, std::string> vocabulary_of(const tokenize::Tokenizer& tokenizer, uint32_t size,
                                                    std::span<const TokenId> ends);

}  // namespace quire::grammar
