#include "bench/ops.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tensor/buffer.h"

namespace quire::bench {

class OpTimer {
 public:
  OpTimer(ThreadPool& pool, uint32_t repeats) : pool_(pool), repeats_(repeats) {}

  ThreadPool& pool() { return pool_; }

  /// The peaks are the better of right before and right after.
  template <class Body>
  Measured measure(kernels::IsaLevel level, WeightFormat format, double flops, double bytes,
                   const Body& body) {
    Measured out{.flops = flops, .bytes = bytes};
    if (flops > 0) out.peaks = probe_peaks(pool_, level, format);
    body();
    uint64_t batch = 1;
    while (batch < kMostCalls && seconds_of(batch, body) < kBatchSeconds) batch *= 2;
    for (uint32_t i = 0; i < repeats_; ++i) {
      uint64_t calls = 0;
      double seconds = 0;
      for (; seconds < kSeconds; calls += batch) seconds += seconds_of(batch, body);
      out.seconds.push_back(seconds / static_cast<double>(calls));
    }
    if (flops > 0) {
      const Peaks after = probe_peaks(pool_, level, format);
      out.peaks = {std::max(out.peaks.flops, after.flops), std::max(out.peaks.bytes, after.bytes)};
    }
    std::sort(out.seconds.begin(), out.seconds.end());
    return out;
  }

 private:
  static constexpr double kSeconds = 0.1;
  static constexpr double kBatchSeconds = 1e-4;  // so long that looking at the clock does not count
  static constexpr uint64_t kMostCalls = 1'000'000;

  template <class Body>
  static double seconds_of(uint64_t calls, const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < calls; ++i) body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  ThreadPool& pool_;
  uint32_t repeats_;
};

namespace {

constexpr size_t kWide = 8192;
constexpr size_t kNarrow = 2048;
constexpr uint32_t kHeads = 32;
constexpr uint32_t kKvHeads = 8;
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kBlockSize = 16;

/// Floats in the memory that activations have in a model, whose pages are large.
class Floats {
 public:
  explicit Floats(size_t count) : bytes_(count * sizeof(float)) {}
  float* data() { return bytes_.as<float>(); }
  const float* data() const { return bytes_.as<float>(); }
  size_t size() const { return bytes_.size() / sizeof(float); }

 private:
  Buffer bytes_;
};

Floats numbers(size_t count) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values.data()[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
  return values;
}

/// Several matrices in turn, so that the weights come from memory as they do in a model. Kept from one case
/// to the next of the same kind.
class Matrices {
 public:
  const std::vector<kernels::PackedMatrix>& of(ThreadPool& pool, kernels::IsaLevel level,
                                               WeightFormat format) {
    if (kind_ == std::pair(level, format)) return weights_;
    weights_.clear();
    kind_ = {level, format};
    kernels::KernelContext context{level, pool};
    const Floats values = numbers(kWide * kNarrow);
    TensorView view{DType::kF32, {kWide, kNarrow}, reinterpret_cast<const std::byte*>(values.data())};
    std::vector<std::byte> blocks;
    if (is_ggml(format)) {
      blocks = some_blocks(format);
      view = {DType::kU8, {kWide, static_cast<int64_t>(blocks.size() / kWide)}, blocks.data()};
    }
    for (size_t i = 0; i < kCount; ++i) weights_.emplace_back(context, view, format);
    return weights_;
  }

 private:
  static constexpr size_t kCount = 8;

  /// kWide rows of kNarrow inputs, of whatever values: no byte that makes a scale infinite is among them.
  static std::vector<std::byte> some_blocks(WeightFormat format) {
    const GgmlBlock block = ggml_block(format);
    std::vector<std::byte> bytes(kWide * kNarrow / block.values * block.bytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7919 % 97);
    return bytes;
  }

