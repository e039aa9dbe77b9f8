#pragma once

// Loops over arrays of registers must be unrolled completely; otherwise the arrays are placed in memory.
#if defined(__clang__)
#define QUIRE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QUIRE_UNROLL _Pragma("GCC unroll 32")
#endif
