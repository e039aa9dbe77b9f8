#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "sample/penalties.h"
#include "tests/sample/reference.h"

namespace quire::sample {
namespace {

using test::reference_distribution;

constexpr size_t kVocab = 300;

std::vector<float> drawn_logits(size_t count, uint64_t seed, float spread = 4.0F) {
  SplitMix64 rng(seed);
  std::vector<float> out(count);
  for (float& x : out) x = (static_cast<float>(unit_interval(rng.next())) - 0.5F) * 2.0F * spread;
  return out;
}

SamplingParams at_temperature(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

/// Independent of each other through the position; through the seed where the position says how long the
/// output is.
std::vector<TokenId> draw_many(std::span<const float> logits, const SamplingParams& params, size_t count,
                               std::span<const TokenId> history = {}, size_t prompt_length = 0) {
  SamplerWorkspace workspace(logits.size());
  SequenceSampler sampler;
  SamplingParams own = params;
  const bool by_seed = params.min_tokens > 0;
  std::vector<TokenId> out;
  for (uint32_t i = 0; i < count; ++i) {
    if (by_seed) own.seed = (params.seed << 32) + i;
    if (i == 0 || by_seed || params.needs_history()) sampler.reset(own, history, prompt_length);
    SampledToken token;
    const uint32_t position = by_seed ? static_cast<uint32_t>(history.size()) : i;
    EXPECT_EQ(sampler.sample(logits, position, workspace, token).why, "");
    out.push_back(token.token);
  }
  return out;
}

/// That draws have the reference's support (all of it that 20 of the draws are expected of) and distribution.
void expect_distribution(std::span<const float> logits, const SamplingParams& params, const std::string& what,
                         std::span<const TokenId> history = {}, size_t prompt_length = 0) {
  constexpr size_t kDraws = 8000;
  const std::vector<double> p = reference_distribution(logits, params, history, prompt_length);
  std::vector<size_t> counts(logits.size(), 0);
  for (const TokenId id : draw_many(logits, params, kDraws, history, prompt_length)) {
    ++counts[static_cast<size_t>(id)];
  }
  double statistic = 0.0;
  size_t cells = 0;
  double rest_expected = 0.0;
  double rest_seen = 0.0;
  const auto add_cell = [&](double expected, double seen) {
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * kDraws;
    if (p[i] == 0.0) {
      EXPECT_EQ(counts[i], 0U) << what << ": token " << i << " is not in the support";
    } else if (expected >= 20.0) {
      EXPECT_GT(counts[i], 0U) << what << ": token " << i << " is in the support";
      add_cell(expected, static_cast<double>(counts[i]));
    } else {
      rest_expected += expected;
      rest_seen += static_cast<double>(counts[i]);
    }
  }
  if (rest_expected >= 20.0) add_cell(rest_expected, rest_seen);
  // The seeds are fixed, so this passes for ever or never; a wrong sampler gets nowhere near.
  if (cells > 1) {
    EXPECT_GT(test::chi_square_tail(statistic, cells - 1), 1e-3) << what;
  }
}

TEST(Sampler, DrawsFromTheDistributionOfTheParameters) {
  const std::vector<float> logits = drawn_logits(kVocab, 7);
  uint64_t seed = 100;
  for (const float temperature : {0.3F, 1.0F, 2.5F}) {
    for (const int32_t top_k : {0, 2, 40, 299, 100000}) {
      for (const float top_p : {1.0F, 0.9F, 0.5F, 1e-6F}) {
        for (const float min_p : {0.0F, 0.05F}) {
          SamplingParams params;
          params.temperature = temperature;
          params.top_k = top_k;
          params.top_p = top_p;
          params.min_p = min_p;
          params.seed = ++seed;
          expect_distribution(logits, params,
                              testing::PrintToString(
                                  std::vector<float>{temperature, static_cast<float>(top_k), top_p, min_p}));
        }
      }
    }
  }
}

TEST(Sampler, BiasPenaltiesAndBansAreTheirFormulae) {
  const std::vector<float> logits = drawn_logits(kVocab, 8, 2.0F);
  std::vector<TokenId> history;
  SplitMix64 rng(5);
  for (int i = 0; i < 120; ++i) history.push_back(static_cast<TokenId>(rng.below(80)));
  for (int kind = 0; kind < 5; ++kind) {
    SamplingParams params;
    params.seed = static_cast<uint64_t>(kind);
    if (kind == 0 || kind == 4) params.repetition_penalty = 1.7F;
    if (kind == 1 || kind == 4) params.frequency_penalty = 0.6F;
    if (kind == 2 || kind == 4) params.presence_penalty = -1.3F;
    if (kind == 3 || kind == 4) params.logit_bias = {{2, 3.0F}, {40, -100.0F}, {250, 4.0F}};
    expect_distribution(logits, params, "kind " + std::to_string(kind), history, 50);
  }
}

TEST(Sampler, PenalisedLogitsAreExact) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  params.frequency_penalty = 0.25F;
  params.presence_penalty = 0.5F;
  TokenCounts counts;
  counts.reset(std::vector<TokenId>{3, 1, 3, 2, 2, 1}, 3);  // prompt 3 1 3, output 2 2 1
  counts.add(2);
  counts.add(6);
  counts.add(0);
  std::vector<float> logits = {8, 8, -8, -8, 8, -8, 8};
  apply_penalties(params, counts, logits);
  EXPECT_THAT(logits, testing::ElementsAre(4 - 0.75F,           // once in the output
                                           4 - 0.75F,           // prompt and once in the output
                                           -16 - 0.75F - 0.5F,  // three times
                                           -16,                 // prompt only
                                           8, -8,               // nowhere
                                           4 - 0.75F));
}

TEST(Sampler, WhatIsForbiddenIsNeverDrawn) {
  const std::vector<float> logits = drawn_logits(kVocab, 15, 2.0F);
  std::vector<TokenId> history;
  SplitMix64 rng(6);
  for (int i = 0; i < 60; ++i) history.push_back(static_cast<TokenId>(rng.below(80)));
  for (int kind = 0; kind < 5; ++kind) {
    SamplingParams params;
    params.seed = static_cast<uint64_t>(kind);
    if (kind == 0 || kind == 4) params.min_tokens = 11;  // ten are there
    if (kind == 0 || kind == 4) params.end_tokens = {3, 120, 299};
    if (kind == 1 || kind == 4) {
      params.bad_words = {{7}, {history[59], 8}, {history[58], history[59], 9}, {history[58], 10}, history};
      params.bad_words.write().back().push_back(11);  // begins in the prompt
    }
    if (kind == 2 || kind == 4) {
      for (TokenId id = 0; id < 290; id += 1 + id % 7) params.allowed_tokens.write().push_back(id);
    }
    if (kind == 3 || kind == 4) params.logit_bias = {{3, 9.0F}, {7, 9.0F}, {8, 9.0F}, {9, 9.0F}};
    if (kind >= 3) params.repetition_penalty = 1.5F;
    params.top_p = 0.95F;
    expect_distribution(logits, params, "kind " + std::to_string(kind), history, 50);
    params.min_p = 0.01F;
    params.top_k = 40;
    expect_distribution(logits, params, "filtered kind " + std::to_string(kind), history, 50);
    params.temperature = 0.0F;
    expect_distribution(logits, params, "greedy kind " + std::to_string(kind), history, 50);
  }
}

TEST(Sampler, AMaskAllowsTheTokensOfItsBits) {
  const std::vector<float> logits = drawn_logits(kVocab, 16, 2.0F);
  SamplingParams params;
  params.mask = 0;
  SamplerWorkspace workspace(kVocab);
  SequenceSampler sampler;
  sampler.reset(params, {}, 0);
  std::set<TokenId> drawn;
  std::vector<uint32_t> mask((kVocab + 31) / 32, 0);
  for (const size_t id : {0U, 31U, 32U, 64U, 299U}) mask[id / 32] |= 1U << (id % 32);
  mask.back() |= 1U << 12;  // behind the vocabulary: 300
  for (uint32_t position = 0; position < 500; ++position) {
    SampledToken token;
    ASSERT_EQ(sampler.sample(logits, position, workspace, token, mask).why, "");
    drawn.insert(token.token);
  }
  EXPECT_THAT(drawn, testing::ElementsAre(0, 31, 32, 64, 299));
}

TEST(Sampler, NamesTheProcessorsThatLeaveNoToken) {
  const std::vector<float> logits = drawn_logits(kVocab, 17);
  const std::vector<uint32_t> even((kVocab + 31) / 32, 0x55555555);
  const auto error_of = [&](const SamplingParams& params, std::span<const uint32_t> mask = {}) {
    SamplerWorkspace workspace(kVocab);
    SequenceSampler sampler;
    sampler.reset(params, std::vector<TokenId>{1, 2}, 1);
    SampledToken token;
    const NoToken none = sampler.sample(logits, 2, workspace, token, mask);
    EXPECT_EQ(none.refused, !none.why.empty());
    return none.why;
  };
  SamplingParams params;
  params.logit_bias = {{5, 3.0F}};
  params.presence_penalty = 1.0F;
  params.bad_words = {{5}, {2, 6}, {3, 7}};
  EXPECT_EQ(error_of(params), "");
  params.allowed_tokens = {5, 6};
  EXPECT_EQ(error_of(params), "bad_words and allowed_token_ids leave no token for position 2");
  params.min_tokens = 3;
  params.end_tokens = {6, 8};  // would do together with a part of bad_words; that all of it is enough
  EXPECT_EQ(error_of(params), "bad_words and allowed_token_ids leave no token for position 2");
  params.allowed_tokens = {5, 8};
  EXPECT_EQ(error_of(params), "min_tokens, bad_words and allowed_token_ids leave no token for position 2");
  params.min_tokens = 1;
  EXPECT_EQ(error_of(params), "");
  params.allowed_tokens = {7, 9};
  params.mask = 3;
  EXPECT_EQ(error_of(params, even), "allowed_token_ids and the grammar leave no token for position 2");
  EXPECT_EQ(error_of(params, std::vector<uint32_t>(even.size(), 0)),
            "the grammar leaves no token for position 2");
}

TEST(Sampler, BadWordsFollowWhatIsSampled) {
  std::vector<float> logits(8, -5.0F);
  logits[3] = 2.0F;
  logits[4] = 1.0F;
  SamplingParams params;
  params.temperature = 0.0F;
  params.bad_words = {{3, 3}, {3, 4, 3, 4}};
  SamplerWorkspace workspace(logits.size());
  SequenceSampler sampler;
  std::vector<TokenId> tokens = {3};  // the prompt does not count
  sampler.reset(params, tokens, 1);
  for (uint32_t position = 1; position < 9; ++position) {
    SequenceSampler anew;  // as after a preemption
    anew.reset(params, tokens, 1);
    SampledToken token;
    SampledToken again;
    ASSERT_EQ(sampler.sample(logits, position, workspace, token).why, "");
    ASSERT_EQ(anew.sample(logits, position, workspace, again).why, "");
    ASSERT_EQ(token.token, again.token);
    tokens.push_back(token.token);
  }
  EXPECT_THAT(tokens, testing::ElementsAre(3, 3, 4, 3, 0, 3, 4, 3, 0));
}

TEST(Sampler, PenaltiesCountWhatIsSampled) {
  const std::vector<float> logits = drawn_logits(kVocab, 9, 3.0F);
  for (const float temperature : {0.0F, 0.8F}) {
    SamplingParams params;
    params.temperature = temperature;
    params.repetition_penalty = 1.3F;
    params.presence_penalty = 0.4F;
    params.frequency_penalty = 0.3F;
    params.seed = 11;
    const std::vector<TokenId> prompt = {5, 6, 5, 200};
    std::vector<TokenId> tokens = prompt;
    SamplerWorkspace workspace(kVocab);
    SequenceSampler sampler;
    sampler.reset(params, prompt, prompt.size());
    for (uint32_t i = 0; i < 200; ++i) {
      const auto position = static_cast<uint32_t>(tokens.size());
      SequenceSampler anew;  // as after a preemption
      anew.reset(params, tokens, prompt.size());
      SampledToken token;
      SampledToken again;
      ASSERT_EQ(sampler.sample(logits, position, workspace, token).why, "");
      ASSERT_EQ(anew.sample(logits, position, workspace, again).why, "");
      ASSERT_EQ(token.token, again.token);
      const std::vector<double> p = reference_distribution(logits, params, tokens, prompt.size());
      ASSERT_GT(p[static_cast<size_t>(token.token)], 0.0);
      tokens.push_back(token.token);
    }
    EXPECT_GT(std::set<TokenId>(tokens.begin(), tokens.end()).size(), 20U);
  }
}

TEST(Sampler, ExtremeParametersStayDefined) {
  std::vector<float> logits = drawn_logits(kVocab, 10);
  logits[17] = 3e38F;
  logits[18] = -3e38F;
  logits[19] = 3e38F;
  for (const float temperature : {1e-45F, 1e-30F, 1e-6F, 1.0F, 1e6F, 3e38F}) {
    for (const float top_p : {1.0F, 0.99999994F, 1e-38F}) {
      for (const float penalty : {1.0F, 1e-38F, 3e38F}) {
        for (const float min_p : {0.0F, 1.0F}) {
          SamplingParams params;
          params.temperature = temperature;
          params.top_p = top_p;
          params.repetition_penalty = penalty;
          params.min_p = min_p;
          params.num_logprobs = 3;
          const std::vector<TokenId> history = {17, 18};
          SamplerWorkspace workspace(kVocab);
          SequenceSampler sampler;
          sampler.reset(params, history, 2);
          SampledToken token;
          EXPECT_EQ(sampler.sample(logits, 0, workspace, token).why, "");
          EXPECT_LT(static_cast<size_t>(token.token), kVocab);
        }
      }
    }
  }
  SamplingParams cold;
  cold.temperature = 1e-45F;
  logits[19] = 0.0F;
  EXPECT_THAT(draw_many(logits, cold, 50), testing::Each(17));
}

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  std::vector<float> logits(1000, -1.0F);
  logits[700] = logits[100] = logits[999] = 2.0F;
  SamplingParams params;
  params.temperature = 0.0F;
  EXPECT_EQ(draw_many(logits, params, 1)[0], 100);
  params.logit_bias = {{999, 0.5F}};
  EXPECT_EQ(draw_many(logits, params, 1)[0], 999);
  // The zeros of both signs are equal.
  EXPECT_EQ(draw_many(std::vector<float>{-0.0F, 0.0F}, at_temperature(0.0F), 1)[0], 0);
}

TEST(Sampler, TopKKeepsTiesAndTopPDoesNot) {
  std::vector<float> logits(100, -10.0F);
  for (const size_t i : {10, 20, 30, 40}) logits[i] = 1.0F;
  SamplingParams top_k;
  top_k.top_k = 2;
  SamplingParams top_p;
  top_p.top_p = 0.5F;  // two of four equal ones reach a half exactly, but for the small rest
  const auto support = [&](const SamplingParams& params) {
    const std::vector<TokenId> drawn = draw_many(logits, params, 500);
    return std::set<TokenId>(drawn.begin(), drawn.end());
  };
  EXPECT_THAT(support(top_k), testing::ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(support(top_p), testing::ElementsAre(10, 20, 30));
  top_p.top_k = 4;  // without the rest, two reach it
  EXPECT_THAT(support(top_p), testing::ElementsAre(10, 20));
  top_p.top_p = 0.2F;
  EXPECT_THAT(support(top_p), testing::ElementsAre(10));
}

TEST(Sampler, SeedChoiceAndPositionKeyTheDraw) {
  const std::vector<float> logits = drawn_logits(kVocab, 12, 1.0F);
  SamplingParams params;
  params.seed = 42;
  const std::vector<TokenId> first = draw_many(logits, params, 100);
  EXPECT_EQ(draw_many(logits, params, 100), first);
  SamplingParams other = params;
  other.choice = 1;
  const std::vector<TokenId> second = draw_many(logits, other, 100);
  other = params;
  other.seed = 43;
  const std::vector<TokenId> third = draw_many(logits, other, 100);
  const auto equal_places = [](const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
    int count = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] == b[i] ? 1 : 0;
    return count;
  };
  EXPECT_LT(equal_places(first, second), 10);
  EXPECT_LT(equal_places(first, third), 10);
  EXPECT_LT(equal_places(second, third), 10);
  const std::vector<TokenId> next(first.begin() + 1, first.end());
  EXPECT_LT(equal_places(next, first), 10);  // of another position
  // A draw does not depend on those before it, on other parameters in the workspace, or on other sequences.
  SamplerWorkspace workspace(kVocab);
  SequenceSampler busy;
  SamplingParams noisy;
  noisy.top_p = 0.7F;
  noisy.logit_bias = {{0, 50.0F}};
  noisy.num_logprobs = 20;
  busy.reset(noisy, {}, 0);
  SequenceSampler sampler;
  sampler.reset(params, {}, 0);
  for (uint32_t position = 100; position-- > 0;) {
    SampledToken token;
    ASSERT_EQ(busy.sample(logits, position, workspace, token).why, "");
    SampledToken mine;
    ASSERT_EQ(sampler.sample(logits, position, workspace, mine).why, "");
    ASSERT_EQ(mine.token, first[position]);
  }
}

TEST(Sampler, LogprobsAreThoseOfTheModel) {
  const std::vector<float> logits = drawn_logits(5000, 13);
  const std::vector<double> expected = test::reference_logprobs(logits);
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (const int32_t num : {-1, 0, 1, 5, 20}) {
    SamplingParams params;
    params.temperature = 5.0F;
    params.logit_bias = {{order[3], -5.0F}};
    params.num_logprobs = num;
    SamplerWorkspace workspace(logits.size());
    SequenceSampler sampler;
    sampler.reset(params, {}, 0);
    for (uint32_t position = 0; position < 50; ++position) {
      SampledToken token;
      ASSERT_EQ(sampler.sample(logits, position, workspace, token).why, "");
      ASSERT_EQ(token.top.size(), num < 0 ? 0U : static_cast<size_t>(num));
      if (num < 0) {
        ASSERT_EQ(token.rank, 0U);
        ASSERT_EQ(token.logprob, 0.0F);
        continue;
      }
      ASSERT_NEAR(token.logprob, expected[static_cast<size_t>(token.token)], 2e-6);
      ASSERT_EQ(order[token.rank - 1], token.token);
      for (size_t i = 0; i < token.top.size(); ++i) {
        ASSERT_EQ(token.top[i].token, order[i]);
        ASSERT_NEAR(token.top[i].logprob, expected[static_cast<size_t>(order[i])], 2e-6);
      }
    }
  }
}

TEST(Sampler, LogprobsOfTokensThatAreAskedFor) {
  const std::vector<float> logits = drawn_logits(5000, 18);
  const std::vector<double> expected = test::reference_logprobs(logits);
  SamplingParams params;
  params.num_logprobs = 2;
  params.logprob_tokens = {4999, 7, 0};
  SamplerWorkspace workspace(logits.size());
  SequenceSampler sampler;
  for (const int32_t chosen : {-1, 7}) {  // any, and one of them
    if (chosen >= 0) params.allowed_tokens = {chosen};
    sampler.reset(params, {}, 0);
    SampledToken token;
    ASSERT_EQ(sampler.sample(logits, 3, workspace, token).why, "");
    std::vector<TokenId> ids = {token.token};
    for (const TokenId id : params.logprob_tokens) {
      if (id != token.token) ids.push_back(id);
    }
    ASSERT_EQ(ids.size(), chosen >= 0 ? 3U : 4U);
    EXPECT_LE(token.top.size(), params.most_logprobs());
    ASSERT_EQ(token.top.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(token.top[i].token, ids[i]);
      EXPECT_NEAR(token.top[i].logprob, expected[static_cast<size_t>(ids[i])], 2e-6);
    }
  }
}

TEST(Sampler, UnderAMaskLogprobsAreThoseAmongItsTokens) {
  const std::vector<float> logits = drawn_logits(kVocab, 19);
  const std::vector<TokenId> permitted = {2, 40, 41, 150, 299};
  std::vector<uint32_t> mask((kVocab + 31) / 32, 0);
  std::vector<float> theirs;
  for (const TokenId id : permitted) {
    mask[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    theirs.push_back(logits[static_cast<size_t>(id)]);
  }
  const std::vector<double> expected = test::reference_logprobs(theirs);
  SamplerWorkspace workspace(kVocab);
  for (const bool biased : {false, true}) {  // which changes what is drawn, not what is said of it
    for (const bool asked : {false, true}) {
      SamplingParams params;
      params.mask = 0;
      params.num_logprobs = 20;
      if (biased) params.logit_bias = {{40, 30.0F}, {41, -3.0F}};
      if (asked) params.logprob_tokens = {3, 299, 150, 41, 40, 2};
      SequenceSampler sampler;
      sampler.reset(params, {}, 0);
      SampledToken token;
      ASSERT_EQ(sampler.sample(logits, 9, workspace, token, mask).why, "");
      ASSERT_EQ(token.top.size(), asked ? 6U : 5U);
      double sum = 0.0;
      for (const TokenLogprob& entry : token.top) {
        const auto at = std::ranges::find(permitted, entry.token);
        if (at == permitted.end()) {
          EXPECT_TRUE(asked && entry.token == 3 && std::isinf(entry.logprob)) << entry.token;
          continue;
        }
        EXPECT_NEAR(entry.logprob, expected[static_cast<size_t>(at - permitted.begin())], 2e-6);
        sum += std::exp(static_cast<double>(entry.logprob));
        EXPECT_TRUE(entry.token != token.token || entry.logprob == token.logprob);
      }
      EXPECT_NEAR(sum, 1.0, 1e-6);
      const auto better = std::ranges::count_if(
          theirs, [&](float x) { return x > logits[static_cast<size_t>(token.token)]; });
      EXPECT_EQ(token.rank, static_cast<uint32_t>(better) + 1);
      EXPECT_TRUE(!biased || token.token == 40);
      EXPECT_TRUE(asked || std::ranges::is_sorted(token.top, std::greater<>(), &TokenLogprob::logprob));
    }
  }
}

TEST(Sampler, BadLogitsAreAnErrorThatNamesThePosition) {
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = drawn_logits(kVocab, 14);
    SamplerWorkspace workspace(kVocab);
    for (const float temperature : {0.0F, 1.0F}) {
      SequenceSampler sampler;
      sampler.reset(at_temperature(temperature), {}, 0);
      SampledToken token;
      logits[123] = bad;
      const auto [error, refused] = sampler.sample(logits, 77, workspace, token);
      EXPECT_FALSE(refused);
      EXPECT_THAT(error, testing::HasSubstr("position 77"));
      EXPECT_THAT(error, testing::HasSubstr("token 123"));
      logits[123] = 0.0F;
      EXPECT_EQ(sampler.sample(logits, 77, workspace, token).why, "");
    }
  }
}

}  // namespace
}  // namespace quire::sample
