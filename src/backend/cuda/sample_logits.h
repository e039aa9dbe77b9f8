#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/sample_block.h"
#include "backend/cuda/sample_math.h"

// Passes of a block over one row of logits, as sample/logits.h has them. The sum of a span of kSpan values is
// that of the CPU, value by value, and so is the sum of the spans. All threads reach each function that is
// not of a span.
namespace quire::backend::cuda {

struct LogitView {
  const float* values;
  uint64_t* entries;  // room for the vocabulary, and so has
  uint64_t* spare;
  float* maxima;  // of the spans
  uint32_t vocabulary;
  uint32_t spans;
  float max;
};

/// Four values from `i` on, a multiple of 4; behind the end there are forbidden ones.
__device__ __forceinline__ Floats<float> load_logits(const float* values, uint32_t i, uint32_t vocabulary) {
  if (i + 4 <= vocabulary) return unpack<float>(ptx::load_128(values + i));
  Floats<float> out;
  QUIRE_UNROLL
  for (uint32_t j = 0; j < 4; ++j) out.at[j] = i + j < vocabulary ? values[i + j] : kForbiddenLogit;
  return out;
}

/// Four threads, a *team*, go through a span together: of each 16 values a thread has the same four
/// neighbours.
inline constexpr uint32_t kTeam = 4;
inline constexpr uint32_t kLanes = 16;  // of the CPU's sums
inline constexpr uint32_t kPiecesOfThread = kSpan / kLanes;
static_assert(kTeam * kPiece<float> == kLanes);

/// What a thread has of a span: at[i] are the values from place_in_span(i) on.
struct PartOfSpan {
  Floats<float> at[kPiecesOfThread];
};
__device__ __forceinline__ uint32_t place_in_span(uint32_t i) {
  return i * kLanes + thread_x() % kTeam * kPiece<float>;
}

__device__ __forceinline__ bool is_whole(uint32_t span, uint32_t vocabulary) {
  return (span + 1) * kSpan <= vocabulary;
}

/// Behind the end of the row there are forbidden values.
__device__ __forceinline__ PartOfSpan load_part(const float* values, uint32_t span, uint32_t vocabulary) {
  const float* own = values + size_t{span} * kSpan;
  PartOfSpan part;
  if (is_whole(span, vocabulary)) {
    ptx::Vec128 pieces[kPiecesOfThread];  // all are asked for before one is used
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kPiecesOfThread; ++i) pieces[i] = ptx::load_128(own + place_in_span(i));
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kPiecesOfThread; ++i) part.at[i] = unpack<float>(pieces[i]);
    return part;
  }
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kPiecesOfThread; ++i) {
    part.at[i] = load_logits(values, span * kSpan + place_in_span(i), vocabulary);
  }
  return part;
}

__device__ __forceinline__ uint32_t teams_of(const SampleShared& shared) { return shared.threads / kTeam; }

/// Calls visit(id, value) for each value of a span, in order, by one thread.
template <class Visit>
__device__ __forceinline__ void for_each_of_span(const LogitView& view, uint32_t span, const Visit& visit) {
  const uint32_t end = (span + 1) * kSpan < view.vocabulary ? (span + 1) * kSpan : view.vocabulary;
  for (uint32_t i = span * kSpan; i < end; i += kPiece<float>) {
    const Floats<float> piece = load_logits(view.values, i, view.vocabulary);
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kPiece<float>; ++j) {
      if (i + j < end) visit(i + j, piece.at[j]);
    }
  }
}

/// Calls visit(id, value) for each value >= `least` of this thread's spans: neighbours of each other, before
/// those of the next thread.
template <class Visit>
__device__ __forceinline__ void for_each_at_least(const LogitView& view, float least,
                                                  const SampleShared& shared, const Visit& visit) {
  const uint32_t each = (view.spans + shared.threads - 1) / shared.threads;
  for (uint32_t span = thread_x() * each; span < (thread_x() + 1) * each && span < view.spans; ++span) {
    if (view.maxima[span] < least) continue;
    for_each_of_span(view, span, [&](uint32_t id, float value) {
      if (value >= least) visit(id, value);
    });
  }
}

/// The lowest id of the highest value.
__device__ inline TokenId arg_max(const LogitView& view, const SampleShared& shared) {
  uint32_t least = UINT32_MAX;
  for_each_at_least(view, view.max, shared, [&](uint32_t id, float) { least = id < least ? id : least; });
  return static_cast<TokenId>(~reduce_max(~least, shared));
}

/// How many values come before that of `token`.
__device__ inline uint32_t num_better(const LogitView& view, TokenId token, const SampleShared& shared) {
  const auto own = static_cast<uint32_t>(token);
  const float least = view.values[own];
  uint32_t count = 0;
  for_each_at_least(view, least, shared,
                    [&](uint32_t id, float value) { count += value > least || id < own ? 1 : 0; });
  return reduce_sum(count, shared);
}

/// Fills view.entries with the tokens of at least this logit, in the order of ids. Returns how many.
__device__ inline uint32_t collect(const LogitView& view, float least, const SampleShared& shared) {
  uint32_t own = 0;
  for_each_at_least(view, least, shared, [&](uint32_t, float) { ++own; });
  uint32_t total = 0;
  uint64_t* to = view.entries + sum_before(own, shared, total);
  for_each_at_least(view, least, shared, [&](uint32_t id, float value) { *to++ = make_entry(value, id); });
  sync_block();
  return total;
}

