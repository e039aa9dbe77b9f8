#include "tests/support/fake_executor.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

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
      slots_(config_.max_slots),
      holders_(config_.num_blocks, 0),
      cells_(size_t{config_.num_blocks} * config_.block_size, -1),
      host_(size_t{config_.num_host_blocks} * config_.block_size, -1) {
  if (!config_.next) config_.next = hashed_continuation(config_.vocab_size);
}

Ticket FakeExecutor::submit(const StepPlan& plan) {
  if (pending_) refuse_plan(fmt::format("step {} submitted before the last was waited for", plan.step));
  for (const SlotId slot : plan.removed) remove(slot);
  for (const NewSeq& seq : plan.added) add(seq);
  for (const BlockMove& out : plan.moves_out) move(out, true);
  for (const BlockMove& in : plan.moves_in) move(in, false);
  for (const BlockCopy& one : plan.copies) copy(one);
  for (const TableUpdate& one : plan.updates) update(one);
  // All tables grow before anything computes, so that a block given twice is seen.
  std::vector<bool> stepped(slots_.size(), false);
  for (const SeqStep& seq : plan.seqs) {
    Slot& slot = slot_at(seq.slot, "seqs");
    if (stepped[seq.slot]) refuse_plan(fmt::format("slot {} is twice in seqs", seq.slot));
    stepped[seq.slot] = true;
    for (const BlockId block : seq.new_blocks) {
      hold(block);
      slot.table.push_back(block);
      std::fill_n(cells_.begin() + int64_t{block} * config_.block_size, config_.block_size, -1);
    }
  }
  result_ = {};
  for (const SeqStep& seq : plan.seqs) result_.seqs.push_back(step(seq));
  if (!plan.seqs.empty() && delay_ > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(delay_.load()));
  pending_ = ++steps_;
  return *pending_;
}

StepResult FakeExecutor::wait(Ticket ticket) {
  if (!pending_ || *pending_ != ticket) refuse_plan(fmt::format("no ticket {} to wait for", ticket));
  pending_.reset();
  return std::move(result_);
}

uint32_t FakeExecutor::slots_in_use() const {
  return static_cast<uint32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.used; }));
}

FakeExecutor::Slot& FakeExecutor::slot_at(SlotId slot, const char* what) {
  if (slot >= slots_.size()) refuse_plan(fmt::format("{}: slot {} of {}", what, slot, slots_.size()));
  if (!slots_[slot].used) refuse_plan(fmt::format("{}: slot {} is empty", what, slot));
  return slots_[slot];
}

void FakeExecutor::hold(BlockId block) {
  if (block >= holders_.size()) refuse_plan(fmt::format("block {} of {}", block, holders_.size()));
  ++holders_[block];
}

void FakeExecutor::release(BlockId block) { --holders_[block]; }

void FakeExecutor::remove(SlotId slot) {
  Slot& old = slot_at(slot, "removed");
  for (const BlockId block : old.table) release(block);
  old = Slot();
}

void FakeExecutor::add(const NewSeq& seq) {
  if (seq.slot >= slots_.size()) refuse_plan(fmt::format("added: slot {} of {}", seq.slot, slots_.size()));
  if (slots_[seq.slot].used) refuse_plan(fmt::format("added: slot {} is taken", seq.slot));
  if (seq.prompt_length == 0) refuse_plan(fmt::format("added: slot {} has no prompt", seq.slot));
  if (seq.sampling.has_penalties() ? seq.history.size() < seq.prompt_length : !seq.history.empty()) {
    refuse_plan(fmt::format("added: slot {} has a history of {} tokens, penalties {}, prompt of {}", seq.slot,
                            seq.history.size(), seq.sampling.has_penalties(), seq.prompt_length));
  }
  for (const BlockId block : seq.blocks) hold(block);
  Slot& slot = slots_[seq.slot];
  slot.used = true;
  slot.sampling = seq.sampling;
  slot.prompt_length = seq.prompt_length;
  slot.table = seq.blocks;
  slot.history = seq.history;
}

void FakeExecutor::copy(const BlockCopy& copy) {
  if (copy.from >= config_.num_blocks || copy.to >= config_.num_blocks || copy.from == copy.to) {
    refuse_plan(fmt::format("copy of block {} to {}", copy.from, copy.to));
  }
  const size_t size = config_.block_size;
  std::copy_n(cells_.begin() + int64_t{copy.from} * config_.block_size, size,
              cells_.begin() + int64_t{copy.to} * config_.block_size);
}

