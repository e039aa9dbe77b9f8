#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/sample.h"
#include "backend/cuda/sample_lists.h"
#include "base/amounts.h"
#include "base/rng.h"
#include "tests/device/device.h"
#include "tests/device/measure.h"
#include "tests/device/measure_model.h"

namespace quire::test::gpu {
namespace {

namespace cuda = backend::cuda;

struct Way {
  const char* name;
  SamplingParams params;
};

SamplingParams params_of(float temperature, int32_t top_k, float top_p) {
  SamplingParams out;
  out.temperature = temperature;
  out.top_k = top_k;
  out.top_p = top_p;
  return out;
}

/// In a bell, of which one in 1,000 stands out, so that few tokens have most of the probability.
std::vector<float> some_logits(uint32_t vocabulary) {
  SplitMix64 rng(7);
  std::vector<float> out(vocabulary);
  for (uint32_t i = 0; i < vocabulary; ++i) {
    for (int part = 0; part < 4; ++part) out[i] += static_cast<float>(2.0 * unit_interval(rng.next()) - 1.0);
    if (i % 1000 == 17) out[i] += 10.0F;
  }
  return out;
}

/// Rows of the same logits, each of a sequence of its own.
class Rows {
 public:
  Rows(uint32_t vocabulary, uint32_t count)
      : vocabulary_(vocabulary),
        count_(count),
        stride_((vocabulary + 3) / 4 * 4),
        logits_(size_t{count} * stride_ * sizeof(float), "logits"),
        workspace_(count * cuda::sample_workspace_bytes(vocabulary), "sampling"),
        tokens_(size_t{count} * cuda::kPlacesOfSlot * sizeof(TokenId), "tokens"),
        results_(count * sizeof(cuda::SampledRow), "results") {
    const std::vector<float> row = some_logits(vocabulary);
    for (uint32_t i = 0; i < count; ++i) {
      cuda::copy_to_device(logits_.as<float>() + size_t{i} * stride_, row.data(), row.size() * sizeof(float),
                           nullptr);
    }
    cuda::synchronize(nullptr);
  }

  double seconds(SamplingParams params) const {
    cuda::SampleLists lists;
    for (uint32_t i = 0; i < count_; ++i) {
      params.seed = i;
      cuda::SlotSampling sampling;
      sampling.reset(params, std::vector<TokenId>{1}, 1);
      sampling.add_row(i, 1, {}, vocabulary_, lists);
      lists.rows.back().logits = i;
    }
    std::vector<std::byte> bytes(lists.bytes());
    const cuda::DeviceBuffer there(bytes.size(), "lists");
    cuda::SampleArgs args{.logits = logits_.as<const float>(),
                          .stride = stride_,
                          .vocabulary = vocabulary_,
                          .workspace = workspace_.data(),
                          .tokens = tokens_.as<TokenId>(),
                          .results = results_.as<cuda::SampledRow>()};
    lists.write(bytes.data(), there.data(), args);
    cuda::copy_to_device(there.data(), bytes.data(), bytes.size(), nullptr);
    cuda::synchronize(nullptr);
    return seconds_of([&] { cuda::check(cuda::sample(args, nullptr), "sample"); });
  }

 private:
  uint32_t vocabulary_;
  uint32_t count_;
  uint32_t stride_;
  cuda::DeviceBuffer logits_;
  cuda::DeviceBuffer workspace_;
  cuda::DeviceBuffer tokens_;
  cuda::DeviceBuffer results_;
};

}  // namespace

void measure_sampling(const Sizes& sizes, const Ceilings& ceilings) {
  const uint32_t vocabulary = sizes.model.vocab_size;
  const Way ways[] = {{"greedy", params_of(0.0F, 0, 1.0F)},
                      {"temperature 0.8, top-k 50, top-p 0.95", params_of(0.8F, 50, 0.95F)},
                      {"temperature 1, top-p 0.9", params_of(1.0F, 0, 0.9F)},
                      {"temperature 1", params_of(1.0F, 0, 1.0F)}};
  for (const uint32_t count : sizes.sampled_rows) {
    const Rows rows(vocabulary, count);
    for (const Way& way : ways) {
      print_row(fmt::format("{}, {} x {}", way.name, count, with_commas(vocabulary)),
                rows.seconds(way.params), {.bytes = static_cast<double>(sizeof(float)) * count * vocabulary},
                ceilings);
    }
  }
}

}  // namespace quire::test::gpu
