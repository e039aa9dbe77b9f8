#include "backend/cuda/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/sample_lists.h"
#include "backend/cuda/sample_math.h"
#include "sample/sampler.h"
#include "tests/device_on_host/support.h"

// The device's sampler against the CPU's: the same token, logprobs and rank from the same logits.
namespace quire::test::fibers {
namespace {

using backend::cuda::SampledRow;
using backend::cuda::SampleRow;
using backend::cuda::SampleStatus;

static_assert(backend::cuda::kSpan == sample::kLogitBlock);

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> history;
  size_t prompt_length = 0;
  std::vector<uint32_t> mask;  // if params.mask is set
};

struct Sampled : SampledRow {
  std::vector<float> rated;  // the logprobs of logprob_tokens
};

/// Rows as an executor makes them. Of each output up to `late` tokens are only on the device.
class Batch {
 public:
  explicit Batch(const std::vector<Case>& cases, size_t late = 0)
      : vocabulary_(cases.front().logits.size()), tokens_(cases.size() * backend::cuda::kPlacesOfSlot, -7) {
    for (const Case& one : cases) add(one, std::min(late, one.history.size() - one.prompt_length));
  }

  std::vector<Sampled> sample(Device& device, size_t gap = 0) const {
    const size_t stride = (vocabulary_ + 3) / 4 * 4 + gap;
    const size_t count = lists_.rows.size();
    DeviceArray<float> logits(device, "logits", count * stride);
    for (size_t row = 0; row < count; ++row) {
      logits.region().write(row * stride * sizeof(float), logits_[row].data(), vocabulary_ * sizeof(float));
    }
    const auto vocabulary = static_cast<uint32_t>(vocabulary_);
    std::vector<std::byte> bytes(lists_.bytes());
    DeviceArray<std::byte> lists(device, "lists", bytes.size());
    DeviceArray<float> rated_logprobs(device, "rated logprobs", lists_.rated.size());
    DeviceArray<std::byte> workspace(device, "workspace",
                                     count * backend::cuda::sample_workspace_bytes(vocabulary));
    DeviceArray<TokenId> tokens(device, "tokens", tokens_);
    DeviceArray<SampledRow> results(device, "results", count);
    backend::cuda::SampleArgs args{.logits = logits.data(),
                                   .stride = static_cast<uint32_t>(stride),
                                   .vocabulary = vocabulary,
                                   .workspace = workspace.data(),
                                   .tokens = tokens.data(),
                                   .results = results.data(),
                                   .rated_logprobs = rated_logprobs.data()};
    lists_.write(bytes.data(), lists.data(), args);
    lists.region().write(0, bytes.data(), bytes.size());
    lists.data();  // which brings to a real device what was written
    EXPECT_EQ(backend::cuda::sample(args, nullptr), 0);
    EXPECT_TRUE(device.findings().empty()) << device.report();
    std::vector<Sampled> found;
    for (size_t row = 0; row < count; ++row) {
      const SampledRow& result = results.values()[row];
      EXPECT_EQ(tokens.values()[lists_.rows[row].place],
                result.status == SampleStatus::kToken ? result.token : -1);
      const backend::cuda::ListPart part = lists_.rows[row].rated;
      const auto of_row = rated_logprobs.values().subspan(part.first, part.count);
      found.push_back({result, {of_row.begin(), of_row.end()}});
    }
    return found;
  }

 private:
  void add(const Case& one, size_t late) {
    const auto slot = static_cast<SlotId>(logits_.size());
    const auto position = static_cast<uint32_t>(one.history.size());
    for (size_t i = position - late; i < position; ++i) {
      tokens_[backend::cuda::token_place(slot, static_cast<uint32_t>(i))] = one.history[i];
    }
    backend::cuda::SlotSampling sampling;
    sampling.reset(one.params, std::span(one.history).first(position - late),
                   static_cast<uint32_t>(one.prompt_length));
    sampling.add_row(slot, position, one.mask, static_cast<uint32_t>(vocabulary_), lists_);
    lists_.rows.back().logits = slot;
    logits_.push_back(one.logits);
  }

