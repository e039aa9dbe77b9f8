#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/amounts.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"

namespace {

constexpr const char* kUsage =
    "usage: gpu_bench [PART...]\n\n"
    "Measures the CUDA backend on the first device and prints tables in Markdown. Parts: attention, small, "
    "moving,\n"
    "sampling, swap, gemms, experts, steps, executor; without one: all. --facts prints what the device is "
    "and "
    "measures\n"
    "nothing.\n";

struct Part {
  const char* name;
  const char* title;
  void (*measure)(const quire::test::gpu::Sizes& sizes, const quire::test::gpu::Ceilings& ceilings);
};
constexpr Part kParts[] = {
    {"attention", "Attention (K/V and queries of bf16)", quire::test::gpu::measure_attention},
    {"small", "Norms and activations (bf16)", quire::test::gpu::measure_small_kernels},
    {"moving", "Embeddings, RoPE, additions, and copies of blocks (bf16)",
     quire::test::gpu::measure_moving_kernels},
    {"sampling",
     "Sampling of Llama-3.2-1B's vocabulary (logits of f32, of which one in 1,000 is 10 above the others)",
     quire::test::gpu::measure_sampling},
    {"swap", "Blocks to the host and back, by the host's clock; their share is of the link to the host",
     quire::test::gpu::measure_swap},
    {"gemms", "Matrix products of Llama-3.2-1B (bf16, and bf16 by int8 and by int4)",
     quire::test::gpu::measure_gemms},
    {"experts", "Feed-forward with experts of Qwen3-30B-A3B (bf16; rows choose at random)",
     quire::test::gpu::measure_experts},
    {"steps", "Whole steps of Llama-3.2-1B's shape (bf16, random weights), by the host's clock",
     quire::test::gpu::measure_steps},
    {"executor", "Steps of the backend's executor, sampled greedily, by the host's clock",
     quire::test::gpu::measure_executor},
};

bool is_part(std::string_view name) {
  for (const Part& part : kParts) {
    if (name == part.name) return true;
  }
  return false;
}

bool is_wanted(const Part& part, int argc, char** argv) {
  if (argc < 2) return true;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == part.name) return true;
  }
  return false;
}

int run(int argc, char** argv) {
  namespace gpu = quire::test::gpu;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") return std::fputs(kUsage, stdout) < 0 ? 1 : 0;
    if (argument != "--facts" && !is_part(argument)) return std::fputs(kUsage, stderr), 2;
  }
  if (const std::string why = gpu::why_no_device(); !why.empty()) {
    std::fprintf(stderr, "gpu_bench: %s\n", why.c_str());
    return 2;
  }
  if (argc > 1 && std::string_view(argv[1]) == "--facts") {
    const quire::backend::cuda::DeviceFacts facts = quire::backend::cuda::device_facts();
    std::puts(fmt::format("{}, compute capability {}.{}, {} of {} free", facts.name, facts.capability / 10,
                          facts.capability % 10, quire::human_bytes(facts.free_bytes),
                          quire::human_bytes(facts.total_bytes))
                  .c_str());
    return 0;
  }
  const gpu::Ceilings ceilings = gpu::measure_ceilings();
  for (const Part& part : kParts) {
    if (!is_wanted(part, argc, argv)) continue;
    std::printf("### %s\n\n", part.title);
    gpu::print_head();
    part.measure(gpu::Sizes{}, ceilings);
    std::puts("");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_bench: %s\n", error.what());
  return 1;
}
