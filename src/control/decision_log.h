#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/rng.h"
#include "control/cause.h"

// Why the control plane did what it did, as it happens.
namespace quire::control {

enum class DecisionKind : uint8_t {
  kAdd,       // a: prompt tokens, b: most to generate
  kAdmit,     // a: slot, b: tokens that have K/V already
  kHit,       // a: tokens found in the prefix index, b: of so many
  kSkip,      // a: WaitReason, b: blocks it needs (kBlocks). Written only when the reason changes
  kChunk,     // a: first position, b: number of tokens computed in this step
  kAllocate,  // a: block
  kShare,     // a: block, one more holder
  kRelease,   // a: block, one holder less
  kEvict,     // a: block, its cached contents are forgotten
  kCopy,      // a: from, b: to (copy-on-write)
  kPreempt,   // a: tokens whose K/V it gives up, b: how often it has been preempted now
  kSwapOut,   // a: blocks moved to the host
  kSwapIn,    // a: blocks moved back
  kFinish,    // a: FinishReason
};

/// Why a sequence that waits was not admitted.
enum class WaitReason : uint8_t {
  kNone,
  kSlots,    // max_num_seqs run
  kBudget,   // the step has no tokens left
  kBlocks,   // not enough blocks for it
  kOrder,    // another comes first and could not be admitted
  kParent,   // a fork whose parent has not computed the prompt
  kPreempt,  // this step preempted: nobody comes in
  kBatch,    // static batching: the batch must end first
  kToken,    // who is first was preempted, and an open step samples a token for it
};

/// One decision. For whom is in `seq`; kNoSeq where it concerns no sequence.
struct Decision {
  uint64_t step = 0;
  SeqId seq = 0;
  uint32_t a = 0;
  uint32_t b = 0;
  DecisionKind kind = DecisionKind::kAdd;
};

/// Takes decisions in order; called by whoever drives the scheduler, in its thread.
class DecisionSink {
 public:
  virtual ~DecisionSink() = default;
  virtual void take(const Decision& decision) = 0;
};

/// Numbers the decisions of one control plane into a digest, and hands them on if somebody listens. Two runs
/// with one digest decided the same. Causes are handed on as they are: they are no part of the digest.
class DecisionLog {
 public:
  void listen(DecisionSink* sink, CauseSink* causes) {
    sink_ = sink;
    causes_ = causes;
  }
  /// What follows belongs to this step, and to this sequence.
  void at_step(uint64_t step) { step_ = step; }
  void of(SeqId seq) { seq_ = seq; }
  void write(DecisionKind kind, uint32_t a = 0, uint32_t b = 0) {
    digest_ =
        mix64(digest_ ^ (uint64_t{a} << 32 | b)) + (step_ << 8 ^ seq_ << 20 ^ static_cast<uint64_t>(kind));
    if (sink_ != nullptr) sink_->take({step_, seq_, a, b, kind});
  }
  uint64_t digest() const { return digest_; }

  /// Whether causes are wanted; what takes work to find is told only then.
  bool wants_causes() const { return causes_ != nullptr; }
  void because(const Cause& cause) {
    if (causes_ != nullptr) causes_->take(cause);
  }

 private:
  DecisionSink* sink_ = nullptr;
  CauseSink* causes_ = nullptr;
  uint64_t step_ = 0;
  SeqId seq_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace quire::control