void FakeExecutor::move(const BlockMove& move, bool out) {
  if (move.device >= config_.num_blocks || move.host >= config_.num_host_blocks) {
    refuse_plan(fmt::format("move of block {} and host block {}", move.device, move.host));
  }
  const auto device = cells_.begin() + int64_t{move.device} * config_.block_size;
  const auto host = host_.begin() + int64_t{move.host} * config_.block_size;
  std::copy_n(out ? device : host, config_.block_size, out ? host : device);
}

void FakeExecutor::update(const TableUpdate& update) {
  Slot& slot = slot_at(update.slot, "updates");
  if (update.index >= slot.table.size()) {
    refuse_plan(
        fmt::format("updates: entry {} of {} in slot {}", update.index, slot.table.size(), update.slot));
  }
  hold(update.block);
  release(slot.table[update.index]);
  slot.table[update.index] = update.block;
}

SeqResult FakeExecutor::step(const SeqStep& seq) {
  Slot& slot = slots_[seq.slot];
  if (seq.tokens.empty()) refuse_plan(fmt::format("slot {} has no tokens", seq.slot));
  if (slot.computed ? seq.first_position != *slot.computed
                    : seq.first_position > (slot.table.size() - seq.new_blocks.size()) * config_.block_size) {
    refuse_plan(fmt::format("slot {} goes on at {}, computed are {}", seq.slot, seq.first_position,
                            slot.computed.value_or(0)));
  }
  if (slot.sampled && *slot.sampled != seq.tokens.front()) {
    refuse_plan(
        fmt::format("slot {} sampled {} and goes on with {}", seq.slot, *slot.sampled, seq.tokens.front()));
  }
  write(seq, slot);
  slot.sampled.reset();
  return seq.rows == LogitRows::kLast ? sample(slot) : SeqResult{};
}

/// Writes the tokens into the blocks, and reads the whole sequence back into slot.tokens.
void FakeExecutor::write(const SeqStep& seq, Slot& slot) {
  const size_t end = seq.first_position + seq.tokens.size();
  if (slot.table.size() * config_.block_size < end) {
    refuse_plan(fmt::format("slot {}: {} blocks do not hold {} tokens", seq.slot, slot.table.size(), end));
  }
  slot.tokens.clear();
  for (size_t position = 0; position < end; ++position) {
    const BlockId block = slot.table[position / config_.block_size];
    TokenId& cell = cells_[size_t{block} * config_.block_size + position % config_.block_size];
    if (position >= seq.first_position) {
      if (holders_[block] != 1) {
        refuse_plan(
            fmt::format("slot {} writes to block {} that {} tables hold", seq.slot, block, holders_[block]));
      }
      cell = seq.tokens[position - seq.first_position];
      if (cell < 0 || static_cast<uint32_t>(cell) >= config_.vocab_size) {
        refuse_plan(fmt::format("slot {}: token {} of {}", seq.slot, cell, config_.vocab_size));
      }
    } else if (cell < 0) {
      refuse_plan(
          fmt::format("slot {}: nothing was written at position {}, block {}", seq.slot, position, block));
    }
    slot.tokens.push_back(cell);
    if (slot.sampling.has_penalties() && position < slot.history.size() && slot.history[position] != cell) {
      refuse_plan(fmt::format("slot {}: token {} at position {}, in its history {}", seq.slot, cell, position,
                              slot.history[position]));
    }
  }
  slot.computed = static_cast<uint32_t>(end);
}

SeqResult FakeExecutor::sample(Slot& slot) {
  if (slot.sampling.has_penalties() && slot.history.size() != slot.tokens.size()) {
    refuse_plan(
        fmt::format("{} tokens of history where {} are computed", slot.history.size(), slot.tokens.size()));
  }
  const TokenId token = config_.next(slot.tokens, slot.prompt_length, slot.sampling);
  SeqResult result;
  if (token < 0) {
    result.error = fmt::format("made to fail at position {}", slot.tokens.size());
    return result;
  }
  slot.sampled = token;
  if (slot.sampling.has_penalties()) slot.history.push_back(token);
  SampledToken sampled;
  sampled.token = token;
  if (slot.sampling.num_logprobs >= 0) {
    sampled.logprob = -0.5F;
    sampled.rank = 1;
    for (int32_t i = 0; i < slot.sampling.num_logprobs; ++i) {
      const auto id = static_cast<TokenId>(static_cast<uint32_t>(token + i) % config_.vocab_size);
      sampled.top.push_back({id, -0.5F - static_cast<float>(i)});
    }
  }
  result.tokens.push_back(std::move(sampled));
  return result;
}

}  // namespace quire::test
