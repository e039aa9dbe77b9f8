// The device's sampler where the rows of a step do not fit into its memory at once.
#include "backend/cuda/device_sampler.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

constexpr uint32_t kVocabulary = 200;
constexpr uint32_t kSampled = 12;

SamplingParams params_of(uint32_t row) {
  SamplingParams params;
  params.seed = row;
  params.num_logprobs = static_cast<int32_t>(row % 3) - 1;
  if (row % 4 == 1) params.frequency_penalty = 1.0F;
  if (row % 4 == 2) params.logit_bias = {{3, 2.0F}, {9, -1.0F}};
  if (row % 4 == 3 && params.num_logprobs >= 0) params.logprob_tokens = {1, 5, 8};
  if (row % 5 == 4) {
    for (TokenId id = 0; id < 60; ++id) params.bad_words.write().push_back({id});
  }
  return params;
}

/// What a step samples of each row: token, logprob and the logprobs that were named.
std::vector<std::vector<float>> sampled(const cuda::SamplerLimits& limits, uint64_t seed) {
  Device device(seed);
  const cuda::OwnStream stream;
  DeviceArray<float> logits(device, "logits", stored_floats(1, kSampled * kVocabulary, DType::kF32, 3.0F));
  const cuda::DeviceLogits on_device{logits.data(), kVocabulary};
  cuda::DeviceSampler sampler(limits, stream.get());
  const std::vector<TokenId> history = {4, 8, 15, 16, 23, 42};
  std::vector<uint32_t> numbers;
  sampler.begin(0);
  for (uint32_t row = 0; row < kSampled; ++row) {
    cuda::SlotSampling sampling;
    sampling.reset(params_of(row), history, 3);
    numbers.push_back(sampler.add(sampling, row, 6, row, on_device));
  }
  sampler.flush(on_device);
  cuda::synchronize(stream.get());
  std::vector<std::vector<float>> out(kSampled);
  for (uint32_t row = 0; row < kSampled; ++row) {
    if (numbers[row] == cuda::DeviceSampler::kNoRow) continue;
    const cuda::SampledRow& result = sampler.result(0, numbers[row]);
    out[row] = {static_cast<float>(result.token), result.logprob};
    for (const float logprob : sampler.rated(0, numbers[row])) out[row].push_back(logprob);
  }
  EXPECT_TRUE(device.findings().empty()) << device.report();
  return out;
}

TEST(DeviceSampler, DividesTheRowsThatDoNotFit) {
  cuda::SamplerLimits limits{.slots = kSampled, .rows = kSampled, .positions = 8, .vocabulary = kVocabulary};
  const auto whole = sampled(limits, 1);
  for (const auto& row : whole) EXPECT_FALSE(row.empty());
  limits.workspace_bytes = 3 * cuda::sample_workspace_bytes(kVocabulary);
  EXPECT_EQ(sampled(limits, 2), whole) << "three rows at once";
  limits.more_list_bytes = 0;
  for (uint64_t seed = 0; seed < kOrders; ++seed) {
    EXPECT_EQ(sampled(limits, seed), whole) << "and little memory for their lists, seed " << seed;
  }
}

/// A row whose lists alone are too long gets no number; the others are sampled.
TEST(DeviceSampler, LeavesOutARowWhoseListsAreTooLong) {
  Device device(1);
  const cuda::OwnStream stream;
  DeviceArray<float> logits(device, "logits", stored_floats(1, 3 * kVocabulary, DType::kF32, 3.0F));
  const cuda::DeviceLogits on_device{logits.data(), kVocabulary};
  cuda::DeviceSampler sampler({.slots = 3, .rows = 3, .positions = 8, .vocabulary = kVocabulary},
                              stream.get());
  sampler.begin(0);
  std::vector<uint32_t> numbers;
  for (uint32_t row = 0; row < 3; ++row) {
    SamplingParams params;
    params.temperature = 0.0F;
    if (row == 1) params.bad_words.write().assign(100'000, {7});
    cuda::SlotSampling sampling;
    sampling.reset(params, std::vector<TokenId>{1}, 1);
    numbers.push_back(sampler.add(sampling, row, 1, row, on_device));
  }
  sampler.flush(on_device);
  cuda::synchronize(stream.get());
  EXPECT_EQ(numbers, (std::vector<uint32_t>{0, cuda::DeviceSampler::kNoRow, 1}));
  EXPECT_EQ(sampler.result(0, 1).status, cuda::SampleStatus::kToken);
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

}  // namespace
}  // namespace quire::test::fibers
