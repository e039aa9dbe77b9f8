#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/int4_weights.h"
#include "backend/cuda/int8_product.h"
#include "backend/cuda/int8_weights.h"
#include "backend/cuda/paged_attention.h"
#include "backend/cuda/rms_norm.h"
#include "base/amounts.h"
#include "base/rng.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

cuda::DeviceBuffer numbers(const std::vector<uint32_t>& values, const std::string& what) {
  cuda::DeviceBuffer out(values.size() * sizeof(uint32_t), what);
  cuda::copy_to_device(out.data(), values.data(), out.size(), nullptr);
  cuda::synchronize(nullptr);
  return out;
}

/// Sequences of `length` tokens each, in blocks that are scattered.
struct Sequences {
  Sequences(const Sizes& sizes, uint32_t dim, uint32_t seqs, uint32_t tokens, uint32_t rows_of_each)
      : blocks{DType::kBF16, kBlock, sizes.kv_heads, dim},
        heads(sizes.heads),
        count(seqs),
        length(tokens),
        rows(seqs * rows_of_each),
        stride((tokens + kBlock - 1) / kBlock),
        cache(random_bf16(size_t{seqs} * stride * blocks.block_elements(), "cache")),
        q(random_bf16(size_t{rows} * width(), "q")),
        out(size_t{rows} * width() * kBf16Bytes, "out") {
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
  uint32_t width() const { return heads * blocks.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(blocks.head_dim)); }
  double kv_bytes() const {
    return 2.0 * count * length * blocks.num_kv_heads * blocks.head_dim * kBf16Bytes;
  }
  double row_bytes() const { return 2.0 * rows * width() * kBf16Bytes; }

  cuda::KvBlocks blocks;
  uint32_t heads;
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
                                 .num_heads = all.heads,
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
  const uint32_t small = cuda::tokens_of_tile(all.blocks, all.heads, cuda::TileSize::kSmall);
  const uint32_t rows = all.rows / all.count;
  const bool is_large = !shares_spans && rows > small;
  const uint32_t most =
      is_large ? cuda::tokens_of_tile(all.blocks, all.heads, cuda::TileSize::kLarge) : small;
  std::vector<uint32_t> tiles;
  uint32_t spans = 0;
  for (uint32_t seq = 0; seq < all.count; ++seq) {
    // Those with most keys first.
    for (uint32_t i = (rows + most - 1) / most; i-- > 0;) {
      const uint32_t row = i * most;
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
                                .num_heads = all.heads,
                                .block_tables = all.tables.as<const uint32_t>(),
                                .table_stride = all.stride,
                                .tiles = on_device.as<const cuda::QueryTile>(),
                                .num_tiles = static_cast<uint32_t>(tiles.size() / 4),
                                .num_large_tiles = is_large ? static_cast<uint32_t>(tiles.size() / 4) : 0,
                                .shared_spans = shares_spans ? spans : 0,
                                .most_shared_tokens = std::min(most, rows),
                                .partials = nullptr,
                                .scale = all.scale(),
                                .window = 0};
  const size_t scratch = shares_spans ? cuda::paged_attention_scratch(args) * sizeof(float) : 0;
  const cuda::DeviceBuffer partials(scratch, "partials");
  args.partials = partials.as<float>();
  return seconds_of([&] { cuda::check(cuda::paged_attention(args, nullptr), "paged_attention"); });
}

}  // namespace

void measure_attention(const Sizes& sizes, const Ceilings& ceilings) {
  for (const uint32_t dim : sizes.head_dims) {
    const std::string heads = fmt::format("{}/{} heads of {}", sizes.heads, sizes.kv_heads, dim);
    for (const uint32_t seqs : sizes.decodes) {
      const Sequences all(sizes, dim, seqs, sizes.context, 1);
      const Needs needs{.bytes = all.kv_bytes() + all.row_bytes(),
                        .operations = 4.0 * seqs * sizes.context * sizes.heads * dim};
      const std::string what = fmt::format("{} x {}, {}", seqs, with_commas(sizes.context), heads);
      print_row("decode_attention " + what, time_decode(all), needs, ceilings);
      print_row("paged_attention " + what, time_paged(all, false), needs, ceilings);
      print_row("paged_attention, shared spans, " + what, time_paged(all, true), needs, ceilings);
    }
    for (const uint32_t length : sizes.prompts) {
      const Sequences all(sizes, dim, 1, length, length);
      const double pairs = 0.5 * length * (length + 1.0);
      const Needs needs{.bytes = all.kv_bytes() + all.row_bytes(),
                        .operations = 4.0 * pairs * sizes.heads * dim};
      print_row(fmt::format("paged_attention, a prompt of {}, {}", with_commas(length), heads),
                time_paged(all, false), needs, ceilings);
    }
  }
}

