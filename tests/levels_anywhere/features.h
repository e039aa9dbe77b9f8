#pragma once

#include "kernels/cpu/x86/features.h"

namespace quire::test {

/// What features() gives in this program: AVX-VNNI and all of AVX-512 and AMX, if this machine has the AVX2
/// that they are made of, but not the level of AVX2 itself, which kernels_test has. A test may change
/// bf16_dot_is_slow.
kernels::cpu::Features& emulated_features();

}  // namespace quire::test
