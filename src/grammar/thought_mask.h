#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/mask_source.h"
#include "tokenize/tokenizer.h"

namespace quire::grammar {

/// What a model writes before its answer.
struct Thought {
  std::string open;   // the marks around it
  std::string close;  // not empty
  bool begun =
      false;  // the prompt has opened it. Otherwise an answer may begin with `open`, if that is one token
  /// The most tokens of it; after them the model has to close it. Empty: any number.
  std::optional<uint32_t> budget;
  std::vector<TokenId> ends;  // tokens that end an answer
};

/// Mask sources that restrict nothing during the thought but its length, and do as `then` says after it. With
/// `then`, the answer cannot end in the thought. `then` may be empty: nothing is restricted after it. The
/// tokenizer must outlive the sources. Throws Error if the mark has no tokens.
engine::MakeMaskSource think_first(const Thought& thought, engine::MakeMaskSource then,
                                   const tokenize::Tokenizer& tokenizer);

}  // namespace quire::grammar
