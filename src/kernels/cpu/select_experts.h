#pragma once

#include <cstdint>

namespace quire::kernels::cpu {

/// Selects the `top` largest of p, largest first and the first among equals, with the values of p as weights,
/// normalized to sum 1 if `normalize`. Overwrites the selected values of p. Compiled once, for all levels.
void select_experts(float* p, uint32_t num_experts, uint32_t top, bool normalize, uint32_t* experts,
                    float* weights);

}  // namespace quire::kernels::cpu
