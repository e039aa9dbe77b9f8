#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/ptx_mma.h"
#include "backend/cuda/sample_best.h"
#include "backend/cuda/sample_math.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kPiecesAtOnce = 8;

/// What a thread has seen.
struct Seen {
  float best = kForbiddenLogit;
  uint32_t piece = 0;     // the first that has it
  float products = 0.0F;  // a sum of products with 0: itself 0 unless a factor is not finite
};

__device__ __forceinline__ void look_at(const Floats<float>& piece, uint32_t number, Seen& seen) {
  QUIRE_UNROLL
  for (const float value : piece.at) seen.products = ptx::fused(value, 0.0F, seen.products);
  const float best = larger(larger(piece.at[0], piece.at[1]), larger(piece.at[2], piece.at[3]));
  if (best > seen.best) {
    seen.best = best;
    seen.piece = number;
  }
}

/// The least of all threads' numbers, in each of them. `of_warps` has room for one of each warp.
__device__ uint64_t min_of_block(uint64_t own, uint32_t threads, uint64_t* of_warps) {
  const auto min_of_warp = [](uint64_t least) {
    for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
      const uint64_t other = shuffle_xor(kWholeWarp, least, distance);
      least = other < least ? other : least;
    }
    return least;
  };
  own = min_of_warp(own);
  if (thread_x() % kWarp == 0) of_warps[thread_x() / kWarp] = own;
  sync_block();
  const uint32_t lane = thread_x() % kWarp;
  return min_of_warp(lane < threads / kWarp ? of_warps[lane] : UINT64_MAX);
}

/// The entry of the highest logit, as make_entry() says; 0 if any logit is not finite.
__device__ uint64_t best_of_row(const float* logits, uint32_t vocabulary, uint32_t threads,
                                uint64_t* of_warps) {
  const uint32_t pieces = vocabulary / kPiece<float>;
  Seen seen;
  for (uint32_t first = thread_x(); first < pieces; first += threads * kPiecesAtOnce) {
    ptx::Vec128 loaded[kPiecesAtOnce];
    // Behind the end the last piece again, which changes nothing.
    const auto number = [&](uint32_t i) {
      const uint32_t wanted = first + i * threads;
      return wanted < pieces ? wanted : pieces - 1;
    };
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kPiecesAtOnce; ++i)
      loaded[i] = ptx::load_128(logits + number(i) * kPiece<float>);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kPiecesAtOnce; ++i) look_at(unpack<float>(loaded[i]), number(i), seen);
  }
  uint64_t entry = UINT64_MAX;
  if (seen.best > kForbiddenLogit) {
    const uint32_t id = seen.piece * kPiece<float>;
    const Floats<float> piece = unpack<float>(ptx::load_128(logits + id));
    QUIRE_UNROLL
    for (uint32_t i = kPiece<float>; i-- > 0;) {
      if (piece.at[i] == seen.best) entry = make_entry(seen.best, id + i);
    }
  }
  if (const uint32_t id = pieces * kPiece<float> + thread_x(); id < vocabulary) {
    const float value = logits[id];
    seen.products = ptx::fused(value, 0.0F, seen.products);
    const uint64_t last = make_entry(value, id);
    entry = last < entry ? last : entry;
  }
  return min_of_block(seen.products == 0.0F ? entry : 0, threads, of_warps);
}

__device__ uint32_t first_not_finite(const float* logits, uint32_t vocabulary, uint32_t threads,
                                     uint64_t* of_warps) {
  uint32_t id = thread_x();
  while (id < vocabulary && is_finite(logits[id])) id += threads;
  return static_cast<uint32_t>(min_of_block(id, threads, of_warps));
}

__global__ void __launch_bounds__(kMostThreads, 1) sample_best_kernel(SampleArgs args, uint32_t threads) {
  let_next_begin();
  wait_for_earlier();
  auto* of_warps = shared_memory<uint64_t>();
  const SampleRow& row = args.rows[block_x()];
  if (!takes_best(row)) return;
  const float* logits = args.logits + size_t{row.logits} * args.stride;
  const uint64_t best = best_of_row(logits, args.vocabulary, threads, of_warps);
  const bool is_finite = best != 0;
  uint32_t id = id_of(best);
  if (!is_finite) id = first_not_finite(logits, args.vocabulary, threads, of_warps + kWarp);
  if (thread_x() != 0) return;
  const auto token = static_cast<TokenId>(id);
  SampledRow& out = args.results[block_x()];
  out.status = is_finite ? SampleStatus::kToken : SampleStatus::kNotFinite;
  out.token = token;
  out.logprob = is_finite ? 0.0F : logits[id];
  out.rank = 0;
  out.num_top = 0;
  args.tokens[row.place] = is_finite ? token : -1;
}

}  // namespace

LaunchError sample_best(const SampleArgs& args, Stream stream) {
  const uint32_t threads = threads_for((args.vocabulary + kPiece<float> - 1) / kPiece<float>, kMostThreads);
  constexpr uint32_t kSharedBytes = 2 * kWarp * sizeof(uint64_t);
  return launch("sample_best", {{args.num_rows}, threads, kSharedBytes, stream, Begins::kEarly},
                sample_best_kernel, args, threads);
}

}  // namespace quire::backend::cuda
