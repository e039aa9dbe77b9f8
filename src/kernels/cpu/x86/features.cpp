#include "kernels/cpu/x86/features.h"

#include <cpuid.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

/// Clang 16's __builtin_cpu_supports does not know this one either.
bool runs_avx2_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!runs_avx2() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1U << 4)) != 0;
}

bool runs_avx512() {
  return avx512::kCompiled && runs_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool runs_vnni() { return runs_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool runs_bf16() { return runs_vnni() && __builtin_cpu_supports("avx512bf16"); }

/// AMX with bf16 and int8, beside the conversions of AVX-512's bf16, and the operating system's leave to use
/// its registers, which holds for all threads.
bool runs_amx() {
  constexpr unsigned kBits = (1U << 22) | (1U << 24) | (1U << 25);  // AMX-BF16, AMX-TILE, AMX-INT8
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!runs_bf16() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kBits) != kBits)
    return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

/// Intel's VDPBF16PS does half the operations a second of its f32 FMA; AMD's (Zen 4 on) twice as many.
bool bf16_dot_is_slow() { return __builtin_cpu_is("intel"); }

}  // namespace

const Features& features() {
  static const Features kHere = {.avx2 = runs_avx2(),
                                 .avx2_vnni = runs_avx2_vnni(),
                                 .avx512 = runs_avx512(),
                                 .vnni = runs_vnni(),
                                 .bf16 = runs_bf16(),
                                 .amx = runs_amx(),
                                 .bf16_dot_is_slow = bf16_dot_is_slow()};
  return kHere;
}

}  // namespace quire::kernels::cpu
