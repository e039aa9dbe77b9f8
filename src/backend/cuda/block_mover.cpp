#include "backend/cuda/block_mover.h"

namespace quire::backend::cuda {

void BlockMover::start(const control::StepPlan& plan, const Event* before) {
  must_wait_ = false;
  if (plan.moves_out.empty() && plan.moves_in.empty()) return;
  const Stream stream = stream_.get();
  const auto is_done = [&](const control::BlockMove& move) { return written_[move.device] <= done_; };
  bool all_done = plan.moves_in.empty();
  for (const control::BlockMove& move : plan.moves_out) {
    if (is_done(move)) {
      model_.move_out(move, stream);
    } else {
      all_done = false;
    }
  }
  if (!all_done && before != nullptr) before->hold(stream);
  for (const control::BlockMove& move : plan.moves_out) {
    if (!is_done(move)) model_.move_out(move, stream);
    leaving_[move.device] = true;
    departed_.push_back(move.device);
  }
  for (const control::BlockMove& move : plan.moves_in) model_.move_in(move, stream);
  moved_.record(stream);
  must_wait_ = !plan.moves_in.empty();
}

void BlockMover::order() {
  if (!must_wait_) return;
  moved_.hold(model_.stream());
  for (const BlockId block : departed_) leaving_[block] = false;
  departed_.clear();
}

}  // namespace quire::backend::cuda
