#include "kernels/cpu/select_experts.h"

namespace quire::kernels::cpu {

void select_experts(float* p, uint32_t num_experts, uint32_t top, bool normalize, uint32_t* experts,
                    float* weights) {
  constexpr float kTaken = -1.0F;  // below every probability
  float sum = 0.0F;
  for (uint32_t j = 0; j < top; ++j) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < num_experts; ++i) {
      if (p[i] > p[best]) best = i;
    }
    experts[j] = best;
    weights[j] = p[best];
    sum += p[best];
    p[best] = kTaken;
  }
  if (!normalize) return;
  for (uint32_t j = 0; j < top; ++j) weights[j] /= sum;
}

}  // namespace quire::kernels::cpu
