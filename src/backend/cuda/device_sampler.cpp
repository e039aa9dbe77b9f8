#include "backend/cuda/device_sampler.h"

namespace quire::backend::cuda {

DeviceSampler::DeviceSampler(const SamplerLimits& limits, Stream stream)
    : limits_(limits),
      sizes_(lay_out_sampler(limits)),
      stream_(stream),
      tokens_(sizes_.tokens, "sampled tokens"),
      workspace_(sizes_.workspace, "sampling"),
      lists_(sizes_.lists, "the lists of sampling") {
  for (Lane& lane : lanes_) {
    lane.lists = PinnedBuffer(sizes_.lists, "the lists of sampling");
    lane.results = PinnedBuffer(sizes_.results, "the results of sampling");
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
  const auto fit = [&] {
    return pending_.num_drawn <= sizes_.rows_at_once && pending_.bytes() <= sizes_.lists;
  };
  sampling.add_row(slot, position, mask, limits_.vocabulary, pending_);
  if (!fit()) {
    pending_.remove_last(limits_.vocabulary);
    if (!pending_.rows.empty()) launch(logits);
    sampling.add_row(slot, position, mask, limits_.vocabulary, pending_);
    if (!fit()) {
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
  if (lane.lists_used + bytes > sizes_.lists) {
    synchronize(stream_);  // the device has read what is to be overwritten
    lane.lists_used = 0;
  }
  std::byte* const results = lane.results.data();
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
