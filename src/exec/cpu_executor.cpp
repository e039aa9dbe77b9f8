#include "exec/cpu_executor.h"

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace quire {
namespace {

[[noreturn]] void refuse(std::string_view part, const std::string& what) {
  throw Error(fmt::format("step plan: {}: {}", part, what));
}

Nanos since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

CpuExecutor::CpuExecutor(Decoder& decoder, KvCache& cache, KernelContext& context, uint32_t max_slots,
                         KvCache* host)
    : decoder_(decoder),
      cache_(cache),
      context_(context),
      host_(host),
      vocab_size_(decoder.config().vocab_size),
      max_positions_(decoder.config().max_positions),
      slots_(max_slots) {
  for (uint32_t i = 0; i < context.pool.num_threads(); ++i) workspaces_.emplace_back(vocab_size_);
  seqs_.reserve(max_slots);
  rows_.reserve(max_slots);
}

Ticket CpuExecutor::submit(const StepPlan& plan) {
  if (pending_) refuse("submit", fmt::format("step {} comes before the last was waited for", plan.step));
  const auto start = std::chrono::steady_clock::now();
  apply_changes(plan);
  gather(plan);
  result_.seqs.resize(plan.seqs.size());
  std::span<const float> logits;
  if (!seqs_.empty()) logits = decoder_.forward(context_, cache_, tokens_, seqs_);
  result_.times.compute = since(start);
  const auto sampling = std::chrono::steady_clock::now();
  sample(logits);
  result_.times.sample = since(sampling);
  pending_ = true;
  return ++last_ticket_;
}

StepResult CpuExecutor::wait(Ticket ticket) {
  if (!pending_ || ticket != last_ticket_) refuse("wait", fmt::format("no ticket {}", ticket));
  pending_ = false;
  return std::exchange(result_, {});
}

CpuExecutor::Slot& CpuExecutor::used_slot(SlotId slot, std::string_view part) {
  if (slot >= slots_.size()) refuse(part, fmt::format("slot {} of {}", slot, slots_.size()));
  if (!slots_[slot].used) refuse(part, fmt::format("slot {} holds no sequence", slot));
  return slots_[slot];
}

void CpuExecutor::check_block(BlockId block, std::string_view part) const {
  if (block >= cache_.num_blocks()) refuse(part, fmt::format("block {} of {}", block, cache_.num_blocks()));
}

void CpuExecutor::check_move(const BlockMove& move, std::string_view part) const {
  check_block(move.device, part);
  const uint32_t num_host_blocks = host_ == nullptr ? 0 : host_->num_blocks();
  if (move.host >= num_host_blocks)
    refuse(part, fmt::format("host block {} of {}", move.host, num_host_blocks));
}

void CpuExecutor::apply_changes(const StepPlan& plan) {
  for (const SlotId slot : plan.removed) used_slot(slot, "removed").used = false;
  for (const NewSeq& seq : plan.added) add(seq);
  for (const BlockMove& move : plan.moves_out) {
    check_move(move, "moves_out");
    host_->copy_block(cache_, move.device, move.host);
  }
  for (const BlockMove& move : plan.moves_in) {
    check_move(move, "moves_in");
    cache_.copy_block(*host_, move.host, move.device);
  }
  for (const BlockCopy& copy : plan.copies) {
    check_block(copy.from, "copies");
    check_block(copy.to, "copies");
    cache_.copy_block(cache_, copy.from, copy.to);
  }
  for (const TableUpdate& update : plan.updates) {
    Slot& slot = used_slot(update.slot, "updates");
    check_block(update.block, "updates");
    if (update.group >= cache_.num_groups() || update.index >= slot.tables[update.group].size()) {
      refuse("updates", fmt::format("slot {}: there is no entry {} of group {}", update.slot, update.index,
                                    update.group));
    }
    slot.tables[update.group][update.index] = update.block;
  }
}

/// As many blocks to each group's table. `may_lack`: an entry behind its group's window may be kNoBlock.
void CpuExecutor::append(Slot& slot, std::span<const BlockId> blocks, std::string_view part, bool may_lack) {
  const uint32_t groups = cache_.num_groups();
  if (blocks.size() % groups != 0) {
    refuse(part, fmt::format("{} blocks for {} K/V groups", blocks.size(), groups));
  }
  const size_t rows = blocks.size() / groups;
  for (uint32_t group = 0; group < groups; ++group) {
    const bool windowed = cache_.groups().windows[group] != 0;
    for (const BlockId block : blocks.subspan(group * rows, rows)) {
      if (block != kNoBlock || !may_lack || !windowed) check_block(block, part);
      slot.tables[group].push_back(block);
    }
  }
}

void CpuExecutor::add(const NewSeq& seq) {
  constexpr std::string_view kPart = "added";
  if (seq.slot >= slots_.size()) refuse(kPart, fmt::format("slot {} of {}", seq.slot, slots_.size()));
  Slot& slot = slots_[seq.slot];
  if (slot.used) refuse(kPart, fmt::format("slot {} is taken", seq.slot));
  const auto check_token = [&](TokenId token) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size_) {
      refuse(kPart, fmt::format("slot {}: token {} of {}", seq.slot, token, vocab_size_));
    }
  };
  for (const TokenId token : seq.history) check_token(token);
  for (const auto& bias : seq.sampling.logit_bias) check_token(bias.first);
  if (seq.sampling.has_penalties() && (seq.history.empty() || seq.history.size() < seq.prompt_length)) {
    refuse(kPart, fmt::format("slot {}: penalties need the history: {} tokens, prompt of {}", seq.slot,
                              seq.history.size(), seq.prompt_length));
  }
  slot.used = true;
  slot.stepped = false;
  slot.computed.reset();
  slot.tables.resize(cache_.num_groups());
  for (auto& table : slot.tables) table.clear();
  append(slot, seq.blocks, kPart, true);
  slot.sampler.reset(seq.sampling, seq.history, seq.prompt_length);
}

