#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/paged_attention.h"
#include "backend/cuda/rms_norm.h"
#include "base/amounts.h"
#include "base/rng.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

constexpr uint32_t kHeads = 32;
constexpr uint32_t kKvHeads = 8;
constexpr uint32_t kBlock = 16;
constexpr size_t kBytes = 2;  // of a bf16
/// More than any level of cache holds: what is read again after so many bytes comes from memory.
constexpr size_t kBeyondCaches = 256U << 20;

cuda::DeviceBuffer numbers(const std::vector<uint32_t>& values, const std::string& what) {
  cuda::DeviceBuffer out(values.size() * sizeof(uint32_t), what);
  cuda::copy_to_device(out.data(), values.data(), out.size(), nullptr);
  cuda::synchronize(nullptr);
  return out;
}

/// Sequences of `length` tokens each, in blocks that are scattered.
struct Sequences {
  Sequences(uint32_t dim, uint32_t seqs, uint32_t tokens, uint32_t rows_of_each)
      : blocks{DType::kBF16, kBlock, kKvHeads, dim},
        count(seqs),
        length(tokens),
        rows(seqs * rows_of_each),
        stride((tokens + kBlock - 1) / kBlock),
        cache(random_bf16(size_t{seqs} * stride * blocks.block_elements(), "cache")),
        q(random_bf16(size_t{rows} * width(), "q")),
        out(size_t{rows} * width() * kBytes, "out") {
    std::vector<uint32_t> order(size_t{seqs} * stride);
    std::iota(order.begin(), order.end(), 0);
    SplitMix64 rng(3);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    tables = numbers(order, "tables");
    std::vector<uint32_t> seq_of(seqs);
    std::iota(seq_of.begin(), seq_of.end(), 0);
    seq_numbers = numbers(seq_of, "seqs");
    lengths = numbers(std::vector<uint32_t>(seqs, tokens), "lengths");
  }
  uint32_t width() const { return kHeads * blocks.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(blocks.head_dim)); }
  double kv_bytes() const { return 2.0 * count * length * kKvHeads * blocks.head_dim * kBytes; }
  double row_bytes() const { return 2.0 * rows * width() * kBytes; }

  cuda::KvBlocks blocks;
  uint32_t count;
  uint32_t length;
  uint32_t rows;
  uint32_t stride;
  cuda::DeviceBuffer cache;
  cuda::DeviceBuffer q;
  cuda::DeviceBuffer out;
  cuda::DeviceBuffer tables;
  cuda::DeviceBuffer seq_numbers;
  cuda::DeviceBuffer lengths;
};

double time_decode(const Sequences& all) {
  cuda::DecodeAttentionArgs args{.blocks = all.blocks,
                                 .cache = all.cache.data(),
                                 .q = all.q.data(),
                                 .q_stride = all.width(),
                                 .out = all.out.data(),
                                 .num_queries = all.rows,
                                 .num_heads = kHeads,
                                 .block_tables = all.tables.as<const uint32_t>(),
                                 .table_stride = all.stride,
                                 .seqs = all.seq_numbers.as<const uint32_t>(),
                                 .lengths = all.lengths.as<const uint32_t>(),
                                 .max_spans = cuda::attention_spans(all.length, 0),
                                 .partials = nullptr,
                                 .scale = all.scale(),
                                 .window = 0};
  const cuda::DeviceBuffer partials(cuda::decode_attention_scratch(args) * sizeof(float), "partials");
  args.partials = partials.as<float>();
  return seconds_of([&] { cuda::check(cuda::decode_attention(args, nullptr), "decode_attention"); });
}

/// The last `rows` tokens of each sequence. `shares_spans`: as few tiles do.
double time_paged(const Sequences& all, bool shares_spans) {
  const uint32_t most = cuda::tokens_of_tile(all.blocks, kHeads);
  const uint32_t rows = all.rows / all.count;
  std::vector<uint32_t> tiles;
  uint32_t spans = 0;
  for (uint32_t seq = 0; seq < all.count; ++seq) {
    for (uint32_t row = 0; row < rows; row += most) {
      const cuda::QueryTile tile{seq, seq * rows + row, std::min(most, rows - row), all.length - rows + row};
      spans = std::max(spans, cuda::tile_spans(tile, 0));
      for (const uint32_t number : {tile.sequence, tile.first_row, tile.num_tokens, tile.first_position}) {
        tiles.push_back(number);
      }
    }
  }
  static_assert(sizeof(cuda::QueryTile) == 4 * sizeof(uint32_t));
  const cuda::DeviceBuffer on_device = numbers(tiles, "tiles");
  cuda::PagedAttentionArgs args{.blocks = all.blocks,
                                .cache = all.cache.data(),
                                .q = all.q.data(),
                                .q_stride = all.width(),
                                .out = all.out.data(),
                                .num_rows = all.rows,
                                .num_heads = kHeads,
                                .block_tables = all.tables.as<const uint32_t>(),
                                .table_stride = all.stride,
                                .tiles = on_device.as<const cuda::QueryTile>(),
                                .num_tiles = static_cast<uint32_t>(tiles.size() / 4),
                                .shared_spans = shares_spans ? spans : 0,
                                .partials = nullptr,
                                .scale = all.scale(),
                                .window = 0};
  const size_t scratch = shares_spans ? cuda::paged_attention_scratch(args) * sizeof(float) : 0;
  const cuda::DeviceBuffer partials(scratch, "partials");
  args.partials = partials.as<float>();
  return seconds_of([&] { cuda::check(cuda::paged_attention(args, nullptr), "paged_attention"); });
}

}  // namespace

