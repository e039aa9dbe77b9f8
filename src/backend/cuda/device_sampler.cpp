#include "backend/cuda/device_sampler.h"

#include <algorithm>

namespace quire::backend::cuda {
namespace {

size_t list_bytes(const DeviceSampler::Limits& limits) {
  const size_t vocabulary = limits.vocabulary;
  const size_t masks = (vocabulary + 31) / 32 * sizeof(uint32_t) * 2;
  const size_t counts = std::min<size_t>(limits.positions, vocabulary) * sizeof(CountedToken);
  const size_t all = limits.more_list_bytes + vocabulary * sizeof(BiasedToken) + counts + masks;
  return (all + 255) / 256 * 256;
}

uint32_t rows_at_once(const DeviceSampler::Limits& limits) {
  const size_t fit = limits.workspace_bytes / sample_workspace_bytes(limits.vocabulary);
  return static_cast<uint32_t>(std::clamp<size_t>(fit, 1, limits.rows));
}

size_t bytes_of_results(const DeviceSampler::Limits& limits) {
  return limits.rows * (sizeof(SampledRow) + kMaxLogprobTokens * sizeof(float));
}

size_t bytes_of_tokens(const DeviceSampler::Limits& limits) {
  return size_t{limits.slots} * kPlacesOfSlot * sizeof(TokenId);
}

}  // namespace

size_t DeviceSampler::bytes_for(const Limits& limits) {
  return bytes_of_tokens(limits) + rows_at_once(limits) * sample_workspace_bytes(limits.vocabulary) +
         list_bytes(limits) + kMostOpenSteps * bytes_of_results(limits);
}

DeviceSampler::DeviceSampler(const Limits& limits, Stream stream)
    : limits_(limits),
      stream_(stream),
      list_bytes_(list_bytes(limits)),
      rows_at_once_(rows_at_once(limits)),
      tokens_(bytes_of_tokens(limits), "sampled tokens"),
      workspace_(rows_at_once_ * sample_workspace_bytes(limits.vocabulary), "sampling"),
      lists_(list_bytes_, "the lists of sampling"),
      results_(kMostOpenSteps * bytes_of_results(limits), "the results of sampling") {
  for (Lane& lane : lanes_) {
    lane.lists = PinnedBuffer(list_bytes_, "the lists of sampling");
    lane.results = PinnedBuffer(bytes_of_results(limits), "the results of sampling");
  }
  // A step may have been planned before the one is known to have failed that should have sampled its token.
  clear(tokens_.data(), tokens_.size(), stream_);
}

void DeviceSampler::begin(uint32_t lane) {
  lane_ = lane;
  Lane& own = lanes_[lane];
  own.lists_used = 0;
  own.rated.clear();
  own.rows = own.flushed_rows = own.num_rated = own.flushed_rated = 0;
}

uint32_t DeviceSampler::add(const SlotSampling& sampling, SlotId slot, uint32_t position, uint32_t logits_row,
                            const DeviceLogits& logits, std::span<const uint32_t> mask) {
  if (pending_.rows.size() == rows_at_once_) launch(logits);
  sampling.add_row(slot, position, mask, limits_.vocabulary, pending_);
  if (pending_.bytes() > list_bytes_) {
    pending_.remove_last(limits_.vocabulary);
    if (!pending_.rows.empty()) launch(logits);
    sampling.add_row(slot, position, mask, limits_.vocabulary, pending_);
    if (pending_.bytes() > list_bytes_) {
      pending_.clear();
      return kNoRow;
    }
  }
  Lane& lane = lanes_[lane_];
  SampleRow& row = pending_.rows.back();
  row.logits = logits_row;
  lane.rated.push_back({lane.num_rated, row.rated.count});
  lane.num_rated += row.rated.count;
  return lane.rows++;
}

void DeviceSampler::launch(const DeviceLogits& logits) {
  Lane& lane = lanes_[lane_];
  const size_t bytes = pending_.bytes();
  if (lane.lists_used + bytes > list_bytes_) {
    synchronize(stream_);  // the device has read what is to be overwritten
    lane.lists_used = 0;
  }
  std::byte* const results = results_.data() + lane_ * bytes_of_results(limits_);
  SampleArgs args{};
  args.logits = logits.data;
  args.stride = logits.stride;
  args.vocabulary = limits_.vocabulary;
  args.workspace = workspace_.data();
  args.tokens = tokens_.as<TokenId>();
  args.results = reinterpret_cast<SampledRow*>(results) + lane.flushed_rows;
  args.rated_logprobs = reinterpret_cast<float*>(results + results_bytes()) + lane.flushed_rated;
  pending_.write(lane.lists.data() + lane.lists_used, lists_.data(), args);
  copy_to_device(lists_.data(), lane.lists.data() + lane.lists_used, bytes, stream_);
  check(sample(args, stream_), "sample");
  lane.lists_used += bytes;
  lane.flushed_rows += args.num_rows;
  lane.flushed_rated += static_cast<uint32_t>(pending_.rated.size());
  pending_.clear();
}

void DeviceSampler::flush(const DeviceLogits& logits) {
  if (!pending_.rows.empty()) launch(logits);
  Lane& lane = lanes_[lane_];
  const std::byte* const results = results_.data() + lane_ * bytes_of_results(limits_);
  const auto copy = [&](size_t first, size_t bytes) {
    if (bytes > 0) copy_to_host(lane.results.data() + first, results + first, bytes, stream_);
  };
  copy(0, lane.rows * sizeof(SampledRow));
  copy(results_bytes(), lane.num_rated * sizeof(float));
}

const SampledRow& DeviceSampler::result(uint32_t lane, uint32_t row) const {
  return reinterpret_cast<const SampledRow*>(lanes_[lane].results.data())[row];
}

std::span<const float> DeviceSampler::rated(uint32_t lane, uint32_t row) const {
  const ListPart part = lanes_[lane].rated[row];
  const auto* all = reinterpret_cast<const float*>(lanes_[lane].results.data() + results_bytes());
  return {all + part.first, part.count};
}

}  // namespace quire::backend::cuda
