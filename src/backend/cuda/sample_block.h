#pragma once

#include <cstdint>

#include "backend/cuda/device.h"

// What the threads of a block of sample.cu do together: all of them reach each of these functions. Results
// depend on the operands alone, as everything is of whole numbers or done by one thread.
namespace quire::backend::cuda {

inline constexpr uint32_t kThreads = 256;

inline constexpr uint32_t kDigitBits = 4;
inline constexpr uint32_t kDigits = 1 << kDigitBits;

/// Where the i-th count of a sort is: a word left out after 32, so that a thread's 16 neighbours and the
/// neighbours of its warp are both in different banks.
__device__ __forceinline__ constexpr uint32_t place_of_count(uint32_t i) { return i + i / kWarp; }
inline constexpr uint32_t kCountWords = kDigits * kThreads + kDigits * kThreads / kWarp;

/// The block's shared memory.
struct SampleShared {
  uint64_t* few;     // [kThreads]
  uint32_t* slots;   // [kThreads]
  double* sums;      // a sum for each span of the row
  uint32_t* counts;  // in the same memory: [kCountWords]
};

/// Of all threads' values: op is max or a sum, the same in any order.
template <class Op>
__device__ uint32_t reduce(uint32_t value, const SampleShared& shared, const Op& op) {
  uint32_t* own = shared.slots + thread_x();
  *own = value;
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    sync_block();
    if (thread_x() < half) *own = op(*own, own[half]);
  }
  sync_block();
  const uint32_t result = shared.slots[0];
  sync_block();
  return result;
}
__device__ __forceinline__ uint32_t reduce_max(uint32_t value, const SampleShared& shared) {
  return reduce(value, shared, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}
__device__ __forceinline__ uint32_t reduce_sum(uint32_t value, const SampleShared& shared) {
  return reduce(value, shared, [](uint32_t a, uint32_t b) { return a + b; });
}

/// The sum of the values of all threads before, and that of all in `total`.
__device__ inline uint32_t sum_before(uint32_t value, const SampleShared& shared, uint32_t& total) {
  uint32_t* own = shared.slots + thread_x();
  *own = value;
  sync_block();
  for (uint32_t distance = 1; distance < kThreads; distance *= 2) {
    const uint32_t before = thread_x() >= distance ? *(own - distance) : 0;
    sync_block();
    *own += before;
    sync_block();
  }
  const uint32_t result = *own - value;
  total = shared.slots[kThreads - 1];
  sync_block();
  return result;
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
/// Each thread counts the digits of neighbours, and puts them behind those of the threads before.
__device__ inline void sort_by_digit(const uint64_t* from, uint64_t* to, uint32_t count, uint32_t shift,
                                     const SampleShared& shared) {
  const auto count_of = [&](uint64_t entry) -> uint32_t& {
    const auto digit = static_cast<uint32_t>(entry >> shift) % kDigits;
    return shared.counts[place_of_count(digit * kThreads + thread_x())];
  };
  const uint32_t each = (count + kThreads - 1) / kThreads;
  const uint32_t begin = thread_x() * each < count ? thread_x() * each : count;
  const uint32_t end = begin + each < count ? begin + each : count;
  for (uint32_t digit = 0; digit < kDigits; ++digit) count_of(uint64_t{digit} << shift) = 0;
  for (uint32_t i = begin; i < end; ++i) ++count_of(from[i]);
  sync_block();
  uint32_t sum = 0;
  const uint32_t first = thread_x() * kDigits;
  for (uint32_t i = 0; i < kDigits; ++i) sum += shared.counts[place_of_count(first + i)];
  uint32_t total = 0;
  uint32_t before = sum_before(sum, shared, total);
  for (uint32_t i = 0; i < kDigits; ++i) {
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
  if (count <= kThreads) {
    sort_few(entries, count, shared);
    return;
  }
  for (uint32_t shift = 32; shift < 64; shift += 2 * kDigitBits) {
    sort_by_digit(entries, spare, count, shift, shared);
    sort_by_digit(spare, entries, count, shift + kDigitBits, shared);
  }
}

}  // namespace quire::backend::cuda
