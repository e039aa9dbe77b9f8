#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/engine.h"
#include "engine/mask_source.h"
#include "tokenize/tokenizer.h"

namespace quire::engine {

/// Answers that a device without a model is made to give, for tests of programs that talk to one. A file
/// holds them: a JSON string on each line; empty lines count for nothing.
class AnswerScript {
 public:
  /// `ends`: the tokens that end an answer. Throws Error that names the file and the line if a line is no
  /// string, if there is no line, or if the tokenizer cannot write a text as it stands.
  AnswerScript(const std::filesystem::path& path, const tokenize::Tokenizer& tokenizer,
               std::span<const TokenId> ends);

  /// Each sequence of the request will say the next answer when it arrives in the engine, and end; after the
  /// last answer comes the first again. The request's own mask source may still forbid tokens: where it
  /// forbids the next one, no token is left. Beam searches and requests without tokens stay as they are. The
  /// script must outlive the request. In any thread.
  void dictate(GenerationRequest& request) const;

 private:
  class Mask;
  struct Answer {
    size_t line = 0;              // in the file, counted from 1
    std::vector<TokenId> tokens;  // with one that ends it
  };

  std::filesystem::path path_;
  std::vector<Answer> answers_;
  mutable std::atomic<size_t> next_ = 0;
};

}  // namespace quire::engine
