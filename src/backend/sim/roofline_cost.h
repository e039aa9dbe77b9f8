#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/step_work.h"
#include "base/ids.h"
#include "control/costs.h"

namespace quire::backend::sim {

/// What the tokens of a step attend to in the layers of one window, summed over its sequences.
struct AttentionWork {
  double tokens = 0;  // whose K/V is read: for each sequence once, those that it computes included
  double pairs = 0;   // a token, and a token that it attends to; itself is one

  /// Adds `times` sequences that compute `count` tokens after `before` others; a token attends to so many up
  /// to its own as `window` says, to all of them if that is 0.
  void add(uint32_t window, double before, double count, double times = 1);
};

/// The layers of a model that attend alike.
struct AttentionCost {
  uint32_t window = 0;  // 0: full attention
  uint32_t layers = 0;
  uint64_t token_bytes = 0;  // of the K/V of a token in one of them
  double pair_ops = 0;       // operations for each of AttentionWork::pairs in one of them
};

/// The time of a step by the shape of a model and the rates of a machine (the roofline: Williams, Waterman,
/// Patterson 2009): what it reads over the bandwidth or what it computes over the rate, whichever is more,
/// with the overhead of a step and the blocks that are moved. A lower bound, and exact only for a machine
/// that reaches its rates: docs/plan.md says what is counted. Operations count a multiply-add as two.
///
/// Of the experts a step reads those that one of its tokens is sent to if each token chooses at random; it
/// reads the other weights once, and those of the head also if no row needs logits.
struct RooflineCost {
  double bandwidth = 0;   // bytes a second; 0: unknown, and bounds nothing
  double rate = 0;        // operations a second; 0: unknown, and bounds nothing
  double host_link = 0;   // bytes a second to the host, or back; 0: unknown, and moving takes no time
  double overhead_s = 0;  // of every step
  uint64_t weight_bytes = 0;
  uint64_t expert_bytes = 0;  // of these, of all experts
  double chosen = 1;          // the share of the experts that a token uses
  double token_ops = 0;       // operations for a token in the matrices of the layers
  double row_ops = 0;         // for a row that needs logits
  uint64_t block_bytes = 0;   // of a K/V block, for moves and copies
  std::vector<AttentionCost> attention;
  std::string model;
  std::string machine;

  /// `attention`: of the step's sequences, one for each of RooflineCost::attention. If it is empty, the
  /// sequences are taken to be alike, those that decode and the chunks each.
  Nanos duration(const StepWork& work, std::span<const AttentionWork> attention = {}) const;
  control::CostHints hints(uint32_t batch) const;
  /// Throws Error naming an invalid value.
  void check() const;

  /// Those of a step whose sequences are alike.
  std::vector<AttentionWork> attention_of(const StepWork& work) const;
  double bytes(const StepWork& work, std::span<const AttentionWork> attention) const;
  double ops(const StepWork& work, std::span<const AttentionWork> attention) const;
};

}  // namespace quire::backend::sim
