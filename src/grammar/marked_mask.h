#pragma once

#include <string>

#include "engine/mask_source.h"
#include "tokenize/tokenizer.h"

namespace quire::grammar {

/// Mask sources that restrict nothing until the answer holds the text `mark`, then do as a new source of
/// `inside` says until that is complete, and then restrict nothing again up to the next mark. An answer
/// cannot end inside. The tokenizer must outlive the sources.
engine::MakeMaskSource restrict_after(std::string mark, engine::MakeMaskSource inside,
                                      const tokenize::Tokenizer& tokenizer);

}  // namespace quire::grammar
