#include <cstdint>
#include <numeric>
#include <vector>

#include "backend/cuda/copy_blocks.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/embed.h"
#include "backend/cuda/rope.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/sample_lists.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/paper.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

constexpr size_t kBytes = 2;  // of a bf16

cuda::DeviceBuffer counting(uint32_t count, const char* what) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return gpu::on_device(values, what);
}

}  // namespace

Asked count_embed(uint32_t rows, uint32_t width) {
  Device device(1, true);
  const cuda::DeviceBuffer table = gpu::random_bf16(size_t{rows} * width, "embeddings");
  const cuda::DeviceBuffer tokens = counting(rows, "tokens");
  const cuda::DeviceBuffer out(size_t{rows} * width * kBytes, "out");
  return count([&] {
    return cuda::embed({DType::kBF16, table.data(), tokens.as<const uint32_t>(), out.data(), rows, width},
                       nullptr);
  });
}

Asked count_add(uint32_t rows, uint32_t width) {
  Device device(1, true);
  const size_t elements = size_t{rows} * width;
  const cuda::DeviceBuffer x = gpu::random_bf16(elements, "x");
  const cuda::DeviceBuffer y = gpu::random_bf16(elements, "y");
  return count([&] { return cuda::add({DType::kBF16, y.data(), 1.0F, x.data(), 1.0F, elements}, nullptr); });
}

Asked count_rope(const model::ModelConfig& model, uint32_t rows) {
  Device device(1, true);
  const cuda::KvBlocks blocks{DType::kBF16, gpu::kBlock, model.num_kv_heads, model.head_dim};
  const size_t width = size_t{model.num_heads + 2 * model.num_kv_heads} * model.head_dim;
  const cuda::DeviceBuffer qkv = gpu::random_bf16(rows * width, "qkv");
  const cuda::DeviceBuffer cos_sin =
      gpu::on_device(std::vector<float>(size_t{rows} * model.head_dim, 0.5F), "angles");
  const cuda::DeviceBuffer numbers = counting(rows, "positions and places");
  const cuda::DeviceBuffer cache((rows + gpu::kBlock - 1) / gpu::kBlock * blocks.block_bytes(), "cache");
  return count([&] {
    return cuda::rope({.blocks = blocks,
                       .qkv = qkv.data(),
                       .num_heads = model.num_heads,
                       .rotary = model.head_dim,
                       .cos_sin = cos_sin.as<const float>(),
                       .positions = numbers.as<const uint32_t>(),
                       .places = numbers.as<const uint32_t>(),
                       .cache = cache.data(),
                       .rows = rows},
                      nullptr);
  });
}

Asked count_copy(const model::ModelConfig& model) {
  Device device(1, true);
  const cuda::KvBlocks blocks{DType::kBF16, gpu::kBlock, model.num_kv_heads, model.head_dim};
  const cuda::DeviceBuffer cache =
      gpu::random_bf16(size_t{2} * model.num_layers * blocks.block_elements(), "cache");
  const cuda::DeviceBuffer pairs = counting(2, "pairs");
  return count([&] {
    return cuda::copy_blocks({.cache = cache.data(),
                              .part_bytes = blocks.block_bytes(),
                              .array_bytes = 2 * blocks.block_bytes(),
                              .arrays = model.num_layers,
                              .pairs = pairs.as<const uint32_t>(),
                              .count = 1},
                             nullptr);
  });
}

Asked count_greedy(uint32_t vocabulary) {
  Device device(1, true);
  std::vector<float> row(vocabulary);
  std::iota(row.begin(), row.end(), 0.0F);
  const cuda::DeviceBuffer logits = gpu::on_device(row, "logits");
  const cuda::DeviceBuffer workspace(cuda::sample_workspace_bytes(vocabulary), "sampling");
  const cuda::DeviceBuffer tokens(cuda::kPlacesOfSlot * sizeof(TokenId), "tokens");
  const cuda::DeviceBuffer results(sizeof(cuda::SampledRow), "results");
  SamplingParams params;
  params.temperature = 0.0F;
  cuda::SlotSampling sampling;
  sampling.reset(params, std::vector<TokenId>{1}, 1);
  cuda::SampleLists lists;
  sampling.add_row(0, 1, {}, vocabulary, lists);
  std::vector<std::byte> bytes(lists.bytes());
  const cuda::DeviceBuffer there(bytes.size(), "lists");
  cuda::SampleArgs args{.logits = logits.as<const float>(),
                        .stride = vocabulary,
                        .vocabulary = vocabulary,
                        .workspace = workspace.data(),
                        .tokens = tokens.as<TokenId>(),
                        .results = results.as<cuda::SampledRow>()};
  lists.write(bytes.data(), there.data(), args);
  cuda::copy_to_device(there.data(), bytes.data(), bytes.size(), nullptr);
  cuda::synchronize(nullptr);
  return count([&] { return cuda::sample(args, nullptr); });
}

}  // namespace quire::test::fibers