  size_t vocabulary_;
  std::vector<std::vector<float>> logits_;
  backend::cuda::SampleLists lists_;
  std::vector<TokenId> tokens_;
};

/// Wants of a row what the CPU's sampler says.
void expect_as_on_cpu(const Case& one, const Sampled& found) {
  sample::SequenceSampler sampler;
  sample::SamplerWorkspace workspace(one.logits.size());
  sampler.reset(one.params, one.history, one.prompt_length);
  SampledToken wanted;
  const auto position = static_cast<uint32_t>(one.history.size());
  const sample::NoToken none = sampler.sample(one.logits, position, workspace, wanted, one.mask);
  if (!none.why.empty()) {
    ASSERT_EQ(found.status, none.refused ? SampleStatus::kNoToken : SampleStatus::kNotFinite) << none.why;
    if (!none.refused) {
      ASSERT_EQ(static_cast<size_t>(found.token), sample::first_not_finite(one.logits));
    }
    return;
  }
  ASSERT_EQ(found.status, SampleStatus::kToken);
  ASSERT_EQ(found.token, wanted.token);
  ASSERT_EQ(found.rank, wanted.rank);
  if (one.params.num_logprobs < 0) {
    ASSERT_EQ(found.num_top, 0U);
    return;
  }
  ASSERT_FLOAT_EQ(found.logprob, wanted.logprob);
  if (!one.params.logprob_tokens.empty()) {
    std::vector<TokenLogprob> named = {{found.token, found.logprob}};
    for (size_t i = 0; i < found.rated.size(); ++i) {
      const TokenId id = one.params.logprob_tokens[i];
      if (id != found.token) named.push_back({id, found.rated[i]});
    }
    ASSERT_EQ(named.size(), wanted.top.size());
    for (size_t i = 0; i < named.size(); ++i) {
      ASSERT_EQ(named[i].token, wanted.top[i].token);
      ASSERT_FLOAT_EQ(named[i].logprob, wanted.top[i].logprob);
    }
    return;
  }
  ASSERT_EQ(found.num_top, wanted.top.size());
  for (size_t i = 0; i < wanted.top.size(); ++i) {
    ASSERT_EQ(found.top[i].token, wanted.top[i].token) << "place " << i;
    ASSERT_FLOAT_EQ(found.top[i].logprob, wanted.top[i].logprob) << "place " << i;
  }
}

void expect_as_on_cpu(const std::vector<Case>& cases, const std::vector<Sampled>& found) {
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    expect_as_on_cpu(cases[i], found[i]);
  }
}

/// Draws what a request may ask for, and logits with or without many ties.
class Cases {
 public:
  Cases(uint64_t seed, size_t vocabulary) : rng_(seed), vocabulary_(vocabulary) {}

  std::vector<float> logits(float scale, float step) {
    std::vector<float> values(vocabulary_);
    for (float& value : values) {
      double sum = 0.0;
      for (int i = 0; i < 4; ++i) sum += unit_interval(rng_.next()) - 0.5;
      value = static_cast<float>(sum) * scale;
      if (step > 0.0F) value = std::round(value / step) * step;  // 0 of both signs
    }
    return values;
  }

  Case next() {
    Case one;
    one.logits =
        logits(pick<float>({0.5F, 4.0F, 12.0F, 60.0F, 1.5e38F}), pick<float>({0.0F, 0.0F, 0.25F, 2.0F}));
    SamplingParams& params = one.params;
    params.seed = rng_.next();
    params.choice = static_cast<uint32_t>(rng_.below(4));
    params.temperature = pick<float>({0.0F, 1e-30F, 0.3F, 0.7F, 1.0F, 1.0F, 1.7F});
    const auto all = static_cast<int32_t>(vocabulary_);
    params.top_k = pick<int32_t>({0, 0, 0, 1, 5, 40, 300, all - 1, all, all + 7});
    params.top_p = pick<float>({1.0F, 1.0F, 0.05F, 0.5F, 0.9F, 0.99F, 0.99999994F});
    params.min_p = pick<float>({0.0F, 0.0F, 0.0F, 0.001F, 0.1F, 1.0F});
    params.num_logprobs = pick<int32_t>({-1, -1, 0, 1, 7, 20});
    if (one_in(4)) params.logprob_tokens = some_tokens(30);
    one.prompt_length = 1 + rng_.below(40);
    for (size_t i = one.prompt_length + rng_.below(40); i > 0; --i) one.history.push_back(token_of_few());
    if (one_in(3)) params.repetition_penalty = pick<float>({0.8F, 1.2F, 1.7F});
    if (one_in(3)) params.presence_penalty = pick<float>({-1.3F, 0.7F, 2.0F});
    if (one_in(3)) params.frequency_penalty = pick<float>({-0.1F, 0.3F, 1.1F});
    if (one_in(3)) {
      for (const TokenId id : some_tokens(3))
        params.logit_bias.write().emplace_back(id, pick<float>({-100, 3, 20}));
    }
    forbid(one);
    return one;
  }

