#include "tests/levels_anywhere/features.h"

namespace quire {

kernels::cpu::Features& test::emulated_features() {
  static kernels::cpu::Features all = [] {
    const bool runs =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    return kernels::cpu::Features{.avx2 = false,
                                  .avx2_vnni = runs,
                                  .avx512 = runs,
                                  .vnni = runs,
                                  .bf16 = runs,
                                  .amx = runs,
                                  .bf16_dot_is_slow = false};
  }();
  return all;
}

const kernels::cpu::Features& kernels::cpu::features() { return test::emulated_features(); }

}  // namespace quire
