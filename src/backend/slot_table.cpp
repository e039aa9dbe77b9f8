#include "backend/slot_table.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::backend {
namespace {

[[noreturn]] void refuse(const char* part, const std::string& what) {
  throw Error(fmt::format("step plan: {}: {}", part, what));
}

// Refusals are by themselves, so that the checks before them are small.

[[noreturn, gnu::noinline]] void refuse_slot(const char* part, SlotId slot, size_t num_slots) {
  refuse(part, slot < num_slots ? fmt::format("slot {} holds no sequence", slot)
                                : fmt::format("slot {} of {}", slot, num_slots));
}

[[noreturn, gnu::noinline]] void refuse_token(const char* part, SlotId slot, TokenId token,
                                              uint32_t vocab_size) {
  refuse(part, fmt::format("slot {}: token {} of {}", slot, token, vocab_size));
}

[[noreturn, gnu::noinline]] void refuse_tokens(const control::SeqStep& seq, TokenId sampled) {
  refuse("seqs", seq.is_late() ? fmt::format("slot {}: a late token that no step samples", seq.slot)
                               : fmt::format("slot {}: sampled {} and goes on with {}", seq.slot, sampled,
                                             seq.tokens.front()));
}

}  // namespace

SlotTable::SlotTable(Limits limits)
    : limits_(std::move(limits)), slots_(limits_.num_slots), wants_(limits_.num_slots) {
  for (Slot& slot : slots_) slot.tables.resize(limits_.windows.size());
}

SlotTable::Slot& SlotTable::used_slot(SlotId slot, const char* part) {
  if (slot >= slots_.size() || !slots_[slot].used) refuse_slot(part, slot, slots_.size());
  return slots_[slot];
}

void SlotTable::check_block(BlockId block, const char* part) const {
  if (block >= limits_.num_blocks) refuse(part, fmt::format("block {} of {}", block, limits_.num_blocks));
}

void SlotTable::check_moves(const std::vector<control::BlockMove>& moves, const char* part) const {
  for (const control::BlockMove& move : moves) {
    check_block(move.device, part);
    if (move.host >= limits_.num_host_blocks) {
      refuse(part, fmt::format("host block {} of {}", move.host, limits_.num_host_blocks));
    }
  }
}

void SlotTable::check_token(SlotId slot, TokenId token, const char* part) const {
  if (token < 0 || static_cast<uint32_t>(token) >= limits_.vocab_size) {
    refuse_token(part, slot, token, limits_.vocab_size);
  }
}

void SlotTable::refuse_start(const control::SeqStep& seq, const Slot& slot) const {
  if (seq.generation != slot.generation) {
    refuse("seqs",
           fmt::format("slot {}: generation {} where {} runs", seq.slot, seq.generation, slot.generation));
  }
  if (slot.stepped == plans_) refuse("seqs", fmt::format("slot {} twice", seq.slot));
  const uint64_t computed =
      slot.computed == kUnknown ? slot.rows * uint64_t{limits_.block_size} : uint64_t{slot.computed};
  refuse("seqs", fmt::format("slot {}: position {} where {} tokens are computed", seq.slot,
                             seq.first_position, computed));
}

void SlotTable::refuse_length(const control::SeqStep& seq, const Slot& slot) const {
  refuse("seqs", fmt::format("slot {}: {} tokens from position {} on, in {} blocks of {}, model length {}",
                             seq.slot, seq.tokens.size(), seq.first_position, slot.rows, limits_.block_size,
                             limits_.max_positions));
}

void SlotTable::apply(const control::StepPlan& plan) {
  ++plans_;
  for (const SlotId slot : plan.removed) {
    used_slot(slot, "removed").used = false;
    --in_use_;
  }
  for (const control::NewSeq& seq : plan.added) add(seq);
  check_moves(plan.moves_out, "moves_out");
  check_moves(plan.moves_in, "moves_in");
  for (const control::BlockCopy& copy : plan.copies) {
    check_block(copy.from, "copies");
    check_block(copy.to, "copies");
  }
  for (const control::TableUpdate& one : plan.updates) update(one);
  uint32_t next = 0;
  for (const control::PromptStep& part : plan.prompts) {
    check_prompt(plan, part, next);
    next = part.seq + 1;
  }
}

void SlotTable::check_prompt(const control::StepPlan& plan, const control::PromptStep& part,
                             uint32_t first_seq) {
  constexpr const char* kPart = "prompts";
  if (part.seq < first_seq || part.seq >= plan.seqs.size()) {
    refuse(kPart, fmt::format("sequence {} of {} where {} or a later one is due", part.seq, plan.seqs.size(),
                              first_seq));
  }
  const control::SeqStep& seq = plan.seqs[part.seq];
  const Slot& slot = used_slot(seq.slot, kPart);
  const uint64_t end = uint64_t{seq.first_position} + seq.tokens.size();
  const bool has_rows = part.first_row < part.end_row;
  if (part.first_row > part.end_row ||
      (has_rows && (part.first_row < seq.first_position || part.end_row > end ||
                    part.end_row >= slot.prompt_length || wants(seq.slot).logprobs < 0))) {
    refuse(kPart, fmt::format("slot {}: rows {} to {} of a prompt of {} in a chunk from {} to {}", seq.slot,
                              part.first_row, part.end_row, slot.prompt_length, seq.first_position, end));
  }
  if (part.last != (end == slot.prompt_length)) {
    refuse(kPart, fmt::format("slot {}: {} of {} tokens are {}the whole prompt", seq.slot, end,
                              slot.prompt_length, part.last ? "not " : ""));
  }
  if (seq.is_late()) refuse(kPart, fmt::format("slot {}: a late token in a prompt", seq.slot));
  if (has_rows) check_token(seq.slot, part.next, kPart);
}

