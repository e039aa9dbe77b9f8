#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "control/kv/windows.h"
#include "control/scheduler.h"

// Scheduler::check_invariants: recomputes from the sequences what the other parts count incrementally.
namespace quire::control {

std::string Scheduler::check_sequence(const Sequence& seq) const {
  const auto wrong = [&](const char* what) { return fmt::format("sequence {}: {}", seq.spec.id, what); };
  const uint32_t size = config_.block_size;
  const PrefixCache& cache = pool_.cache();
  if (seq.slot == kNoSlot || by_slot_[seq.slot] != &seq) return wrong("runs without a slot of its own");
  if (seq.remaining() > 1 && &seq != running_.back()) return wrong("partly computed, not the last admitted");
  if (seq.next() > seq.total() + seq.pending) return wrong("computes more tokens than it has");
  if (seq.computed == seq.total()) return wrong("has nothing left to compute");
  if (seq.awaits() && seq.planned == 0) return wrong("awaits a token that no open step computes");
  if (open_.empty() && seq.planned > 0) return wrong("has planned tokens, but no step is open");
  if (seq.total() >= seq.longest) return wrong("has all its tokens but goes on");
  if (seq.table.size() != (seq.next() + size - 1) / size) {
    return wrong("its table is not as long as its computed and planned tokens");
  }
  const uint32_t num_full = seq.computed / size;
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    const auto blocks = seq.table.blocks(group);
    const uint32_t window = config_.kv_windows[group];
    const uint32_t needed = first_block(window, seq.next(), size);
    const uint32_t kept = seq.computed == 0 ? 0 : first_block(window, seq.computed - 1, size);
    for (uint32_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] == kNoBlock) {
        if (i >= needed) return wrong("a block that it reads was given back");
        continue;
      }
      if (i < kept) return wrong("a block behind its window was kept");
      const bool full = i < num_full;
      if (full && config_.enable_prefix_caching && !cache.contains(blocks[i])) {
        return wrong("a full block is not published");
      }
      if (!full && cache.contains(blocks[i])) return wrong("a published block is not full");
      if (!full && !pool_.writable(blocks[i])) return wrong("a block to write to is shared or published");
    }
  }
  if (!config_.enable_prefix_caching) return {};
  // Its published blocks are those of one chain of the index, which spells its tokens.
  NodeId node = seq.table.node();
  if (!cache.spells(node, std::span(seq.tokens).first(size_t{num_full} * size), seq.spec.salt)) {
    return wrong("the index does not know it by its tokens");
  }
  for (uint32_t i = num_full; i > 0; --i) {
    if (cache.ancestor(node, i) != node) return wrong("its chain has a wrong length");
    for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
      const BlockId own = seq.table.blocks(group)[i - 1];
      if (own != kNoBlock && cache.block(node, group) != own) return wrong("its blocks are not of its chain");
    }
    node = cache.ancestor(node, i - 1);
  }
  return {};
}

/// Checks that references and pins are those of the tables.
std::string Scheduler::check_holders() const {
  std::vector<uint32_t> holders(pool_.size());
  std::map<NodeId, uint32_t> pins;
  for (const Sequence* seq : running_) {
    for (uint32_t group = 0; group < seq->table.num_groups(); ++group) {
      for (const BlockId block : seq->table.blocks(group)) {
        if (block != kNoBlock) ++holders[block];
      }
    }
    if (seq->table.node() != kNoNode) ++pins[seq->table.node()];
  }
  for (BlockId block = 0; block < pool_.size(); ++block) {
    if (holders[block] != pool_.references(block)) {
      return fmt::format("block {} is in {} tables but has {} references", block, holders[block],
                         pool_.references(block));
    }
  }
  uint64_t pinned = 0;
  for (const auto& [node, count] : pins) {
    pinned += count;
    if (pool_.cache().pins(node) != count) return fmt::format("node {} has a wrong number of pins", node);
  }
  if (pinned != pool_.cache().num_pins()) return "a node is pinned, but by no sequence";
  return {};
}

std::string Scheduler::check_invariants() const {
  if (std::string wrong = pool_.check_invariants(); !wrong.empty()) return wrong;
  for (SlotId slot = 0; slot < by_slot_.size(); ++slot) {
    if (by_slot_[slot] != nullptr && by_slot_[slot]->slot != slot) {
      return fmt::format("slot {} holds a sequence of slot {}", slot, by_slot_[slot]->slot);
    }
  }
  for (const Sequence* seq : running_) {
    if (std::string wrong = check_sequence(*seq); !wrong.empty()) return wrong;
  }
  const Sequence* before = nullptr;
  size_t host_blocks = free_host_blocks_.size();
  uint64_t wanted = 0;
  for (const Sequence* seq : waiting_) {
    const auto wrong = [&](const char* what) { return fmt::format("sequence {} {}", seq->spec.id, what); };
    wanted += (seq->total() - 1) / config_.block_size;
    const bool holds = seq->slot != kNoSlot || seq->computed != 0 || seq->table.size() != 0;
    if (holds) return wrong("waits and holds a slot or blocks");
    if (before != nullptr && before->arrival >= seq->arrival) return "the queue is not in order of arrival";
    before = seq;
    if (seq->swapped >= seq->total() + seq->pending) return wrong("swapped more than it has");
    host_blocks += seq->host.size() - static_cast<size_t>(std::ranges::count(seq->host, kNoBlock));
  }
  if (host_blocks != config_.num_host_blocks) return "a host block is lost";
  if (wanted != pool_.cache().num_wanted()) return "the eviction policy knows another queue";

  if (std::string wrong = check_holders(); !wrong.empty()) return wrong;
  if (running_.size() + waiting_.size() != sequences_.size()) {
    return fmt::format("{} sequences run and {} wait, but {} are known", running_.size(), waiting_.size(),
                       sequences_.size());
  }
  if (running_.size() + free_slots_.size() != by_slot_.size()) return "a slot is lost";
  return {};
}

}  // namespace quire::control
