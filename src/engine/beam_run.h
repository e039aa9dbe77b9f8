#pragma once

#include <vector>

#include "control/request.h"
#include "engine/beam_search.h"
#include "engine/choice.h"
#include "engine/engine.h"

namespace quire::engine {

/// A request with beam search: turns the scheduler's sequences into answers.
class BeamRun {
 public:
  /// `first`: its first sequence, as for any request; the constructor changes it to what a beam needs.
  BeamRun(GenerationRequest request, control::SeqSpec& first);

  struct Changes {
    std::vector<control::SeqSpec> added;  // forks; add them before any sequence is ended
    std::vector<SeqId> ended;
  };

  void take(SeqId seq, SampledToken token) { search_.take(seq, std::move(token)); }
  /// To be called after all events of a step. New sequences get ids from `next` on.
  Changes advance(SeqId& next);
  bool done() const { return search_.done(); }
  /// The sequences that have not ended.
  std::vector<SeqId> living() const { return search_.living(); }
  /// The n best answers with their text, most likely first. REQUIRES: done(). Throws Error if the tokenizer
  /// has no text for them.
  std::vector<ChoiceOutput> answers(const tokenize::Tokenizer& tokenizer) const;

 private:
  GenerationRequest request_;
  control::SeqSpec spec_;  // what all its sequences have in common
  BeamSearch search_;
};

}  // namespace quire::engine
