#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/json.h"
#include "tokenize/tokenizer.h"

namespace quire::test {

/// Writes `text` to a new file and loads it as a tokenizer.json.
std::unique_ptr<tokenize::Tokenizer> load_tokenizer(std::string_view text);
std::unique_ptr<tokenize::Tokenizer> load_tokenizer(const json::value& value);

/// A tokenizer.json of a few entries: byte-level (GPT-2's manner), and SentencePiece's with byte fallback.
json::object small_byte_level();
json::object small_sentencepiece();

/// The ids in a JSON array.
std::vector<TokenId> ids_of(const json::value& array);

/// What a Detokenizer gives for `ids`, joined. Fails the test if a piece is not whole characters.
std::string decode_in_pieces(const tokenize::Tokenizer& tokenizer, std::span<const TokenId> ids,
                             bool skip_special_tokens);

/// The message of the Error that loading `text` throws; fails the test if it throws none.
std::string load_error(std::string_view text);

}  // namespace quire::test
