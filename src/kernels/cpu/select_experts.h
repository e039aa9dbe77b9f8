#pragma once

#include <cstdint>

namespace quire::kernels::cpu {

/// The `top` largest of p, the first of equal ones, largest first, with p's values as weights; these summing
/// to 1 if `normalize`. Takes them out of p. Compiled once, for every level.
void select_experts(float* p, uint32_t num_experts, uint32_t top, bool normalize, uint32_t* experts,
                    float* weights);

}  // namespace quire::kernels::cpu
