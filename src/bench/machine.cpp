#include "bench/machine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tensor/buffer.h"

namespace quire::bench {
namespace {

constexpr int kChains = 10;  // independent, to cover the latency
constexpr int kProbeRounds = 400'000;
constexpr int kProbes = 3;  // of reading memory, as many as fit in:
constexpr double kProbeSeconds = 0.15;
constexpr int kComputeProbes = 10;  // which take a millisecond each

#if defined(__x86_64__)
#define QUIRE_TEN_CHAINS(instruction, register)                                                            \
  for (int i = 0; i < kProbeRounds; ++i) {                                                                 \
    asm volatile(instruction " %%" register "14,%%" register "15,%%" register "0\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "1\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "2\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "3\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "4\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "5\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "6\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "7\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "8\n" instruction          \
                             " %%" register "14,%%" register "15,%%" register "9\n" ::                   \
                                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                                   "xmm9", "xmm14", "xmm15"); \
  }
#endif

#if defined(__x86_64__)
/// AMX: four independent sums, 16 x 16 x 64 bytes a step.
__attribute__((target("amx-tile,amx-bf16,amx-int8"))) double tile_multiply_adds(bool integers) {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t reserved[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("" ::"r"(&config) : "memory");  // GCC does not know that the next line reads it
  _tile_loadconfig(&config);
  for (int i = 0; i < kProbeRounds; ++i) {
    if (integers) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_release();
  return static_cast<double>(kProbeRounds) * 4 * 2 * 16 * 16 * (integers ? 64 : 32);
}
#endif

/// Operations (of the level's best multiply-add) that one thread does in one call.
double multiply_adds(kernels::IsaLevel level, WeightFormat format) {
#if defined(__x86_64__)
  constexpr double kInstructions = static_cast<double>(kProbeRounds) * kChains;
  const bool integers = is_integer(format);
  // There are no tiles for ggml's blocks.
  if (level == kernels::IsaLevel::kAmx && (integers ? !is_ggml(format) : format == WeightFormat::kBF16)) {
    return tile_multiply_adds(integers);
  }
  if (level >= kernels::IsaLevel::kAvx512Vnni && integers) {
    QUIRE_TEN_CHAINS("vpdpbusd", "zmm")
    return kInstructions * 128;
  }
  if (level == kernels::IsaLevel::kAvx512Bf16 && format == WeightFormat::kBF16) {
    QUIRE_TEN_CHAINS("vdpbf16ps", "zmm")
    return kInstructions * 64;
  }
  if (level == kernels::IsaLevel::kAvx2Vnni && integers) {
    QUIRE_TEN_CHAINS("%{vex%} vpdpbusd", "ymm")
    return kInstructions * 64;
  }
  // int8 without VNNI takes three instructions for what it is counted as here.
  if (level >= kernels::IsaLevel::kAvx512) {
    QUIRE_TEN_CHAINS("vfmadd231ps", "zmm")
    return kInstructions * (integers ? 128 : 32);
  }
  if (level == kernels::IsaLevel::kAvx2 || level == kernels::IsaLevel::kAvx2Vnni) {
    QUIRE_TEN_CHAINS("vfmadd231ps", "ymm")
    return kInstructions * (integers ? 64 : 16);
  }
#endif
  static_cast<void>(level);
  static_cast<void>(format);
  return 0;
}

}  // namespace

Peaks probe_peaks(ThreadPool& pool, kernels::IsaLevel level, WeightFormat format) {
  static Buffer memory = [] {
    Buffer buffer(kProbeBytes);
    std::fill_n(buffer.as<uint64_t>(), buffer.size() / sizeof(uint64_t), 1);
    return buffer;
  }();
  const auto seconds = [&](auto&& body) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(pool.num_threads(), 1, body);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Peaks peaks;
  std::vector<double> work(pool.num_threads());
  for (int i = 0; i < kComputeProbes; ++i) {
    const double compute =
        seconds([&](size_t part, size_t, uint32_t) { work[part] = multiply_adds(level, format); });
    peaks.flops = std::max(peaks.flops, std::accumulate(work.begin(), work.end(), 0.0) / compute);
  }
  double spent = 0;
  for (int i = 0; i < kProbes && spent < kProbeSeconds; ++i) {
    const size_t share = memory.size() / sizeof(uint64_t) / pool.num_threads();
    const double read = seconds([&](size_t part, size_t, uint32_t) {
      const uint64_t* from = memory.as<uint64_t>() + part * share;
      uint64_t sums[16] = {};
      for (size_t j = 0; j + 16 <= share; j += 16) {
        for (size_t lane = 0; lane < 16; ++lane) sums[lane] += from[j + lane];
      }
      work[part] = static_cast<double>(std::accumulate(sums, sums + 16, uint64_t{0}));
    });
    spent += read;
    peaks.bytes = std::max(peaks.bytes, static_cast<double>(memory.size()) / read);
  }
  return peaks;
}

backend::MachineSpeed probe_speed(ThreadPool& pool, kernels::IsaLevel level) {
  backend::MachineSpeed out;
  const auto rate = [&](WeightFormat format) {
    const Peaks peaks = probe_peaks(pool, level, format);
    out.bandwidth = std::max(out.bandwidth, peaks.bytes);
    return peaks.flops;
  };
  out.f32 = rate(WeightFormat::kF32);
  out.f16 = rate(WeightFormat::kF16);
  out.bf16 = rate(WeightFormat::kBF16);
  out.integer = rate(WeightFormat::kInt8);
  return out;
}

}  // namespace quire::bench
