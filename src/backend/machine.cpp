#include "backend/machine.h"

#include <algorithm>
#include <array>

namespace quire::backend {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

// PCI Express with 16 lanes, one direction, as measured with large pinned copies: the sheets' 64 and 128 GB/s
// are both directions, without what the protocol takes. Gen4: nvbandwidth 25.2 GB/s on an A10 and 24.8 on an
// A100 SXM, bandwidthTest 25.4 to 26.3 on an A100 PCIe. Gen5: nvbandwidth 55.2 to 55.4 on an H100 SXM. The
// L4's and the H200's are taken to be like these.
constexpr double kPcie4 = 25 * kGiga;
constexpr double kPcie5 = 55 * kGiga;

// Ops are launched as a CUDA graph. NVIDIA measured on a V100 3.4 us for kernels of 2.9 us each ("Getting
// Started with CUDA Graphs", NVIDIA's technical blog, 2019), Spector et al. on an H100 1.3 us between two
// kernels ("Look Ma, No Bubbles!", Hazy Research, 2025). That the cards up to Ada are like the first and the
// H200 like the second is an assumption.
constexpr double kLaunch = 0.5e-6;
constexpr double kHopperLaunch = 1.3e-6;

// The sheets give a card's memory in "GB" and mean GiB. Where they give a rate with sparsity, it is halved.
constexpr std::array kMachines = {
    Machine{.name = "a10g",
            .title = "NVIDIA A10G",
            .memory = 24 * kGiB,
            .speed = {.bandwidth = 600 * kGiga,
                      .f32 = 35 * kTera,
                      .f16 = 70 * kTera,
                      .bf16 = 70 * kTera,
                      .integer = 140 * kTera,
                      .host_link = kPcie4,
                      .launch = kLaunch},
            .source = "NVIDIA A10G data sheet for AWS (2022): 24 GB, 600 GB/s; FP32 35, FP16 and BF16 70 "
                      "TFLOPS, INT8 140 TOPS (70 and 140 are dense); PCIe Gen4 64 GB/s"},
    Machine{.name = "l4",
            .title = "NVIDIA L4",
            .memory = 24 * kGiB,
            .speed = {.bandwidth = 300 * kGiga,
                      .f32 = 30.3 * kTera,
                      .f16 = 121 * kTera,
                      .bf16 = 121 * kTera,
                      .integer = 242.5 * kTera,
                      .host_link = kPcie4,
                      .launch = kLaunch},
            .source = "NVIDIA L4 data sheet (2023): 24 GB, 300 GB/s; FP32 30.3, FP16 and BF16 242, INT8 485 "
                      "(the last two with sparsity); PCIe Gen4 x16 64 GB/s"},
    Machine{.name = "a100",
            .title = "NVIDIA A100 SXM 80 GB",
            .memory = 80 * kGiB,
            .speed = {.bandwidth = 2039 * kGiga,
                      .f32 = 19.5 * kTera,
                      .f16 = 312 * kTera,
                      .bf16 = 312 * kTera,
                      .integer = 624 * kTera,
                      .host_link = kPcie4,
                      .launch = kLaunch},
            .source = "NVIDIA A100 data sheet (2021), 80GB SXM: 80 GB, 2,039 GB/s; FP32 19.5, FP16 and BF16 "
                      "312 TFLOPS, INT8 624 TOPS (dense); PCIe Gen4 64 GB/s"},
    Machine{.name = "h100",
            .title = "NVIDIA H100 SXM 80 GB",
            .memory = 80 * kGiB,
            .speed = {.bandwidth = 3350 * kGiga,
                      .f32 = 67 * kTera,
                      .f16 = 989.5 * kTera,
                      .bf16 = 989.5 * kTera,
                      .integer = 1979 * kTera,
                      .host_link = kPcie5,
                      .launch = kHopperLaunch},
            .source = "NVIDIA H100 data sheet (2023), SXM: 80 GB, 3.35 TB/s; FP32 67, FP16 and BF16 1,979, "
                      "INT8 3,958 (the last two with sparsity); PCIe Gen5 128 GB/s"},
    Machine{.name = "h200",
            .title = "NVIDIA H200 SXM 141 GB",
            .memory = 141 * kGiB,
            .speed = {.bandwidth = 4800 * kGiga,
                      .f32 = 67 * kTera,
                      .f16 = 989.5 * kTera,
                      .bf16 = 989.5 * kTera,
                      .integer = 1979 * kTera,
                      .host_link = kPcie5,
                      .launch = kHopperLaunch},
            .source = "NVIDIA H200 data sheet (2024), SXM: 141 GB, 4.8 TB/s; FP32 67, FP16 and BF16 1,979, "
                      "INT8 3,958 (the last two with sparsity); PCIe Gen5 128 GB/s"},
};

}  // namespace

std::span<const Machine> known_machines() { return kMachines; }

const Machine* find_machine(std::string_view name) {
  const auto* const found = std::find_if(kMachines.begin(), kMachines.end(),
                                         [&](const Machine& machine) { return machine.name == name; });
  return found == kMachines.end() ? nullptr : found;
}

}  // namespace quire::backend
