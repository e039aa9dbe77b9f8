#include "tests/support/fake_executor.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/describe.h"
#include "base/error.h"
#include "base/rng.h"

namespace quire::test {
namespace {

[[noreturn]] void refuse_plan(const std::string& what) { throw Error("inconsistent plan: " + what); }

}  // namespace

NextToken hashed_continuation(uint32_t vocab_size) {
  return [vocab_size](std::span<const TokenId> tokens, uint32_t, const SamplingParams& sampling) {
    uint64_t hash = sampling.greedy() ? 0 : keyed_random(sampling.seed, sampling.choice, 1);
    for (const TokenId token : tokens) hash = mix64(hash ^ static_cast<uint64_t>(token));
    return static_cast<TokenId>(hash % vocab_size);
  };
}

NextToken scripted_continuation(std::vector<TokenId> script) {
  return [script = std::move(script)](std::span<const TokenId> tokens, uint32_t prompt_length,
                                      const SamplingParams&) {
    return script[(tokens.size() - prompt_length) % script.size()];
  };
}

FakeExecutor::FakeExecutor(FakeExecutorConfig config)
    : config_(std::move(config)),
      delay_(config_.delay),
      slots_({.num_slots = config_.max_slots,
              .num_blocks = config_.num_blocks,
              .num_host_blocks = config_.num_host_blocks,
              .block_size = config_.block_size,
              .max_positions = UINT32_MAX,
              .vocab_size = config_.vocab_size}),
      states_(config_.max_slots),
      holders_(config_.num_blocks, 0),
      cells_(size_t{config_.num_blocks} * config_.block_size, -1),
      host_(size_t{config_.num_host_blocks} * config_.block_size, -1) {
  if (!config_.next) config_.next = hashed_continuation(config_.vocab_size);
}

backend::Ticket FakeExecutor::submit(const control::StepPlan& plan) {
  open_.check_room(plan);
  slots_.apply(plan);
  for (const control::NewSeq& seq : plan.added) add(seq);
  for (const control::BlockMove& out : plan.moves_out) move(out, true);
  for (const control::BlockMove& in : plan.moves_in) move(in, false);
  for (const control::BlockCopy& one : plan.copies) copy(one);
  // All tables grow before anything computes, so that a block given twice is seen.
  std::vector<Work> works;
  for (const control::SeqStep& seq : plan.seqs) {
    const auto tokens = slots_.advance(seq);
    works.push_back({&seq, {tokens.begin(), tokens.end()}});
    for (const BlockId block : seq.new_blocks) {
      std::fill_n(cells_.begin() + int64_t{block} * config_.block_size, config_.block_size, -1);
    }
  }
  // A table is only up to date where its sequence computes: it is told then of blocks that took the place of
  // its own, which others may have by now.
  std::ranges::fill(holders_, 0);
  for (const Work& work : works) {
    for (const BlockId block : slots_.tables(work.step->slot).front()) ++holders_[block];
  }
  control::StepResult result;
  late_rows_.clear();
  for (const Work& work : works) result.seqs.push_back(step(work, result.seqs.size()));
  for (const control::PromptStep& part : plan.prompts) result.prompts.push_back(yield(works[part.seq], part));
  if (!plan.seqs.empty() && delay_ > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(delay_.load()));
  result.times.compute = plan.seqs.empty() ? 0 : delay_.load();
  ++steps_;
  return open_.push(std::move(result), !late_rows_.empty());
}

void FakeExecutor::provide(backend::Ticket ticket, backend::TokenMasks& masks) {
  control::StepResult* const result = open_.provide(ticket);
  if (result == nullptr) return;
  std::vector<uint32_t> mask;
  for (const auto& [seq, slot] : late_rows_) {
    try {
      mask.assign(backend::mask_words(config_.vocab_size), UINT32_MAX);
      masks.fill(states_[slot].sampling.mask, mask);
      result->seqs[seq] = sample(slot, mask);
    } catch (...) {
      result->seqs[seq].error = describe_current_exception();
    }
  }
}

control::StepResult FakeExecutor::wait(backend::Ticket ticket) { return open_.take(ticket); }

void FakeExecutor::add(const control::NewSeq& seq) {
  if (!seq.sampling.needs_history() && !seq.history.empty()) {
    refuse_plan(fmt::format("added: slot {} has a history of {} tokens and no need of it", seq.slot,
                            seq.history.size()));
  }
  states_[seq.slot] = {.sampling = seq.sampling, .history = seq.history, .tokens = {}, .sum = 0};
}

void FakeExecutor::copy(const control::BlockCopy& copy) {
  if (copy.from >= config_.num_blocks || copy.to >= config_.num_blocks || copy.from == copy.to) {
    refuse_plan(fmt::format("copy of block {} to {}", copy.from, copy.to));
  }
  const size_t size = config_.block_size;
  std::copy_n(cells_.begin() + int64_t{copy.from} * config_.block_size, size,
              cells_.begin() + int64_t{copy.to} * config_.block_size);
}

void FakeExecutor::move(const control::BlockMove& move, bool out) {
  if (move.device >= config_.num_blocks || move.host >= config_.num_host_blocks) {
    refuse_plan(fmt::format("move of block {} and host block {}", move.device, move.host));
  }
  const auto device = cells_.begin() + int64_t{move.device} * config_.block_size;
  const auto host = host_.begin() + int64_t{move.host} * config_.block_size;
  std::copy_n(out ? device : host, config_.block_size, out ? host : device);
}

control::SeqResult FakeExecutor::step(const Work& work, size_t seq) {
  control::SeqResult lost;
  lost.error = "its last token could not be sampled";
  if (work.tokens.empty()) return lost;
  write(work);
  if (work.step->rows != control::LogitRows::kLast) return {};
  if (states_[work.step->slot].sampling.mask == kNoMask) return sample(work.step->slot, {});
  late_rows_.emplace_back(seq, work.step->slot);
  return {};
}

PromptYield FakeExecutor::yield(const Work& work, const control::PromptStep& part) {
  Slot& slot = states_[work.step->slot];
  const PromptWants& wants = slots_.wants(work.step->slot);
  PromptYield out;
  for (uint32_t row = part.first_row; row < part.end_row; ++row) {
    SampledToken& next = out.rows.emplace_back(row).next;
    next.token = row + 1 == part.end_row ? part.next : work.tokens[row + 1 - work.step->first_position];
    next.logprob = -0.5F;
    next.rank = 1;
    for (int32_t i = 0; i < wants.logprobs; ++i) {
      const auto id = static_cast<TokenId>(static_cast<uint32_t>(next.token + i) % config_.vocab_size);
      next.top.push_back({id, -0.5F - static_cast<float>(i)});
    }
  }
  for (const TokenId token : work.tokens) slot.sum += static_cast<uint64_t>(token);
  if (!part.last || wants.pooling == Pooling::kNone) return out;
  const float mean = static_cast<float>(slot.sum) / static_cast<float>(slots_.prompt_length(work.step->slot));
  out.pooled = {wants.pooling == Pooling::kMean ? mean : static_cast<float>(work.tokens.back())};
  return out;
}

/// Writes the tokens into the blocks, and reads the whole sequence back into slot.tokens.
void FakeExecutor::write(const Work& work) {
  const control::SeqStep& seq = *work.step;
  Slot& slot = states_[seq.slot];
  const std::vector<BlockId>& table = slots_.tables(seq.slot).front();
  const size_t end = seq.first_position + work.tokens.size();
  slot.tokens.clear();
  for (size_t position = 0; position < end; ++position) {
    const BlockId block = table[position / config_.block_size];
    TokenId& cell = cells_[size_t{block} * config_.block_size + position % config_.block_size];
    if (position >= seq.first_position) {
      if (holders_[block] != 1) {
        refuse_plan(
            fmt::format("slot {} writes to block {} that {} tables hold", seq.slot, block, holders_[block]));
      }
      cell = work.tokens[position - seq.first_position];
    } else if (cell < 0) {
      refuse_plan(
          fmt::format("slot {}: nothing was written at position {}, block {}", seq.slot, position, block));
    }
    slot.tokens.push_back(cell);
    if (slot.sampling.needs_history() && position < slot.history.size() && slot.history[position] != cell) {
      refuse_plan(fmt::format("slot {}: token {} at position {}, in its history {}", seq.slot, cell, position,
                              slot.history[position]));
    }
  }
}

control::SeqResult FakeExecutor::sample(SlotId slot_id, std::span<const uint32_t> mask) {
  Slot& slot = states_[slot_id];
  if (slot.sampling.needs_history() && slot.history.size() != slot.tokens.size()) {
    refuse_plan(
        fmt::format("{} tokens of history where {} are computed", slot.history.size(), slot.tokens.size()));
  }
  control::SeqResult result;
  TokenId token = config_.next(slot.tokens, slots_.prompt_length(slot_id), slot.sampling);
  for (uint32_t i = 0; !mask.empty() && token >= 0 && !backend::allows(mask, token); ++i) {
    if (i == config_.vocab_size) {
      result.error = fmt::format("no token is left for position {}", slot.tokens.size());
      result.refused = true;
      return result;
    }
    token = static_cast<TokenId>(static_cast<uint32_t>(token + 1) % config_.vocab_size);
  }
  if (token < 0) {
    result.error = fmt::format("made to fail at position {}", slot.tokens.size());
    result.refused = token == -2;
    return result;
  }
  slots_.sampled(slot_id, token);
  if (slot.sampling.needs_history()) slot.history.push_back(token);
  SampledToken sampled;
  sampled.token = token;
  if (slot.sampling.num_logprobs >= 0) {
    sampled.logprob = -0.5F;
    sampled.rank = 1;
    const std::vector<TokenId>& wanted = slot.sampling.logprob_tokens;
    for (int32_t i = 0; i < (wanted.empty() ? slot.sampling.num_logprobs : 1); ++i) {
      const auto id = static_cast<TokenId>(static_cast<uint32_t>(token + i) % config_.vocab_size);
      sampled.top.push_back({id, -0.5F - static_cast<float>(i)});
    }
    for (const TokenId id : wanted) {
      if (id != token) sampled.top.push_back({id, -0.5F - static_cast<float>(sampled.top.size())});
    }
  }
  result.token = std::move(sampled);
  return result;
}

}  // namespace quire::test