void SlotTable::check_sampling(const control::NewSeq& seq) const {
  constexpr const char* kPart = "added";
  const SamplingParams& sampling = seq.sampling;
  for (const TokenId token : seq.history) check_token(seq.slot, token, kPart);
  for (const auto& bias : sampling.logit_bias) check_token(seq.slot, bias.first, kPart);
  for (const TokenId token : sampling.end_tokens) check_token(seq.slot, token, kPart);
  for (const TokenId token : sampling.allowed_tokens) check_token(seq.slot, token, kPart);
  for (const TokenId token : sampling.logprob_tokens) check_token(seq.slot, token, kPart);
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    if (word.empty()) refuse(kPart, fmt::format("slot {}: a bad word without a token", seq.slot));
    for (const TokenId token : word) check_token(seq.slot, token, kPart);
  }
  if (sampling.needs_history() && (seq.history.empty() || seq.history.size() < seq.prompt_length)) {
    refuse(kPart, fmt::format("slot {}: penalties and bad words need the history: {} tokens, prompt of {}",
                              seq.slot, seq.history.size(), seq.prompt_length));
  }
}

void SlotTable::add(const control::NewSeq& seq) {
  constexpr const char* kPart = "added";
  if (seq.slot >= slots_.size()) refuse_slot(kPart, seq.slot, slots_.size());
  Slot& slot = slots_[seq.slot];
  if (slot.used) refuse(kPart, fmt::format("slot {} is taken", seq.slot));
  if (seq.prompt_length == 0) refuse(kPart, fmt::format("slot {}: a prompt of 0 tokens", seq.slot));
  if (seq.wants.pooling == Pooling::kMean && !seq.blocks.empty()) {
    refuse(kPart, fmt::format("slot {}: the mean over a prompt of which {} blocks are computed", seq.slot,
                              seq.blocks.size()));
  }
  check_sampling(seq);
  slot.used = true;
  slot.generation = seq.generation;
  slot.prompt_length = seq.prompt_length;
  wants_[seq.slot] = seq.wants;
  slot.computed = kUnknown;
  slot.sampled = control::kLateToken;
  slot.samples = false;
  slot.rows = 0;
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
  slot.rows += static_cast<uint32_t>(rows);
}

void SlotTable::update(const control::TableUpdate& update) {
  constexpr const char* kPart = "updates";
  Slot& slot = used_slot(update.slot, kPart);
  check_block(update.block, kPart);
  if (update.group >= slot.tables.size() || update.index >= slot.tables[update.group].size()) {
    refuse(kPart,
           fmt::format("slot {}: there is no entry {} of group {}", update.slot, update.index, update.group));
  }
  slot.tables[update.group][update.index] = update.block;
}

std::span<const TokenId> SlotTable::advance(const control::SeqStep& seq) {
  Slot& slot = used_slot(seq.slot, "seqs");
  const uint32_t computed = slot.computed;
  const bool goes_on = computed == kUnknown ? seq.first_position <= slot.rows * uint64_t{limits_.block_size}
                                            : seq.first_position == computed;
  if (seq.generation != slot.generation || slot.stepped == plans_ || !goes_on) refuse_start(seq, slot);
  slot.stepped = plans_;
  if (!seq.new_blocks.empty()) append(slot, seq.new_blocks, "seqs", false);
  const size_t end = seq.first_position + seq.tokens.size();
  if (seq.tokens.empty() || end > limits_.max_positions || end > slot.rows * uint64_t{limits_.block_size}) {
    refuse_length(seq, slot);
  }
  slot.computed = static_cast<uint32_t>(end);
  const TokenId sampled = std::exchange(slot.sampled, control::kLateToken);
  const bool samples = std::exchange(slot.samples, seq.rows == control::LogitRows::kLast);
  if (seq.is_late()) {
    if (seq.tokens.size() != 1 || !samples) refuse_tokens(seq, sampled);
    late_ = sampled;
    return {&late_, sampled != control::kLateToken ? 1U : 0U};
  }
  for (const TokenId token : seq.tokens) check_token(seq.slot, token, "seqs");
  if (sampled != control::kLateToken && sampled != seq.tokens.front()) refuse_tokens(seq, sampled);
  return {seq.tokens.data(), seq.tokens.size()};
}

}  // namespace quire::backend
