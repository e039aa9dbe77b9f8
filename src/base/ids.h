#pragma once

#include <cstdint>

namespace quire {

/// An index into the vocabulary. Signed, as in tokenizer files and in the API; never negative inside quire,
/// except for kLateToken.
using TokenId = int32_t;

/// A block of the device pool: [0, num_blocks).
using BlockId = uint32_t;

/// A batch slot: [0, max_num_seqs). An executor keeps its per-sequence state under it.
using SlotId = uint32_t;

/// One sequence (one choice of one request), numbered by the engine in order of arrival; numbers are never
/// reused.
using SeqId = uint64_t;
inline constexpr SeqId kNoSeq = UINT64_MAX;

/// One client request (n choices, so n sequences), numbered by the engine; numbers are never reused.
using RequestId = uint64_t;

/// Nanoseconds on the engine's clock: wall time in service, virtual time in simulation.
using Nanos = int64_t;

inline constexpr BlockId kNoBlock = UINT32_MAX;
inline constexpr SlotId kNoSlot = UINT32_MAX;

}  // namespace quire
