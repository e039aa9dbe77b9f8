#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/expert_product.h"
#include "backend/cuda/route.h"
#include "base/amounts.h"
#include "base/rng.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

/// Experts of rows, drawn at random, those of a row all different.
std::vector<uint32_t> drawn_choices(const ExpertSizes& of, uint32_t rows, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<uint32_t> experts(of.count);
  std::iota(experts.begin(), experts.end(), 0);
  std::vector<uint32_t> out;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t j = 0; j < of.top; ++j) std::swap(experts[j], experts[j + rng.below(of.count - j)]);
    out.insert(out.end(), experts.begin(), experts.begin() + of.top);
  }
  return out;
}

/// Choices on the device, in the tiles that they are multiplied in.
struct Choices {
  std::vector<uint32_t> all;
  cuda::DeviceBuffer chosen;
  cuda::DeviceBuffer order;
  cuda::DeviceBuffer tiles;

  Choices(const ExpertSizes& of, uint32_t rows, uint64_t seed)
      : all(drawn_choices(of, rows, seed)),
        chosen(on_device(all, "chosen")),
        order(all.size() * sizeof(uint32_t), "order"),
        tiles(cuda::expert_tiles(count(), of.count, cuda::kSmallTile) * sizeof(cuda::ExpertTile), "tiles") {
    if (cuda::tile_choices(count(), of.count) > 1) group(of);
  }
  uint32_t count() const { return static_cast<uint32_t>(all.size()); }
  double experts() const { return static_cast<double>(std::set(all.begin(), all.end()).size()); }
  void group(const ExpertSizes& of) const {
    cuda::check(cuda::group_by_expert(
                    {.chosen = chosen.as<const uint32_t>(),
                     .choices = count(),
                     .num_experts = of.count,
                     .tile_choices = std::max(cuda::tile_choices(count(), of.count), cuda::kSmallTile),
                     .order = order.as<uint32_t>(),
                     .tiles = tiles.as<cuda::ExpertTile>()},
                    nullptr),
                "group_by_expert");
  }
};

/// Each call has choices of its own, so that of few rows caches hold no expert that is read again.
void measure_product(const ExpertSizes& of, const ExpertProduct& product, const Ceilings& ceilings) {
  const cuda::DeviceBuffer weights = random_bf16(size_t{of.count} * product.n * product.k, "experts");
  for (const uint32_t rows : of.rows) {
    std::vector<std::unique_ptr<Choices>> draws;
    for (uint64_t seed = 0; seed < 8; ++seed) draws.push_back(std::make_unique<Choices>(of, rows, seed));
    const uint32_t count = draws[0]->count();
    const cuda::DeviceBuffer x = random_bf16(size_t{count} / product.x_choices * product.k, "x");
    const cuda::DeviceBuffer y(size_t{count} * product.n * sizeof(uint16_t), "y");
    size_t next = 0;
    const double seconds = seconds_of([&] {
      const Choices& choices = *draws[next];
      next = (next + 1) % draws.size();
      cuda::check(cuda::expert_product({.dtype = DType::kBF16,
                                        .x = x.data(),
                                        .x_choices = product.x_choices,
                                        .weights = weights.data(),
                                        .y = y.data(),
                                        .chosen = choices.chosen.as<const uint32_t>(),
                                        .choices = count,
                                        .num_experts = of.count,
                                        .n = product.n,
                                        .k = product.k,
                                        .order = choices.order.as<const uint32_t>(),
                                        .tiles = choices.tiles.as<const cuda::ExpertTile>()},
                                       nullptr),
                  "expert_product");
    });
    double experts = 0;
    for (const auto& choices : draws) experts += choices->experts() / static_cast<double>(draws.size());
    print_row(expert_product_name(of, product, rows), seconds,
              expert_product_needs(of, product, rows, experts), ceilings);
  }
}

}  // namespace

std::vector<ExpertProduct> expert_products(const ExpertSizes& of) {
  return {{"gate and up", 2 * of.ffn, of.hidden, of.top}, {"down", of.hidden, of.ffn, 1}};
}

std::string expert_product_name(const ExpertSizes& of, const ExpertProduct& product, uint32_t rows) {
  return fmt::format("{} of {} of {} experts ({} x {}), {} rows", product.name, of.top, of.count,
                     with_commas(product.n), with_commas(product.k), with_commas(rows));
}

Needs expert_product_needs(const ExpertSizes& of, const ExpertProduct& product, uint32_t rows,
                           double experts) {
  const double elements = static_cast<double>(product.n) * product.k;
  const double choices = static_cast<double>(rows) * of.top;
  const double moved = choices / product.x_choices * product.k + choices * product.n;
  return {.bytes = kBf16Bytes * (experts * elements + moved), .operations = 2 * choices * elements};
}

void measure_experts(const Sizes& sizes, const Ceilings& ceilings) {
  const ExpertSizes& of = sizes.experts;
  for (const ExpertProduct& product : expert_products(of)) measure_product(of, product, ceilings);
  for (const uint32_t rows : of.rows) {
    const Choices choices(of, rows, 1);
    std::vector<float> drawn(size_t{rows} * of.count);
    SplitMix64 rng(5);
    for (float& logit : drawn) logit = static_cast<float>(unit_interval(rng.next()));
    const cuda::DeviceBuffer logits = on_device(drawn, "logits");
    const cuda::DeviceBuffer chosen(choices.all.size() * sizeof(uint32_t), "chosen");
    const cuda::DeviceBuffer weights(choices.all.size() * sizeof(float), "weights");
    const double size = static_cast<double>(choices.count());
    print_row(fmt::format("route, {} of {} experts, {} rows", of.top, of.count, with_commas(rows)),
              seconds_of([&] {
                cuda::check(cuda::route({.logits = logits.as<const float>(),
                                         .stride = of.count,
                                         .rows = rows,
                                         .num_experts = of.count,
                                         .top = of.top,
                                         .normalize = true,
                                         .chosen = chosen.as<uint32_t>(),
                                         .weights = weights.as<float>()},
                                        nullptr),
                            "route");
              }),
              {.bytes = 4.0 * rows * of.count + 8.0 * size}, ceilings);
    print_row(fmt::format("group_by_expert, {} choices", with_commas(choices.count())),
              seconds_of([&] { choices.group(of); }), {.bytes = 8.0 * size}, ceilings);
    const cuda::DeviceBuffer y = random_bf16(choices.all.size() * of.hidden, "y");
    const cuda::DeviceBuffer out(size_t{rows} * of.hidden * sizeof(uint16_t), "out");
    print_row(
        fmt::format("combine_choices, {} x {} of {}", with_commas(rows), of.top, with_commas(of.hidden)),
        seconds_of([&] {
          cuda::check(cuda::combine_choices({.dtype = DType::kBF16,
                                             .y = y.data(),
                                             .weights = weights.as<const float>(),
                                             .out = out.data(),
                                             .rows = rows,
                                             .top = of.top,
                                             .width = of.hidden},
                                            nullptr),
                      "combine_choices");
        }),
        {.bytes = kBf16Bytes * of.hidden * (size + rows)}, ceilings);
  }
}

}  // namespace quire::test::gpu
