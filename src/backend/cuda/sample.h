#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/cuda/stream.h"
#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::backend::cuda {

/// Of a vocabulary: what a block's shared memory holds sums for.
inline constexpr uint32_t kMostSampledVocabulary = 262144;
inline constexpr uint32_t kMostBestTokens = 20;
/// Tokens just before a row's own that only the device knows, as the steps that sample them are in flight.
inline constexpr uint32_t kMostLateTokens = 2;
inline constexpr TokenId kAnyToken = -1;

struct BiasedToken {
  TokenId id;
  float bias;
};
/// A distinct token of a sequence, and how often it is in the output: 0 if only in the prompt.
struct CountedToken {
  TokenId id;
  uint32_t in_output;
};

/// Forbidden if the row's late tokens, the newest first, are these.
struct ForbiddenToken {
  TokenId id;
  TokenId after[kMostLateTokens] = {kAnyToken, kAnyToken};
};

/// Some elements of a list of SampleArgs.
struct ListPart {
  uint32_t first = 0;
  uint32_t count = 0;
};

/// How one row's token is chosen, as SamplingParams says.
struct SampleRow {
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;
  float temperature = 1.0F;
  int32_t top_k = 0;
  float top_p = 1.0F;
  float min_p_reach = -std::numeric_limits<float>::infinity();  // temperature * log(min_p)
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  int32_t num_logprobs = -1;                   // at most kMostBestTokens
  uint32_t logits = 0;                         // its row of SampleArgs::logits
  uint32_t place = 0;                          // of its token in SampleArgs::tokens
  uint32_t workspace = 0;                      // its part of SampleArgs::workspace, unless takes_best()
  uint32_t num_late = 0;                       // late tokens of the output, not in `counts`
  uint32_t late_places[kMostLateTokens] = {};  // in SampleArgs::tokens, the newest first
  ListPart biases;                             // no id twice
  ListPart counts;                             // by rising id, none twice; none if there are no penalties
  ListPart forbidden;                          // end tokens before min_tokens, last tokens of bad words
  ListPart rated;                              // logprob_tokens, if num_logprobs >= 0
  uint32_t allowed = kNoMask;                  // the mask of allowed_tokens
  uint32_t mask = kNoMask;  // that of the mask source, to which logprobs are restricted too
};

/// What does not depend on the step but `position`; without lists and masks. The logarithm is the host's, as
/// that of a device may have other last bits.
inline SampleRow sample_row(const SamplingParams& params, uint32_t position) {
  SampleRow row;
  row.seed = params.seed;
  row.choice = params.choice;
  row.position = position;
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  if (params.min_p > 0.0F) row.min_p_reach = params.temperature * std::log(params.min_p);
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.num_logprobs = params.num_logprobs;
  return row;
}

/// Whether the row's token is that of the highest logit, and nothing else is asked for: one pass finds it.
/// Without branches, so that a kernel waits for all that it reads of the row at once.
constexpr bool takes_best(const SampleRow& row) {
  const uint32_t entries = row.biases.count | row.counts.count | row.forbidden.count;
  const uint32_t masks = (row.allowed ^ kNoMask) | (row.mask ^ kNoMask);
  return static_cast<int>(row.temperature == 0.0F) & static_cast<int>(row.num_logprobs < 0) &
         static_cast<int>((entries | masks) == 0);
}

enum class SampleStatus : uint32_t {
  kToken,      // there is one
  kNotFinite,  // a logit is infinite or not a number
  kNoToken,    // the lists and masks leave none
};

/// What SampledToken has, of one row.
struct SampledRow {
  SampleStatus status;
  TokenId token;     // or, if a logit is not finite, that of the first one; 0 if none is left
  float logprob;     // as all below only if the row asks for logprobs; or the logit that is not finite
  uint32_t rank;     // from 1 on; 0 if the row does not ask
  uint32_t num_top;  // entries of `top`: the best, best first, lowest id first on a tie
  TokenLogprob top[kMostBestTokens];
};

/// Chooses one token a row, as sample::SequenceSampler does: from the same logits the same token, as all
/// sums that decide it are of the same f32 weights, in double and in the same order, and everything else is
/// exact. Logprobs are as the CPU's too, but for the last bit: their logarithm is the device's. A row's
/// result depends on that row alone.
///
/// All pointers are to the device, or to pinned memory: `results` and `rated_logprobs` are only written.
/// `logits`, f32: a row r begins at element r * stride; stride is at least the vocabulary and a multiple of
/// 4, and the rows begin at multiples of 16 bytes. A mask is ceil(vocabulary / 32) words, from the lowest bit
/// of the first on; a bit of 0 forbids its token. SampleRow says which part of a list and which of the masks
/// is a row's. Late tokens are those that earlier launches wrote to their places. The workspace has
/// sample_workspace_bytes for each row of which takes_best() is false, from a multiple of 16 bytes on; its
/// contents mean nothing before and after, so rows may be divided among launches of one stream that use the
/// same workspace.
///
/// One block a row, of one kernel for the rows of which takes_best() is true (sample_best.h) and of another
/// for the others; a kernel that has none is not launched. A row takes longer the more tokens its filters
/// leave: they are sorted for top-p, and their weights are added one after another.
///
/// Refused (error 1): a vocabulary of 0 or above kMostSampledVocabulary.
struct SampleArgs {
  const float* logits;
  uint32_t stride;
  uint32_t vocabulary;
  uint32_t num_rows;
  uint32_t num_best;      // of them, those of which takes_best() is true
  const SampleRow* rows;  // [num_rows]
  const BiasedToken* biases;
  const CountedToken* counts;
  const ForbiddenToken* forbidden;
  const TokenId* rated;
  const uint32_t* masks;
  void* workspace;
  TokenId* tokens;        // by place; -1 where there is none
  SampledRow* results;    // [num_rows]
  float* rated_logprobs;  // of `rated`, one for each; as they were where there is no token
};
[[nodiscard]] LaunchError sample(const SampleArgs& args, Stream stream);

/// Of one row.
size_t sample_workspace_bytes(uint32_t vocabulary);

}  // namespace quire::backend::cuda
