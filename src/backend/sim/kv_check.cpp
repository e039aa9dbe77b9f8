#include "backend/sim/kv_check.h"

#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"

namespace quire::backend::sim {
namespace {

/// `limits`, unless their K/V would take too much.
KvCheck::Limits bounded(KvCheck::Limits limits) {
  const uint64_t blocks = uint64_t{limits.num_blocks} + limits.num_host_blocks;
  const uint64_t bytes = blocks * limits.block_size * sizeof(SyntheticKv::Place);
  if (bytes <= KvCheck::kMostBytes) return limits;
  throw Error(
      fmt::format("--check-kv: to remember what {} blocks hold takes {}, more than {}; give fewer "
                  "--num-blocks, or less --swap-space",
                  with_commas(blocks), human_bytes(bytes), human_bytes(KvCheck::kMostBytes)));
}

std::string text_of(const SyntheticKv::Place& place) {
  if (place.position == UINT32_MAX) return "nothing";
  return fmt::format("{:016x}, of a position {}", place.content, place.position);
}

}  // namespace

KvCheck::KvCheck(Limits limits)
    : limits_(bounded(std::move(limits))),
      kv_(limits_.num_blocks, limits_.block_size, limits_.num_host_blocks),
      sequences_(limits_.num_slots) {}

void KvCheck::fail(SlotId slot, const std::string& what) const {
  const Sequence& of = sequences_[slot];
  throw Error(
      fmt::format("K/V check: step {}: the sequence in slot {} (generation {}, seed {}, choice {}): {}",
                  step_, slot, of.generation, of.name, of.choice, what));
}

void KvCheck::begin(const control::StepPlan& plan) {
  step_ = plan.step;
  for (const control::NewSeq& added : plan.added) {
    Sequence& of = sequences_[added.slot];
    of = {.name = added.sampling.seed, .choice = added.sampling.choice, .generation = added.generation};
    uint64_t content = SyntheticKv::root(0);
    for (const TokenId token : added.history) {
      of.contents.push_back(content = SyntheticKv::extend(content, token));
    }
    if (added.history.empty() && !added.blocks.empty()) {
      fail(added.slot, "it begins with blocks of others, and its tokens are not told");
    }
  }
  if (const std::string wrong = kv_.move_and_copy(plan); !wrong.empty()) {
    throw Error(fmt::format("K/V check: step {}: {}", step_, wrong));
  }
}

void KvCheck::write(const control::SeqStep& seq, std::span<const TokenId> tokens, const SlotTable& slots) {
  Sequence& of = sequences_[seq.slot];
  if (seq.first_position > of.contents.size()) {
    fail(seq.slot, fmt::format("it computes position {}, and {} tokens of it are known", seq.first_position,
                               of.contents.size()));
  }
  uint64_t content = seq.first_position == 0 ? SyntheticKv::root(0) : of.contents[seq.first_position - 1];
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    const uint32_t position = seq.first_position + i;
    content = SyntheticKv::extend(content, tokens[i]);
    if (position == of.contents.size()) of.contents.push_back(content);
    if (of.contents[position] != content) {
      fail(seq.slot,
           fmt::format("it computes token {} at position {}, which is not its own", tokens[i], position));
    }
    const auto& tables = slots.tables(seq.slot);
    for (uint32_t group = 0; group < tables.size(); ++group) {
      const BlockId block = tables[group].at(position / limits_.block_size);
      kv_.at(block, position) = {position, SyntheticKv::in_group(content, group)};
    }
  }
  of.written = seq.first_position + static_cast<uint32_t>(tokens.size());
}

void KvCheck::read_back(const control::StepPlan& plan, const SlotTable& slots) {
  for (const control::SeqStep& seq : plan.seqs) {
    const auto& tables = slots.tables(seq.slot);
    for (uint32_t group = 0; group < tables.size(); ++group) {
      const uint32_t window = limits_.windows[group];
      const bool sees_all = window == 0 || seq.first_position < window;
      read_group(seq.slot, group, sees_all ? 0 : seq.first_position - window + 1, tables[group]);
    }
  }
}

/// From the position `first` on.
void KvCheck::read_group(SlotId slot, uint32_t group, uint32_t first, const std::vector<BlockId>& table) {
  const Sequence& of = sequences_[slot];
  for (uint32_t position = first; position < of.written; ++position) {
    const BlockId block = table.at(position / limits_.block_size);
    const SyntheticKv::Place expected{position, SyntheticKv::in_group(of.contents[position], group)};
    if (!kv_.has(block)) {
      fail(slot, fmt::format("position {} of K/V group {} is in no block: expected {}", position, group,
                             text_of(expected)));
    }
    const SyntheticKv::Place& found = kv_.at(block, position);
    if (found == expected) continue;
    fail(slot, fmt::format("position {} of K/V group {} is not in block {}: expected {}, found {}", position,
                           group, block, text_of(expected), text_of(found)));
  }
}

}  // namespace quire::backend::sim
