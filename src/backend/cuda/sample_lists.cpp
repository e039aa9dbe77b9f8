#include "backend/cuda/sample_lists.h"

#include <algorithm>
#include <cstring>

namespace quire::backend::cuda {
namespace {

constexpr size_t kAlignment = 16;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
size_t bytes_of(const std::vector<T>& list) {
  return aligned(list.size() * sizeof(T));
}

template <class T>
uint32_t count_of(const std::vector<T>& list) {
  return static_cast<uint32_t>(list.size());
}

/// What has been added to `list` since it had `first` entries.
template <class T>
ListPart part_from(const std::vector<T>& list, uint32_t first) {
  return {first, count_of(list) - first};
}

/// A mask of `words` words behind `masks`, which permits nothing; its number is in `number`.
std::span<uint32_t> add_mask(size_t words, std::vector<uint32_t>& masks, uint32_t& number) {
  number = static_cast<uint32_t>(masks.size() / words);
  masks.resize(masks.size() + words);
  return std::span(masks).last(words);
}

}  // namespace

void SampleLists::clear() {
  rows.clear();
  num_drawn = 0;
  biases.clear();
  counts.clear();
  forbidden.clear();
  rated.clear();
  masks.clear();
}

void SampleLists::remove_last(uint32_t vocabulary) {
  const SampleRow& row = rows.back();
  biases.resize(row.biases.first);
  counts.resize(row.counts.first);
  forbidden.resize(row.forbidden.first);
  rated.resize(row.rated.first);
  const uint32_t first_mask = std::min(row.allowed, row.mask);
  if (first_mask != kNoMask) masks.resize(size_t{first_mask} * ((vocabulary + 31) / 32));
  if (!takes_best(row)) --num_drawn;
  rows.pop_back();
}

size_t SampleLists::bytes() const {
  return bytes_of(rows) + bytes_of(biases) + bytes_of(counts) + bytes_of(forbidden) + bytes_of(rated) +
         bytes_of(masks);
}

void SampleLists::write(std::byte* to, const std::byte* device, SampleArgs& args) const {
  size_t done = 0;
  const auto put = [&]<class T>(const std::vector<T>& list) {
    if (!list.empty()) std::memcpy(to + done, list.data(), list.size() * sizeof(T));
    const auto* there = reinterpret_cast<const T*>(device + done);
    done += bytes_of(list);
    return there;
  };
  args.num_rows = count_of(rows);
  args.num_best = args.num_rows - num_drawn;
  args.rows = put(rows);
  args.biases = put(biases);
  args.counts = put(counts);
  args.forbidden = put(forbidden);
  args.rated = put(rated);
  args.masks = put(masks);
}

void SlotSampling::reset(const SamplingParams& params, std::span<const TokenId> history,
                         uint32_t prompt_length) {
  params_ = params;
  prompt_length_ = prompt_length;
  history_.clear();
  if (params.needs_history()) history_.assign(history.begin(), history.end());
  if (params.has_penalties()) counts_.reset(history, prompt_length);
}

uint32_t SlotSampling::num_late(uint32_t position) const {
  return params_.needs_history() ? position - static_cast<uint32_t>(history_.size()) : 0;
}

void SlotSampling::add_row(SlotId slot, uint32_t position, std::span<const uint32_t> mask,
                           uint32_t vocabulary, SampleLists& lists) const {
  SampleRow row = sample_row(params_, position);
  row.place = token_place(slot, position);
  row.num_late = num_late(position);
  for (uint32_t i = 0; i < row.num_late; ++i) row.late_places[i] = token_place(slot, position - 1 - i);

  const uint32_t first_bias = count_of(lists.biases);
  for (const auto& [id, bias] : params_.logit_bias) lists.biases.push_back({id, bias});
  row.biases = part_from(lists.biases, first_bias);

  const uint32_t first_count = count_of(lists.counts);
  if (params_.has_penalties()) {
    for (const auto& entry : counts_.entries()) lists.counts.push_back({entry.id, entry.in_output});
  }
  row.counts = part_from(lists.counts, first_count);

  const uint32_t first_forbidden = count_of(lists.forbidden);
  if (position < uint64_t{prompt_length_} + params_.min_tokens) {
    for (const TokenId id : params_.end_tokens) lists.forbidden.push_back({id});
  }
  add_bad_words(position, lists);
  row.forbidden = part_from(lists.forbidden, first_forbidden);

  const uint32_t first_rated = count_of(lists.rated);
  if (params_.num_logprobs >= 0) {
    lists.rated.insert(lists.rated.end(), params_.logprob_tokens.begin(), params_.logprob_tokens.end());
  }
  row.rated = part_from(lists.rated, first_rated);

  const size_t words = (vocabulary + 31) / 32;
  if (!params_.allowed_tokens.empty()) {
    const std::span<uint32_t> bits = add_mask(words, lists.masks, row.allowed);
    for (const TokenId id : params_.allowed_tokens) {
      bits[static_cast<size_t>(id) / 32] |= 1U << static_cast<uint32_t>(id) % 32;
    }
  }
  if (params_.mask != kNoMask) std::ranges::copy(mask, add_mask(words, lists.masks, row.mask).begin());
  if (!takes_best(row)) row.workspace = lists.num_drawn++;
  lists.rows.push_back(row);
}

/// The last tokens of the words whose other tokens the output ends with, as far as it is known.
void SlotSampling::add_bad_words(uint32_t position, SampleLists& lists) const {
  const uint32_t late = num_late(position);
  for (const std::vector<TokenId>& word : params_.bad_words) {
    const size_t before = word.size() - 1;
    if (before > position - prompt_length_) continue;
    ForbiddenToken one{word.back()};
    bool may_come = true;
    for (uint32_t back = 1; back <= before; ++back) {
      const TokenId wanted = word[before - back];
      if (back <= late) {
        one.after[back - 1] = wanted;
      } else {
        may_come = may_come && history_[position - back] == wanted;
      }
    }
    if (may_come) lists.forbidden.push_back(one);
  }
}

void SlotSampling::add(TokenId token) {
  if (params_.needs_history()) history_.push_back(token);
  if (params_.has_penalties()) counts_.add(token);
}

sample::NoToken SlotSampling::why_no_token(uint32_t position, std::span<const uint32_t> mask,
                                           uint32_t vocabulary) const {
  // Which processors forbid all tokens depends on no logit.
  const std::vector<float> logits(vocabulary);
  sample::SamplerWorkspace workspace(vocabulary);
  sample::SequenceSampler sampler;
  sampler.reset(params_, history_, prompt_length_);
  SampledToken none;
  return sampler.sample(logits, position, workspace, none, mask);
}

}  // namespace quire::backend::cuda
