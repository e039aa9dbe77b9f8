#pragma once

#include <vector>

#include "control/request.h"
#include "engine/beam_search.h"
#include "engine/choice.h"
#include "engine/engine.h"

namespace quire::engine {

/// A request with beam search, between the scheduler's sequences and the answers.
class BeamRun {
 public:
  /// `first`: the sequence that it begins with, as any other of the request would be; changed to what a beam
  /// needs.
  BeamRun(GenerationRequest request, control::SeqSpec& first);

  struct Changes {
    std::vector<control::SeqSpec> added;  // forks; to be added before any is ended
    std::vector<SeqId> ended;
  };

  void take(SeqId seq, SampledToken token) { search_.take(seq, std::move(token)); }
  /// After all news of a step. New sequences get ids from `next` on.
  Changes advance(SeqId& next);
  bool done() const { return search_.done(); }
  /// The sequences that are under way.
  std::vector<SeqId> living() const { return search_.living(); }
  /// REQUIRES: done(). The n best with their text, likeliest first. Throws Error if the tokenizer has none.
  std::vector<ChoiceOutput> answers(const tokenize::Tokenizer& tokenizer) const;

 private:
  GenerationRequest request_;
  control::SeqSpec spec_;  // what all sequences have in common
  BeamSearch search_;
};

}  // namespace quire::engine
