#pragma once

#include <cstdint>

#include "backend/cuda/stream.h"

// Kernels with one defect each, and the same kernels without it: each shows that its checker finds the
// defect.
namespace quire::test::fibers {

/// Each takes the defect or leaves it out. `in` and `out` have kBrokenCount floats.
inline constexpr uint32_t kBrokenCount = 64;
struct BrokenArgs {
  const float* in;
  float* out;
  bool broken;
};

void off_by_one(const BrokenArgs& args);
void misaligned_load(const BrokenArgs& args);
void missing_barrier(const BrokenArgs& args);
void missing_warp_barrier(const BrokenArgs& args);
void race_of_blocks(const BrokenArgs& args);
void divergent_barrier(const BrokenArgs& args);
void two_barriers(const BrokenArgs& args);
void stale_constant(const BrokenArgs& args);
void missing_lane(const BrokenArgs& args);
void foreign_lane(const BrokenArgs& args);
void uninitialised_shared(const BrokenArgs& args);
void unawaited_copy(const BrokenArgs& args);
void overwritten_stage(const BrokenArgs& args);
void misaligned_copy(const BrokenArgs& args);
void copy_of_twelve_bytes(const BrokenArgs& args);
void uninitialised_copy(const BrokenArgs& args);
void uninitialised_after_copy(const BrokenArgs& args);
void copy_outside_of_global(const BrokenArgs& args);
void copy_to_global(const BrokenArgs& args);
/// Of kernels that begin early.
void ended_before_its_turn(const BrokenArgs& args);
void written_before_its_turn(const BrokenArgs& args);
/// After a kernel that writes what it reads, or by itself.
void read_before_its_turn(const BrokenArgs& args);
void read_early(const BrokenArgs& args, backend::cuda::Stream stream = nullptr);
void bank_conflict(const BrokenArgs& args);
void uncoalesced(const BrokenArgs& args);

}  // namespace quire::test::fibers
