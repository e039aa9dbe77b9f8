#include "exec/slot_table.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

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

}  // namespace

SlotTable::SlotTable(Limits limits) : limits_(std::move(limits)), slots_(limits_.num_slots) {
  for (Slot& slot : slots_) slot.tables.resize(limits_.windows.size());
}

SlotTable::Slot& SlotTable::used_slot(SlotId slot, const char* part) {
  if (slot >= slots_.size() || !slots_[slot].used) refuse_slot(part, slot, slots_.size());
  return slots_[slot];
}

void SlotTable::check_block(BlockId block, const char* part) const {
  if (block >= limits_.num_blocks) refuse(part, fmt::format("block {} of {}", block, limits_.num_blocks));
}

void SlotTable::check_moves(const std::vector<BlockMove>& moves, const char* part) const {
  for (const BlockMove& move : moves) {
    check_block(move.device, part);
    if (move.host >= limits_.num_host_blocks) {
      refuse(part, fmt::format("host block {} of {}", move.host, limits_.num_host_blocks));
    }
  }
}

void SlotTable::check_token(SlotId slot, TokenId token, const char* part) const {
  if (token < 0 || static_cast<uint32_t>(token) >= limits_.vocab_size) {
    refuse(part, fmt::format("slot {}: token {} of {}", slot, token, limits_.vocab_size));
  }
}

void SlotTable::apply(const StepPlan& plan) {
  ++plans_;
  for (const SlotId slot : plan.removed) {
    used_slot(slot, "removed").used = false;
    --in_use_;
  }
  for (const NewSeq& seq : plan.added) add(seq);
  check_moves(plan.moves_out, "moves_out");
  check_moves(plan.moves_in, "moves_in");
  for (const BlockCopy& copy : plan.copies) {
    check_block(copy.from, "copies");
    check_block(copy.to, "copies");
  }
  for (const TableUpdate& one : plan.updates) update(one);
}

void SlotTable::add(const NewSeq& seq) {
  constexpr const char* kPart = "added";
  if (seq.slot >= slots_.size()) refuse_slot(kPart, seq.slot, slots_.size());
  Slot& slot = slots_[seq.slot];
  if (slot.used) refuse(kPart, fmt::format("slot {} is taken", seq.slot));
  if (seq.prompt_length == 0) refuse(kPart, fmt::format("slot {}: a prompt of 0 tokens", seq.slot));
  for (const TokenId token : seq.history) check_token(seq.slot, token, kPart);
  for (const auto& bias : seq.sampling.logit_bias) check_token(seq.slot, bias.first, kPart);
  if (seq.sampling.has_penalties() && (seq.history.empty() || seq.history.size() < seq.prompt_length)) {
    refuse(kPart, fmt::format("slot {}: penalties need the history: {} tokens, prompt of {}", seq.slot,
                              seq.history.size(), seq.prompt_length));
  }
  slot.used = true;
  slot.generation = seq.generation;
  slot.prompt_length = seq.prompt_length;
  slot.computed.reset();
  slot.sampled.reset();
  slot.samples = false;
  for (auto& table : slot.tables) table.clear();
  append(slot, seq.blocks, kPart, true);
  ++in_use_;
}

/// As many blocks to each group's table. `may_lack`: an entry behind its group's window may be kNoBlock.
void SlotTable::append(Slot& slot, std::span<const BlockId> blocks, const char* part, bool may_lack) {
  const size_t groups = limits_.windows.size();
  if (blocks.size() % groups != 0) {
    refuse(part, fmt::format("{} blocks for {} K/V groups", blocks.size(), groups));
  }
  const size_t rows = blocks.size() / groups;
  for (size_t group = 0; group < groups; ++group) {
    const bool windowed = limits_.windows[group] != 0;
    for (const BlockId block : blocks.subspan(group * rows, rows)) {
      if (block != kNoBlock || !may_lack || !windowed) check_block(block, part);
      slot.tables[group].push_back(block);
    }
  }
}

void SlotTable::update(const TableUpdate& update) {
  constexpr const char* kPart = "updates";
  Slot& slot = used_slot(update.slot, kPart);
  check_block(update.block, kPart);
  if (update.group >= slot.tables.size() || update.index >= slot.tables[update.group].size()) {
    refuse(kPart,
           fmt::format("slot {}: there is no entry {} of group {}", update.slot, update.index, update.group));
  }
  slot.tables[update.group][update.index] = update.block;
}

std::span<const TokenId> SlotTable::advance(const SeqStep& seq) {
  constexpr const char* kPart = "seqs";
  Slot& slot = used_slot(seq.slot, kPart);
  if (seq.generation != slot.generation) {
    refuse(kPart,
           fmt::format("slot {}: generation {} where {} runs", seq.slot, seq.generation, slot.generation));
  }
  if (std::exchange(slot.stepped, plans_) == plans_) refuse(kPart, fmt::format("slot {} twice", seq.slot));
  const size_t before =
      slot.computed ? *slot.computed : slot.tables.front().size() * size_t{limits_.block_size};
  if (slot.computed ? seq.first_position != before : seq.first_position > before) {
    refuse(kPart, fmt::format("slot {}: position {} where {} tokens are computed", seq.slot,
                              seq.first_position, before));
  }
  if (!seq.new_blocks.empty()) append(slot, seq.new_blocks, kPart, false);
  const size_t rows = slot.tables.front().size();
  const size_t end = seq.first_position + seq.tokens.size();
  if (seq.tokens.empty() || end > limits_.max_positions || end > rows * limits_.block_size) {
    refuse(kPart, fmt::format("slot {}: {} tokens from position {} on, in {} blocks of {}, model length {}",
                              seq.slot, seq.tokens.size(), seq.first_position, rows, limits_.block_size,
                              limits_.max_positions));
  }
  const std::optional<TokenId> sampled = std::exchange(slot.sampled, std::nullopt);
  slot.computed = static_cast<uint32_t>(end);
  if (seq.is_late()) {
    if (seq.tokens.size() != 1 || !slot.samples) {
      refuse(kPart, fmt::format("slot {}: a late token that no step samples", seq.slot));
    }
    slot.samples = seq.rows == LogitRows::kLast;
    late_ = sampled.value_or(kLateToken);
    return {&late_, sampled ? 1U : 0U};
  }
  slot.samples = seq.rows == LogitRows::kLast;
  for (const TokenId token : seq.tokens) check_token(seq.slot, token, kPart);
  if (sampled && *sampled != seq.tokens.front()) {
    refuse(kPart,
           fmt::format("slot {}: sampled {} and goes on with {}", seq.slot, *sampled, seq.tokens.front()));
  }
  return {seq.tokens.data(), seq.tokens.size()};
}

}  // namespace quire