void measure_small_kernels(const Sizes& sizes, const Ceilings& ceilings) {
  const uint32_t width = sizes.model.hidden_size;
  const uint32_t ffn = sizes.model.ffn_size;
  const cuda::DeviceBuffer weight(width * sizeof(float), "weight");
  cuda::clear(weight.data(), weight.size(), nullptr);
  for (const uint32_t rows : sizes.norm_rows) {
    const cuda::DeviceBuffer x = random_bf16(size_t{rows} * width, "x");
    const cuda::DeviceBuffer residual = random_bf16(size_t{rows} * width, "residual");
    const cuda::DeviceBuffer y(size_t{rows} * width * kBf16Bytes, "y");
    const cuda::RmsNormArgs args{.dtype = DType::kBF16,
                                 .x = x.data(),
                                 .residual = residual.data(),
                                 .factor = 0.0F,  // so that the sum does not grow from call to call
                                 .weight = weight.as<const float>(),
                                 .y = y.data(),
                                 .eps = 1e-5F,
                                 .rows = rows,
                                 .width = width,
                                 .heads = 1,
                                 .stride = width};
    print_row(fmt::format("rms_norm with residual, {} x {}", with_commas(rows), with_commas(width)),
              seconds_of([&] { cuda::check(cuda::rms_norm(args, nullptr), "rms_norm"); }),
              {.bytes = 4.0 * rows * width * kBf16Bytes}, ceilings);
  }
  for (const uint32_t rows : sizes.gated_rows) {
    const cuda::DeviceBuffer in = random_bf16(size_t{2} * rows * ffn, "gate_up");
    const cuda::DeviceBuffer out(size_t{rows} * ffn * kBf16Bytes, "out");
    const cuda::GatedArgs args{DType::kBF16, model::Activation::kSilu, in.data(), out.data(), rows, ffn};
    print_row(fmt::format("gated (SiLU), {} x {}", with_commas(rows), with_commas(ffn)),
              seconds_of([&] { cuda::check(cuda::gated(args, nullptr), "gated"); }),
              {.bytes = 3.0 * rows * ffn * kBf16Bytes}, ceilings);
  }
}