 private:
  template <class T>
  T pick(const std::vector<T>& values) {
    return values[rng_.below(values.size())];
  }
  bool one_in(uint64_t count) { return rng_.below(count) == 0; }
  TokenId token_of_few() {
    return static_cast<TokenId>(rng_.below(one_in(4) ? vocabulary_ : std::min<size_t>(vocabulary_, 30)));
  }
  std::vector<TokenId> some_tokens(size_t count) {
    std::vector<TokenId> ids(count);
    for (TokenId& id : ids) id = token_of_few();
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
  void forbid(Case& one) {
    SamplingParams& params = one.params;
    if (one_in(4)) {
      params.min_tokens = 20;
      params.end_tokens = some_tokens(3);
    }
    if (one_in(4)) {
      params.bad_words = {{token_of_few()}, {one.history.back(), token_of_few()}, {1, 2, 3, 4}};
    }
    if (one_in(4)) params.allowed_tokens = some_tokens(pick<size_t>({1, 30, 400}));
    if (one_in(3)) {
      params.mask = 0;
      one.mask.resize((vocabulary_ + 31) / 32);
      const bool is_dense = one_in(2);
      for (uint32_t& word : one.mask) {
        word = static_cast<uint32_t>(rng_.next());
        if (!is_dense) word &= static_cast<uint32_t>(rng_.next() & rng_.next());
      }
    }
  }

  SplitMix64 rng_;
  size_t vocabulary_;
};

std::vector<Case> random_cases(uint64_t seed, size_t vocabulary, size_t count) {
  Cases source(seed, vocabulary);
  std::vector<Case> cases;
  for (size_t i = 0; i < count; ++i) cases.push_back(source.next());
  return cases;
}

TEST(Sample, TokensAreThoseOfTheCpu) {
  for (const auto& [vocabulary, count] : {std::pair{512, 120}, {4096, 16}, {32000, 4}, {511, 20}, {5, 40}}) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocabulary));
    const std::vector<Case> cases = random_cases(7, static_cast<size_t>(vocabulary), count);
    Device device(1);
    expect_as_on_cpu(cases, Batch(cases).sample(device));
    if (HasFailure()) return;
  }
}

TEST(Sample, TokensOfALargeVocabularyAreThoseOfTheCpu) {
  const std::vector<Case> cases = random_cases(17, 70'001, 6);
  Device device(1);
  expect_as_on_cpu(cases, Batch(cases).sample(device));
}

/// mix64 backwards.
uint64_t unmix64(uint64_t x) {
  const auto unshift = [](uint64_t y, int bits) {
    uint64_t out = y;
    for (int known = bits; known < 64; known += bits) out = y ^ (out >> bits);
    return out;
  };
  const auto inverse = [](uint64_t odd) {
    uint64_t out = odd;  // right in the lowest three bits, then in twice as many with each step
    for (int i = 0; i < 5; ++i) out *= 2 - odd * out;
    return out;
  };
  x = unshift(x, 31) * inverse(0x94d049bb133111ebU);
  x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9U);
  return unshift(x, 30) - 0x9e3779b97f4a7c15U;
}

/// The case with the seed by which the draw is `uniform` * 2^-53.
Case drawing(Case one, uint64_t uniform) {
  one.params.seed = unmix64(unmix64(unmix64(uniform << 11) ^ one.history.size()) ^ one.params.choice);
  return one;
}

TokenId token_on_cpu(const Case& one) {
  sample::SequenceSampler sampler;
  sample::SamplerWorkspace workspace(one.logits.size());
  sampler.reset(one.params, one.history, one.prompt_length);
  SampledToken out;
  const auto position = static_cast<uint32_t>(one.history.size());
  return sampler.sample(one.logits, position, workspace, out, one.mask).why.empty() ? out.token : -1;
}

