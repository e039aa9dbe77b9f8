#include <algorithm>
#include <cpuid.h>
#include <iterator>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/table.h"
#include "kernels/cpu/x86/tables.h"

namespace quire::kernels::cpu {
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
  return avx512::kCompiled && runs_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool runs_vnni() { return runs_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool runs_bf16() { return runs_vnni() && __builtin_cpu_supports("avx512bf16"); }

/// AMX with bf16 and int8, and the operating system's leave to use its registers, which holds for all
/// threads.
bool runs_amx() {
  constexpr unsigned kBits = (1U << 22) | (1U << 24) | (1U << 25);  // AMX-BF16, AMX-TILE, AMX-INT8
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!runs_vnni() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kBits) != kBits)
    return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void set(KernelTable& table, WeightFormat format, const MatmulKernel& kernel) {
  table.matmul[static_cast<size_t>(format)] = kernel;
}

KernelTable with_blocks(KernelTable table, const MatmulKernel (&blocks)[4]) {
  std::copy(std::begin(blocks), std::end(blocks), table.matmul + static_cast<size_t>(WeightFormat::kQ8_0));
  return table;
}

/// All of AVX-512, with matmuls of its own.
KernelTable avx512_with(IsaLevel level) {
  KernelTable made = with_blocks(avx512::kTable, avx512_vnni::kBlocks);
  if (level == IsaLevel::kAmx) {
    set(made, WeightFormat::kBF16, amx::kBf16);
    set(made, WeightFormat::kInt8, amx::kInt8);
    set(made, WeightFormat::kInt4, amx::kInt4);
    return made;
  }
  set(made, WeightFormat::kInt8, avx512_vnni::kInt8);
  set(made, WeightFormat::kInt4, avx512_vnni::kInt4);
  if (level == IsaLevel::kAvx512Bf16) set(made, WeightFormat::kBF16, avx512_bf16::kBf16);
  return made;
}

/// Intel's VDPBF16PS does half the operations a second of its f32 FMA; AMD's (Zen 4 on) twice as many.
bool bf16_dot_is_slow() { return __builtin_cpu_is("intel"); }

}  // namespace

const KernelTable* native_table(IsaLevel level) {
  static const bool avx2_here = runs_avx2();
  static const bool avx512_here = runs_avx512();
  static const bool vnni_here = runs_vnni();
  static const bool bf16_here = runs_bf16();
  static const bool amx_here = runs_amx();
  static const KernelTable avx2 = with_blocks(avx2::kTable, avx2::kBlocks);
  static const KernelTable avx512 = with_blocks(avx512::kTable, avx2::kBlocks);
  static const KernelTable with_vnni = avx512_with(IsaLevel::kAvx512Vnni);
  static const KernelTable with_bf16 = avx512_with(IsaLevel::kAvx512Bf16);
  static const KernelTable with_amx = avx512_with(IsaLevel::kAmx);
  switch (level) {
    case IsaLevel::kAvx2:
      return avx2_here ? &avx2 : nullptr;
    case IsaLevel::kAvx512:
      return avx512_here ? &avx512 : nullptr;
    case IsaLevel::kAvx512Vnni:
      return vnni_here ? &with_vnni : nullptr;
    case IsaLevel::kAvx512Bf16:
      return bf16_here ? &with_bf16 : nullptr;
    case IsaLevel::kAmx:
      return amx_here ? &with_amx : nullptr;
    case IsaLevel::kReference:
      return nullptr;
  }
  return nullptr;
}

std::vector<IsaLevel> native_levels() {
  std::vector<IsaLevel> order = {IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAvx512Vnni,
                                 IsaLevel::kAvx512Bf16, IsaLevel::kAmx};
  if (bf16_dot_is_slow()) std::swap(order[2], order[3]);
  std::erase_if(order, [](IsaLevel level) { return native_table(level) == nullptr; });
  return order;
}

}  // namespace quire::kernels::cpu
