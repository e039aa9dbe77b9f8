#include "backend/sim/cost_model.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rng.h"

namespace quire::backend::sim {
namespace {

constexpr Nanos kMost = 1'000'000'000'000;
constexpr uint64_t kMostPrefill = 1'000'000'000;

void require_time(Nanos time, const char* name) {
  if (time < 0 || time > kMost) {
    throw Error(fmt::format("cost model: {} is {} ns, not 0 to {} ns", name, time, kMost));
  }
}

double time_of(const PhaseCost& phase, const std::vector<uint64_t>& knots, const StepWork& work) {
  const auto times = [](double cost, uint64_t count) { return cost * static_cast<double>(count); };
  double time = phase.step + times(phase.decode_step, work.decoding > 0 ? 1 : 0) +
                times(phase.decode, work.decoding) + times(phase.chunk, work.chunks) +
                times(phase.decode_context, work.decode_context) +
                times(phase.chunk_square, work.chunk_squares) + times(phase.chunk_prefix, work.chunk_prefix) +
                times(phase.logit_row, work.logit_rows) + times(phase.sampled_row, work.sampled_rows) +
                times(phase.moved_block, work.moved_blocks) + times(phase.copy, work.copies);
  const uint64_t tokens = work.tokens();
  for (size_t i = 0; i < knots.size() && knots[i] < tokens; ++i) {
    const uint64_t end = i + 1 < knots.size() ? std::min(knots[i + 1], tokens) : tokens;
    time += times(phase.token[i], end - knots[i]);
  }
  return time;
}

void check_phase(const PhaseCost& phase, size_t knots, const char* name) {
  if (phase.token.size() != knots) {
    throw Error(
        fmt::format("cost model: {}: {} costs of a token for {} knots", name, phase.token.size(), knots));
  }
  const auto check = [&](std::string_view term, double cost) {
    if (cost >= 0 && cost <= static_cast<double>(kMost)) return;
    throw Error(fmt::format("cost model: {}: {} is {} ns, not 0 to {} ns", name, term, cost, kMost));
  };
  PhaseCost::for_each_term(phase, check);
  for (const double cost : phase.token) check("token", cost);
}

bool has_more(const StepWork& work, const StepWork& most) {
  return work.decoding > most.decoding || work.decode_context > most.decode_context ||
         work.chunks > most.chunks || work.prefill_tokens > most.prefill_tokens ||
         work.chunk_squares > most.chunk_squares || work.chunk_prefix > most.chunk_prefix ||
         work.logit_rows > most.logit_rows || work.sampled_rows > most.sampled_rows ||
         work.moved_blocks > most.moved_blocks || work.copies > most.copies;
}

}  // namespace

void LinearCost::check() const {
  require_time(step, "a step");
  require_time(decode, "a decode");
  require_time(decode_more, "a further decode");
  require_time(swap_block, "moving a block");
  if (prefill_tokens_per_ms == 0 || prefill_tokens_per_ms > kMostPrefill) {
    throw Error(fmt::format("cost model: {} prefill tokens a millisecond, not 1 to {}", prefill_tokens_per_ms,
                            kMostPrefill));
  }
  if (decode_more > decode) {
    throw Error(fmt::format("cost model: a further decode takes {} ns, more than the first ({} ns)",
                            decode_more, decode));
  }
}

std::string_view step_kind(const StepWork& work) {
  if (work.moved_blocks > 0) return "swap";
  if (work.prefill_tokens == 0) return "decode";
  return work.decoding == 0 ? "prefill" : "mixed";
}

double FittedCost::device_time(const StepWork& work) const { return time_of(device, knots, work); }
double FittedCost::host_time(const StepWork& work) const { return time_of(host, knots, work); }

Nanos FittedCost::duration(const StepWork& work) const {
  const double time = device_time(work) + host_time(work);
  return std::max<Nanos>(1, static_cast<Nanos>(std::min(time, static_cast<double>(kMost)) + 0.5));
}

void FittedCost::check() const {
  if (knots.empty() || knots[0] != 0 ||
      std::ranges::adjacent_find(knots, std::greater_equal()) != knots.end()) {
    throw Error("cost model: knots: must rise from 0");
  }
  check_phase(device, knots.size(), "device");
  check_phase(host, knots.size(), "host");
  for (const double deviation : deviations) {
    if (!(deviation > 0 && deviation < 1000)) {
      throw Error(fmt::format("cost model: deviations: {} is no factor of a time", deviation));
    }
  }
  if (!(slow_part >= 0 && slow_part < 1)) {
    throw Error(fmt::format("cost model: slow: part: {} is no part of all steps", slow_part));
  }
  if (!(slow_factor > 0 && slow_factor < 1'000'000)) {
    throw Error(fmt::format("cost model: slow: factor: {} is no factor of a time", slow_factor));
  }
}

double FittedCost::deviation(double chance) const {
  if (chance < slow_part) return slow_factor;
  if (deviations.empty()) return 1;
  const double at = (chance - slow_part) / (1 - slow_part) * static_cast<double>(deviations.size() - 1);
  const size_t below = std::min(static_cast<size_t>(at), deviations.size() - 1);
  const double above = deviations[std::min(below + 1, deviations.size() - 1)];
  return deviations[below] + (above - deviations[below]) * (at - static_cast<double>(below));
}

bool FittedCost::extrapolates(const StepWork& work) const {
  // Of the other counts a little costs little: the fitted lines begin at 0.
  const bool is_below = (work.decoding > 0 && work.decoding < least.decoding) ||
                        (work.prefill_tokens > 0 && 2 * work.prefill_tokens < least.prefill_tokens);
  const bool is_new = !kinds.empty() && std::ranges::find(kinds, step_kind(work)) == kinds.end();
  return has_more(work, most) || is_below || is_new;
}

Nanos CostModel::duration(const StepWork& work, uint64_t seed, uint64_t step) const {
  const Nanos time = duration(work);
  if (fitted() == nullptr) return time;
  const double factor = fitted()->deviation(unit_interval(keyed_random(seed, 0, step)));
  return std::max<Nanos>(1, static_cast<Nanos>(static_cast<double>(time) * factor + 0.5));
}

uint64_t CostModel::prefill_tokens_in(Nanos time) const {
  if (linear() != nullptr) return linear()->prefill_tokens_in(time);
  uint64_t fits = 0;
  for (uint64_t more = uint64_t{1} << 20; more > 0; more /= 2) {
    if (duration(prompt_work_of(fits + more)) <= time) fits += more;
  }
  return fits;
}

control::CostHints CostModel::hints(uint32_t batch) const {
  if (linear() != nullptr) return linear()->hints(batch);
  if (roofline() != nullptr) return roofline()->hints(batch);
  constexpr uint64_t kChunk = 512;
  const StepWork decode = decode_work_of(batch, batch * kChunk);
  StepWork swap = decode;
  swap.moved_blocks = 1;
  const auto least = [](Nanos of) { return std::max<Nanos>(1, of); };
  return {.prefill_token =
              least((duration(prompt_work_of(kChunk + 1)) - duration(prompt_work_of(1))) / Nanos{kChunk}),
          .decode_token = least(duration(decode) / batch),
          .swap_block = least(duration(swap) - duration(decode))};
}

uint32_t CostModel::context_cost() const {
  if (fitted() == nullptr) return 0;
  const PhaseCost& device = fitted()->device;
  const double token = static_cast<double>(hints(1).prefill_token);
  return static_cast<uint32_t>(std::min(1e6 * device.chunk_prefix / token, 1e6));
}

}  // namespace quire::backend::sim
