#pragma once

#include <memory>
#include <string>

#include "tokenize/token_decoder.h"

namespace quire::tokenize {

/// BERT's decoder: tokens with `prefix` continue a word, others begin a word after a space. `cleanup`: no
/// space before punctuation and English contractions.
std::unique_ptr<DecodeStep> make_word_piece_decoder(std::string prefix, bool cleanup);

/// `suffix` (not empty), which ends a word, becomes a space, and is removed from the last token.
std::unique_ptr<DecodeStep> make_word_end_decoder(std::string suffix);

}  // namespace quire::tokenize
