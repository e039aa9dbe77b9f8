#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/kv_groups.h"

namespace quire::decoder {

/// One sequence's part of a batch.
struct BatchSeq {
  uint32_t num_tokens = 0;
  uint32_t first_position = 0;
  /// One per K/V group (model::KvGroups), each with the entries for [0, first_position + num_tokens). Entries
  /// behind a group's window are not read.
  std::span<const std::vector<BlockId>> block_tables;
  uint32_t logit_rows = 0;  // how many tokens, counted from the last, give logits (for callers)
};

/// The tokens of a step, those of seqs[0], then of seqs[1], ... A token's row is its place among them.
struct Batch {
  std::span<const TokenId> tokens;
  std::span<const uint32_t> positions;  // of each token in its sequence
  std::span<const BatchSeq> seqs;
};

/// The K/V memory that block tables refer to.
struct KvPool {
  const model::KvGroups& groups;
  uint32_t num_blocks = 0;
  uint32_t block_size = 0;  // tokens
};

}  // namespace quire::decoder
