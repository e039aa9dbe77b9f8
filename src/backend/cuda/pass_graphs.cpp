#include "backend/cuda/pass_graphs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace quire::backend::cuda {

void PassGraphs::run(const PassShape& shape, const std::function<void()>& pass) {
  if (stream_ == nullptr || !records_) return pass();
  ++passes_;
  const auto known = std::ranges::find(known_, shape, &Known::shape);
  if (known == known_.end()) {
    place() = {.shape = shape, .graph = {}, .last_met = passes_};
    return pass();
  }
  known->last_met = passes_;
  if (!known->graph) {
    try {
      known->graph = Graph(stream_, pass);
    } catch (const Error& error) {
      records_ = false;
      known_.clear();
      log_warning(
          fmt::format("decodes are slower than they could be, as their kernels are launched one by "
                      "one: {}",
                      error.what()));
      return pass();
    }
  }
  known->graph.launch(stream_);
}

/// The place for a new shape: the end, or that of the shape that was not met for longest.
PassGraphs::Known& PassGraphs::place() {
  if (known_.size() < kMost) return known_.emplace_back();
  return *std::ranges::min_element(known_, {}, &Known::last_met);
}

}  // namespace quire::backend::cuda
