#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::engine {

inline constexpr uint32_t kMaxBeamWidth = 10;  // twice as many logprobs are needed, and there are 20

/// An answer, or the beginning of one.
struct Hypothesis {
  std::vector<SampledToken> tokens;  // with their own logprobs
  double logprob = 0;                // the sum of them
  bool stopped = false;              // its last token is a stop token
};

/// Looks for the likeliest answers: in each round the `width` likeliest of all continuations of the living
/// hypotheses live on, and those that end with a stop token are set aside. At last the score of both decides:
/// logprob / length ^ length_penalty (Wu et al. 2016, with 0 for their 5). What it finds depends on the
/// logprobs alone; ties go to the earlier hypothesis, then to the likelier token.
///
/// A living hypothesis is a sequence of the scheduler that samples greedily and never stops; of its
/// continuations the likeliest is the same sequence, the others are forks of it. A sequence may be some
/// tokens ahead of the round: those are of its own likeliest continuation, and valid if that one lives on.
/// Pure; not thread-safe.
class BeamSearch {
 public:
  /// 1 <= width <= kMaxBeamWidth. `stop_tokens`: sorted. `first`: the sequence that has no token yet.
  BeamSearch(uint32_t width, double length_penalty, std::vector<TokenId> stop_tokens, uint32_t max_tokens,
             SeqId first);

  struct Fork {
    SeqId parent = 0;
    SeqId id = 0;
    std::vector<TokenId> tokens;  // of the answer so far; the last is not the parent's
  };
  struct Changes {
    std::vector<SeqId> ended;  // of no use any more
    std::vector<Fork> forks;   // to be started
  };

  /// What `seq` sampled next, with its 2 * width best in `top`. Ids that do not live are ignored.
  void take(SeqId seq, SampledToken token);
  /// Plays the rounds for which every living hypothesis has its token. New sequences get ids from `next` on.
  Changes advance(SeqId& next);
  /// No sequence lives.
  bool done() const { return beams_.empty(); }
  /// Sequences that live.
  std::vector<SeqId> living() const;
  /// REQUIRES: done(). The best, best first; `count` <= width, and all of them are there.
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
  /// The best score that a living hypothesis may still come to.
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
