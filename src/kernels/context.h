#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/buffer.h"

namespace quire::kernels {

/// Which implementation of the kernels runs. Within a level the results are the same bits whatever the batch,
/// the chunking and the number of threads; two levels agree up to rounding. For int8 and int4 matrices all
/// levels give the same bits.
enum class IsaLevel { kReference, kAvx2, kAvx2Vnni, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

/// "reference", "avx2", "avx2-vnni" (AVX-VNNI), "avx512", "avx512-vnni", "avx512-bf16" (VNNI included), "amx"
std::string_view isa_name(IsaLevel level);
std::optional<IsaLevel> parse_isa(std::string_view name);
/// The levels that this machine supports, slowest first; kReference is always included.
const std::vector<IsaLevel>& available_isa_levels();
inline IsaLevel best_isa_level() { return available_isa_levels().back(); }
/// "auto" (the best) or a level by name. Throws Error that names `flag` and what the machine has.
IsaLevel pick_isa(std::string_view name, std::string_view flag);

/// Increased by every change of a kernel that may change a bit of its results: K/V files of earlier versions
/// are then invalid.
inline constexpr int kKernelVersion = 8;

/// An argument of every op. Not thread-safe: use one context per stream of ops.
struct KernelContext {
  IsaLevel isa;
  ThreadPool& pool;
  Buffer scratch = {};  // used by an op during one call
};

}  // namespace quire::kernels
