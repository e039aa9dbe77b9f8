#include "backend/sim/sim_executor.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/describe.h"
#include "base/error.h"
#include "base/rng.h"

namespace quire::backend::sim {
namespace {

/// Uniform in [0, bound).
uint32_t scale(uint64_t bits, size_t bound) { return static_cast<uint32_t>((bits >> 32) * bound >> 32); }

}  // namespace

SimExecutor::SimExecutor(const control::SchedulerConfig& scheduler, const CostModel& cost, SimTokens tokens,
                         uint32_t depth)
    : depth_(depth),
      cost_(cost),
      tokens_(std::move(tokens)),
      num_sayable_(tokens_.sayable.empty() ? tokens_.vocab_size : tokens_.sayable.size()),
      slots_({.num_slots = scheduler.max_num_seqs,
              .num_blocks = scheduler.num_blocks,
              .num_host_blocks = scheduler.num_host_blocks,
              .block_size = scheduler.block_size,
              .windows = scheduler.kv_windows,
              .max_positions = scheduler.max_model_len,
              .vocab_size = tokens_.vocab_size}),
      speakers_(scheduler.max_num_seqs),
      sampling_(scheduler.max_num_seqs),
      sums_(scheduler.max_num_seqs) {
  cost_.check();
  if (depth_ < 1 || depth_ > kMostOpenSteps) {
    throw Error(fmt::format("simulated device: {} steps in flight, not 1 to {}", depth_, kMostOpenSteps));
  }
  if (tokens_.vocab_size == 0 || tokens_.vocab_size > INT32_MAX) {
    throw Error(fmt::format("simulated tokens: a vocabulary of {}", tokens_.vocab_size));
  }
  for (const TokenId token : tokens_.sayable) {
    if (token < 0 || static_cast<uint32_t>(token) >= tokens_.vocab_size) {
      throw Error(fmt::format("simulated tokens: {} of a vocabulary of {}", token, tokens_.vocab_size));
    }
  }
  if (tokens_.check_kv) {
    check_.emplace(KvCheck::Limits{.num_slots = scheduler.max_num_seqs,
                                   .num_blocks = scheduler.num_blocks,
                                   .num_host_blocks = scheduler.num_host_blocks,
                                   .block_size = scheduler.block_size,
                                   .windows = scheduler.kv_windows});
  }
}

Ticket SimExecutor::submit(const control::StepPlan& plan) {
  open_.check_room(plan);
  slots_.apply(plan);
  if (check_) check_->begin(plan);
  for (const control::NewSeq& seq : plan.added) {
    speakers_[seq.slot] = {.key = keyed_random(tokens_.seed, seq.sampling.seed, seq.sampling.choice),
                           .masked = seq.sampling.mask != kNoMask,
                           .logprobs = seq.sampling.num_logprobs >= 0};
    sampling_[seq.slot] = seq.sampling;
    sums_[seq.slot] = 0;
  }
  const StepWork work = work_of(plan);
  const RooflineCost* const roofline = cost_.roofline();
  if (roofline != nullptr) attention_.assign(roofline->attention.size(), {});
  control::StepResult result;
  result.seqs.reserve(plan.seqs.size());
  late_rows_.clear();
  const bool masks_count = !tokens_.next;
  for (const control::SeqStep& seq : plan.seqs) {
    const std::span<const TokenId> tokens = slots_.advance(seq);
    if (check_) check_->write(seq, tokens, slots_);
    const bool sampled = seq.rows == control::LogitRows::kLast;
    for (size_t i = 0; i < attention_.size(); ++i) {
      attention_[i].add(roofline->attention[i].window, seq.first_position,
                        static_cast<double>(tokens.size()));
    }
    control::SeqResult& said = result.seqs.emplace_back();
    if (!sampled) continue;
    const Speaker& speaker = speakers_[seq.slot];
    if (masks_count && speaker.masked) {
      late_rows_.push_back({static_cast<uint32_t>(result.seqs.size()) - 1, seq.slot});
      continue;
    }
    SampledToken& token = said.token.emplace();
    const uint32_t drawn = draw(speaker, seq.slot);
    token.token = masks_count ? sayable(drawn) : dictated(plan.step, seq.slot);
    say(seq.slot, drawn, token);
  }
  if (check_) check_->read_back(plan, slots_);
  for (const control::PromptStep& part : plan.prompts) {
    result.prompts.push_back(recite(plan.seqs[part.seq], part));
  }
  result.times.compute =
      tokens_.jitter ? cost_.duration(work, *tokens_.jitter, plan.step) : cost_.duration(work, attention_);
  if (const FittedCost* const fitted = cost_.fitted(); fitted != nullptr && fitted->extrapolates(work)) {
    ++extrapolated_;
  }
  return open_.push(std::move(result), !late_rows_.empty());
}

void SimExecutor::provide(Ticket ticket, TokenMasks& masks) {
  control::StepResult* const result = open_.provide(ticket);
  if (result == nullptr) return;
  for (const LateRow& row : late_rows_) {
    control::SeqResult& out = result->seqs[row.seq];
    try {
      mask_.assign(mask_words(tokens_.vocab_size), UINT32_MAX);
      masks.fill(sampling_[row.slot].mask, mask_);
      const uint32_t drawn = draw(speakers_[row.slot], row.slot);
      const std::optional<TokenId> allowed = allowed_from(drawn, mask_);
      if (!allowed) {
        out.error = fmt::format("the grammar leaves no token for position {}", slots_.computed(row.slot));
        out.refused = true;
        continue;
      }
      SampledToken& token = out.token.emplace();
      token.token = *allowed;
      say(row.slot, drawn, token);
    } catch (const MaskRefused& refused) {
      out.error = refused.what();
      out.refused = true;
    } catch (...) {
      out.error = describe_current_exception();
      out.token.reset();
    }
  }
}

control::StepResult SimExecutor::wait(Ticket ticket) { return open_.take(ticket); }

/// The token that is the `index`-th of those that may be said.
TokenId SimExecutor::sayable(size_t index) const {
  return tokens_.sayable.empty() ? static_cast<TokenId>(index) : tokens_.sayable[index];
}

/// The place of the sequence's next token among those that may be said.
uint32_t SimExecutor::draw(const Speaker& speaker, SlotId slot) const {
  return scale(mix64(speaker.key ^ slots_.computed(slot)), num_sayable_);
}

TokenId SimExecutor::dictated(uint64_t step, SlotId slot) const {
  return tokens_.next({step, slot, sampling_[slot], slots_.prompt_length(slot), slots_.computed(slot)});
}

void SimExecutor::add_logprobs(const SamplingParams& sampling, uint32_t drawn, SampledToken& said) const {
  const std::vector<TokenId>& wanted = sampling.logprob_tokens;
  list_others(drawn, wanted.empty() ? sampling.num_logprobs : 1, said);
  for (const TokenId token : wanted) {
    if (token != said.token) said.top.push_back({token, -0.5F - static_cast<float>(said.top.size())});
  }
}

/// The first token from the `drawn`-th on that the mask allows, of those that may be said. If it allows none
/// of them, as where a grammar wants a brace or the end, of the whole vocabulary.
std::optional<TokenId> SimExecutor::allowed_from(uint32_t drawn, std::span<const uint32_t> mask) const {
  for (size_t i = 0; i < num_sayable_; ++i) {
    const TokenId token = sayable((drawn + i) % num_sayable_);
    if (allows(mask, token)) return token;
  }
  for (size_t i = 0; i < tokens_.vocab_size; ++i) {
    const auto token = static_cast<TokenId>((drawn + i) % tokens_.vocab_size);
    if (allows(mask, token)) return token;
  }
  return {};
}

PromptYield SimExecutor::recite(const control::SeqStep& seq, const control::PromptStep& part) {
  uint64_t& sum = sums_[seq.slot];
  const PromptWants& wants = slots_.wants(seq.slot);
  PromptYield out;
  for (uint32_t row = part.first_row; row < part.end_row; ++row) {
    SampledToken& next = out.rows.emplace_back(row).next;
    next.token = row + 1 == part.end_row ? part.next : seq.tokens[row + 1 - seq.first_position];
    list_others(static_cast<uint32_t>(next.token), wants.logprobs, next);
  }
  for (const TokenId token : seq.tokens) sum += static_cast<uint64_t>(token);
  if (!part.last || wants.pooling == Pooling::kNone) return out;
  const double mean = static_cast<double>(sum) / slots_.prompt_length(seq.slot);
  out.pooled = {wants.pooling == Pooling::kMean ? static_cast<float>(mean)
                                                : static_cast<float>(seq.tokens.back())};
  return out;
}

void SimExecutor::list_others(uint32_t drawn, int32_t count, SampledToken& said) const {
  said.logprob = -0.5F;
  said.rank = 1;
  for (int32_t i = 0; i < count; ++i) {
    const TokenId token =
        i == 0 ? said.token : sayable((size_t{drawn} + static_cast<uint32_t>(i)) % num_sayable_);
    said.top.push_back({token, -0.5F - static_cast<float>(i)});
  }
}

}  // namespace quire::backend::sim
