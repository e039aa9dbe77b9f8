#include <cpuid.h>
#include <utility>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/cpu/x86/tables.h"

namespace quire::cpu {
namespace {

// The compiler's checks ask the operating system too whether it keeps the wide registers.
/// Clang 16's __builtin_cpu_supports does not know this one.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1U << 29)) != 0;
}

bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/// All of AVX-512, with the bf16 matmul of its own.
const KernelTable& avx512_bf16_table() {
  static const KernelTable with_bf16 = [] {
    KernelTable made = avx512::kTable;
    made.matmul[float_index(DType::kBF16)] = avx512_bf16::kMatmulBf16;
    made.bf16_activations = DType::kBF16;
    return made;
  }();
  return with_bf16;
}

/// Intel's VDPBF16PS does half the operations a second of its f32 FMA; AMD's (Zen 4 on) twice as many.
bool bf16_dot_is_slow() { return __builtin_cpu_is("intel"); }

}  // namespace

const KernelTable* native_table(IsaLevel level) {
  static const bool avx2_here = runs_avx2();
  static const bool avx512_here = runs_avx512();
  static const bool bf16_here = avx512_here && __builtin_cpu_supports("avx512bf16");
  switch (level) {
    case IsaLevel::kAvx2:
      return avx2_here ? &avx2::kTable : nullptr;
    case IsaLevel::kAvx512:
      return avx512_here ? &avx512::kTable : nullptr;
    case IsaLevel::kAvx512Bf16:
      return bf16_here ? &avx512_bf16_table() : nullptr;
    case IsaLevel::kReference:
      return nullptr;
  }
  return nullptr;
}

std::vector<IsaLevel> native_levels() {
  std::vector<IsaLevel> order = {IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAvx512Bf16};
  if (bf16_dot_is_slow()) std::swap(order[1], order[2]);
  std::erase_if(order, [](IsaLevel level) { return native_table(level) == nullptr; });
  return order;
}

}  // namespace quire::cpu