/// Neighbouring draws between which the CPU goes from one token to the next are found by halving. There every
/// last bit of every sum decides.
TEST(Sample, TokensChangeAtTheDrawsAtWhichThoseOfTheCpuDo) {
  SplitMix64 rng(11);
  Cases source(9, 512);
  std::vector<Case> cases;
  for (size_t i = 0; i < 120; ++i) {
    Case one = source.next();
    if (i % 2 == 1) {  // many weights far apart: each order of a sum is another sum
      one = {
          .logits = source.logits(12.0F, 0.0F), .params = {}, .history = {7}, .prompt_length = 1, .mask = {}};
      if (i % 3 > 0) one.params.top_k = 400;  // else the sums of spans decide
      one.params.top_p = i % 4 == 1 ? 1.0F : 0.9999F;
    }
    uint64_t low = rng.below(uint64_t{1} << 52);
    uint64_t high = (uint64_t{1} << 53) - 1;
    const TokenId first = token_on_cpu(drawing(one, low));
    if (first == token_on_cpu(drawing(one, high))) continue;
    while (high - low > 1) {
      const uint64_t middle = (low + high) / 2;
      (token_on_cpu(drawing(one, middle)) == first ? low : high) = middle;
    }
    cases.push_back(drawing(one, low));
    cases.push_back(drawing(one, high));
  }
  ASSERT_GT(cases.size(), 120U);
  Device device(1);
  expect_as_on_cpu(cases, Batch(cases).sample(device));
}

/// Penalties and bad words count tokens that only the device knows, in a list or not in it, twice or once.
TEST(Sample, TokensThatAreLateCount) {
  std::vector<Case> cases;
  Cases source(21, 40);
  while (cases.size() < 120) {
    Case one = source.next();
    one.params.temperature = 0.0F;  // the penalties decide
    const size_t length = one.history.size();
    if (length < one.prompt_length + 2 || !one.params.needs_history() || token_on_cpu(one) < 0) continue;
    if (cases.size() % 3 == 0) one.history[length - 1] = one.history[length - 2];
    const std::span<const TokenId> last = std::span(one.history).last(2);
    if (const TokenId best = token_on_cpu(one); best >= 0)
      one.params.bad_words.write().push_back({last[1], best});
    one.params.bad_words.write().push_back({last[0], last[1], 3});
    one.params.bad_words.write().push_back({last[1], last[0], 4});
    if (const TokenId best = token_on_cpu(one); best >= 0) {  // which stays, as another token comes before it
      one.params.bad_words.write().push_back({(last[1] + 1) % 40, best});
    }
    cases.push_back(std::move(one));
  }
  for (const size_t late : {0, 1, 2}) {
    SCOPED_TRACE("late " + std::to_string(late));
    Device device(late);
    expect_as_on_cpu(cases, Batch(cases, late).sample(device));
  }
}

/// The token before could not be sampled: nothing is read by its number.
TEST(Sample, ALateTokenMayBeNone) {
  std::vector<Case> cases = random_cases(13, 40, 40);
  for (Case& one : cases) {
    one.prompt_length = one.history.size();
    one.history.push_back(-1);
    one.params.repetition_penalty = 1.5F;
  }
  Device device(1);
  const std::vector<Sampled> found = Batch(cases, 1).sample(device);
  for (size_t i = 0; i < cases.size(); ++i) {
    const bool is_finite = sample::first_not_finite(cases[i].logits) == cases[i].logits.size();
    EXPECT_EQ(found[i].status == SampleStatus::kNotFinite, !is_finite) << i;
  }
}

TEST(Sample, IsTheSameInEveryOrderAndWithoutAFinding) {
  const std::vector<Case> cases = random_cases(3, 640, 8);
  in_many_orders([&](Device& device) { expect_as_on_cpu(cases, Batch(cases).sample(device, 8)); });
}

TEST(Sample, ARowDependsOnNoOther) {
  const std::vector<Case> cases = random_cases(5, 700, 12);
  Device device(2);
  const std::vector<Sampled> together = Batch(cases).sample(device);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Sampled alone = Batch({cases[i]}).sample(device)[0];
    EXPECT_EQ(alone.status, together[i].status);
    EXPECT_EQ(alone.token, together[i].token);
    EXPECT_EQ(std::bit_cast<uint32_t>(alone.logprob), std::bit_cast<uint32_t>(together[i].logprob));
    EXPECT_EQ(alone.rank, together[i].rank);
    ASSERT_EQ(alone.num_top, together[i].num_top);
    for (size_t k = 0; k < alone.num_top; ++k) {
      EXPECT_EQ(alone.top[k].token, together[i].top[k].token);
      EXPECT_EQ(alone.top[k].logprob, together[i].top[k].logprob);
    }
    EXPECT_EQ(alone.rated, together[i].rated);
  }
}

