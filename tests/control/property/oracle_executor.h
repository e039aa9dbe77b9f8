#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/sim/synthetic_kv.h"
#include "base/rng.h"
#include "control/request.h"
#include "control/step.h"

namespace quire::test {

inline constexpr TokenId kVocabulary = 4;  // small, so that prefixes coincide

/// What a sequence gives when it runs alone, worked out without blocks or batches.
struct Solo {
  std::vector<TokenId> tokens;     // prompt and output
  std::vector<uint64_t> contents;  // of the K/V of each: a hash of the salt and of all tokens up to it
  control::FinishReason finish = control::FinishReason::kLength;
};
Solo run_alone(const control::SeqSpec& spec);

/// The "logprob" of what follows this content, and its part in a pooled state: small and whole, so that sums
/// are exact.
inline float rating(uint64_t content) { return static_cast<float>(content % 1024); }

/// An executor that knows where every token's K/V must lie. For each place of each physical block it keeps
/// what was written there, and it keeps block tables of its own, made from the plans alone. Before a sequence
/// computes, each earlier position that it sees must hold the K/V of exactly its own prefix, in every group.
/// What it samples depends on
/// the contents it reads through the table, so a wrong block also shows as a wrong output.
///
/// SamplingParams::seed names the sequence (its SeqId); outputs depend on prefix, salt and `choice`.
class OracleExecutor {
 public:
  OracleExecutor(uint32_t num_blocks, uint32_t block_size, uint64_t seed, std::vector<uint32_t> windows = {0},
                 uint32_t num_host_blocks = 0);

  void expect(const control::SeqSpec& spec) { solo_.emplace(spec.id, run_alone(spec)); }
  const Solo& solo(SeqId id) const { return solo_.at(id); }

  /// Executes the plan, its sequences in random order. One in `error_every` sequence steps fails (0: none).
  control::StepResult execute(const control::StepPlan& plan, uint32_t error_every = 0);
  /// The device fails and comes back without K/V.
  void forget();
  /// The first thing that was wrong in any plan, empty if nothing was.
  const std::string& error() const { return error_; }
  size_t slots_in_use() const { return slots_.size(); }
  uint64_t digest() const { return digest_; }  // of all plans so far

 private:
  using Place = backend::sim::SyntheticKv::Place;
  struct Slot {
    SeqId id = 0;
    uint32_t choice = 0;
    std::vector<std::vector<BlockId>> tables;  // by K/V group
    std::optional<uint32_t> computed;          // unknown until its first step
    uint32_t generation = 0;
    bool samples = false;  // its last step did
    TokenId sampled = 0;   // what
    PromptWants wants;
    uint64_t sum = 0;  // of the ratings of its prompt's tokens
  };

  void fail(const std::string& what);
  void set_up(const control::StepPlan& plan);
  control::SeqResult compute(const control::SeqStep& step);
  PromptYield yield(const control::StepPlan& plan, const control::PromptStep& part);
  void add_to_digest(const control::StepPlan& plan);
  Place& place(const Slot& slot, uint32_t group, uint32_t position);
  void append(Slot& slot, std::span<const BlockId> blocks) const;

  uint32_t block_size_;
  std::vector<uint32_t> windows_;
  SplitMix64 random_;
  backend::sim::SyntheticKv kv_;
  std::map<SlotId, Slot> slots_;
  std::map<SeqId, Solo> solo_;
  std::string error_;
  uint64_t digest_ = 0;
};

}  // namespace quire::test
