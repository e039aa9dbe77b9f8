#include "sim/sim_executor.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rng.h"

namespace quire {
namespace {

[[noreturn]] void refuse(const char* part, const std::string& what) {
  throw Error(fmt::format("step plan: {}: {}", part, what));
}

/// By itself, so that the checks before it are small.
[[noreturn, gnu::noinline]] void refuse_slot(const char* part, SlotId slot, size_t num_slots) {
  refuse(part, slot < num_slots ? fmt::format("slot {} holds no sequence", slot)
                                : fmt::format("slot {} of {}", slot, num_slots));
}

/// Uniform in [0, bound).
uint32_t scale(uint64_t bits, size_t bound) { return static_cast<uint32_t>((bits >> 32) * bound >> 32); }

}  // namespace

SimExecutor::SimExecutor(const SchedulerConfig& scheduler, const CostModel& cost, SimTokens tokens)
    : num_blocks_(scheduler.num_blocks),
      num_host_blocks_(scheduler.num_host_blocks),
      block_size_(scheduler.block_size),
      max_model_len_(scheduler.max_model_len),
      windows_(scheduler.kv_windows),
      cost_(cost),
      tokens_(std::move(tokens)),
      slots_(scheduler.max_num_seqs) {
  cost_.check();
  if (tokens_.vocab_size == 0 || tokens_.vocab_size > INT32_MAX) {
    throw Error(fmt::format("simulated tokens: a vocabulary of {}", tokens_.vocab_size));
  }
  for (const TokenId token : tokens_.sayable) {
    if (token < 0 || static_cast<uint32_t>(token) >= tokens_.vocab_size) {
      throw Error(fmt::format("simulated tokens: {} of a vocabulary of {}", token, tokens_.vocab_size));
    }
  }
}

Ticket SimExecutor::submit(const StepPlan& plan) {
  if (pending_) refuse("submit", fmt::format("step {} comes before the last was waited for", plan.step));
  for (const SlotId slot : plan.removed) remove(slot);
  for (const NewSeq& seq : plan.added) add(seq);
  check_moves(plan.moves_out, "moves_out");
  check_moves(plan.moves_in, "moves_in");
  for (const BlockCopy& copy : plan.copies) {
    check_block(copy.from, "copies");
    check_block(copy.to, "copies");
  }
  for (const TableUpdate& one : plan.updates) update(one);

  prefill_tokens_ = decoding_ = 0;
  result_ = {};
  ++last_ticket_;
  result_.seqs.reserve(plan.seqs.size());
  for (const SeqStep& seq : plan.seqs) {
    Slot& slot = used_slot(seq.slot, "seqs");
    if (std::exchange(slot.stepped, last_ticket_) == last_ticket_)
      refuse("seqs", fmt::format("slot {} twice", seq.slot));
    advance(seq, slot);
    SeqResult& result = result_.seqs.emplace_back();
    if (seq.rows == LogitRows::kLast) say(plan.step, seq.slot, slot, result);
  }
  result_.times.compute =
      cost_.duration(prefill_tokens_, decoding_, plan.moves_out.size() + plan.moves_in.size());
  pending_ = true;
  return last_ticket_;
}

StepResult SimExecutor::wait(Ticket ticket) {
  if (!pending_ || ticket != last_ticket_) refuse("wait", fmt::format("no ticket {}", ticket));
  pending_ = false;
  return std::exchange(result_, {});
}

SimExecutor::Slot& SimExecutor::used_slot(SlotId slot, const char* part) {
  if (slot >= slots_.size() || !slots_[slot].used) refuse_slot(part, slot, slots_.size());
  return slots_[slot];
}

void SimExecutor::check_block(BlockId block, const char* part) const {
  if (block >= num_blocks_) refuse(part, fmt::format("block {} of {}", block, num_blocks_));
}

void SimExecutor::check_moves(const std::vector<BlockMove>& moves, const char* part) const {
  for (const BlockMove& move : moves) {
    check_block(move.device, part);
    if (move.host >= num_host_blocks_) {
      refuse(part, fmt::format("host block {} of {}", move.host, num_host_blocks_));
    }
  }
}

void SimExecutor::remove(SlotId slot) {
  used_slot(slot, "removed") = Slot();
  --slots_in_use_;
}

void SimExecutor::add(const NewSeq& seq) {
  constexpr const char* kPart = "added";
  if (seq.slot >= slots_.size()) refuse(kPart, fmt::format("slot {} of {}", seq.slot, slots_.size()));
  Slot& slot = slots_[seq.slot];
  if (slot.used) refuse(kPart, fmt::format("slot {} is taken", seq.slot));
  if (seq.prompt_length == 0 || seq.blocks.size() % windows_.size() != 0) {
    refuse(kPart, fmt::format("slot {}: a prompt of {} tokens, {} blocks for {} K/V groups", seq.slot,
                              seq.prompt_length, seq.blocks.size(), windows_.size()));
  }
  const size_t rows = seq.blocks.size() / windows_.size();
  for (size_t i = 0; i < seq.blocks.size(); ++i) {
    // A group may have moved its window on.
    if (seq.blocks[i] != kNoBlock || windows_[i / rows] == 0) check_block(seq.blocks[i], kPart);
  }
  slot.used = true;
  slot.sampling = seq.sampling;
  slot.key = keyed_random(tokens_.seed, seq.sampling.seed, seq.sampling.choice);
  slot.prompt_length = seq.prompt_length;
  slot.rows = static_cast<uint32_t>(rows);
  ++slots_in_use_;
}

void SimExecutor::update(const TableUpdate& update) {
  const Slot& slot = used_slot(update.slot, "updates");
  check_block(update.block, "updates");
  if (update.group >= windows_.size() || update.index >= slot.rows) {
    refuse("updates", fmt::format("slot {}: entry {} of {} in K/V group {} of {}", update.slot, update.index,
                                  slot.rows, update.group, windows_.size()));
  }
}

void SimExecutor::advance(const SeqStep& seq, Slot& slot) {
  constexpr const char* kPart = "seqs";
  const uint64_t before = slot.computed ? *slot.computed : uint64_t{slot.rows} * block_size_;
  if (slot.computed ? seq.first_position != before : seq.first_position > before) {
    refuse(kPart, fmt::format("slot {}: position {} where {} tokens are computed", seq.slot,
                              seq.first_position, before));
  }
  if (!seq.new_blocks.empty()) {
    for (const BlockId block : seq.new_blocks) check_block(block, kPart);
    if (seq.new_blocks.size() % windows_.size() != 0) {
      refuse(kPart, fmt::format("slot {}: {} blocks for {} K/V groups", seq.slot, seq.new_blocks.size(),
                                windows_.size()));
    }
    slot.rows += static_cast<uint32_t>(seq.new_blocks.size() / windows_.size());
  }
  const uint64_t end = uint64_t{seq.first_position} + seq.tokens.size();
  if (seq.tokens.empty() || end > uint64_t{slot.rows} * block_size_ || end > max_model_len_) {
    refuse(kPart, fmt::format("slot {}: {} tokens from position {} on, in {} blocks of {}, model length {}",
                              seq.slot, seq.tokens.size(), seq.first_position, slot.rows, block_size_,
                              max_model_len_));
  }
  for (const TokenId token : seq.tokens) {
    if (static_cast<uint32_t>(token) >= tokens_.vocab_size) {
      refuse(kPart, fmt::format("slot {}: token {} of {}", seq.slot, token, tokens_.vocab_size));
    }
  }
  if (slot.said && *slot.said != seq.tokens.front()) {
    refuse(kPart,
           fmt::format("slot {}: said {} and goes on with {}", seq.slot, *slot.said, seq.tokens.front()));
  }
  slot.said.reset();
  slot.computed = static_cast<uint32_t>(end);
  const bool decodes =
      seq.tokens.size() == 1 && seq.first_position >= slot.prompt_length && seq.rows == LogitRows::kLast;
  if (decodes) {
    ++decoding_;
  } else {
    prefill_tokens_ += seq.tokens.size();
  }
}

void SimExecutor::say(uint64_t step, SlotId id, Slot& slot, SeqResult& result) {
  const uint32_t position = *slot.computed;
  const size_t choices = tokens_.sayable.empty() ? tokens_.vocab_size : tokens_.sayable.size();
  const auto choice = [&](size_t i) {
    return tokens_.sayable.empty() ? static_cast<TokenId>(i) : tokens_.sayable[i];
  };
  const uint32_t drawn = scale(mix64(slot.key ^ position), choices);
  SampledToken& sampled = result.tokens.emplace_back();
  sampled.token =
      tokens_.next ? tokens_.next({step, id, slot.sampling, slot.prompt_length, position}) : choice(drawn);
  slot.said = sampled.token;
  if (slot.sampling.num_logprobs < 0) return;
  sampled.logprob = -0.5F;
  sampled.rank = 1;
  for (int32_t i = 0; i < slot.sampling.num_logprobs; ++i) {
    const TokenId token =
        i == 0 ? sampled.token : choice((size_t{drawn} + static_cast<uint32_t>(i)) % choices);
    sampled.top.push_back({token, -0.5F - static_cast<float>(i)});
  }
}

}  // namespace quire