TEST(Sample, KeysDrawsBySeedChoiceAndPosition) {
  Case one;
  one.logits.assign(1000, 0.0F);
  std::vector<Case> cases;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (uint32_t choice = 0; choice < 3; ++choice) {
      for (size_t position = 1; position < 4; ++position) {
        one.params.seed = seed;
        one.params.choice = choice;
        one.history.assign(position, 0);
        cases.push_back(one);
      }
    }
  }
  Device device(1);
  const std::vector<Sampled> found = Batch(cases).sample(device);
  expect_as_on_cpu(cases, found);
  std::set<TokenId> tokens;
  for (const Sampled& row : found) tokens.insert(row.token);
  EXPECT_GT(tokens.size(), cases.size() - 3);
}

TEST(Sample, TiesGoToTheLowestId) {
  Case one;
  one.logits.assign(300, -1.0F);
  for (const size_t id : {299, 130, 70, 66, 5}) one.logits[id] = id % 2 == 0 ? 0.0F : -0.0F;
  one.params.temperature = 0.0F;
  one.params.num_logprobs = 7;
  Case three = one;  // the third best has two equals, which stay
  three.params.temperature = 1.0F;
  three.params.top_k = 3;
  std::vector<Case> cases = {one, three, three, three, three, three, three};
  for (size_t i = 0; i < cases.size(); ++i) cases[i].params.seed = i;
  Device device(1);
  const std::vector<Sampled> found = Batch(cases).sample(device);
  expect_as_on_cpu(cases, found);
  EXPECT_EQ(found[0].token, 5);
  EXPECT_EQ(found[0].rank, 1U);
  ASSERT_EQ(found[0].num_top, 7U);
  const std::vector<TokenId> best = {5, 66, 70, 130, 299, 0, 1};
  for (size_t i = 0; i < best.size(); ++i) EXPECT_EQ(found[0].top[i].token, best[i]);
  bool is_beyond_three = false;
  for (size_t i = 1; i < found.size(); ++i) is_beyond_three |= found[i].token > 70;
  EXPECT_TRUE(is_beyond_three);
}

TEST(Sample, MasksThatLeaveOneTokenOrNone) {
  Case one;
  for (size_t i = 0; i < 200; ++i) one.logits.push_back(static_cast<float>(i % 17));
  one.params.mask = 0;
  one.mask.assign(7, 0);
  one.params.num_logprobs = 3;
  std::vector<Case> cases = {one, one, one, one};
  cases[0].mask[6] = 1U << 7;  // the last token
  cases[2].mask[0] = 6;
  cases[2].params.allowed_tokens = {0, 3, 150};
  cases[3].mask[0] = 6;
  cases[3].params.allowed_tokens = {0, 2, 150};
  cases[3].params.top_k = 2;
  Device device(1);
  const std::vector<Sampled> found = Batch(cases).sample(device);
  expect_as_on_cpu(cases, found);
  EXPECT_EQ(found[0].token, 199);
  EXPECT_EQ(found[0].num_top, 1U);
  EXPECT_EQ(found[0].logprob, 0.0F);
  EXPECT_EQ(found[1].status, SampleStatus::kNoToken);
  EXPECT_EQ(found[2].status, SampleStatus::kNoToken);
  EXPECT_EQ(found[3].token, 2);
  EXPECT_LT(found[3].logprob, 0.0F) << "that of the mask alone, which permits two";
}

TEST(Sample, ALogitThatIsNotFiniteIsReported) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Case good;
  good.logits.assign(1100, 1.0F);
  std::vector<Case> cases(5, good);
  cases[1].logits[1099] = std::numeric_limits<float>::quiet_NaN();
  cases[2].logits[1030] = -kInfinity;
  cases[2].logits[2] = kInfinity;
  cases[3].logits[64] = kInfinity;
  cases[3].params.logit_bias = {{64, -100.0F}};
  cases[4].logits[0] = -kInfinity;
  cases[4].params.temperature = 0.0F;
  Device device(1);
  const std::vector<Sampled> found = Batch(cases).sample(device);
  expect_as_on_cpu(cases, found);
  EXPECT_EQ(found[0].status, SampleStatus::kToken);
  EXPECT_EQ(found[2].token, 2);
}

TEST(Sample, RefusesVocabulariesBeyondItsSums) {
  Device device(1);
  backend::cuda::SampleArgs args{};
  args.num_rows = 1;
  EXPECT_NE(backend::cuda::sample(args, nullptr), 0);
  args.vocabulary = backend::cuda::kMostSampledVocabulary + 1;
  EXPECT_NE(backend::cuda::sample(args, nullptr), 0);
}

}  // namespace
}  // namespace quire::test::fibers