void CpuExecutor::gather(const StepPlan& plan) {
  constexpr std::string_view kPart = "seqs";
  tokens_.clear();
  seqs_.clear();
  rows_.clear();
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const SeqStep& seq = plan.seqs[i];
    Slot& slot = used_slot(seq.slot, kPart);
    if (slot.stepped) refuse(kPart, fmt::format("slot {} twice", seq.slot));
    slot.stepped = true;
    advance(seq, slot);
    const bool sampled = seq.rows == LogitRows::kLast;
    if (sampled) rows_.push_back({static_cast<uint32_t>(i), seq.slot, *slot.computed});
    tokens_.insert(tokens_.end(), seq.tokens.begin(), seq.tokens.end());
    seqs_.push_back({.num_tokens = static_cast<uint32_t>(seq.tokens.size()),
                     .first_position = seq.first_position,
                     .block_tables = slot.tables,
                     .logit_rows = sampled ? 1U : 0U});
  }
  for (const SeqStep& seq : plan.seqs) slots_[seq.slot].stepped = false;
}

/// Checks the tokens against what the slot holds, and takes in the new blocks.
void CpuExecutor::advance(const SeqStep& seq, Slot& slot) {
  constexpr std::string_view kPart = "seqs";
  const size_t shared = slot.tables.front().size() * cache_.block_size();
  if (slot.computed ? seq.first_position != *slot.computed : seq.first_position > shared) {
    refuse(kPart, fmt::format("slot {}: position {} where {} tokens are computed", seq.slot,
                              seq.first_position, slot.computed ? size_t{*slot.computed} : shared));
  }
  append(slot, seq.new_blocks, kPart, false);
  const size_t rows = slot.tables.front().size();
  const size_t end = seq.first_position + seq.tokens.size();
  if (seq.tokens.empty() || end > max_positions_ || end > rows * cache_.block_size()) {
    refuse(kPart, fmt::format("slot {}: {} tokens from position {} on, in {} blocks of {}, model length {}",
                              seq.slot, seq.tokens.size(), seq.first_position, rows, cache_.block_size(),
                              max_positions_));
  }
  for (const TokenId token : seq.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size_) {
      refuse(kPart, fmt::format("slot {}: token {} of {}", seq.slot, token, vocab_size_));
    }
  }
  slot.computed = static_cast<uint32_t>(end);
}

void CpuExecutor::sample(std::span<const float> logits) {
  // Room for the results first: the threads allocate nothing.
  for (const Row& row : rows_) {
    result_.seqs[row.seq].tokens.resize(1);
    const int32_t num_logprobs = slots_[row.slot].sampler.params().num_logprobs;
    if (num_logprobs > 0) result_.seqs[row.seq].tokens[0].top.reserve(static_cast<size_t>(num_logprobs));
  }
  context_.pool.parallel_for(rows_.size(), 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t i = begin; i < end; ++i) {
      SeqResult& result = result_.seqs[rows_[i].seq];
      result.error =
          slots_[rows_[i].slot].sampler.sample(logits.subspan(i * vocab_size_, vocab_size_),
                                               rows_[i].position, workspaces_[thread], result.tokens[0]);
      if (!result.error.empty()) result.tokens.clear();
    }
  });
}

}  // namespace quire
