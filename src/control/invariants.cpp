#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "control/scheduler.h"

// Scheduler::check_invariants: recomputes from the sequences what the other parts count as they go.
namespace quire {

std::string Scheduler::check_sequence(const Sequence& seq) const {
  const auto wrong = [&](const char* what) { return fmt::format("sequence {}: {}", seq.spec.id, what); };
  const uint32_t size = config_.block_size;
  const auto blocks = seq.table.blocks();
  if (seq.computed + seq.planned > seq.total()) return wrong("computes more tokens than it has");
  if (seq.computed == seq.total()) return wrong("has nothing left to compute");
  if (seq.total() - seq.prompt_length >= seq.spec.max_tokens) return wrong("has all its tokens but goes on");
  if (blocks.size() != (seq.computed + seq.planned + size - 1) / size) {
    return wrong("its table is not as long as its computed and planned tokens need");
  }
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const bool full = i < seq.computed / size;
    if (full && config_.enable_prefix_caching && !pool_.cache().contains(blocks[i])) {
      return wrong("a full block is not published");
    }
    if (!full && pool_.cache().contains(blocks[i])) return wrong("a published block is not full");
    if (!full && !pool_.writable(blocks[i])) return wrong("a block to write to is shared or published");
  }
  return {};
}

std::string Scheduler::check_invariants() const {
  if (std::string wrong = pool_.check_invariants(); !wrong.empty()) return wrong;

  std::vector<uint32_t> holders(pool_.size());
  std::vector<BlockId> chain;
  for (SlotId slot = 0; slot < by_slot_.size(); ++slot) {
    if (by_slot_[slot] != nullptr && by_slot_[slot]->slot != slot) {
      return fmt::format("slot {} holds a sequence of slot {}", slot, by_slot_[slot]->slot);
    }
  }
  for (const Sequence* seq : running_) {
    if (seq->slot == kNoSlot || by_slot_[seq->slot] != seq) {
      return fmt::format("sequence {} runs without a slot of its own", seq->spec.id);
    }
    if (seq->remaining() > 1 && seq->planned == 0 && seq != running_.back()) {
      return fmt::format("sequence {} is partly computed and not the last admitted", seq->spec.id);
    }
    if (std::string wrong = check_sequence(*seq); !wrong.empty()) return wrong;
    for (const BlockId block : seq->table.blocks()) ++holders[block];
    if (!config_.enable_prefix_caching) continue;
    // The index finds exactly its own blocks for what it has computed.
    const uint32_t full = seq->computed / config_.block_size;
    pool_.cache().match(std::span(seq->tokens).first(seq->computed), seq->spec.salt, chain);
    const auto own = seq->table.blocks().first(std::min<size_t>(chain.size(), full));
    if (chain.size() + 1 < full || !std::equal(own.begin(), own.end(), chain.begin())) {
      return fmt::format("sequence {}: its blocks are not one chain of the index", seq->spec.id);
    }
  }
  const Sequence* before = nullptr;
  for (const Sequence* seq : waiting_) {
    if (seq->slot != kNoSlot || seq->computed != 0 || seq->table.size() != 0) {
      return fmt::format("sequence {} waits and holds a slot or blocks", seq->spec.id);
    }
    if (before != nullptr && before->arrival >= seq->arrival) return "the queue is not in order of arrival";
    before = seq;
  }

  for (BlockId block = 0; block < pool_.size(); ++block) {
    if (holders[block] != pool_.references(block)) {
      return fmt::format("block {} is in {} tables but has {} references", block, holders[block],
                         pool_.references(block));
    }
  }
  if (running_.size() + waiting_.size() != sequences_.size()) {
    return fmt::format("{} sequences run and {} wait, but {} are known", running_.size(), waiting_.size(),
                       sequences_.size());
  }
  if (running_.size() + free_slots_.size() != by_slot_.size()) return "a slot is lost";
  return {};
}

}  // namespace quire