namespace {

struct Product {
  const char* name;
  uint32_t n;
  uint32_t k;
  DType out;
};

void measure_product(const Sizes& sizes, const Product& product, cuda::Gemm& gemm, const Ceilings& ceilings) {
  const size_t elements = size_t{product.n} * product.k;
  // As the layers of a model do, each call has weights that no cache holds.
  const size_t copies = sizes.beyond_caches / (elements * kBf16Bytes) + 1;
  const cuda::DeviceBuffer weights = random_bf16(copies * elements, "weights");
  std::vector<const void*> all;
  for (size_t i = 0; i < copies; ++i) all.push_back(weights.data() + i * elements * kBf16Bytes);
  const cuda::GemmShape shape{DType::kBF16, product.out, product.n, product.k, false};
  gemm.prepare(shape, all, nullptr, std::ranges::max(sizes.gemm_rows));
  for (const uint32_t rows : sizes.gemm_rows) {
    const size_t padded = cuda::padded_rows(rows);
    const cuda::DeviceBuffer x = random_bf16(padded * product.k, "x");
    const cuda::DeviceBuffer y(padded * product.n * dtype_bytes(product.out), "y");
    cuda::GemmArgs args{.dtype = DType::kBF16,
                        .out_dtype = product.out,
                        .x = x.data(),
                        .weights = nullptr,
                        .bias = nullptr,
                        .y = y.data(),
                        .rows = rows,
                        .n = product.n,
                        .k = product.k};
    size_t next = 0;
    const double seconds = seconds_of([&] {
      args.weights = all[next];
      next = (next + 1) % copies;
      gemm.multiply(args);
    });
    const size_t bytes = (elements + size_t{product.k} * rows) * kBf16Bytes +
                         size_t{product.n} * rows * dtype_bytes(product.out);
    print_row(
        fmt::format("{} ({} x {}), {} rows{}", product.name, with_commas(product.n), with_commas(product.k),
                    rows, gemm.takes_few_rows(shape, rows) ? " by few_rows" : ""),
        seconds,
        {.bytes = static_cast<double>(bytes), .operations = 2.0 * static_cast<double>(elements) * rows},
        ceilings);
  }
}

/// The same with weights of int8 or int4, whose bytes are what random numbers of bf16 happen to be.
void measure_integer_product(const Sizes& sizes, WeightFormat format, const Product& product,
                             const Ceilings& ceilings) {
  const bool is_int4 = format == WeightFormat::kInt4;
  const uint32_t row = is_int4 ? cuda::int4_row_bytes(product.k) : cuda::int8_row_bytes(product.k);
  const size_t bytes = size_t{product.n} * row;
  const size_t copies = sizes.beyond_caches / bytes + 1;
  const cuda::DeviceBuffer weights = random_bf16(copies * bytes / sizeof(uint16_t), "weights");
  const cuda::DeviceBuffer scales(product.n * sizeof(float), "scales");
  cuda::clear(scales.data(), scales.size(), nullptr);
  const size_t group_bytes = cuda::int4_scale_bytes(product.n, product.k);
  const cuda::DeviceBuffer groups = random_bf16(copies * group_bytes / sizeof(uint16_t), "scales of groups");
  for (const uint32_t rows : sizes.gemm_rows) {
    const cuda::DeviceBuffer x = random_bf16(size_t{rows} * product.k, "x");
    const uint32_t stride = cuda::result_stride(product.n, product.out);
    const cuda::DeviceBuffer y(size_t{rows} * stride * dtype_bytes(product.out), "y");
    cuda::Int8ProductArgs args{.dtype = DType::kBF16,
                               .out_dtype = product.out,
                               .x = x.data(),
                               .weights = nullptr,
                               .scales = scales.as<const float>(),
                               .bias = nullptr,
                               .y = y.data(),
                               .rows = rows,
                               .n = product.n,
                               .k = product.k};
    size_t next = 0;
    const double seconds = seconds_of([&] {
      args.weights = weights.data() + next * bytes;
      if (is_int4) args.group_scales = groups.as<const int8_t>() + next * group_bytes;
      next = (next + 1) % copies;
      cuda::check(cuda::int8_product(args, nullptr), "int8_product");
    });
    print_row(fmt::format("{} as {} ({} x {}), {} rows", product.name, weight_format_name(format),
                          with_commas(product.n), with_commas(product.k), rows),
              seconds, integer_product_needs(format, product.n, product.k, rows, dtype_bytes(product.out)),
              ceilings);
  }
}

}  // namespace

Needs integer_product_needs(WeightFormat format, uint32_t n, uint32_t k, uint32_t rows, double result_bytes) {
  const double elements = static_cast<double>(n) * k;
  const double element_bytes = format == WeightFormat::kInt4 ? 0.5 + 1.0 / cuda::kInt4Scaled : 1.0;
  return {
      .bytes = element_bytes * elements + sizeof(float) * n + kBf16Bytes * rows * k + result_bytes * rows * n,
      .operations = 2 * elements * rows};
}

void measure_gemms(const Sizes& sizes, const Ceilings& ceilings) {
  const model::ModelConfig& model = sizes.model;
  const uint32_t q = model.num_heads * model.head_dim;
  const uint32_t kv = model.num_kv_heads * model.head_dim;
  cuda::Gemm gemm(cublaslt(), nullptr);
  for (const Product& product : {Product{"qkv", q + 2 * kv, model.hidden_size, DType::kBF16},
                                 {"o", model.hidden_size, q, DType::kBF16},
                                 {"gate and up", 2 * model.ffn_size, model.hidden_size, DType::kBF16},
                                 {"down", model.hidden_size, model.ffn_size, DType::kBF16},
                                 {"head", model.vocab_size, model.hidden_size, DType::kF32}}) {
    measure_product(sizes, product, gemm, ceilings);
    measure_integer_product(sizes, WeightFormat::kInt8, product, ceilings);
    measure_integer_product(sizes, WeightFormat::kInt4, product, ceilings);
  }
}

}  // namespace quire::test::gpu
