#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/route.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 256;
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kMinusInfinity = -__builtin_inff();
constexpr uint32_t kNone = 0xffffffff;

/// An expert that may be the next choice.
struct Candidate {
  float logit;
  uint32_t expert;

  __device__ __forceinline__ void take_if_better(float other_logit, uint32_t other) {
    if (other == kNone) return;
    if (expert != kNone && (other_logit < logit || (other_logit == logit && other > expert))) return;
    logit = other_logit;
    expert = other;
  }
};

/// The best of the warp's, the same in every lane.
__device__ __forceinline__ Candidate best_of_warp(Candidate own) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    const float logit = shuffle_xor(kWholeWarp, own.logit, distance);
    const uint32_t expert = shuffle(kWholeWarp, own.expert, thread_x() ^ distance);
    own.take_if_better(logit, expert);
  }
  return own;
}

/// One warp a row. A lane has the experts `lane`, `lane` + kWarp and so on, also in shared memory, where one
/// that is chosen becomes NaN.
__global__ void __launch_bounds__(kWarp) route_kernel(RouteArgs args) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t lane = thread_x();
  const float* logits = args.logits + size_t{block_x()} * args.stride;
  float* left = shared_memory<float>();
  float max = kMinusInfinity;
  for (uint32_t i = lane; i < args.num_experts; i += kWarp) {
    const float logit = logits[i];
    left[i] = logit != logit ? kMinusInfinity : logit;
    max = larger(max, left[i]);
  }
  max = warp_max(max);
  float sum = 0.0F;
  if (!args.normalize) {
    for (uint32_t i = lane; i < args.num_experts; i += kWarp)
      sum += ptx::exp2_approx((left[i] - max) * kLog2E);
    sum = warp_sum(sum);
  }
  uint32_t* chosen = args.chosen + size_t{block_x()} * args.top;
  float* weights = args.weights + size_t{block_x()} * args.top;
  for (uint32_t j = 0; j < args.top; ++j) {
    Candidate best{kMinusInfinity, kNone};
    for (uint32_t i = lane; i < args.num_experts; i += kWarp) {
      if (left[i] == left[i]) best.take_if_better(left[i], i);
    }
    best = best_of_warp(best);
    if (best.expert % kWarp == lane) left[best.expert] = __builtin_nanf("");
    const float weight = ptx::exp2_approx((best.logit - max) * kLog2E);
    if (args.normalize) sum += weight;
    if (lane != 0) continue;
    chosen[j] = best.expert;
    weights[j] = weight;
  }
  if (lane != 0) return;
  for (uint32_t j = 0; j < args.top; ++j) weights[j] /= sum;
}

/// The sum over the lanes up to this one.
__device__ __forceinline__ uint32_t sum_up_to(uint32_t value) {
  const uint32_t lane = thread_x() % kWarp;
  for (uint32_t distance = 1; distance < kWarp; distance *= 2) {
    const uint32_t other = shuffle(kWholeWarp, value, lane >= distance ? lane - distance : lane);
    if (lane >= distance) value += other;
  }
  return value;
}

/// Of a number of each thread of the block, the sum over the threads before this one and that over all.
struct BlockSums {
  uint32_t before;
  uint32_t all;

  /// `sums`: one for each warp, in shared memory, that nobody has used.
  __device__ BlockSums(uint32_t value, uint32_t* sums) : before(0), all(0) {
    const uint32_t up_to = sum_up_to(value);
    const uint32_t warp = thread_x() / kWarp;
    if (thread_x() % kWarp == kWarp - 1) sums[warp] = up_to;
    sync_block();
    for (uint32_t other = 0; other < kMostThreads / kWarp; ++other) {
      if (other < warp) before += sums[other];
      all += sums[other];
    }
    before += up_to - value;
  }
};

/// One block an expert. A thread has the choices `thread`, `thread` + kMostThreads and so on.
__global__ void __launch_bounds__(kMostThreads) group_kernel(GroupArgs args) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t expert = block_x();
  const uint32_t* __restrict__ choices = args.chosen;
  uint32_t smaller = 0;
  uint32_t own = 0;
  for (uint32_t i = thread_x(); i < args.choices; i += kMostThreads) {
    const uint32_t chosen = choices[i];
    smaller += chosen < expert ? 1 : 0;
    own += chosen == expert ? 1 : 0;
  }
  uint32_t* sums = shared_memory<uint32_t>();
  const uint32_t first = BlockSums(smaller, sums).all;
  const BlockSums owns(own, sums + kMostThreads / kWarp);
  uint32_t* to = args.order + first + owns.before;
  for (uint32_t i = thread_x(); i < args.choices; i += kMostThreads) {
    if (choices[i] == expert) *to++ = i;
  }
  // From where tiles of those before would end, to where those of the next begin.
  const uint32_t first_tile = first / args.tile_choices + expert;
  const uint32_t tiles = (first + owns.all) / args.tile_choices + expert + 1 - first_tile;
  for (uint32_t i = thread_x(); i < tiles; i += kMostThreads) {
    const uint32_t done = i * args.tile_choices;
    const uint32_t rest = done < owns.all ? owns.all - done : 0;
    args.tiles[first_tile + i] = {expert, first + done, rest < args.tile_choices ? rest : args.tile_choices};
  }
}

/// One piece a thread: blocks are rows by stretches of as many pieces as they have threads.
template <class T>
__global__ void __launch_bounds__(kMostThreads) combine_choices_kernel(CombineArgs args, uint32_t threads) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t i = (block_y() * threads + thread_x()) * kPiece<T>;
  if (i >= args.width) return;
  const size_t first = size_t{block_x()} * args.top;
  Floats<T> sums{};
  for (uint32_t j = 0; j < args.top; ++j) {
    const T* y = static_cast<const T*>(args.y) + (first + j) * args.width + i;
    const Floats<T> values = unpack<T>(ptx::load_readonly_128(y));
    const float weight = args.weights[first + j];
    for (uint32_t e = 0; e < kPiece<T>; ++e) sums.at[e] += weight * values.at[e];
  }
  ptx::store_128(static_cast<T*>(args.out) + size_t{block_x()} * args.width + i, pack<T>(sums));
}

}  // namespace

LaunchError route(const RouteArgs& args, Stream stream) {
  const uint32_t bytes = args.num_experts * sizeof(float);
  return launch("route", {{args.rows}, kWarp, bytes, stream, Begins::kEarly}, route_kernel, args);
}

LaunchError group_by_expert(const GroupArgs& args, Stream stream) {
  constexpr uint32_t kBytes = 2 * (kMostThreads / kWarp) * sizeof(uint32_t);
  return launch("group_by_expert", {{args.num_experts}, kMostThreads, kBytes, stream, Begins::kEarly},
                group_kernel, args);
}

LaunchError combine_choices(const CombineArgs& args, Stream stream) {
  return for_element(args.dtype, [&](auto type) {
    using T = decltype(type);
    const uint32_t threads = threads_for(args.width / kPiece<T>, kMostThreads);
    const uint32_t stretch = threads * kPiece<T>;
    const LaunchShape shape{
        {args.rows, (args.width + stretch - 1) / stretch}, threads, 0, stream, Begins::kEarly};
    return launch("combine_choices", shape, combine_choices_kernel<T>, args, threads);
  });
}

}  // namespace quire::backend::cuda
