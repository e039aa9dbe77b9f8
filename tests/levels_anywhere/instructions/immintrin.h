#pragma once

// Found in the place of the compiler's <immintrin.h> where a source of AVX-VNNI, AVX-512 or AMX is compiled
// for machines that have only AVX2 (docs/levels-anywhere.md). Of each intrinsic that the kernels use there is
// a function of the same name, which gives what Intel's Software Developer's Manual, volume 2, says that the
// instruction gives. A kernel that uses another does not compile here: write the function, and its row in
// probes.h.
//
// Each object has its own, inline or not, so that no two share one.

// GCC's own headers ask for this name: what they have up to AVX2 is taken from
// them, each after those that it needs.
#define _IMMINTRIN_H_INCLUDED
// clang-format off
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
// clang-format on

#include "tests/levels_anywhere/instructions/float_lanes.h"
#include "tests/levels_anywhere/instructions/integer_lanes.h"
#include "tests/levels_anywhere/instructions/masked_memory.h"
#include "tests/levels_anywhere/instructions/products.h"
#include "tests/levels_anywhere/instructions/tiles.h"
