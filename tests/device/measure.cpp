#include "tests/device/measure.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/gemm.h"
#include "backend/machine.h"
#include "base/rng.h"
#include "tensor/dtype.h"
#include "tests/device/device.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

/// The card's name has the name of --machine as a word of its own: "NVIDIA H100 80GB HBM3", "NVIDIA
/// A100-SXM4-80GB".
const backend::Machine* machine_of(std::string device) {
  for (char& c : device) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = ' ';
  }
  for (const backend::Machine& machine : backend::known_machines()) {
    if ((" " + device + " ").find(fmt::format(" {} ", machine.name)) != std::string::npos) return &machine;
  }
  return nullptr;
}

double measure_copy() {
  const size_t bytes = std::min<size_t>(size_t{1} << 30, cuda::device_facts().free_bytes / 4);
  const cuda::DeviceBuffer from(bytes, "a copy");
  const cuda::DeviceBuffer to(bytes, "a copy");
  cuda::clear(from.data(), bytes, nullptr);
  const double seconds = seconds_of([&] { cuda::copy_on_device(to.data(), from.data(), bytes, nullptr); });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

double measure_product() {
  constexpr uint32_t kSize = 8192;
  const cuda::DeviceBuffer x = random_bf16(size_t{kSize} * kSize, "x");
  const cuda::DeviceBuffer weights = random_bf16(size_t{kSize} * kSize, "weights");
  const cuda::DeviceBuffer y(size_t{kSize} * kSize * 2, "y");
  cuda::Gemm gemm(cublaslt(), nullptr);
  const void* const matrices[] = {weights.data()};
  gemm.prepare({DType::kBF16, DType::kBF16, kSize, kSize, false}, matrices, nullptr, kSize);
  const double seconds = seconds_of([&] {
    gemm.multiply({.dtype = DType::kBF16,
                   .out_dtype = DType::kBF16,
                   .x = x.data(),
                   .weights = weights.data(),
                   .bias = nullptr,
                   .y = y.data(),
                   .rows = kSize,
                   .n = kSize,
                   .k = kSize});
  });
  return 2.0 * kSize * kSize * kSize / seconds;
}

}  // namespace

void print_head() {
  std::puts("| what | µs | MB needed | share of copy bandwidth | GFLOP | share of the matrix rate |");
  std::puts("|---|--:|--:|--:|--:|--:|");
}

void print_row(const std::string& what, double seconds, const Needs& needs, const Ceilings& ceilings) {
  const auto share = [&](double needed, double rate) {
    return needed > 0 && rate > 0 ? fmt::format("{:.1f} %", 100 * needed / seconds / rate) : "";
  };
  const std::string operations = needs.operations > 0 ? fmt::format("{:.2f}", needs.operations * 1e-9) : "";
  std::puts(fmt::format("| {} | {:.1f} | {:.1f} | {} | {} | {} |", what, seconds * 1e6, needs.bytes * 1e-6,
                        share(needs.bytes, ceilings.copied), operations,
                        share(needs.operations, ceilings.bf16))
                .c_str());
  std::fflush(stdout);
}

cuda::DeviceBuffer random_bf16(size_t count, const std::string& what) {
  SplitMix64 rng(1);
  std::vector<uint16_t> values(std::min<size_t>(count, size_t{1} << 20));
  for (uint16_t& value : values) {
    value = f32_to_bf16(static_cast<float>(unit_interval(rng.next()) * 2.0 - 1.0));
  }
  cuda::DeviceBuffer out(count * sizeof(uint16_t), what);
  for (size_t done = 0; done < count; done += values.size()) {
    cuda::copy_to_device(out.data() + done * sizeof(uint16_t), values.data(),
                         std::min(values.size(), count - done) * sizeof(uint16_t), nullptr);
  }
  cuda::synchronize(nullptr);
  return out;
}

Ceilings measure_ceilings() {
  Ceilings out{.copied = measure_copy(), .bf16 = measure_product()};
  std::puts(fmt::format("A copy of 1 GiB on the device (or of a quarter of the free memory) reads and writes "
                        "{:.0f} GB/s together. A product of bf16 matrices of 8,192 x 8,192 does {:.1f} "
                        "TFLOPS.",
                        out.copied * 1e-9, out.bf16 * 1e-12)
                .c_str());
  if (const backend::Machine* machine = machine_of(cuda::device_facts().name)) {
    out.bf16 = machine->speed.bf16;
    out.host_link = machine->speed.host_link;
    std::puts(
        fmt::format("The data sheet of {}: {:.0f} GB/s, {:.1f} TFLOPS of bf16, which is the matrix rate "
                    "below.",
                    machine->title, machine->speed.bandwidth * 1e-9, out.bf16 * 1e-12)
            .c_str());
  } else {
    std::puts("The matrix rate below is that of this product.");
  }
  std::puts("");
  return out;
}

}  // namespace quire::test::gpu
