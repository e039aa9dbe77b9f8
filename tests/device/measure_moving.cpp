#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/copy_blocks.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/embed.h"
#include "backend/cuda/rope.h"
#include "base/amounts.h"
#include "base/rng.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

/// Numbers below `end`.
std::vector<uint32_t> random_numbers(size_t count, uint32_t end) {
  SplitMix64 rng(5);
  std::vector<uint32_t> out(count);
  for (uint32_t& number : out) number = static_cast<uint32_t>(rng.below(end));
  return out;
}

/// All numbers below `count`, in any order.
std::vector<uint32_t> shuffled(uint32_t count) {
  SplitMix64 rng(6);
  std::vector<uint32_t> out(count);
  for (uint32_t i = 0; i < count; ++i) {
    const auto other = static_cast<uint32_t>(rng.below(i + 1));
    out[i] = out[other];
    out[other] = i;
  }
  return out;
}

void measure_embed(const Sizes& sizes, uint32_t rows, const Ceilings& ceilings) {
  const uint32_t width = sizes.model.hidden_size;
  const uint32_t vocabulary = sizes.model.vocab_size;
  const cuda::DeviceBuffer table = random_bf16(size_t{vocabulary} * width, "embeddings");
  const cuda::DeviceBuffer tokens = on_device(random_numbers(rows, vocabulary), "tokens");
  const cuda::DeviceBuffer out(size_t{rows} * width * kBf16Bytes, "out");
  const cuda::EmbedArgs args{DType::kBF16, table.data(), tokens.as<const uint32_t>(),
                             out.data(),   rows,         width};
  print_row(fmt::format("embed, {} x {}", with_commas(rows), with_commas(width)),
            seconds_of([&] { cuda::check(cuda::embed(args, nullptr), "embed"); }),
            {.bytes = 2.0 * rows * width * kBf16Bytes}, ceilings);
}

/// Each row is another sequence's token, somewhere in its block.
void measure_rope(const Sizes& sizes, uint32_t rows, const Ceilings& ceilings) {
  const model::ModelConfig& model = sizes.model;
  const cuda::KvBlocks blocks{DType::kBF16, kBlock, model.num_kv_heads, model.head_dim};
  const uint32_t width = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim;
  constexpr uint32_t kPositions = 4096;
  std::vector<float> angles(size_t{kPositions} * model.head_dim);
  for (size_t i = 0; i < angles.size(); ++i) {
    const size_t in_row = i % model.head_dim;
    const size_t half = model.head_dim / 2;
    const auto angle = static_cast<float>(i / model.head_dim * (in_row % half + 1));
    angles[i] = in_row < half ? std::cos(angle) : std::sin(angle);
  }
  const cuda::DeviceBuffer cos_sin = on_device(angles, "angles");
  const cuda::DeviceBuffer positions = on_device(random_numbers(rows, kPositions), "positions");
  const cuda::DeviceBuffer places = on_device(shuffled(rows), "places");
  const cuda::DeviceBuffer qkv = random_bf16(size_t{rows} * width, "qkv");
  const size_t num_blocks = (rows + kBlock - 1) / kBlock;
  const cuda::DeviceBuffer cache(num_blocks * blocks.block_bytes(), "cache");
  const cuda::RopeArgs args{.blocks = blocks,
                            .qkv = qkv.data(),
                            .num_heads = model.num_heads,
                            .rotary = model.head_dim,
                            .cos_sin = cos_sin.as<const float>(),
                            .positions = positions.as<const uint32_t>(),
                            .places = places.as<const uint32_t>(),
                            .cache = cache.data(),
                            .rows = rows};
  print_row(fmt::format("rope with the scatter of K and V, {} x {}", with_commas(rows), with_commas(width)),
            seconds_of([&] { cuda::check(cuda::rope(args, nullptr), "rope"); }),
            {.bytes = 2.0 * rows * width * kBf16Bytes}, ceilings);
}

void measure_add(const Sizes& sizes, uint32_t rows, const Ceilings& ceilings) {
  const uint32_t width = sizes.model.hidden_size;
  const size_t count = size_t{rows} * width;
  const cuda::DeviceBuffer x = random_bf16(count, "x");
  const cuda::DeviceBuffer y = random_bf16(count, "y");
  // So that the sum does not grow from call to call.
  const cuda::AddArgs args{DType::kBF16, y.data(), 1.0F, x.data(), 0.0F, count};
  print_row(fmt::format("add, {} x {}", with_commas(rows), with_commas(width)),
            seconds_of([&] { cuda::check(cuda::add(args, nullptr), "add"); }),
            {.bytes = 3.0 * static_cast<double>(count) * kBf16Bytes}, ceilings);
}

/// Blocks of all layers.
void measure_copies(const Sizes& sizes, uint32_t count, const Ceilings& ceilings) {
  const model::ModelConfig& model = sizes.model;
  const cuda::KvBlocks blocks{DType::kBF16, kBlock, model.num_kv_heads, model.head_dim};
  const size_t whole = model.num_layers * blocks.block_bytes();
  const cuda::DeviceBuffer cache =
      random_bf16(size_t{2} * count * model.num_layers * blocks.block_elements(), "cache");
  const cuda::DeviceBuffer pairs = on_device(shuffled(2 * count), "pairs");
  const cuda::CopyBlocksArgs args{.cache = cache.data(),
                                  .part_bytes = blocks.block_bytes(),
                                  .array_bytes = 2 * count * blocks.block_bytes(),
                                  .arrays = model.num_layers,
                                  .pairs = pairs.as<const uint32_t>(),
                                  .count = count};
  print_row(fmt::format("copy_blocks, {} of {} bytes", with_commas(count), with_commas(whole)),
            seconds_of([&] { cuda::check(cuda::copy_blocks(args, nullptr), "copy_blocks"); }),
            {.bytes = 2.0 * count * static_cast<double>(whole)}, ceilings);
}

}  // namespace

void measure_moving_kernels(const Sizes& sizes, const Ceilings& ceilings) {
  for (const uint32_t rows : sizes.norm_rows) measure_embed(sizes, rows, ceilings);
  for (const uint32_t rows : sizes.norm_rows) measure_rope(sizes, rows, ceilings);
  for (const uint32_t rows : sizes.norm_rows) measure_add(sizes, rows, ceilings);
  for (const uint32_t count : sizes.copied_blocks) measure_copies(sizes, count, ceilings);
}

}  // namespace quire::test::gpu
