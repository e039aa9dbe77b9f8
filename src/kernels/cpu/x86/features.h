#pragma once

namespace quire::kernels::cpu {

/// Which tables of tables.h can be used: the processor has the instructions, the operating system keeps their
/// registers for every thread, and they are compiled in.
struct Features {
  bool avx2;              // with FMA and F16C
  bool avx2_vnni;         // AVX-VNNI: VPDPBUSD of 256 bits without AVX-512
  bool avx512;            // F, BW, DQ and VL
  bool vnni;              // of AVX-512
  bool bf16;              // of AVX-512
  bool amx;               // bf16 and int8
  bool bf16_dot_is_slow;  // VDPBF16PS multiplies less per second than VFMADD of f32
};

/// Asked once. The one function of its source: tests have another that has all
/// (tests/levels_anywhere).
const Features& features();

}  // namespace quire::kernels::cpu
