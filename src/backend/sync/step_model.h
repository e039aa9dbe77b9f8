#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "control/step.h"
#include "decoder/batch.h"

namespace quire::backend::sync {

/// A model and its K/V in the memory of a device: what a SyncExecutor needs of both. Not thread-safe. Every
/// call throws Error if the device fails.
class StepModel {
 public:
  virtual ~StepModel() = default;

  /// As decoder::ForwardPass::compute.
  virtual void compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs) = 0;
  /// The logits of some of these tokens, [rows][vocab], and their hidden states after the final norm,
  /// [rows][hidden]; f32, in host memory. `rows`: their places in `tokens`, rising. Valid until the next call
  /// of any of these.
  virtual std::span<const float> logits(std::span<const uint32_t> rows) = 0;
  virtual std::span<const float> hidden(std::span<const uint32_t> rows) = 0;

  // K/V of whole blocks, between the device and the host pool, or within the device.
  virtual void move_out(const control::BlockMove& move) = 0;
  virtual void move_in(const control::BlockMove& move) = 0;
  virtual void copy(std::span<const control::BlockCopy> copies) = 0;  // in their order
};

}  // namespace quire::backend::sync
