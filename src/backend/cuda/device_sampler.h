#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/sample_lists.h"
#include "backend/cuda/sampler_memory.h"
#include "backend/executor.h"
#include "base/ids.h"

namespace quire::backend::cuda {

/// Logits in the memory of the device: row r begins at data[r * stride].
struct DeviceLogits {
  const float* data = nullptr;
  uint32_t stride = 0;
};

/// Samples rows of logits on the device, whose kernels write the results to the host's memory, for up to
/// kMostOpenSteps steps at once, which are numbered round by their `lane`. All work is on one stream. Not
/// thread-safe.
class DeviceSampler {
 public:
  /// Throws Error if the device has too little memory: SamplerMemory::on_device.
  DeviceSampler(const SamplerLimits& limits, Stream stream);

  /// The last tokens of each slot, at token_place(). Later steps read them in the order of the stream.
  const TokenId* tokens() const { return tokens_.as<const TokenId>(); }

  /// A step begins whose lane nothing uses any more.
  void begin(uint32_t lane);
  /// A row of the step that began last. Returns its number in the step, or kNoRow if its lists alone are more
  /// than there is memory for.
  static constexpr uint32_t kNoRow = UINT32_MAX;
  uint32_t add(const SlotSampling& sampling, SlotId slot, uint32_t position, uint32_t logits_row,
               const DeviceLogits& logits, std::span<const uint32_t> mask = {});
  /// Starts what has been added since the last call.
  void flush(const DeviceLogits& logits);

  // Of a step whose results have arrived.
  const SampledRow& result(uint32_t lane, uint32_t row) const;
  std::span<const float> rated(uint32_t lane, uint32_t row) const;  // of SamplingParams::logprob_tokens

 private:
  /// Of one open step.
  struct Lane {
    PinnedBuffer lists;
    size_t lists_used = 0;        // bytes
    PinnedBuffer results;         // [rows] SampledRow, then floats: written by the kernels
    std::vector<ListPart> rated;  // by row: its part of these floats
    uint32_t rows = 0;
    uint32_t flushed_rows = 0;
    uint32_t num_rated = 0;
    uint32_t flushed_rated = 0;
  };

  void launch(const DeviceLogits& logits);
  size_t results_bytes() const { return limits_.rows * sizeof(SampledRow); }

  SamplerLimits limits_;
  SamplerMemory sizes_;
  Stream stream_;
  DeviceBuffer tokens_;
  DeviceBuffer workspace_;
  DeviceBuffer lists_;
  Lane lanes_[kMostOpenSteps];
  uint32_t lane_ = 0;
  SampleLists pending_;
};

}  // namespace quire::backend::cuda
