// Beam search against a naive one that knows all continuations, and through the engine.
#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::engine {
namespace {

constexpr uint32_t kBeamVocab = 30;

/// The distribution after `tokens`, best first; a function of the seed and them.
std::vector<TokenLogprob> continuations(uint64_t seed, const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens) seed = mix64(seed * 31 + static_cast<uint64_t>(token) + 1);
  SplitMix64 random(seed);
  std::vector<double> logits(kBeamVocab);
  double sum = 0;
  for (double& logit : logits) {
    logit = 4.0 * static_cast<double>(random.below(1000)) / 1000.0;
    sum += std::exp(logit);
  }
  std::vector<TokenLogprob> out;
  for (uint32_t id = 0; id < kBeamVocab; ++id) {
    out.push_back({static_cast<TokenId>(id), static_cast<float>(logits[id] - std::log(sum))});
  }
  std::ranges::stable_sort(out, std::ranges::greater(), &TokenLogprob::logprob);
  return out;
}

struct Setting {
  uint64_t seed = 0;
  uint32_t width = 1;
  uint32_t max_tokens = 1;
  double length_penalty = 1;
  std::vector<TokenId> stops;
};

Setting random_setting(uint64_t seed) {
  SplitMix64 random(seed);
  Setting out;
  out.seed = seed;
  out.width = 1 + static_cast<uint32_t>(random.below(5));
  out.max_tokens = 1 + static_cast<uint32_t>(random.below(12));
  out.length_penalty = static_cast<double>(random.below(5)) / 2.0 - 0.5;
  for (uint64_t i = random.below(3); i > 0; --i) out.stops.push_back(static_cast<TokenId>(i * 7));
  std::ranges::sort(out.stops);
  return out;
}

using Answer = std::pair<std::vector<TokenId>, double>;

/// Keeps whole lists and never stops early.
std::vector<Answer> naive(const Setting& setting) {
  std::vector<Answer> living = {{{}, 0.0}};
  std::vector<Answer> finished;
  for (uint32_t length = 1; length <= setting.max_tokens; ++length) {
    std::vector<Answer> next;
    for (const Answer& from : living) {
      const auto all = continuations(setting.seed, from.first);
      for (size_t i = 0; i < std::min<size_t>(all.size(), size_t{2} * setting.width); ++i) {
        Answer answer = from;
        answer.first.push_back(all[i].token);
        answer.second += all[i].logprob;
        const bool stops = std::ranges::binary_search(setting.stops, all[i].token);
        (stops ? finished : next).push_back(std::move(answer));
      }
    }
    std::ranges::stable_sort(next, std::ranges::greater(), &Answer::second);
    if (next.size() > setting.width) next.resize(setting.width);
    living = std::move(next);
  }
  finished.insert(finished.end(), living.begin(), living.end());
  for (Answer& answer : finished) {
    answer.second /= std::pow(static_cast<double>(answer.first.size()), setting.length_penalty);
  }
  std::ranges::stable_sort(finished, std::ranges::greater(), &Answer::second);
  finished.resize(std::min<size_t>(finished.size(), setting.width));
  return finished;
}

/// Runs the sequences as a scheduler might: in any order, some ahead of others.
class Runs {
 public:
  explicit Runs(const Setting& setting)
      : setting_(setting),
        search_(setting.width, setting.length_penalty, setting.stops, setting.max_tokens, 0),
        random_(setting.seed + 1) {
    sequences_[0] = {};
  }

  std::vector<Hypothesis> play() {
    while (!search_.done()) {
      auto sequence = sequences_.begin();
      std::advance(sequence, static_cast<ptrdiff_t>(random_.below(sequences_.size())));
      std::vector<TokenId>& tokens = sequence->second;
      if (tokens.size() < setting_.max_tokens) {
        SampledToken sampled;
        sampled.top = continuations(setting_.seed, tokens);
        sampled.top.resize(size_t{2} * setting_.width);
        sampled.token = sampled.top.front().token;
        tokens.push_back(sampled.token);
        search_.take(sequence->first, std::move(sampled));
      }
      follow(search_.advance(next_));
      EXPECT_LE(search_.living().size(), setting_.width);
    }
    EXPECT_TRUE(sequences_.empty()) << "a sequence was never ended";
    return search_.best(setting_.width);
  }
  uint64_t forks() const { return forks_; }

 private:
  void follow(const BeamSearch::Changes& changes) {
    for (const auto& fork : changes.forks) {
      ++forks_;
      ASSERT_TRUE(sequences_.contains(fork.parent));
      const auto& parent = sequences_.at(fork.parent);
      ASSERT_LE(fork.tokens.size(), parent.size());
      EXPECT_TRUE(std::equal(fork.tokens.begin(), fork.tokens.end() - 1, parent.begin()));
      EXPECT_TRUE(sequences_.emplace(fork.id, fork.tokens).second);
    }
    for (const SeqId id : changes.ended) EXPECT_EQ(sequences_.erase(id), 1U) << id;
  }

  Setting setting_;
  BeamSearch search_;
  SplitMix64 random_;
  std::map<SeqId, std::vector<TokenId>> sequences_;
  SeqId next_ = 1;
  uint64_t forks_ = 0;
};

TEST(BeamSearch, FindsWhatANaiveOneFinds) {
  uint64_t forks = 0;
  uint64_t stopped = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Setting setting = random_setting(seed);
    Runs runs(setting);
    const auto found = runs.play();
    const auto expected = naive(setting);
    ASSERT_EQ(found.size(), expected.size()) << seed;
    for (size_t i = 0; i < found.size(); ++i) {
      std::vector<TokenId> tokens;
      for (const SampledToken& token : found[i].tokens) tokens.push_back(token.token);
      EXPECT_EQ(tokens, expected[i].first) << "seed " << seed << ", answer " << i;
      stopped += found[i].stopped ? 1 : 0;
    }
    forks += runs.forks();
  }
  EXPECT_GT(forks, 1000U);
  EXPECT_GT(stopped, 100U);
}

TEST(BeamSearch, OfOneIsGreedy) {
  Setting setting{.seed = 5, .width = 1, .max_tokens = 9};
  const auto found = Runs(setting).play();
  ASSERT_EQ(found.size(), 1U);
  std::vector<TokenId> tokens;
  for (const SampledToken& token : found[0].tokens) {
    EXPECT_EQ(token.rank, 1U);
    EXPECT_EQ(token.token, continuations(5, tokens).front().token);
    tokens.push_back(token.token);
  }
  EXPECT_EQ(tokens.size(), 9U);
}

}  // namespace
}  // namespace quire::engine
