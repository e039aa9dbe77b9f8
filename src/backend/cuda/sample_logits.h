#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/sample_block.h"
#include "backend/cuda/sample_math.h"

// Passes of a block over one row of logits, as sample/logits.h has them. A thread takes a span of kSpan
// values: its sum is that of the CPU, value by value, and so is the sum of the spans. All threads reach each
// function that is not of a span.
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

/// Calls visit(id, value) for each value of a span, in order.
template <class Visit>
__device__ __forceinline__ void for_each_of_span(const LogitView& view, uint32_t span, const Visit& visit) {
  const uint32_t end = (span + 1) * kSpan < view.vocabulary ? (span + 1) * kSpan : view.vocabulary;
  for (uint32_t i = span * kSpan; i < end; i += 4) {
    const Floats<float> piece = load_logits(view.values, i, view.vocabulary);
    QUIRE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      if (i + j < end) visit(i + j, piece.at[j]);
    }
  }
}

/// Calls visit(id, value) for each value >= `least` of this thread's spans: neighbours of each other, before
/// those of the next thread.
template <class Visit>
__device__ __forceinline__ void for_each_at_least(const LogitView& view, float least, const Visit& visit) {
  const uint32_t each = (view.spans + kThreads - 1) / kThreads;
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
  for_each_at_least(view, view.max, [&](uint32_t id, float) { least = id < least ? id : least; });
  return static_cast<TokenId>(~reduce_max(~least, shared));
}

/// How many values come before that of `token`.
__device__ inline uint32_t num_better(const LogitView& view, TokenId token, const SampleShared& shared) {
  const auto own = static_cast<uint32_t>(token);
  const float least = view.values[own];
  uint32_t count = 0;
  for_each_at_least(view, least,
                    [&](uint32_t id, float value) { count += value > least || id < own ? 1 : 0; });
  return reduce_sum(count, shared);
}

/// Fills view.entries with the tokens of at least this logit, in the order of ids. Returns how many.
__device__ inline uint32_t collect(const LogitView& view, float least, const SampleShared& shared) {
  uint32_t own = 0;
  for_each_at_least(view, least, [&](uint32_t, float) { ++own; });
  uint32_t total = 0;
  uint64_t* to = view.entries + sum_before(own, shared, total);
  for_each_at_least(view, least, [&](uint32_t id, float value) { *to++ = make_entry(value, id); });
  sync_block();
  return total;
}

/// Fills view.entries with at least the best `count` tokens that are not forbidden, if there are so many,
/// best first. Returns how many there are. The count-th of the spans' maxima is no better than the count-th
/// of all.
__device__ inline uint32_t collect_best(const LogitView& view, uint32_t count, const SampleShared& shared) {
  float least = std::numeric_limits<float>::lowest();
  if (count <= view.spans) {
    for (uint32_t span = thread_x(); span < view.spans; span += kThreads) {
      view.entries[span] = make_entry(view.maxima[span], span);
    }
    sync_block();
    sort_entries(view.entries, view.spare, view.spans, shared);
    least = larger(least, value_of(view.entries[count - 1]));
    sync_block();
  }
  const uint32_t found = collect(view, least, shared);
  sort_entries(view.entries, view.spare, found, shared);
  return found;
}

__device__ __forceinline__ float weight_of(const LogitView& view, float value, float temperature) {
  return exp_nonpositive((value - view.max) / temperature);
}

/// The sum of a span's weights: 16 sums of every 16th, then those.
__device__ inline double sum_of_span(const LogitView& view, uint32_t span, float temperature) {
  constexpr uint32_t kLanes = 16;
  if ((view.maxima[span] - view.max) / temperature < kLeastExponent) return 0.0;
  double lanes[kLanes] = {};
  for (uint32_t i = span * kSpan; i < (span + 1) * kSpan; i += kLanes) {
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kLanes; j += 4) {
      const Floats<float> piece = load_logits(view.values, i + j, view.vocabulary);
      QUIRE_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        lanes[j + k] += static_cast<double>(weight_of(view, piece.at[k], temperature));
      }
    }
  }
  double sum = 0.0;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

/// The sum of all weights; shared.sums[s] is then that up to span s.
__device__ inline double sum_weights(const LogitView& view, float temperature, const SampleShared& shared) {
  for (uint32_t span = thread_x(); span < view.spans; span += kThreads) {
    shared.sums[span] = sum_of_span(view, span, temperature);
  }
  sync_block();
  if (thread_x() == 0) {
    double sum = 0.0;
    for (uint32_t span = 0; span < view.spans; ++span) {
      sum += shared.sums[span];
      shared.sums[span] = sum;
    }
  }
  sync_block();
  const double sum = shared.sums[view.spans - 1];
  sync_block();
  return sum;
}

/// The first id at which the running sum of the weights exceeds `target`, by one thread. shared.sums are of
/// the same temperature. As target is at most (1 - 2^-53) of the whole sum, it is below that in double too.
__device__ inline TokenId find_in_sums(const LogitView& view, float temperature, double target,
                                       const SampleShared& shared) {
  uint32_t span = 0;
  for (uint32_t end = view.spans - 1; span < end;) {
    const uint32_t middle = (span + end) / 2;
    if (shared.sums[middle] > target) {
      end = middle;
    } else {
      span = middle + 1;
    }
  }
  double sum = span > 0 ? shared.sums[span - 1] : 0.0;
  uint32_t found = span * kSpan;
  const uint32_t end = found + kSpan < view.vocabulary ? found + kSpan : view.vocabulary;
  for (uint32_t i = found; i < end; ++i) {
    const float weight = weight_of(view, view.values[i], temperature);
    if (weight == 0.0F) continue;
    found = i;
    sum += static_cast<double>(weight);
    if (sum > target) break;
  }
  return static_cast<TokenId>(found);
}

}  // namespace quire::backend::cuda
