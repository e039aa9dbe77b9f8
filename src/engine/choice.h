#pragma once

#include <optional>

#include "control/request.h"
#include "engine/engine.h"
#include "engine/stop_matcher.h"
#include "tokenize/tokenizer.h"

namespace quire::engine {

/// One of the n answers to a request: turns its sampled tokens into text and looks for stop strings.
class Choice {
 public:
  Choice(SeqId seq, uint32_t index, const GenerationRequest& request, const tokenize::Tokenizer& tokenizer);

  SeqId seq() const { return seq_; }
  uint32_t index() const { return index_; }
  bool ended() const { return ended_; }
  uint32_t num_tokens() const { return num_tokens_; }

  /// Adds the output of the event to `out` (of this choice, which may have output of the same step already).
  /// True if a stop string ended the choice, so that the caller must end the sequence; the event may already
  /// have ended it.
  bool take(const control::SeqEvent& event, ChoiceOutput& out);

  /// Ends it from outside (kAbort, kError) and adds the text held back. Throws nothing.
  void end(control::FinishReason reason, ChoiceOutput& out);

 private:
  void append(std::string_view piece, ChoiceOutput& out, bool& stopped);

  SeqId seq_;
  uint32_t index_;
  uint32_t min_tokens_;  // stop strings are looked for behind them
  bool show_stop_token_;
  bool ended_ = false;
  uint32_t num_tokens_ = 0;
  tokenize::Detokenizer detokenizer_;
  StopMatcher stops_;
};

}  // namespace quire::engine