  std::optional<std::pair<kernels::IsaLevel, WeightFormat>> kind_;
  std::vector<kernels::PackedMatrix> weights_;
};

Measured time_matmul(OpTimer& timer, Matrices& matrices, kernels::IsaLevel level, WeightFormat format,
                     size_t m) {
  const std::vector<kernels::PackedMatrix>& weights = matrices.of(timer.pool(), level, format);
  kernels::KernelContext context{level, timer.pool()};
  const Floats x = numbers(m * kNarrow);
  Floats y(m * kWide);
  size_t next = 0;
  return timer.measure(level, format, 2.0 * static_cast<double>(m * kWide * kNarrow),
                       static_cast<double>(weights[0].num_bytes()), [&] {
                         kernels::matmul(context, weights[next++ % weights.size()], x.data(), kNarrow, m,
                                         y.data(), kWide);
                       });
}

/// `sequences` of `length` tokens each, the last `tokens` of them computed.
struct AttentionShape {
  const char* name;
  uint32_t sequences;
  uint32_t length;
  uint32_t tokens;
};
constexpr AttentionShape kAttentionShapes[] = {
    {"decode/1x4096", 1, 4096, 1},  {"decode/32x512", 32, 512, 1},       {"decode/8x8192", 8, 8192, 1},
    {"prefill/1x512", 1, 512, 512}, {"prefill/256of4096", 1, 4096, 256}, {"prefill/512of8192", 1, 8192, 512}};

Measured time_attention(OpTimer& timer, kernels::IsaLevel level, DType dtype, const AttentionShape& shape) {
  kernels::KernelContext context{level, timer.pool()};
  const kernels::KvLayout layout{dtype, kBlockSize, kKvHeads, kHeadDim};
  const uint32_t blocks_each = (shape.length + kBlockSize - 1) / kBlockSize;
  Buffer cache(size_t{shape.sequences} * blocks_each * layout.block_bytes());
  std::vector<BlockId> table(size_t{shape.sequences} * blocks_each);
  std::iota(table.begin(), table.end(), 0);
  const auto batch_of = [&](uint32_t first, uint32_t count) {
    std::vector<kernels::AttentionSeq> batch;
    for (uint32_t i = 0; i < shape.sequences; ++i) {
      batch.push_back({i * count, count, first, {table.data() + size_t{i} * blocks_each, blocks_each}});
    }
    return batch;
  };
  const size_t kv_width = size_t{kKvHeads} * kHeadDim;
  const Floats kv = numbers(size_t{shape.sequences} * shape.length * kv_width);
  kernels::write_kv(context, layout, cache.data(), batch_of(0, shape.length), kv.data(), kv_width, kv.data(),
                    kv_width);

  const size_t width = size_t{kHeads} * kHeadDim;
  const Floats q = numbers(size_t{shape.sequences} * shape.tokens * width);
  Floats out(q.size());
  const std::vector<kernels::AttentionSeq> batch = batch_of(shape.length - shape.tokens, shape.tokens);
  const double keys = (shape.length - shape.tokens + 1 + shape.length) / 2.0 * shape.tokens * shape.sequences;
  const auto bytes = static_cast<double>(cache.size());
  // The products of bf16 may be those of bf16, and so may those with int8 values, which a bf16 holds.
  const bool narrow = dtype == DType::kBF16 || dtype == DType::kI8;
  return timer.measure(level, narrow ? WeightFormat::kBF16 : WeightFormat::kF32,
                       4.0 * keys * static_cast<double>(width), bytes, [&] {
                         kernels::paged_attention(context, layout, cache.data(), batch, {kHeads, 0.125F, 0},
                                                  q.data(), width, out.data(), width);
                       });
}

Measured time_rms_norm(OpTimer& timer, kernels::IsaLevel level, size_t rows) {
  kernels::KernelContext context{level, timer.pool()};
  const Floats x = numbers(rows * kNarrow);
  Floats y(x.size());
  const auto elements = static_cast<double>(rows * kNarrow);
  return timer.measure(level, WeightFormat::kF32, 4.0 * elements, 8.0 * elements, [&] {
    kernels::rms_norm(context, x.data(), kNarrow, x.data(), 1e-5F, y.data(), kNarrow, rows, kNarrow);
  });
}

Measured time_swiglu(OpTimer& timer, kernels::IsaLevel level, size_t rows) {
  kernels::KernelContext context{level, timer.pool()};
  const Floats gate_up = numbers(rows * 2 * kWide);
  Floats out(rows * kWide);
  const auto elements = static_cast<double>(rows * kWide);
  return timer.measure(level, WeightFormat::kF32, 22.0 * elements, 12.0 * elements,
                       [&] { kernels::swiglu(context, gate_up.data(), out.data(), rows, kWide); });
}

Measured time_empty_loop(OpTimer& timer) {
  return timer.measure(kernels::IsaLevel::kReference, WeightFormat::kF32, 0, 0, [&] {
    timer.pool().parallel_for(timer.pool().num_threads(), 1, [](size_t, size_t, uint32_t) {});
  });
}

}  // namespace

OpCase empty_loop_case() { return {"parallel_for", time_empty_loop}; }

std::vector<OpCase> op_cases(kernels::IsaLevel level) {
  std::vector<OpCase> cases;
  const auto matrices = std::make_shared<Matrices>();
  const std::string_view isa = kernels::isa_name(level);
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4,
                                    WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K,
                                    WeightFormat::kQ6_K, WeightFormat::kF16, WeightFormat::kF32}) {
    for (const size_t m : {1, 4, 8, 16, 32, 64, 512}) {
      cases.push_back({fmt::format("matmul/{}/{}/8192x2048/m{}", isa, weight_format_name(format), m),
                       [=](OpTimer& timer) { return time_matmul(timer, *matrices, level, format, m); }});
    }
  }
  for (const DType dtype : {DType::kBF16, DType::kI8, DType::kF16, DType::kF32}) {
    for (const AttentionShape& shape : kAttentionShapes) {
      cases.push_back({fmt::format("attention/{}/{}/{}", isa, dtype_name(dtype), shape.name),
                       [=](OpTimer& timer) { return time_attention(timer, level, dtype, shape); }});
    }
  }
  for (const size_t rows : {1, 64}) {
    cases.push_back({fmt::format("rms_norm/{}/{}x2048", isa, rows),
                     [=](OpTimer& timer) { return time_rms_norm(timer, level, rows); }});
    cases.push_back({fmt::format("swiglu/{}/{}x8192", isa, rows),
                     [=](OpTimer& timer) { return time_swiglu(timer, level, rows); }});
  }
  return cases;
}

Measured measure(const OpCase& op, ThreadPool& pool, uint32_t repeats) {
  OpTimer timer(pool, repeats);
  return op.run(timer);
}

}  // namespace quire::bench
