#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/paged_attention.h"
#include "backend/cuda/rms_norm.h"
#include "tests/device/measure.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/paper.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

constexpr uint32_t kBlock = 16;
constexpr uint32_t kHeads = 4;  // of the one K/V head
constexpr uint32_t kSector = 32;
constexpr size_t kBytes = 2;  // of a bf16

}  // namespace

Asked count(const std::function<int()>& run) {
  Device& device = *Device::current();
  const uint32_t before = device.launches();
  EXPECT_EQ(run(), 0) << device.report();
  EXPECT_TRUE(device.findings().empty()) << device.report();
  Asked out{.bytes = 0, .launches = device.launches() - before};
  for (const auto& [kernel, traffic] : device.traffic())
    out.bytes += static_cast<double>(traffic.sectors) * kSector;
  return out;
}

namespace {

cuda::DeviceBuffer numbers(const std::vector<uint32_t>& values, const std::string& what) {
  cuda::DeviceBuffer out(values.size() * sizeof(uint32_t), what);
  cuda::copy_to_device(out.data(), values.data(), out.size(), nullptr);
  return out;
}

cuda::DeviceBuffer counting(uint32_t first, uint32_t count, const std::string& what) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return numbers(values, what);
}

/// One sequence, of which the last rows attend.
struct Sequence {
  Sequence(uint32_t head_dim, uint32_t tokens, uint32_t last)
      : blocks{DType::kBF16, kBlock, 1, head_dim},
        length(tokens),
        rows(last),
        cache(gpu::random_bf16((tokens + kBlock - 1) / kBlock * blocks.block_elements(), "cache")),
        q(gpu::random_bf16(size_t{last} * width(), "q")),
        out(size_t{last} * width() * kBytes, "out"),
        table(counting(0, (tokens + kBlock - 1) / kBlock, "table")) {}
  uint32_t width() const { return kHeads * blocks.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(blocks.head_dim)); }

  cuda::KvBlocks blocks;
  uint32_t length;
  uint32_t rows;
  cuda::DeviceBuffer cache;
  cuda::DeviceBuffer q;
  cuda::DeviceBuffer out;
  cuda::DeviceBuffer table;
};

Asked count_tiled(const Sequence& one) {
  const uint32_t small = cuda::tokens_of_tile(one.blocks, kHeads, cuda::TileSize::kSmall);
  const bool is_large = one.rows > small;
  const uint32_t most = is_large ? cuda::tokens_of_tile(one.blocks, kHeads, cuda::TileSize::kLarge) : small;
  std::vector<uint32_t> tiles;
  for (uint32_t row = 0; row < one.rows; row += most) {
    for (const uint32_t number : {0U, row, std::min(most, one.rows - row), one.length - one.rows + row}) {
      tiles.push_back(number);
    }
  }
  const cuda::DeviceBuffer on_device = numbers(tiles, "tiles");
  const cuda::PagedAttentionArgs args{
      .blocks = one.blocks,
      .cache = one.cache.data(),
      .q = one.q.data(),
      .q_stride = one.width(),
      .out = one.out.data(),
      .num_rows = one.rows,
      .num_heads = kHeads,
      .block_tables = one.table.as<const uint32_t>(),
      .table_stride = static_cast<uint32_t>(one.table.size() / 4),
      .tiles = on_device.as<const cuda::QueryTile>(),
      .num_tiles = static_cast<uint32_t>(tiles.size() / 4),
      .num_large_tiles = is_large ? static_cast<uint32_t>(tiles.size() / 4) : 0,
      .shared_spans = 0,
      .most_shared_tokens = 0,
      .partials = nullptr,
      .scale = one.scale(),
      .window = 0};
  return count([&] { return cuda::paged_attention(args, nullptr); });
}

Asked count_by_rows(const Sequence& one) {
  const cuda::DeviceBuffer seqs = numbers(std::vector<uint32_t>(one.rows, 0), "seqs");
  const cuda::DeviceBuffer lengths = counting(one.length - one.rows + 1, one.rows, "lengths");
  cuda::DecodeAttentionArgs args{.blocks = one.blocks,
                                 .cache = one.cache.data(),
                                 .q = one.q.data(),
                                 .q_stride = one.width(),
                                 .out = one.out.data(),
                                 .num_queries = one.rows,
                                 .num_heads = kHeads,
                                 .block_tables = one.table.as<const uint32_t>(),
                                 .table_stride = static_cast<uint32_t>(one.table.size() / 4),
                                 .seqs = seqs.as<const uint32_t>(),
                                 .lengths = lengths.as<const uint32_t>(),
                                 .max_spans = cuda::attention_spans(one.length, 0),
                                 .partials = nullptr,
                                 .scale = one.scale(),
                                 .window = 0};
  const cuda::DeviceBuffer partials(cuda::decode_attention_scratch(args) * sizeof(float), "partials");
  args.partials = partials.as<float>();
  return count([&] { return cuda::decode_attention(args, nullptr); });
}

}  // namespace

Asked count_attention(uint32_t head_dim, uint32_t length, uint32_t rows, bool tiled) {
  Device device(1, true);
  const Sequence one(head_dim, length, rows);
  return tiled ? count_tiled(one) : count_by_rows(one);
}

Asked count_norm(uint32_t rows, uint32_t width) {
  Device device(1, true);
  const cuda::DeviceBuffer weight(width * sizeof(float), "weight");
  cuda::clear(weight.data(), weight.size(), nullptr);
  const cuda::DeviceBuffer x = gpu::random_bf16(size_t{rows} * width, "x");
  const cuda::DeviceBuffer residual = gpu::random_bf16(size_t{rows} * width, "residual");
  const cuda::DeviceBuffer y(size_t{rows} * width * kBytes, "y");
  return count([&] {
    return cuda::rms_norm({.dtype = DType::kBF16,
                           .x = x.data(),
                           .residual = residual.data(),
                           .factor = 1.0F,
                           .weight = weight.as<const float>(),
                           .y = y.data(),
                           .eps = 1e-5F,
                           .rows = rows,
                           .width = width,
                           .heads = 1,
                           .stride = width},
                          nullptr);
  });
}

Asked count_gated(uint32_t rows, uint32_t width) {
  Device device(1, true);
  const cuda::DeviceBuffer in = gpu::random_bf16(size_t{2} * rows * width, "gate_up");
  const cuda::DeviceBuffer out(size_t{rows} * width * kBytes, "out");
  return count([&] {
    return cuda::gated({DType::kBF16, model::Activation::kSilu, in.data(), out.data(), rows, width}, nullptr);
  });
}

}  // namespace quire::test::fibers
