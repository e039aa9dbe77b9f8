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
    pass();
    place() = {.shape = shape, .graph = {}, .last_met = passes_};
    return;
  }
  known->last_met = passes_;
  if (!known->graph) {
    try {
      known->graph = Graph(stream_, pass);
    } catch (const Error& error) {
      go_on_without(pass, error.what());
      return;
    }
  }
  known->graph.launch(stream_);
}

/// Where `pass` fails too, that error says more.
void PassGraphs::go_on_without(const std::function<void()>& pass, const std::string& why) {
  records_ = false;
  known_.clear();
  pass();
  log_warning(fmt::format(
      "decodes are slower than they could be, as their kernels are launched one by one: {}", why));
}

/// The place for a new shape: the end, or that of the shape that was not met for longest.
PassGraphs::Known& PassGraphs::place() {
  if (known_.size() < kMost) return known_.emplace_back();
  return *std::ranges::min_element(known_, {}, &Known::last_met);
}

}  // namespace quire::backend::cuda
