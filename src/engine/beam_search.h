#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::engine {

inline constexpr uint32_t kMaxBeamWidth =
    10;  // twice as many logprobs are needed, and an executor gives at most 20

/// A complete or partial answer.
struct Hypothesis {
  std::vector<SampledToken> tokens;  // with their logprobs
  double logprob = 0;                // the sum of them
  bool stopped = false;              // its last token is a stop token
};

/// Searches for the most likely answers. In each round the `width` most likely of all continuations of the
/// live hypotheses stay alive, and those that end with a stop token are set aside. At the end the score of
/// both decides: logprob / length ^ length_penalty (Wu et al. 2016, with 0 instead of their 5). The result
/// depends on the logprobs alone; ties go to the earlier hypothesis, then to the more likely token.
///
/// A live hypothesis is a sequence of the scheduler that samples greedily and never stops. The most likely of
/// its continuations is the same sequence, and the others are forks of it. A sequence may be some tokens
/// ahead of the round: these tokens belong to its own most likely continuation, and are valid if that one
/// stays alive. Pure; not thread-safe.
class BeamSearch {
 public:
  /// 1 <= width <= kMaxBeamWidth. `stop_tokens`: sorted. `first`: the sequence, without generated tokens.
  BeamSearch(uint32_t width, double length_penalty, std::vector<TokenId> stop_tokens, uint32_t max_tokens,
             SeqId first);

  struct Fork {
    SeqId parent = 0;
    SeqId id = 0;
    std::vector<TokenId> tokens;  // the answer so far; the last token is not the parent's
  };
  struct Changes {
    std::vector<SeqId> ended;  // no longer needed
    std::vector<Fork> forks;   // to be started
  };

  /// The next token of `seq`, with its 2 * width best in `top`. Ids that are not live are ignored.
  void take(SeqId seq, SampledToken token);
  /// Executes all rounds for which every live hypothesis has its token. New sequences get ids from `next` on.
  Changes advance(SeqId& next);
  /// No sequence is live.
  bool done() const { return beams_.empty(); }
  /// The live sequences.
  std::vector<SeqId> living() const;
  /// The `count` best, best first; `count` <= width, and that many exist. REQUIRES: done().
  std::vector<Hypothesis> best(uint32_t count) const;

 private:
  struct Beam {
    SeqId seq = 0;
    Hypothesis so_far;
    std::deque<SampledToken> ahead;
  };
  struct Candidate {
    size_t beam = 0;
    uint32_t rank = 0;  // in `top`
    double logprob = 0;
  };
  std::vector<Candidate> candidates() const;
  void round(SeqId& next, Changes& changes);
  /// The best score that a live hypothesis can still reach.
  double most_attainable() const;
  bool settled() const;
  double score(double logprob, size_t length) const;

  uint32_t width_;
  double length_penalty_;
  std::vector<TokenId> stop_tokens_;
  uint32_t max_tokens_;
  std::vector<Beam> beams_;
  std::vector<Hypothesis> finished_;
};

}  // namespace quire::engine
