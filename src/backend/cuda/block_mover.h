#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/device_model.h"
#include "backend/cuda/runtime.h"
#include "backend/executor.h"
#include "base/ids.h"
#include "control/step.h"

namespace quire::backend::cuda {

/// Moves blocks between the device and the host pool on a stream of its own, beside the steps in flight, and
/// orders the two streams only where they touch the same blocks:
/// - A block leaves once the steps are done that write it. One that no step in flight writes leaves at once.
/// - A block arrives once all steps before have been done: one of them may still read what was there.
/// - A step that writes a block which leaves, or whose plan has blocks arrive, waits for the moves.
/// All host blocks are touched by this stream alone. Not thread-safe.
class BlockMover {
 public:
  /// `model` must outlive it.
  BlockMover(DeviceModel& model, uint32_t num_blocks)
      : model_(model), written_(num_blocks, 0), leaving_(num_blocks, false) {}

  /// Starts the moves of a plan. `before`: where the newest step in flight is done; null if none is in
  /// flight.
  void start(const control::StepPlan& plan, const Event* before);
  /// The step of this plan writes the block. To be called between start() and order().
  void writes(BlockId block, Ticket step) {
    written_[block] = step;
    if (leaving_[block]) must_wait_ = true;
  }
  /// To be called before the first work of the plan's step is added to the model's stream.
  void order();
  /// This step and all before it are done.
  void done(Ticket step) { done_ = step; }

 private:
  DeviceModel& model_;
  OwnStream stream_;
  Event moved_;
  std::vector<Ticket> written_;    // by block: the last step that writes it
  std::vector<bool> leaving_;      // by block: no step waits for its move yet
  std::vector<BlockId> departed_;  // those of leaving_
  Ticket done_ = 0;
  bool must_wait_ = false;  // the plan's step, for moved_
};

}  // namespace quire::backend::cuda
