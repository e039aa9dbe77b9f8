#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/mask_source.h"
#include "grammar/compiler.h"
#include "tokenize/tokenizer.h"

namespace quire::serve {

/// The grammars of requests for one model. What it takes is made with the first one. For one thread at a
/// time.
class Grammars {
 public:
  /// `tokenizer` must outlive it. `trial_command`: see grammar::CompilerConfig; empty: grammars are refused.
  Grammars(const tokenize::Tokenizer& tokenizer, uint32_t vocab_size, std::vector<TokenId> ends,
           std::vector<std::string> trial_command)
      : tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        ends_(std::move(ends)),
        trial_command_(std::move(trial_command)) {}

  /// Takes as long as to compile the grammar, if it is a new one; see grammar::Compiler.
  Expected<engine::MakeMaskSource> compile(const std::string& grammar);

 private:
  const tokenize::Tokenizer& tokenizer_;
  const uint32_t vocab_size_;
  const std::vector<TokenId> ends_;
  const std::vector<std::string> trial_command_;
  std::optional<grammar::Compiler> compiler_;
  std::string unsupported_;  // why no grammar can be compiled, once known
};

}  // namespace quire::serve