/// The count-th of the spans' maxima: bit by bit the highest number that as many of them reach.
__device__ inline float least_of_maxima(const LogitView& view, uint32_t count, const SampleShared& shared) {
  constexpr uint32_t kMostEach = kMostSampledVocabulary / kSpan / kMostThreads;
  uint32_t own[kMostEach];
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kMostEach; ++i) {
    const uint32_t span = thread_x() + i * shared.threads;
    own[i] = span < view.spans ? ordered_bits(view.maxima[span]) : 0;
  }
  uint32_t least = 0;
  for (uint32_t bit = 1U << 31; bit > 0; bit /= 2) {
    const uint32_t tried = least | bit;
    uint32_t reach = 0;
    QUIRE_UNROLL
    for (const uint32_t bits : own) reach += bits >= tried ? 1 : 0;
    if (reduce_sum(reach, shared) >= count) least = tried;
  }
  return number_of_ordered(least);
}

/// Fills view.entries with at least the best `count` tokens that are not forbidden, if there are so many,
/// best first. Returns how many there are. The count-th of the spans' maxima is no better than the count-th
/// of all.
__device__ inline uint32_t collect_best(const LogitView& view, uint32_t count, const SampleShared& shared) {
  float least = std::numeric_limits<float>::lowest();
  if (count <= view.spans) least = larger(least, least_of_maxima(view, count, shared));
  const uint32_t found = collect(view, least, shared);
  sort_entries(view.entries, view.spare, found, shared);
  return found;
}

__device__ __forceinline__ float weight_of(const LogitView& view, float value, float temperature) {
  const float z = value - view.max;
  return exp_nonpositive(temperature == 1.0F ? z : z / temperature);  // the same; a quotient takes long
}

/// The sum of a span's weights: 16 sums of every 16th, then those. The same in all threads of the team; a
/// span behind the last one has none.
__device__ inline double sum_of_span(const LogitView& view, uint32_t span, float temperature) {
  double lanes[kPiece<float>] = {};
  if (span < view.spans && (view.maxima[span] - view.max) / temperature >= kLeastExponent) {
    const PartOfSpan part = load_part(view.values, span, view.vocabulary);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kPiecesOfThread; ++i) {
      QUIRE_UNROLL
      for (uint32_t j = 0; j < kPiece<float>; ++j) {
        lanes[j] += static_cast<double>(weight_of(view, part.at[i].at[j], temperature));
      }
    }
  }
  const uint32_t lane = thread_x() % kWarp;
  double sum = 0.0;
  QUIRE_UNROLL
  for (uint32_t of = 0; of < kTeam; ++of) {
    double longer = sum;
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kPiece<float>; ++j) longer += lanes[j];
    const uint64_t bits = __builtin_bit_cast(uint64_t, longer);
    const uint32_t from = lane / kTeam * kTeam + of;
    const uint64_t low = shuffle(kWholeWarp, static_cast<uint32_t>(bits), from);
    const uint64_t high = shuffle(kWholeWarp, static_cast<uint32_t>(bits >> 32), from);
    sum = __builtin_bit_cast(double, high << 32 | low);
  }
  return sum;
}

/// Makes of each span's sum that up to it, by one thread: the next sums are read while some are added.
__device__ inline void add_up(double* sums, uint32_t count) {
  constexpr uint32_t kAtOnce = 8;
  double next[kAtOnce];
  const auto read = [&](uint32_t first) {
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) next[i] = first + i < count ? sums[first + i] : 0.0;
  };
  double sum = 0.0;
  read(0);
  for (uint32_t first = 0; first < count; first += kAtOnce) {
    double own[kAtOnce];
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) own[i] = next[i];
    read(first + kAtOnce);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      sum += own[i];
      if (first + i < count) sums[first + i] = sum;
    }
  }
}

/// The sum of all weights; shared.sums[s] is then that up to span s.
__device__ inline double sum_weights(const LogitView& view, float temperature, const SampleShared& shared) {
  for (uint32_t first = 0; first < view.spans; first += teams_of(shared)) {
    const uint32_t span = first + thread_x() / kTeam;
    const double sum = sum_of_span(view, span, temperature);
    if (span < view.spans && thread_x() % kTeam == 0) shared.sums[span] = sum;
  }
  sync_block();
  if (thread_x() == 0) add_up(shared.sums, view.spans);
  sync_block();
  const double sum = shared.sums[view.spans - 1];
  sync_block();
  return sum;
}

/// The first span whose sum exceeds `target`, or the last.
__device__ inline uint32_t find_span(const LogitView& view, double target, const SampleShared& shared) {
  uint32_t span = 0;
  for (uint32_t end = view.spans - 1; span < end;) {
    const uint32_t middle = (span + end) / 2;
    if (shared.sums[middle] > target) {
      end = middle;
    } else {
      span = middle + 1;
    }
  }
  return span;
}

/// The first id at which the running sum of the weights exceeds `target`. shared.sums are of the same
/// temperature. As target is at most (1 - 2^-53) of the whole sum, it is below that in double too.
__device__ inline TokenId find_in_sums(const LogitView& view, float temperature, double target,
                                       const SampleShared& shared) {
  const uint32_t span = find_span(view, target, shared);
  auto* weights = reinterpret_cast<float*>(shared.few);
  for (uint32_t i = thread_x(); i < kSpan; i += shared.threads) {
    const uint32_t id = span * kSpan + i;
    weights[i] = id < view.vocabulary ? weight_of(view, view.values[id], temperature) : 0.0F;
  }
  sync_block();
  double sum = span > 0 ? shared.sums[span - 1] : 0.0;
  uint32_t found = 0;
  for (uint32_t i = 0; i < kSpan; ++i) {
    if (weights[i] == 0.0F) continue;
    found = i;
    sum += static_cast<double>(weights[i]);
    if (sum > target) break;
  }
  sync_block();
  return static_cast<TokenId>(span * kSpan + found);
}

}  // namespace quire::backend::cuda
