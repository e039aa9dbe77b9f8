#include "kernels/moe.h"

#include <cstring>

#include "kernels/cpu/table.h"

namespace quire::kernels {

void route(KernelContext& context, float* logits, size_t rows, uint32_t num_experts, uint32_t top,
           bool normalize, uint32_t* experts, float* weights) {
  const auto run = cpu::table(context.isa).route;
  const size_t work = size_t{num_experts} * (top + 4);
  context.pool.parallel_for(rows, cpu::row_grain(context.pool, rows, work),
                            [&](size_t begin, size_t end, uint32_t) {
                              run(logits + begin * num_experts, end - begin, num_experts, top, normalize,
                                  experts + begin * top, weights + begin * top);
                            });
}

void gather_rows(KernelContext& context, const float* x, std::span<const uint32_t> rows, size_t width,
                 float* out) {
  context.pool.parallel_for(rows.size(), cpu::row_grain(context.pool, rows.size(), width),
                            [&](size_t begin, size_t end, uint32_t) {
                              for (size_t i = begin; i < end; ++i) {
                                std::memcpy(out + i * width, x + rows[i] * width, width * sizeof(float));
                              }
                            });
}

void combine_rows(KernelContext& context, const float* y, const uint32_t* places, const float* weights,
                  uint32_t top, float* out, size_t rows, size_t width) {
  const auto run = cpu::table(context.isa).combine;
  context.pool.parallel_for(rows, cpu::row_grain(context.pool, rows, width * top),
                            [&](size_t begin, size_t end, uint32_t) {
                              run(y, width, places + begin * top, weights + begin * top, top,
                                  out + begin * width, width, end - begin, width);
                            });
}

}  // namespace quire::kernels
