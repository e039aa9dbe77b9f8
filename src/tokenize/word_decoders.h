#pragma once

#include <memory>
#include <string>

#include "tokenize/token_decoder.h"

namespace quire::tokenize {

/// BERT's: tokens with `prefix` go on a word, others begin one behind a space. `cleanup`: no space before
/// punctuation and English contractions.
std::unique_ptr<DecodeStep> make_word_piece_decoder(std::string prefix, bool cleanup);

/// `suffix` (not empty), which ends a word, becomes a space, in the last token nothing.
std::unique_ptr<DecodeStep> make_word_end_decoder(std::string suffix);

}  // namespace quire::tokenize
