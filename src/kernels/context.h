#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/buffer.h"

namespace quire::kernels {

/// Which implementation of the kernels runs. Each level is exact in itself (the same bits whatever the batch,
/// the chunking and the number of threads); two levels agree to rounding.
/// Of int8 and int4 matrices all levels give the same bits.
enum class IsaLevel { kReference, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

/// "reference", "avx2", "avx512", "avx512-vnni", "avx512-bf16" (VNNI included), "amx"
std::string_view isa_name(IsaLevel level);
std::optional<IsaLevel> parse_isa(std::string_view name);
/// What this machine runs, slowest first; kReference is always there.
const std::vector<IsaLevel>& available_isa_levels();
inline IsaLevel best_isa_level() { return available_isa_levels().back(); }

/// Raised by every change of a kernel that may change a bit of what it gives: K/V that was kept in a file is
/// of no use then.
inline constexpr int kKernelVersion = 3;

/// What every op is given. Not thread-safe: one context per stream of ops.
struct KernelContext {
  IsaLevel isa;
  ThreadPool& pool;
  Buffer scratch = {};  // ops use it for the length of one call
};

}  // namespace quire::kernels
