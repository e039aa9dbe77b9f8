#pragma once

#include <cstdint>

#include "backend/cuda/device.h"

// What the threads of a block of sample.cu do together: all of them reach each of these functions. Results
// depend on the operands alone, as everything is of whole numbers or done by one thread.
namespace quire::backend::cuda {

inline constexpr uint32_t kMostThreads = 512;
/// A thread for each 8 logits, so that small vocabularies have several warps too.
inline uint32_t threads_of_row(uint32_t vocabulary) {
  return threads_for((vocabulary + 7) / 8, kMostThreads);
}

inline constexpr uint32_t kDigitBits = 4;
inline constexpr uint32_t kDigits = 1 << kDigitBits;
/// That count digits in a sort: more have no room for their counts.
inline constexpr uint32_t kMostSorters = 256;

/// Where the i-th count of a sort is: a word left out after 32, so that a thread's 16 neighbours and the
/// neighbours of its warp are both in different banks.
__device__ __forceinline__ constexpr uint32_t place_of_count(uint32_t i) { return i + i / kWarp; }
inline constexpr uint32_t kCountWords = kDigits * kMostSorters + kDigits * kMostSorters / kWarp;

/// The block's shared memory.
struct SampleShared {
  uint32_t threads;  // of the block
  uint64_t* few;     // [threads]
  uint32_t* slots;   // [kWarp], one for each warp
  double* sums;      // a sum for each span of the row
  uint32_t* counts;  // in the same memory: [kCountWords]
};

template <class Op>
__device__ __forceinline__ uint32_t reduce_warp(uint32_t value, const Op& op) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    value = op(value, shuffle(kWholeWarp, value, thread_x() % kWarp ^ distance));
  }
  return value;
}

/// Of all threads' values: op is max or a sum, the same in any order; 0 changes nothing.
template <class Op>
__device__ uint32_t reduce(uint32_t value, const SampleShared& shared, const Op& op) {
  const uint32_t lane = thread_x() % kWarp;
  value = reduce_warp(value, op);
  if (lane == 0) shared.slots[thread_x() / kWarp] = value;
  sync_block();
  value = reduce_warp(lane < shared.threads / kWarp ? shared.slots[lane] : 0, op);
  sync_block();
  return value;
}
__device__ __forceinline__ uint32_t reduce_max(uint32_t value, const SampleShared& shared) {
  return reduce(value, shared, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}
__device__ __forceinline__ uint32_t reduce_sum(uint32_t value, const SampleShared& shared) {
  return reduce(value, shared, [](uint32_t a, uint32_t b) { return a + b; });
}

/// The sum of the values of the lanes up to this one.
__device__ __forceinline__ uint32_t sum_to_lane(uint32_t value) {
  const uint32_t lane = thread_x() % kWarp;
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t before = shuffle(kWholeWarp, value, lane >= distance ? lane - distance : lane);
    if (lane >= distance) value += before;
  }
  return value;
}

/// The sum of the values of all threads before, and that of all in `total`.
__device__ inline uint32_t sum_before(uint32_t value, const SampleShared& shared, uint32_t& total) {
  const uint32_t lane = thread_x() % kWarp;
  const uint32_t warp = thread_x() / kWarp;
  const uint32_t in_warp = sum_to_lane(value);
  if (lane == kWarp - 1) shared.slots[warp] = in_warp;
  sync_block();
  const uint32_t of_warps = sum_to_lane(lane < shared.threads / kWarp ? shared.slots[lane] : 0);
  sync_block();
  total = shuffle(kWholeWarp, of_warps, kWarp - 1);
  const uint32_t before = shuffle(kWholeWarp, of_warps, warp > 0 ? warp - 1 : 0);
  return in_warp - value + (warp > 0 ? before : 0);
}

/// What the first thread gives.
__device__ inline uint64_t of_first_thread(uint64_t value, const SampleShared& shared) {
  if (thread_x() == 0) shared.few[0] = value;
  sync_block();
  const uint64_t result = shared.few[0];
  sync_block();
  return result;
}
__device__ inline double of_first_thread(double value, const SampleShared& shared) {
  return __builtin_bit_cast(double, of_first_thread(__builtin_bit_cast(uint64_t, value), shared));
}

/// One entry a thread: it goes behind those that are lower.
__device__ inline void sort_few(uint64_t* entries, uint32_t count, const SampleShared& shared) {
  const bool has_one = thread_x() < count;
  const uint64_t own = has_one ? entries[thread_x()] : 0;
  if (has_one) shared.few[thread_x()] = own;
  sync_block();
  if (has_one) {
    uint32_t place = 0;
    for (uint32_t i = 0; i < count; ++i) place += shared.few[i] < own ? 1 : 0;
    entries[place] = own;
  }
  sync_block();
}

/// Moves entries to `to`, ordered by one digit and otherwise as they are (Satish, Harris and Garland 2009).
/// Each thread that sorts counts the digits of neighbours, and puts them behind those of the threads before.
__device__ inline void sort_by_digit(const uint64_t* from, uint64_t* to, uint32_t count, uint32_t shift,
                                     const SampleShared& shared) {
  const uint32_t sorters = shared.threads < kMostSorters ? shared.threads : kMostSorters;
  const bool is_sorter = thread_x() < sorters;
  const auto count_of = [&](uint64_t entry) -> uint32_t& {
    const auto digit = static_cast<uint32_t>(entry >> shift) % kDigits;
    return shared.counts[place_of_count(digit * sorters + thread_x())];
  };
  const uint32_t each = (count + sorters - 1) / sorters;
  const uint32_t begin = is_sorter && thread_x() * each < count ? thread_x() * each : count;
  const uint32_t end = begin + each < count ? begin + each : count;
  for (uint32_t digit = 0; is_sorter && digit < kDigits; ++digit) count_of(uint64_t{digit} << shift) = 0;
  for (uint32_t i = begin; i < end; ++i) ++count_of(from[i]);
  sync_block();
  uint32_t sum = 0;
  const uint32_t first = thread_x() * kDigits;
  for (uint32_t i = 0; is_sorter && i < kDigits; ++i) sum += shared.counts[place_of_count(first + i)];
  uint32_t total = 0;
  uint32_t before = sum_before(sum, shared, total);
  for (uint32_t i = 0; is_sorter && i < kDigits; ++i) {
    uint32_t& here = shared.counts[place_of_count(first + i)];
    const uint32_t next = before + here;
    here = before;
    before = next;
  }
  sync_block();
  for (uint32_t i = begin; i < end; ++i) {
    const uint64_t entry = from[i];
    to[count_of(entry)++] = entry;
  }
  sync_block();
}

/// Sorts entries, which are in the order of their lower halves; `spare` has room for as many.
__device__ inline void sort_entries(uint64_t* entries, uint64_t* spare, uint32_t count,
                                    const SampleShared& shared) {
  if (count <= shared.threads) {
    sort_few(entries, count, shared);
    return;
  }
  for (uint32_t shift = 32; shift < 64; shift += 2 * kDigitBits) {
    sort_by_digit(entries, spare, count, shift, shared);
    sort_by_digit(spare, entries, count, shift + kDigitBits, shared);
  }
}

}  // namespace quire::backend::cuda
