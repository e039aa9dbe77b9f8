#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "tests/device_on_host/broken.h"

namespace quire::test::fibers {
namespace {

using namespace backend::cuda;  // NOLINT: as if it were one of its kernels

constexpr uint32_t kThreads = kBrokenCount;

__global__ void off_by_one_kernel(BrokenArgs args) {
  const uint32_t i = thread_x() + (args.broken ? 1 : 0);
  args.out[thread_x()] = args.in[i];
}

__global__ void misaligned_load_kernel(BrokenArgs args) {
  const uint32_t first = thread_x() * 4 % (kBrokenCount - 4) + (args.broken ? 1 : 0);
  args.out[thread_x()] = unpack<float>(ptx::load_128(args.in + first)).at[0];
}

__global__ void missing_barrier_kernel(BrokenArgs args) {
  float* shared = shared_memory<float>();
  shared[thread_x()] = args.in[thread_x()];
  if (!args.broken) sync_block();
  args.out[thread_x()] = shared[kThreads - 1 - thread_x()];
}

__global__ void missing_warp_barrier_kernel(BrokenArgs args) {
  float* shared = shared_memory<float>();
  shared[thread_x()] = args.in[thread_x()];
  // A shuffle brings the lanes together, but orders no memory.
  const float other = shuffle_xor(kWholeWarp, 1.0F, 1);
  if (!args.broken) sync_warp(kWholeWarp);
  args.out[thread_x()] = other * shared[thread_x() ^ 1];
}

__global__ void race_of_blocks_kernel(BrokenArgs args) {
  const uint32_t i = args.broken ? thread_x() : thread_x() / 2 + block_x() * kThreads / 2;
  if (args.broken || thread_x() % 2 == 0) args.out[i] = args.in[i];
}

__global__ void divergent_barrier_kernel(BrokenArgs args) {
  if (args.broken && thread_x() == 40) return;
  sync_block();
  args.out[thread_x()] = args.in[thread_x()];
}

__global__ void two_barriers_kernel(BrokenArgs args) {
  if (args.broken && thread_x() < kWarp) {
    sync_block();
  } else {
    sync_block();
  }
  args.out[thread_x()] = args.in[thread_x()];
}

/// A thread reads its own store, through a cache that does not see it.
__global__ void stale_constant_kernel(BrokenArgs args) {
  if (thread_x() >= kThreads / 4) return;
  float* own = args.out + thread_x() * 4;
  const ptx::Vec128 piece = ptx::load_readonly_128(args.in + thread_x() * 4);
  ptx::store_128(own, piece);
  const ptx::Vec128 again = args.broken ? ptx::load_readonly_128(own) : ptx::load_128(own);
  ptx::store_128(own, again);
}

__global__ void missing_lane_kernel(BrokenArgs args) {
  if (args.broken && thread_x() == 5) return;
  args.out[thread_x()] = shuffle_xor(kWholeWarp, args.in[thread_x()], 1);
}

__global__ void foreign_lane_kernel(BrokenArgs args) {
  if (thread_x() >= 4) return;
  args.out[thread_x()] = shuffle_xor(0xf, args.in[thread_x()], args.broken ? 4 : 2);
}

__global__ void uninitialised_shared_kernel(BrokenArgs args) {
  float* shared = shared_memory<float>();
  if (!args.broken || thread_x() != 7) shared[thread_x()] = args.in[thread_x()];
  sync_block();
  args.out[thread_x()] = shared[thread_x()];
}

__global__ void unawaited_copy_kernel(BrokenArgs args) {
  float* shared = shared_memory<float>();
  copy_async(shared + thread_x(), args.in + thread_x(), sizeof(float));
  commit_copies();
  wait_for_copies(args.broken ? 1 : 0);
  sync_block();
  args.out[thread_x()] = shared[kThreads - 1 - thread_x()];
}

/// Two tiles, one after the other in the same place.
__global__ void overwritten_stage_kernel(BrokenArgs args) {
  float* shared = shared_memory<float>();
  float sum = 0.0F;
  for (uint32_t tile = 0; tile < 2; ++tile) {
    copy_async(shared + thread_x(), args.in + (thread_x() ^ tile), sizeof(float));
    commit_copies();
    wait_for_copies(0);
    sync_block();
    sum += shared[kThreads - 1 - thread_x()];
    if (!args.broken) sync_block();
  }
  args.out[thread_x()] = sum;
}

/// Copies `bytes` a thread for half of the threads, from `in` on.
__device__ void copy_pieces(const BrokenArgs& args, const float* in, uint32_t bytes) {
  float* shared = shared_memory<float>();
  if (thread_x() < kThreads / 2) copy_async(shared + 2 * thread_x(), in + 2 * thread_x(), bytes);
  commit_copies();
  wait_for_copies(0);
  sync_block();
  args.out[thread_x()] = shared[thread_x()];
}
__global__ void misaligned_copy_kernel(BrokenArgs args) {
  const bool is_last = thread_x() == kThreads / 2 - 1;
  copy_pieces(args, args.in + (args.broken && !is_last ? 1 : 0), 8);
}
__global__ void copy_of_twelve_bytes_kernel(BrokenArgs args) {
  copy_pieces(args, args.in, args.broken ? 12 : 8);
}
__global__ void uninitialised_copy_kernel(BrokenArgs args) {
  copy_pieces(args, args.broken ? args.out : args.in, 8);
}

/// The copy of what nobody wrote is allowed, its use is not.
__global__ void uninitialised_after_copy_kernel(BrokenArgs args) {
  constexpr uint32_t kHalf = kBrokenCount / 2;
  if (thread_x() >= kHalf / 4) return;
  float* own = args.out + thread_x() * 4;
  copy_128(own, own + kHalf);
  if (!args.broken) copy_128(own, args.in + thread_x() * 4);
  ptx::store_128(own + kHalf, ptx::load_128(own));
}

__global__ void copy_outside_of_global_kernel(BrokenArgs args) {
  const float* from = args.broken ? shared_memory<float>() : args.in;
  if (thread_x() < kThreads / 4) copy_128(args.out + thread_x() * 4, from + thread_x() * 4);
}

__global__ void copy_to_global_kernel(BrokenArgs args) {
  float* to = args.broken ? args.out : shared_memory<float>();
  copy_async(to + thread_x(), args.in + thread_x(), sizeof(float));
  commit_copies();
  wait_for_copies(0);
  args.out[thread_x()] = to[thread_x()];
}

__global__ void ended_before_its_turn_kernel(BrokenArgs args) {
  let_next_begin();
  if (args.broken && thread_x() == 40) return;
  wait_for_earlier();
  args.out[thread_x()] = args.in[thread_x()];
}

__global__ void written_before_its_turn_kernel(BrokenArgs args) {
  let_next_begin();
  if (args.broken) args.out[thread_x()] = 0.0F;
  wait_for_earlier();
  args.out[thread_x()] = args.in[thread_x()];
}

__global__ void read_before_its_turn_kernel(BrokenArgs args) {
  let_next_begin();
  float value = args.broken ? args.in[thread_x()] : 0.0F;
  wait_for_earlier();
  if (!args.broken) value = args.in[thread_x()];
  args.out[thread_x()] = value;
}

/// A column of a tile of 32 columns; padded, its rows begin in different banks.
__global__ void bank_conflict_kernel(BrokenArgs args) {
  float* tile = shared_memory<float>();
  const uint32_t stride = args.broken ? 32 : 33;
  tile[thread_x() * stride] = args.in[thread_x()];
  args.out[thread_x()] = tile[thread_x() * stride];
}

__global__ void uncoalesced_kernel(BrokenArgs args) {
  const uint32_t i = args.broken ? thread_x() * 8 % kBrokenCount + thread_x() / 8 : thread_x();
  const float value = args.in[i];
  args.out[thread_x()] = value;
}

template <class Kernel>
void start(const char* name, Kernel kernel, const BrokenArgs& args, uint32_t blocks = 1,
           uint32_t shared_floats = 0, Begins begins = Begins::kAfterEarlier, Stream stream = nullptr) {
  const uint32_t bytes = shared_floats * sizeof(float);
  static_cast<void>(launch(name, LaunchShape{{blocks}, kThreads, bytes, stream, begins}, kernel, args));
}

}  // namespace

void off_by_one(const BrokenArgs& args) { start("off_by_one", off_by_one_kernel, args); }
void misaligned_load(const BrokenArgs& args) { start("misaligned_load", misaligned_load_kernel, args); }
void missing_barrier(const BrokenArgs& args) {
  start("missing_barrier", missing_barrier_kernel, args, 1, kThreads);
}
void missing_warp_barrier(const BrokenArgs& args) {
  start("missing_warp_barrier", missing_warp_barrier_kernel, args, 1, kThreads);
}
void race_of_blocks(const BrokenArgs& args) { start("race_of_blocks", race_of_blocks_kernel, args, 2); }
void divergent_barrier(const BrokenArgs& args) { start("divergent_barrier", divergent_barrier_kernel, args); }
void two_barriers(const BrokenArgs& args) { start("two_barriers", two_barriers_kernel, args); }
void stale_constant(const BrokenArgs& args) { start("stale_constant", stale_constant_kernel, args); }
void missing_lane(const BrokenArgs& args) { start("missing_lane", missing_lane_kernel, args); }
void foreign_lane(const BrokenArgs& args) { start("foreign_lane", foreign_lane_kernel, args); }
void uninitialised_shared(const BrokenArgs& args) {
  start("uninitialised_shared", uninitialised_shared_kernel, args, 1, kThreads);
}
void unawaited_copy(const BrokenArgs& args) {
  start("unawaited_copy", unawaited_copy_kernel, args, 1, kThreads);
}
void overwritten_stage(const BrokenArgs& args) {
  start("overwritten_stage", overwritten_stage_kernel, args, 1, kThreads);
}
void misaligned_copy(const BrokenArgs& args) {
  start("misaligned_copy", misaligned_copy_kernel, args, 1, kThreads);
}
void copy_of_twelve_bytes(const BrokenArgs& args) {
  start("copy_of_twelve_bytes", copy_of_twelve_bytes_kernel, args, 1, kThreads);
}
void uninitialised_copy(const BrokenArgs& args) {
  start("uninitialised_copy", uninitialised_copy_kernel, args, 1, kThreads);
}
void uninitialised_after_copy(const BrokenArgs& args) {
  start("uninitialised_after_copy", uninitialised_after_copy_kernel, args);
}
void copy_outside_of_global(const BrokenArgs& args) {
  start("copy_outside_of_global", copy_outside_of_global_kernel, args, 1, kThreads);
}
void copy_to_global(const BrokenArgs& args) {
  start("copy_to_global", copy_to_global_kernel, args, 1, kThreads);
}
void ended_before_its_turn(const BrokenArgs& args) {
  start("ended_before_its_turn", ended_before_its_turn_kernel, args, 1, 0, Begins::kEarly);
}
void written_before_its_turn(const BrokenArgs& args) {
  start("written_before_its_turn", written_before_its_turn_kernel, args, 1, 0, Begins::kEarly);
}
void read_early(const BrokenArgs& args, backend::cuda::Stream stream) {
  start("read_before_its_turn", read_before_its_turn_kernel, args, 1, 0, Begins::kEarly, stream);
}
void read_before_its_turn(const BrokenArgs& args) {
  off_by_one({args.in, args.out, false});
  read_early({args.out, args.out, args.broken});
}
void bank_conflict(const BrokenArgs& args) {
  start("bank_conflict", bank_conflict_kernel, args, 1, kThreads * 33);
}
void uncoalesced(const BrokenArgs& args) { start("uncoalesced", uncoalesced_kernel, args); }

}  // namespace quire::test::fibers
