#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "tokenize/sentencepiece_file.h"
#include "tokenize/tokenizer.h"
#include "tokenize/tokenizer_config.h"

namespace quire::tokenize {

/// Whether these may be the bytes of a SentencePiece model, and not text.
bool looks_like_sentencepiece(std::string_view bytes);

/// The tokenizer of a SentencePiece model (BPE, unigram or character), `where` the file. The text between
/// special tokens gets the same ids as with SentencePiece. Unlike there, control pieces and the unknown piece
/// are recognized in a text, as in the libraries that run the models. Special tokens and
/// tokenizer_config.json: see Tokenizer::load; without that file BOS is added if the model has one.
std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view bytes, const std::filesystem::path& where);

/// The same for a file that was read with read_sentencepiece.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const SentencePieceFile& file,
                                                   const TokenizerConfig& config,
                                                   const std::filesystem::path& where);

}  // namespace quire::tokenize
