#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/runtime.h"

namespace quire::backend::cuda {

/// What the arguments of a pass's kernels depend on, beside what is the same for all batches of a model: two
/// batches of one shape come to the same launches.
struct PassShape {
  uint32_t rows = 0;                  // each the one token of a sequence
  uint32_t table_stride = 0;          // of the block tables
  std::vector<uint32_t> spans;        // by K/V group: those of attention
  const void* late_tokens = nullptr;  // where tokens are that the host does not know

  bool operator==(const PassShape&) const = default;
};

/// The work of passes through all layers, recorded by shape. To give a stream 150 kernels takes the host
/// about 1 ms, and the device some time between two of them; a graph of them is given in microseconds. At
/// most kMost shapes are remembered; those that were not met for longest are forgotten. Not thread-safe.
class PassGraphs {
 public:
  static constexpr size_t kMost = 64;

  explicit PassGraphs(Stream stream) : stream_(stream) {}

  /// Gives the stream what `pass` gives it: when a shape is met first, by calling that; the second time, what
  /// it gives is recorded; from then on, what was recorded is repeated. If the device cannot record it, a
  /// warning says so once, and all passes are called from then on, as they are on the default stream.
  /// REQUIRES: `pass` gives the same work for the same shape. Throws Error as `pass` does, or if the device
  /// refuses a graph that it has recorded.
  void run(const PassShape& shape, const std::function<void()>& pass);

 private:
  struct Known {
    PassShape shape;
    Graph graph;  // empty: met once
    uint64_t last_met = 0;
  };
  Known& place();
  void go_on_without(const std::function<void()>& pass, const std::string& why);

  Stream stream_;
  bool records_ = true;
  uint64_t passes_ = 0;
  std::vector<Known> known_;
};

}  // namespace quire::backend::cuda
