// The ops at shapes of Llama-3.2-1B, for every level that this machine runs. Beside the rates stand their
// shares of what the machine can do, probed right before each benchmark: %flops of the level's best
// multiply-add instruction, %bandwidth of reading memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "bench/peaks.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace quire {
namespace {

constexpr size_t kWide = 8192;
constexpr size_t kNarrow = 2048;
constexpr uint32_t kHeads = 32;
constexpr uint32_t kKvHeads = 8;
constexpr uint32_t kHeadDim = 64;

ThreadPool& pool() {
  static ThreadPool threads(std::max(1U, std::thread::hardware_concurrency()));
  return threads;
}

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
  return values;
}

/// Runs the loop and reports; `flops` and `bytes` are those of one iteration.
template <class Body>
void measure(benchmark::State& state, const bench::Peaks& peaks, double flops, double bytes,
             const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  for ([[maybe_unused]] const auto _ : state) body();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                         static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = flops / seconds / 1e9;
  state.counters["GB/s"] = bytes / seconds / 1e9;
  state.counters["%flops"] = 100 * flops / seconds / peaks.flops;
  state.counters["%bandwidth"] = 100 * bytes / seconds / peaks.bytes;
}

void bench_matmul(benchmark::State& state, IsaLevel level, WeightFormat format, size_t m) {
  // Several matrices in turn, so that the weights come from memory as they do in a model.
  static constexpr size_t kMatrices = 8;
  KernelContext context{level, pool()};
  const std::vector<float> values = numbers(kWide * kNarrow);
  const TensorView view{DType::kF32, {kWide, kNarrow}, reinterpret_cast<const std::byte*>(values.data())};
  std::vector<PackedMatrix> weights;
  for (size_t i = 0; i < kMatrices; ++i) weights.emplace_back(context, view, format);
  const std::vector<float> x = numbers(m * kNarrow);
  std::vector<float> y(m * kWide);
  const bench::Peaks peaks = bench::probe(pool(), level, format);
  size_t next = 0;
  measure(state, peaks, 2.0 * static_cast<double>(m * kWide * kNarrow),
          static_cast<double>(weights[0].num_bytes()),
          [&] { matmul(context, weights[next++ % kMatrices], x.data(), kNarrow, m, y.data(), kWide); });
}

/// `sequences` of `length` tokens each, the last `tokens` of them computed.
void bench_attention(benchmark::State& state, IsaLevel level, DType dtype, uint32_t sequences,
                     uint32_t length, uint32_t tokens) {
  KernelContext context{level, pool()};
  const KvLayout layout{dtype, 16, kKvHeads, kHeadDim};
  const uint32_t blocks_each = (length + 15) / 16;
  Buffer cache(size_t{sequences} * blocks_each * layout.block_bytes());
  std::vector<BlockId> table(size_t{sequences} * blocks_each);
  std::iota(table.begin(), table.end(), 0);
  const auto batch_of = [&](uint32_t first, uint32_t count) {
    std::vector<AttentionSeq> batch;
    for (uint32_t i = 0; i < sequences; ++i) {
      batch.push_back({i * count, count, first, {table.data() + size_t{i} * blocks_each, blocks_each}});
    }
    return batch;
  };
  const std::vector<float> kv = numbers(size_t{sequences} * length * kKvHeads * kHeadDim);
  const size_t kv_width = size_t{kKvHeads} * kHeadDim;
  write_kv(context, layout, cache.data(), batch_of(0, length), kv.data(), kv_width, kv.data(), kv_width);

  const size_t width = size_t{kHeads} * kHeadDim;
  const std::vector<float> q = numbers(size_t{sequences} * tokens * width);
  std::vector<float> out(q.size());
  const std::vector<AttentionSeq> batch = batch_of(length - tokens, tokens);
  const bench::Peaks peaks = bench::probe(pool(), level, WeightFormat::kF32);
  const double keys = (length - tokens + 1 + length) / 2.0 * tokens * sequences;
  measure(state, peaks, 4.0 * keys * static_cast<double>(width),
          static_cast<double>(sequences) * length * 2.0 * static_cast<double>(kv_width * dtype_bytes(dtype)),
          [&] {
            paged_attention(context, layout, cache.data(), batch, {kHeads, 0.125F, 0}, q.data(), width,
                            out.data(), width);
          });
}

void bench_rms_norm(benchmark::State& state, IsaLevel level, size_t rows) {
  KernelContext context{level, pool()};
  const std::vector<float> x = numbers(rows * kNarrow);
  std::vector<float> y(x.size());
  const bench::Peaks peaks = bench::probe(pool(), level, WeightFormat::kF32);
  const auto elements = static_cast<double>(rows * kNarrow);
  measure(state, peaks, 4.0 * elements, 8.0 * elements,
          [&] { rms_norm(context, x.data(), kNarrow, x.data(), 1e-5F, y.data(), kNarrow, rows, kNarrow); });
}

void bench_swiglu(benchmark::State& state, IsaLevel level, size_t rows) {
  KernelContext context{level, pool()};
  const std::vector<float> gate_up = numbers(rows * 2 * kWide);
  std::vector<float> out(rows * kWide);
  const bench::Peaks peaks = bench::probe(pool(), level, WeightFormat::kF32);
  const auto elements = static_cast<double>(rows * kWide);
  measure(state, peaks, 22.0 * elements, 12.0 * elements,
          [&] { swiglu(context, gate_up.data(), out.data(), rows, kWide); });
}

void bench_empty_loop(benchmark::State& state) {
  for ([[maybe_unused]] const auto _ : state) {
    pool().parallel_for(pool().num_threads(), 1, [](size_t, size_t, uint32_t) {});
  }
}

template <class... Args>
void add(const std::string& name, void (*body)(benchmark::State&, Args...),
         std::type_identity_t<Args>... args) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { body(state, args...); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void register_all() {
  add("parallel_for", bench_empty_loop);
  for (const IsaLevel level : available_isa_levels()) {
    if (level == IsaLevel::kReference) continue;  // for reading, not for speed
    for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4,
                                      WeightFormat::kF16, WeightFormat::kF32}) {
      for (const size_t m : {1, 4, 8, 16, 32, 64, 512}) {
        add(fmt::format("matmul/{}/{}/8192x2048/m{}", isa_name(level), weight_format_name(format), m),
            bench_matmul, level, format, m);
      }
    }
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const std::string suffix = fmt::format("{}/{}", isa_name(level), dtype_name(dtype));
      add(fmt::format("attention/{}/decode/1x4096", suffix), bench_attention, level, dtype, 1, 4096, 1);
      add(fmt::format("attention/{}/decode/32x512", suffix), bench_attention, level, dtype, 32, 512, 1);
      add(fmt::format("attention/{}/prefill/1x512", suffix), bench_attention, level, dtype, 1, 512, 512);
      add(fmt::format("attention/{}/prefill/256of4096", suffix), bench_attention, level, dtype, 1, 4096, 256);
    }
    for (const size_t rows : {1, 64}) {
      add(fmt::format("rms_norm/{}/{}x2048", isa_name(level), rows), bench_rms_norm, level, rows);
      add(fmt::format("swiglu/{}/{}x8192", isa_name(level), rows), bench_swiglu, level, rows);
    }
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  quire::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
