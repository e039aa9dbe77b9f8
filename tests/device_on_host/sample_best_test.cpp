// Rows of which only the highest logit is asked for: where it is, ties, and logits that are not finite.
#include "backend/cuda/sample_best.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sample/sampler.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::SampledRow;
using backend::cuda::SampleRow;
using backend::cuda::SampleStatus;

constexpr TokenId kNobodys = -7;

struct Found {
  std::vector<SampledRow> results;
  std::vector<TokenId> tokens;
};

/// Samples rows of logits, none of which is where its number says; each is followed by a gap.
Found sample(Device& device, const std::vector<std::vector<float>>& logits, std::vector<SampleRow> rows) {
  const auto count = static_cast<uint32_t>(logits.size());
  const auto vocabulary = static_cast<uint32_t>(logits.front().size());
  const uint32_t stride = (vocabulary + 3) / 4 * 4 + 4;
  DeviceArray<float> on_device(device, "logits", size_t{count} * stride);
  for (uint32_t i = 0; i < count; ++i) {
    rows[i].logits = count - 1 - i;
    rows[i].place = (i + 1) % count;
    on_device.region().write(size_t{rows[i].logits} * stride * sizeof(float), logits[i].data(),
                             vocabulary * sizeof(float));
  }
  DeviceArray<SampleRow> rows_there(device, "rows", rows);
  DeviceArray<SampledRow> results(device, "results", count);
  DeviceArray<TokenId> tokens(device, "tokens", std::vector<TokenId>(count, kNobodys));
  backend::cuda::SampleArgs args{};
  args.logits = on_device.data();
  args.stride = stride;
  args.vocabulary = vocabulary;
  args.num_rows = count;
  args.rows = rows_there.data();
  args.tokens = tokens.data();
  args.results = results.data();
  EXPECT_EQ(backend::cuda::sample_best(args, nullptr), 0);
  EXPECT_TRUE(device.findings().empty()) << device.report();
  Found found;
  found.results.assign(results.values().begin(), results.values().end());
  for (uint32_t i = 0; i < count; ++i) found.tokens.push_back(tokens.values()[(i + 1) % count]);
  return found;
}

SampleRow best_row() {
  SampleRow row;
  row.temperature = 0.0F;
  return row;
}

void expect_as_on_cpu(const std::vector<float>& logits, const SampledRow& found, TokenId kept) {
  SamplingParams params;
  params.temperature = 0.0F;
  sample::SequenceSampler sampler;
  sampler.reset(params, {}, 0);
  sample::SamplerWorkspace workspace(logits.size());
  SampledToken wanted;
  const bool is_finite = sampler.sample(logits, 1, workspace, wanted).why.empty();
  ASSERT_EQ(found.status, is_finite ? SampleStatus::kToken : SampleStatus::kNotFinite);
  ASSERT_EQ(static_cast<size_t>(found.token),
            is_finite ? static_cast<size_t>(wanted.token) : sample::first_not_finite(logits));
  ASSERT_EQ(kept, is_finite ? wanted.token : -1);
  ASSERT_EQ(found.rank, 0U);
  ASSERT_EQ(found.num_top, 0U);
}

/// Of one vocabulary: the best in its first and last places and among ties, zeros of both signs, logits that
/// are all as low as can be, and those that are not finite, once or twice, before and behind the best.
std::vector<std::vector<float>> rows_of(size_t vocabulary) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows;
  const auto drawn = [&] { return stored_floats(rows.size() + 1, vocabulary, DType::kF32, 30.0F); };
  const auto with = [&](std::vector<float> row, const std::vector<size_t>& places, float value) {
    for (const size_t place : places) row[place % vocabulary] = value;
    rows.push_back(std::move(row));
  };
  const size_t last = vocabulary - 1;
  rows.push_back(drawn());
  with(drawn(), {0}, 30.0F);
  with(drawn(), {last}, 30.0F);
  with(drawn(), {vocabulary / 2, vocabulary / 2 + 1, last}, 30.0F);
  with(drawn(), {4099, 3, 4096 + 3, 8 * 4096 + 1}, 30.0F);  // also ties of one thread
  with(std::vector<float>(vocabulary, -0.0F), {vocabulary / 3}, 0.0F);
  rows.emplace_back(vocabulary, std::numeric_limits<float>::lowest());
  with(drawn(), {last}, std::numeric_limits<float>::quiet_NaN());
  with(drawn(), {vocabulary / 2, last / 3}, -kInfinity);
  with(drawn(), {last, 1}, kInfinity);
  return rows;
}

TEST(SampleBest, IsTheFirstOfTheHighest) {
  for (const size_t vocabulary : {1, 3, 4, 7, 129, 640, 4097, 33001, 40000}) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocabulary));
    const std::vector<std::vector<float>> logits = rows_of(vocabulary);
    const std::vector<SampleRow> rows(logits.size(), best_row());
    in_many_orders(
        [&](Device& device) {
          const Found found = sample(device, logits, rows);
          for (size_t i = 0; i < rows.size(); ++i) {
            SCOPED_TRACE("row " + std::to_string(i));
            expect_as_on_cpu(logits[i], found.results[i], found.tokens[i]);
          }
        },
        vocabulary > 1000 ? 2 : kOrders);
    if (HasFailure()) return;
  }
}

TEST(SampleBest, LeavesRowsAloneThatAskForMore) {
  std::vector<SampleRow> rows(8, best_row());
  rows[0].temperature = 1.0F;
  rows[1].num_logprobs = 0;
  rows[2].biases.count = 1;
  rows[3].counts.count = 1;
  rows[4].forbidden.count = 1;
  rows[5].allowed = 0;
  rows[6].mask = 1;
  Device device(1);
  const Found found = sample(device, std::vector(rows.size(), std::vector(200, 1.0F)), rows);
  for (size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_EQ(found.tokens[i], kNobodys) << i;
  EXPECT_EQ(found.tokens.back(), 0);
}

}  // namespace
}  // namespace quire::test::fibers