void measure_attention(const Ceilings& ceilings) {
  for (const uint32_t dim : {64U, 128U}) {
    for (const uint32_t seqs : {1U, 8U, 64U}) {
      const Sequences all(dim, seqs, 4096, 1);
      const Needs needs{.bytes = all.kv_bytes() + all.row_bytes(),
                        .operations = 4.0 * seqs * 4096 * kHeads * dim};
      const std::string what = fmt::format("{} x 4,096, 32/8 heads of {}", seqs, dim);
      print_row("decode_attention " + what, time_decode(all), needs, ceilings);
      print_row("paged_attention " + what, time_paged(all, false), needs, ceilings);
      print_row("paged_attention, shared spans, " + what, time_paged(all, true), needs, ceilings);
    }
    for (const uint32_t length : {512U, 8192U}) {
      const Sequences all(dim, 1, length, length);
      const double pairs = 0.5 * length * (length + 1.0);
      const Needs needs{.bytes = all.kv_bytes() + all.row_bytes(), .operations = 4.0 * pairs * kHeads * dim};
      print_row(fmt::format("paged_attention, a prompt of {}, 32/8 heads of {}", with_commas(length), dim),
                time_paged(all, false), needs, ceilings);
    }
  }
}

void measure_small_kernels(const Ceilings& ceilings) {
  constexpr uint32_t kWidth = 2048;
  constexpr uint32_t kFfn = 8192;
  const cuda::DeviceBuffer weight(kWidth * sizeof(float), "weight");
  cuda::clear(weight.data(), weight.size(), nullptr);
  for (const uint32_t rows : {64U, 65'536U}) {
    const cuda::DeviceBuffer x = random_bf16(size_t{rows} * kWidth, "x");
    const cuda::DeviceBuffer residual = random_bf16(size_t{rows} * kWidth, "residual");
    const cuda::DeviceBuffer y(size_t{rows} * kWidth * kBytes, "y");
    const double seconds = seconds_of([&] {
      cuda::check(cuda::rms_norm({DType::kBF16, x.data(), residual.data(), 0.0F, weight.as<const float>(),
                                  y.data(), 1e-5F, rows, kWidth, 1, kWidth},
                                 nullptr),
                  "rms_norm");
    });
    print_row(fmt::format("rms_norm with residual, {} x 2,048", with_commas(rows)), seconds,
              {.bytes = 4.0 * rows * kWidth * kBytes}, ceilings);
  }
  for (const uint32_t rows : {64U, 8192U}) {
    const cuda::DeviceBuffer in = random_bf16(size_t{2} * rows * kFfn, "gate_up");
    const cuda::DeviceBuffer out(size_t{rows} * kFfn * kBytes, "out");
    const double seconds = seconds_of([&] {
      cuda::check(
          cuda::gated({DType::kBF16, model::Activation::kSilu, in.data(), out.data(), rows, kFfn}, nullptr),
          "gated");
    });
    print_row(fmt::format("gated (SiLU), {} x 8,192", with_commas(rows)), seconds,
              {.bytes = 3.0 * rows * kFfn * kBytes}, ceilings);
  }
}

void measure_gemms(const Ceilings& ceilings) {
  struct Shape {
    const char* name;
    uint32_t n;
    uint32_t k;
    DType out;
  };
  cuda::Gemm gemm(cublaslt(), nullptr);
  for (const Shape& shape : {Shape{"qkv", 3072, 2048, DType::kBF16},
                             {"o", 2048, 2048, DType::kBF16},
                             {"gate and up", 16'384, 2048, DType::kBF16},
                             {"down", 2048, 8192, DType::kBF16},
                             {"head", 128'256, 2048, DType::kF32}}) {
    const size_t elements = size_t{shape.n} * shape.k;
    // As the layers of a model do, each call has weights that no cache holds.
    const size_t copies = kBeyondCaches / (elements * kBytes) + 1;
    const cuda::DeviceBuffer weights = random_bf16(copies * elements, "weights");
    for (const uint32_t rows : {1U, 8U, 64U, 256U}) {
      const cuda::DeviceBuffer x = random_bf16(size_t{cuda::padded_rows(rows)} * shape.k, "x");
      const cuda::DeviceBuffer y(size_t{cuda::padded_rows(rows)} * shape.n * dtype_bytes(shape.out), "y");
      size_t next = 0;
      const double seconds = seconds_of([&] {
        gemm.multiply({.dtype = DType::kBF16,
                       .out_dtype = shape.out,
                       .x = x.data(),
                       .weights = weights.data() + next * elements * kBytes,
                       .bias = nullptr,
                       .y = y.data(),
                       .rows = rows,
                       .n = shape.n,
                       .k = shape.k});
        next = (next + 1) % copies;
      });
      const double bytes = static_cast<double>(elements * kBytes) + 1.0 * shape.k * rows * kBytes +
                           1.0 * shape.n * rows * static_cast<double>(dtype_bytes(shape.out));
      print_row(fmt::format("product, {} ({} x {}), {} rows", shape.name, with_commas(shape.n),
                            with_commas(shape.k), rows),
                seconds, {.bytes = bytes, .operations = 2.0 * static_cast<double>(elements) * rows},
                ceilings);
    }
  }
}

}  // namespace quire::test::gpu
