#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire::engine {
namespace {

Hypothesis continued(const Hypothesis& from, const SampledToken& step, uint32_t rank) {
  Hypothesis out = from;
  SampledToken& token = out.tokens.emplace_back(step);
  token.token = step.top[rank].token;
  token.logprob = step.top[rank].logprob;
  token.rank = rank + 1;
  out.logprob += token.logprob;
  return out;
}

}  // namespace

BeamSearch::BeamSearch(uint32_t width, double length_penalty, std::vector<TokenId> stop_tokens,
                       uint32_t max_tokens, SeqId first)
    : width_(width),
      length_penalty_(length_penalty),
      stop_tokens_(std::move(stop_tokens)),
      max_tokens_(max_tokens) {
  beams_.emplace_back().seq = first;
}

void BeamSearch::take(SeqId seq, SampledToken token) {
  const auto found = std::ranges::find(beams_, seq, &Beam::seq);
  if (found != beams_.end()) found->ahead.push_back(std::move(token));
}

BeamSearch::Changes BeamSearch::advance(SeqId& next) {
  Changes changes;
  const auto has_token = [](const Beam& beam) { return !beam.ahead.empty(); };
  while (!beams_.empty() && std::ranges::all_of(beams_, has_token)) round(next, changes);
  return changes;
}

std::vector<BeamSearch::Candidate> BeamSearch::candidates() const {
  std::vector<Candidate> out;
  for (size_t i = 0; i < beams_.size(); ++i) {
    const auto& top = beams_[i].ahead.front().top;
    const size_t count = std::min<size_t>(top.size(), size_t{2} * width_);
    for (uint32_t rank = 0; rank < count; ++rank) {
      out.push_back({i, rank, beams_[i].so_far.logprob + top[rank].logprob});
    }
  }
  std::ranges::stable_sort(out, std::ranges::greater(), &Candidate::logprob);
  return out;
}

void BeamSearch::round(SeqId& next, Changes& changes) {
  std::vector<Beam> living;
  std::vector<bool> goes_on(beams_.size());  // as its own most likely continuation
  for (const Candidate& candidate : candidates()) {
    Beam& from = beams_[candidate.beam];
    const SampledToken& step = from.ahead.front();
    const TokenId token = step.top[candidate.rank].token;
    const bool stops = std::ranges::binary_search(stop_tokens_, token);
    if (!stops && living.size() == width_) continue;
    Hypothesis hypothesis = continued(from.so_far, step, candidate.rank);
    if (stops || hypothesis.tokens.size() == max_tokens_) {
      hypothesis.stopped = stops;
      finished_.push_back(std::move(hypothesis));
      continue;
    }
    Beam& beam = living.emplace_back();
    beam.so_far = std::move(hypothesis);
    if (token == step.token) {
      goes_on[candidate.beam] = true;
      beam.seq = from.seq;
      beam.ahead.assign(from.ahead.begin() + 1, from.ahead.end());
      continue;
    }
    beam.seq = next++;
    Fork& fork = changes.forks.emplace_back();
    fork.parent = from.seq;
    fork.id = beam.seq;
    for (const SampledToken& sampled : beam.so_far.tokens) fork.tokens.push_back(sampled.token);
  }
  for (size_t i = 0; i < beams_.size(); ++i) {
    if (!goes_on[i]) changes.ended.push_back(beams_[i].seq);
  }
  beams_ = std::move(living);
  if (!settled()) return;
  for (const Beam& beam : beams_) {
    const auto is_fork = [&](const Fork& fork) { return fork.id == beam.seq; };
    if (std::erase_if(changes.forks, is_fork) == 0) changes.ended.push_back(beam.seq);
  }
  beams_.clear();
}

double BeamSearch::score(double logprob, size_t length) const {
  return logprob / std::pow(static_cast<double>(length), length_penalty_);
}

/// A logprob only decreases. If length counts in favour, the longest answer would be the best, else the next
/// one.
double BeamSearch::most_attainable() const {
  double most = -INFINITY;
  for (const Beam& beam : beams_) {
    const size_t length = length_penalty_ > 0 ? max_tokens_ : beam.so_far.tokens.size() + 1;
    most = std::max(most, score(beam.so_far.logprob, length));
  }
  return most;
}

/// No live hypothesis can be among the best any more.
bool BeamSearch::settled() const {
  const double most = most_attainable();
  const auto better = [&](const Hypothesis& done) { return score(done.logprob, done.tokens.size()) >= most; };
  return std::ranges::count_if(finished_, better) >= width_;
}

std::vector<SeqId> BeamSearch::living() const {
  std::vector<SeqId> out;
  for (const Beam& beam : beams_) out.push_back(beam.seq);
  return out;
}

std::vector<Hypothesis> BeamSearch::best(uint32_t count) const {
  std::vector<Hypothesis> out = finished_;
  std::ranges::stable_sort(out, std::ranges::greater(), [this](const Hypothesis& done) {
    return score(done.logprob, done.tokens.size());
  });
  out.resize(std::min<size_t>(count, out.size()));
  return out;
}

}  // namespace quire::engine
