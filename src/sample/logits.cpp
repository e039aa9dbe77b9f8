#include "sample/logits.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace quire::sample {
namespace {

constexpr size_t kLanes = 16;
constexpr float kSmallestExponent = -87.0F;
static_assert(kLogitBlock % kLanes == 0);

float max_of(std::span<const float> values) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  float max = lanes[0];
  for (; i < values.size(); ++i) max = std::max(max, values[i]);
  for (const float lane : lanes) max = std::max(max, lane);
  return max;
}

bool better(const LogitRow::Entry& a, const LogitRow::Entry& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

}  // namespace

float exp_nonpositive(float z) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  constexpr float kRound = 12582912.0F;
  const float shifted = z * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (z - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) << 23) + std::bit_cast<uint32_t>(1.0F);
  const float value = p * std::bit_cast<float>(power);
  // All ones unless |z| is above the limit, whose bits order as integers do. Arithmetic, as compilers make a
  // branch of a comparison here, and then no vector code.
  constexpr auto kLimit = std::bit_cast<int32_t>(-kSmallestExponent);
  const auto magnitude = static_cast<int32_t>(std::bit_cast<uint32_t>(z) & 0x7fffffffU);
  const auto keep = static_cast<uint32_t>((magnitude - kLimit - 1) >> 31);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & keep);
}

namespace {

void weigh(std::span<const float> values, float max, float temperature, float* weights) {
  for (size_t i = 0; i < values.size(); ++i) weights[i] = exp_nonpositive((values[i] - max) / temperature);
}

}  // namespace

size_t first_not_finite(std::span<const float> logits) {
  const auto is_bad = [](float x) { return (std::bit_cast<uint32_t>(x) & 0x7f800000U) == 0x7f800000U; };
  for (size_t begin = 0; begin < logits.size(); begin += kLogitBlock) {
    const size_t end = std::min(logits.size(), begin + kLogitBlock);
    uint32_t bad = 0;
    for (size_t i = begin; i < end; ++i) bad |= static_cast<uint32_t>(is_bad(logits[i]));
    if (bad == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (is_bad(logits[i])) return i;
    }
  }
  return logits.size();
}

LogitRow::LogitRow(std::span<const float> values, std::vector<float>& maxima) : values_(values) {
  maxima.resize(num_logit_blocks(values.size()));
  maxima_ = maxima;
  for (size_t block = 0; block < maxima.size(); ++block) {
    maxima[block] = max_of(values.subspan(block * kLogitBlock, end_of(block) - block * kLogitBlock));
  }
  max_ = max_of(maxima);
}

TokenId LogitRow::arg_max() const {
  size_t i =
      static_cast<size_t>(std::find(maxima_.begin(), maxima_.end(), max_) - maxima_.begin()) * kLogitBlock;
  while (values_[i] != max_) ++i;
  return static_cast<TokenId>(i);
}

void LogitRow::best(size_t count, std::vector<Entry>& out) const {
  out.clear();
  count = std::min(count, values_.size());
  if (count == 0) return;
  // A heap with the worst of the best so far in front. Ids rise, so a tie never enters a full heap.
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (out.size() == count && maxima_[block] <= out.front().value) continue;
    for (size_t i = block * kLogitBlock; i < end_of(block); ++i) {
      if (out.size() == count) {
        if (values_[i] <= out.front().value) continue;
        std::pop_heap(out.begin(), out.end(), better);
        out.pop_back();
      }
      out.push_back({static_cast<TokenId>(i), values_[i]});
      std::push_heap(out.begin(), out.end(), better);
    }
  }
  std::sort_heap(out.begin(), out.end(), better);
}

uint32_t LogitRow::num_better(TokenId id) const {
  const float value = values_[static_cast<size_t>(id)];
  uint32_t count = 0;
  for_each_at_least(value, [&](TokenId other, float v) { count += v > value || other < id ? 1 : 0; });
  return count;
}

double LogitRow::exp_sum_of_block(size_t block, float temperature) const {
  if ((maxima_[block] - max_) / temperature < kSmallestExponent) return 0.0;
  float weights[kLogitBlock] = {};
  weigh(values_.subspan(block * kLogitBlock, end_of(block) - block * kLogitBlock), max_, temperature,
        weights);
  double lanes[kLanes] = {};
  for (size_t i = 0; i < kLogitBlock; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(weights[i + j]);
  }
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

double LogitRow::exp_sum(float temperature, std::vector<double>& block_sums) const {
  block_sums.resize(maxima_.size());
  double sum = 0.0;
  for (size_t block = 0; block < maxima_.size(); ++block) {
    block_sums[block] = exp_sum_of_block(block, temperature);
    sum += block_sums[block];
  }
  return sum;
}

double LogitRow::exp_sum() const {
  double sum = 0.0;
  for (size_t block = 0; block < maxima_.size(); ++block) sum += exp_sum_of_block(block, 1.0F);
  return sum;
}

TokenId LogitRow::find_in_exp_sum(float temperature, double target,
                                  std::span<const double> block_sums) const {
  size_t block = 0;
  size_t last = 0;  // with a sum above 0: where rounding leaves us if the target is not passed
  double sum = 0.0;
  for (; block < block_sums.size(); ++block) {
    if (block_sums[block] > 0.0) last = block;
    if (sum + block_sums[block] > target) break;
    sum += block_sums[block];
  }
  if (block == block_sums.size()) {
    block = last;
    sum -= block_sums[last];
  }
  size_t found = block * kLogitBlock;
  for (size_t i = found; i < end_of(block); ++i) {
    const auto weight = static_cast<double>(exp_nonpositive((values_[i] - max_) / temperature));
    if (weight == 0.0) continue;
    found = i;
    sum += weight;
    if (sum > target) break;
  }
  return static_cast<TokenId>(found);
}

}  // namespace quire::sample
