#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/rng.h"
#include "control/cause.h"

// The decisions of the control plane, reported as they are made.
namespace quire::control {

enum class DecisionKind : uint8_t {
  kAdd,       // a: prompt tokens, b: the most tokens to generate
  kAdmit,     // a: slot, b: tokens that have K/V already
  kHit,       // a: tokens found in the prefix index, b: of how many
  kSkip,      // a: WaitReason, b: blocks it needs (kBlocks). Written only when the reason changes
  kChunk,     // a: first position, b: number of tokens computed in this step
  kAllocate,  // a: block
  kShare,     // a: block; one more table holds it
  kRelease,   // a: block; one table less holds it
  kEvict,     // a: block; it leaves the prefix index
  kCopy,      // a: from, b: to (copy-on-write)
  kPreempt,   // a: tokens whose K/V it gives up, b: how often it has been preempted, including now
  kSwapOut,   // a: blocks moved to the host
  kSwapIn,    // a: blocks moved back
  kFinish,    // a: FinishReason
};

/// Why a waiting sequence was not admitted.
enum class WaitReason : uint8_t {
  kNone,
  kSlots,    // all slots are taken, or kept for sequences that are passed over
  kBudget,   // the token budget of the step is spent
  kBlocks,   // not enough blocks for it
  kOrder,    // another sequence is first and could not be admitted
  kParent,   // a fork whose parent has not computed the prompt
  kPreempt,  // this step preempted, so it admits no sequence
  kBatch,    // static batching: the batch must end first
  kToken,    // the first in line was preempted, and a step in flight samples a token for it
  kPrefix,   // a running sequence with the same first tokens computes its next block
};

/// One decision about `seq`; kNoSeq if it concerns no sequence.
struct Decision {
  uint64_t step = 0;
  SeqId seq = 0;
  uint32_t a = 0;
  uint32_t b = 0;
  DecisionKind kind = DecisionKind::kAdd;
};

/// Takes decisions in order. Called in the thread that calls the scheduler.
class DecisionSink {
 public:
  virtual ~DecisionSink() = default;
  virtual void take(const Decision& decision) = 0;
};

/// Hashes the decisions of one control plane into a digest, and passes them and their causes on to listeners.
/// Two runs with the same digest made the same decisions; causes are not part of it.
class DecisionLog {
 public:
  void listen(DecisionSink* sink, CauseSink* causes) {
    sink_ = sink;
    causes_ = causes;
  }
  /// The decisions that follow belong to this step, and to this sequence.
  void at_step(uint64_t step) { step_ = step; }
  void of(SeqId seq) { seq_ = seq; }
  void write(DecisionKind kind, uint32_t a = 0, uint32_t b = 0) {
    digest_ =
        mix64(digest_ ^ (uint64_t{a} << 32 | b)) + (step_ << 8 ^ seq_ << 20 ^ static_cast<uint64_t>(kind));
    if (sink_ != nullptr) sink_->take({step_, seq_, a, b, kind});
  }
  uint64_t digest() const { return digest_; }

  /// Whether there is a listener for causes; causes that take work to find are reported only then.
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
