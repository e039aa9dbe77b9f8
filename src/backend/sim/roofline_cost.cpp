#include "backend/sim/roofline_cost.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::backend::sim {
namespace {

constexpr double kMostSeconds = 1000;

/// By multiplications alone, so that it is the same on every machine.
double power(double base, uint64_t exponent) {
  double out = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) out *= base;
  }
  return out;
}

Nanos nanos(double seconds) {
  return std::max<Nanos>(1, static_cast<Nanos>(std::min(seconds, kMostSeconds) * 1e9 + 0.5));
}

}  // namespace

void AttentionWork::add(uint32_t window, double before, double count, double times) {
  const auto reach = static_cast<double>(window);
  // Those that see all tokens before them, and the rest, whose windows are full.
  const double rising = window == 0 ? count : std::clamp(reach - before, 0.0, count);
  tokens += times * (count + (window == 0 ? before : std::min(before, reach - 1)));
  pairs += times * (rising * before + rising * (rising + 1) / 2 + (count - rising) * reach);
}

std::vector<AttentionWork> RooflineCost::attention_of(const StepWork& work) const {
  std::vector<AttentionWork> out(attention.size());
  const auto number = [](uint64_t count) { return static_cast<double>(count); };
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t window = attention[i].window;
    if (work.decoding > 0) {
      out[i].add(window, number(work.decode_context) / number(work.decoding), 1, number(work.decoding));
    }
    if (work.prefill_tokens == 0) continue;
    const double before = number(work.chunk_prefix) / number(work.prefill_tokens);
    const double chunks = number(std::max<uint64_t>(1, work.chunks));
    AttentionWork chunked;
    chunked.add(window, before, number(work.prefill_tokens) / chunks, chunks);
    // Chunks of different lengths attend to more than those of the mean length.
    if (window == 0) {
      chunked.pairs = number(work.chunk_prefix) + number(work.chunk_squares + work.prefill_tokens) / 2;
    }
    out[i].tokens += chunked.tokens;
    out[i].pairs += chunked.pairs;
  }
  return out;
}

double RooflineCost::bytes(const StepWork& work, std::span<const AttentionWork> read) const {
  double sum = 2 * static_cast<double>(work.copies) * static_cast<double>(block_bytes);
  const uint64_t tokens = work.tokens();
  if (tokens == 0) return sum;
  const double unread = power(1 - chosen, tokens) * static_cast<double>(expert_bytes);
  sum += static_cast<double>(weight_bytes - static_cast<uint64_t>(unread));
  for (size_t i = 0; i < read.size(); ++i) {
    sum += read[i].tokens * static_cast<double>(attention[i].layers * attention[i].token_bytes);
  }
  return sum;
}

double RooflineCost::ops(const StepWork& work, std::span<const AttentionWork> read) const {
  double sum =
      token_ops * static_cast<double>(work.tokens()) + row_ops * static_cast<double>(work.logit_rows);
  for (size_t i = 0; i < read.size(); ++i) sum += read[i].pairs * attention[i].layers * attention[i].pair_ops;
  return sum;
}

Nanos RooflineCost::duration(const StepWork& work, std::span<const AttentionWork> given) const {
  std::vector<AttentionWork> alike;
  if (given.empty()) alike = attention_of(work);
  const std::span<const AttentionWork> read = given.empty() ? alike : given;
  const double reading = bandwidth == 0 ? 0 : bytes(work, read) / bandwidth;
  const double computing = rate == 0 ? 0 : ops(work, read) / rate;
  const double moved = static_cast<double>(work.moved_blocks) * static_cast<double>(block_bytes);
  return nanos(overhead_s + std::max(reading, computing) + (host_link == 0 ? 0 : moved / host_link));
}

control::CostHints RooflineCost::hints(uint32_t batch) const {
  // A chunk so long that it is computed at the rate, not at the bandwidth.
  constexpr uint64_t kChunk = 2048;
  constexpr uint64_t kContext = 512;
  const StepWork chunk{
      .chunks = 1, .prefill_tokens = kChunk, .chunk_squares = kChunk * kChunk, .logit_rows = 1};
  const StepWork decode{.decoding = batch, .decode_context = batch * kContext, .logit_rows = batch};
  const auto least = [](Nanos time) { return std::max<Nanos>(1, time); };
  const double moving = host_link == 0 ? 0 : static_cast<double>(block_bytes) / host_link;
  return {.prefill_token = least(duration(chunk) / Nanos{kChunk}),
          .decode_token = least(duration(decode) / batch),
          .swap_block = nanos(moving)};
}

void RooflineCost::check() const {
  const auto require = [](std::string_view name, double value, double most) {
    if (value >= 0 && value <= most) return;
    throw Error(fmt::format("cost model: roofline: {} is {:g}, not 0 to {:g}", name, value, most));
  };
  require("the bandwidth", bandwidth, 1e18);
  require("the rate", rate, 1e21);
  require("the link to the host", host_link, 1e18);
  require("the overhead of a step", overhead_s, kMostSeconds);
  require("the share of experts", chosen, 1);
  require("operations of a token", token_ops, 1e18);
  require("operations of a row", row_ops, 1e18);
  for (const AttentionCost& each : attention) {
    require("K/V of a token", static_cast<double>(each.token_bytes), 1e12);
    require("operations of attention", each.pair_ops, 1e12);
  }
  if (bandwidth == 0 && rate == 0) {
    throw Error("cost model: roofline: neither the bandwidth nor the rate is known");
  }
  if (expert_bytes > weight_bytes) {
    throw Error(fmt::format("cost model: roofline: {} bytes of experts in {} bytes of weights", expert_bytes,
                            weight_bytes));
  }
}

}  // namespace quire::backend::sim
