#include "kernels/elementwise.h"

#include "kernels/cpu/table.h"

namespace quire::kernels {
namespace {

size_t row_grain(const KernelContext& context, size_t rows, size_t elements_per_row) {
  return cpu::row_grain(context.pool, rows, elements_per_row);
}

void gated(KernelContext& context, cpu::Gated run, const float* gate_up, float* out, size_t rows,
           size_t width) {
  context.pool.parallel_for(rows, row_grain(context, rows, 4 * width),
                            [&](size_t begin, size_t end, uint32_t) {
                              for (size_t row = begin; row < end; ++row) {
                                const float* gate = gate_up + row * 2 * width;
                                run(gate, gate + width, out + row * width, width);
                              }
                            });
}

}  // namespace

void rms_norm(KernelContext& context, const float* x, size_t ldx, const float* weight, float eps, float* y,
              size_t ldy, size_t rows, size_t width) {
  const auto run = cpu::table(context.isa).rms_norm;
  context.pool.parallel_for(rows, row_grain(context, rows, width), [&](size_t begin, size_t end, uint32_t) {
    run(x + begin * ldx, ldx, weight, eps, y + begin * ldy, ldy, end - begin, width);
  });
}

void add_in_place(KernelContext& context, float* y, const float* x, size_t count, float factor) {
  const auto run = cpu::table(context.isa).add_in_place;
  context.pool.parallel_for(count, row_grain(context, count, 0), [&](size_t begin, size_t end, uint32_t) {
    run(y + begin, x + begin, factor, end - begin);
  });
}

void scale_in_place(KernelContext& context, float* x, size_t count, float factor) {
  const auto run = cpu::table(context.isa).scale_in_place;
  context.pool.parallel_for(count, row_grain(context, count, 0),
                            [&](size_t begin, size_t end, uint32_t) { run(x + begin, factor, end - begin); });
}

void soft_cap(KernelContext& context, float* x, size_t count, float cap) {
  const auto run = cpu::table(context.isa).soft_cap;
  context.pool.parallel_for(count, row_grain(context, count, 7),
                            [&](size_t begin, size_t end, uint32_t) { run(x + begin, cap, end - begin); });
}

void swiglu(KernelContext& context, const float* gate_up, float* out, size_t rows, size_t width) {
  gated(context, cpu::table(context.isa).swiglu, gate_up, out, rows, width);
}

void geglu(KernelContext& context, const float* gate_up, float* out, size_t rows, size_t width) {
  gated(context, cpu::table(context.isa).geglu, gate_up, out, rows, width);
}

void rope(KernelContext& context, float* x, size_t ldx, size_t rows, uint32_t num_heads, uint32_t head_dim,
          uint32_t rotary, const float* cos_sin, const uint32_t* positions) {
  const auto run = cpu::table(context.isa).rope;
  context.pool.parallel_for(
      rows, row_grain(context, rows, size_t{num_heads} * rotary), [&](size_t begin, size_t end, uint32_t) {
        run(x + begin * ldx, ldx, end - begin, num_heads, head_dim, rotary, cos_sin, positions + begin);
      });
}

void embed(KernelContext& context, const TensorView& table, std::span<const TokenId> tokens, float* out) {
  const auto width = static_cast<size_t>(table.shape[1]);
  const size_t row_bytes = width * dtype_bytes(table.dtype);
  const auto run = cpu::table(context.isa).to_f32[cpu::float_index(table.dtype)];
  context.pool.parallel_for(
      tokens.size(), row_grain(context, tokens.size(), width), [&](size_t begin, size_t end, uint32_t) {
        for (size_t i = begin; i < end; ++i) {
          run(table.data + static_cast<size_t>(tokens[i]) * row_bytes, out + i * width, width);
        }
      });
}

}  // namespace quire::kernels
