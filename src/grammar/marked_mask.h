#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/mask_source.h"
#include "tokenize/tokenizer.h"

namespace quire::grammar {

/// A text from which on an answer is restricted; not empty.
struct Mark {
  std::string text;
  size_t kept = 0;  // bytes at its end that belong to what is restricted
  /// It counts only at the beginning of the answer, whatever white space it holds there, and all of it
  /// belongs to what is restricted.
  bool at_start = false;
};

/// Mask sources that restrict nothing until the answer holds one of the marks, then do as a new source of
/// `inside` says until that is complete, and then restrict nothing again up to the next mark. What `inside`
/// does not permit to follow a mark in the same token is not restricted. An answer cannot end inside. The
/// tokenizer must outlive the sources.
engine::MakeMaskSource restrict_after(std::vector<Mark> marks, engine::MakeMaskSource inside,
                                      const tokenize::Tokenizer& tokenizer);

}  // namespace quire::grammar
