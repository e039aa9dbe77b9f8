#include "sim/workload.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/digest.h"
#include "sim/workload_source.h"
#include "tests/support/data.h"

namespace quire::sim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

Lengths lengths(std::string_view text) { return Lengths::parse(text, "--len"); }

TEST(Lengths, AreParsedOrRefusedByTheFlag) {
  EXPECT_EQ(lengths("512").low, 512U);
  EXPECT_EQ(lengths("uniform:3:9").high, 9U);
  EXPECT_EQ(lengths("lognormal:290:1.25").sigma_thousandths, 1250U);
  EXPECT_EQ(lengths("lognormal:290:0.5:2048").high, 2048U);
}

TEST(Lengths, NonsenseIsRefused) {
  for (const char* wrong : {"",
                            "0",
                            "-1",
                            "12x",
                            "uniform:9:3",
                            "uniform:3",
                            "uniform:0:5",
                            "lognormal:100",
                            "lognormal:0:1",
                            "lognormal:100:11",
                            "lognormal:100:1.2345",
                            "lognormal:100:1:2:3",
                            "normal:1:2",
                            "99999999999",
                            "uniform::",
                            "lognormal:5:1:0",
                            "exponential:0",
                            "exponential:5:0",
                            "exponential",
                            "file:/nowhere/x",
                            "lognormal:100:1e3",
                            "4294967297"}) {
    try {
      lengths(wrong);
      ADD_FAILURE() << "'" << wrong << "' was taken";
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("--len: ")) << error.what();
    }
  }
}

TEST(Lengths, ThousandthsAreExact) {
  EXPECT_EQ(parse_thousandths("5", "--rate"), 5000U);
  EXPECT_EQ(parse_thousandths("5.5", "--rate"), 5500U);
  EXPECT_EQ(parse_thousandths("0.007", "--rate"), 7U);
  for (const char* wrong : {"", ".", "1.2.3", "1.2345", "-1", "1e3", "1.", "nan", "1000000001"}) {
    EXPECT_THROW(parse_thousandths(wrong, "--rate"), Error) << wrong;
  }
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double median = 0;
  uint32_t least = UINT32_MAX;
  uint32_t most = 0;
};

Moments moments_of(const Lengths& lengths, bool of_logarithm = false) {
  SplitMix64 random(7);
  std::vector<double> values;
  Moments moments;
  for (int i = 0; i < 100000; ++i) {
    const uint32_t drawn = lengths.draw(random);
    moments.least = std::min(moments.least, drawn);
    moments.most = std::max(moments.most, drawn);
    values.push_back(of_logarithm ? std::log(drawn) : drawn);
  }
  double squares = 0;
  for (const double x : values) {
    moments.mean += x / 1e5;
    squares += x * x / 1e5;
  }
  moments.deviation = std::sqrt(squares - moments.mean * moments.mean);
  std::nth_element(values.begin(), values.begin() + 50000, values.end());
  moments.median = values[50000];
  return moments;
}

TEST(Lengths, UniformIsUniform) {
  const Moments found = moments_of(lengths("uniform:100:300"));
  EXPECT_EQ(found.least, 100U);
  EXPECT_EQ(found.most, 300U);
  EXPECT_NEAR(found.mean, 200, 1);
  EXPECT_NEAR(found.deviation, 201 / std::sqrt(12.0), 0.5);
}

TEST(Lengths, LogNormalHasTheMeanAndSigmaAskedFor) {
  const Moments found = moments_of(lengths("lognormal:290:0.8"));
  EXPECT_NEAR(found.mean, 290, 4);
  EXPECT_NEAR(found.median, 290 * std::exp(-0.32), 3);
  EXPECT_NEAR(moments_of(lengths("lognormal:290:0.8"), true).deviation, 0.8, 0.01);
  const Moments cut = moments_of(lengths("lognormal:290:0.8:512"));
  EXPECT_EQ(cut.most, 512U);
  EXPECT_GE(cut.least, 1U);
}

TEST(Lengths, ExponentialHasItsMeanAndVariance) {
  const Moments found = moments_of(lengths("exponential:1000"));
  EXPECT_NEAR(found.mean, 1000, 15);
  EXPECT_NEAR(found.deviation, 1000, 20);
  EXPECT_NEAR(found.median, 693, 12);
  EXPECT_EQ(moments_of(lengths("exponential:1000:1500")).most, 1500U);
}

std::filesystem::path histogram(std::string_view text) {
  const auto path = test::temp_dir() / "histogram";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(Lengths, AHistogramIsDrawnAsCounted) {
  const auto path = histogram("\xEF\xBB\xBFlength,count\r\n10,1\r\n20-29,2\n\n40,0\n50,1\n");
  const Lengths found = lengths("file:" + path.string());
  SplitMix64 random(3);
  std::map<uint32_t, int> counts;
  for (int i = 0; i < 40'000; ++i) ++counts[found.draw(random)];
  EXPECT_EQ(counts.size(), 12U);
  EXPECT_NEAR(counts[10], 10'000, 400);
  EXPECT_NEAR(counts[50], 10'000, 400);
  for (uint32_t length = 20; length < 30; ++length) EXPECT_NEAR(counts[length], 2'000, 200) << length;
}

TEST(Lengths, ABadHistogramIsRefusedWithItsLineAndField) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "line 1: the histogram ends without a count over 0"},
      {"5,0\n", "line 1: the histogram ends without"},
      {"5,1\n6\n", "line 2: 1 values, not the 2 of LENGTH,COUNT"},
      {"h,c\n0,1\n", "line 2: LENGTH is '0'"},
      {"5,1\n9-8,1\n", "line 2: LENGTH is '9-8'"},
      {"5,1\n1-2-3,1\n", "line 2: LENGTH is '1-2-3'"},
      {"5,1\n6,-1\n", "line 2: COUNT is '-1'"},
      {"5,1\n6,1.5\n", "line 2: COUNT is '1.5'"},
      {"5,99999999999999999999\n", "line 1: COUNT is "}};
  for (const auto& [text, why] : bad) {
    const auto path = histogram(text);
    try {
      Lengths::parse("file:" + path.string(), "--prompt-len");
      ADD_FAILURE() << "taken: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("--prompt-len: " + path.string() + ": " + why), 0U)
          << error.what();
    }
  }
}

WorkloadConfig poisson(uint64_t rate_thousandths, uint32_t num_requests) {
  WorkloadConfig config;
  config.num_requests = num_requests;
  config.rate_thousandths = rate_thousandths;
  return config;
}

TEST(Workload, PoissonArrivalsHaveTheirRateAndTheirVariance) {
  const Workload workload = make_workload(poisson(5500, 100000));
  const auto& requests = workload.requests;
  EXPECT_NEAR(static_cast<double>(requests.back().arrival) / 1e9, 100000 / 5.5, 250);
  double mean = 0;
  double squares = 0;
  Nanos last = 0;
  for (const SimRequest& request : requests) {
    ASSERT_GE(request.arrival, last);
    const double gap = static_cast<double>(request.arrival - last) / 1e9;
    mean += gap / 1e5;
    squares += gap * gap / 1e5;
    last = request.arrival;
  }
  EXPECT_NEAR(squares / (mean * mean), 2, 0.05);  // of an exponential
}

TEST(Workload, WithoutRateAllComeAtOnceAndBurstsComeTogether) {
  for (const SimRequest& request : make_workload(poisson(0, 10)).requests) EXPECT_EQ(request.arrival, 0);
  WorkloadConfig config = poisson(0, 10);
  config.burst = 4;
  config.burst_every = 3 * kSecond;
  std::vector<Nanos> times;
  for (const SimRequest& request : make_workload(config).requests) times.push_back(request.arrival / kSecond);
  EXPECT_EQ(times, (std::vector<Nanos>{3, 3, 3, 3, 6, 6, 6, 6, 9, 9}));
}

TEST(Workload, BurstsComeBesideThePoissonArrivals) {
  WorkloadConfig config = poisson(2000, 1000);
  config.burst = 5;
  config.burst_every = 2 * kSecond;
  const Workload workload = make_workload(config);
  std::map<Nanos, int> at;
  Nanos last = 0;
  for (const SimRequest& request : workload.requests) {
    ASSERT_GE(request.arrival, last);
    last = request.arrival;
    ++at[request.arrival];
  }
  for (Nanos time = 2 * kSecond; time < last; time += 2 * kSecond) EXPECT_GE(at[time], 5) << time;
  EXPECT_NEAR(static_cast<double>(last) / 1e9, 1000 / 4.5, 15);
}

/// The mean and the squared coefficient of variation of the times between arrivals.
std::pair<double, double> gaps_of(const Workload& workload) {
  double mean = 0;
  double squares = 0;
  Nanos last = 0;
  const auto count = static_cast<double>(workload.requests.size());
  for (const SimRequest& request : workload.requests) {
    const double gap = static_cast<double>(request.arrival - last) / 1e9;
    mean += gap / count;
    squares += gap * gap / count;
    last = request.arrival;
  }
  return {mean, squares / (mean * mean) - 1};
}

TEST(Workload, GammaArrivalsHaveTheirRateAndTheirVariance) {
  for (const uint32_t shape : {100U, 500U, 999U, 1001U, 4000U, 100'000U}) {
    WorkloadConfig config = poisson(5000, 100'000);
    config.burstiness_thousandths = shape;
    const auto [mean, variation] = gaps_of(make_workload(config));
    const double expected = 1000.0 / shape;  // of a gamma distribution: 1 / shape
    EXPECT_NEAR(mean, 0.2, 0.2 * 5 * std::sqrt(expected / 1e5)) << shape;
    EXPECT_NEAR(variation / expected, 1, 0.1) << shape;
  }
  WorkloadConfig config = poisson(5000, 5);
  config.burstiness_thousandths = 9;
  EXPECT_THROW(make_workload(config), Error);
}

TEST(Workload, ADigestOfTheDrawsIsTheSameOnEveryMachine) {
  WorkloadConfig config = poisson(5000, 2000);
  config.burstiness_thousandths = 300;
  config.on_ms = lengths("exponential:1000");
  config.off_ms = lengths("lognormal:2000:0.5");
  config.prompt = lengths("exponential:300");
  config.turns = lengths("uniform:1:4");
  config.think_ms = lengths("exponential:700");
  Digest digest;
  for (const SimRequest& request : make_workload(config).requests) {
    digest.add(static_cast<uint64_t>(request.arrival));
    digest.add(static_cast<uint64_t>(request.think));
    digest.add(request.prompt_length, request.output_length);
  }
  EXPECT_EQ(digest.value(), 1520056827900552315U);
}

TEST(Workload, RequestsArriveOnlyWhileItIsOn) {
  WorkloadConfig config = poisson(100'000, 20'000);
  config.on_ms = lengths("500");
  config.off_ms = lengths("1500");
  const Workload workload = make_workload(config);
  for (const SimRequest& request : workload.requests) {
    ASSERT_LT(request.arrival % (2 * kSecond), kSecond / 2);
  }
  EXPECT_NEAR(static_cast<double>(workload.requests.back().arrival) / 1e9, 20'000 / 100.0 * 4, 12);
  config.off_ms.reset();
  EXPECT_THROW(make_workload(config), Error);
}

TEST(Workload, TurnsOfAConversationFollowEachOther) {
  WorkloadConfig config = poisson(1000, 3000);
  config.prompt = lengths("uniform:100:200");
  config.turn_prompt = lengths("uniform:10:20");
  config.output = lengths("uniform:5:9");
  config.turns = lengths("uniform:1:4");
  config.think_ms = lengths("uniform:50:60");
  config.prefix_length = 32;
  const Workload workload = make_workload(config);
  std::map<int, int> turns;
  int turn = 0;
  Nanos last = 0;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const SimRequest& request = workload.requests[i];
    if (!request.continues) {
      ++turns[turn];
      turn = 1;
      EXPECT_EQ(request.follows, kNoRequest);
      EXPECT_GE(request.arrival, last);
      EXPECT_EQ(request.pieces.size(), 1U);
      last = request.arrival;
      continue;
    }
    ++turn;
    ASSERT_EQ(request.follows, i - 1);
    const SimRequest& before = workload.requests[i - 1];
    const uint32_t more = request.prompt_length - before.prompt_length - before.output_length;
    EXPECT_TRUE(more >= 10 && more <= 20) << more;
    EXPECT_TRUE(request.pieces.empty());
    EXPECT_TRUE(request.think >= 50'000'000 && request.think <= 60'000'000);
  }
  turns.erase(0);
  ASSERT_EQ(turns.size(), 4U);
  for (const auto& [length, count] : turns) EXPECT_NEAR(count, 300, 60) << length;
  config.prompt = lengths("1000000000");
  config.turn_prompt.reset();
  EXPECT_THROW(make_workload(config), Error);
}

TEST(Workload, UsersSendOneRequestAfterTheOther) {
  WorkloadConfig config;
  config.num_requests = 100;
  config.users = 7;
  config.think_ms = lengths("uniform:10:90");
  const Workload workload = make_workload(config);
  for (size_t i = 0; i < 100; ++i) {
    const SimRequest& request = workload.requests[i];
    EXPECT_FALSE(request.continues);
    EXPECT_EQ(request.follows, i < 7 ? kNoRequest : i - 7);
    EXPECT_EQ(i < 7 ? request.arrival : 0, request.arrival);
    EXPECT_GE(request.think, 10'000'000);
  }
}

TEST(WorkloadSource, HandsOutInOrderOfTime) {
  Workload workload;
  workload.requests = {{.arrival = 10, .prompt_length = 4, .output_length = 2},
                       {.prompt_length = 9, .output_length = 1, .follows = 0, .think = 5, .continues = true},
                       {.arrival = 20, .prompt_length = 3, .output_length = 1},
                       {.prompt_length = 3, .output_length = 1, .follows = 1}};
  WorkloadSource source(workload);
  EXPECT_EQ(source.next(), 10);
  EXPECT_EQ(source.take(), 0U);
  const std::vector<TokenId> first = source.prompt(0);
  EXPECT_EQ(source.next(), 20);
  for (const TokenId token : {100, 200}) source.sampled(0, token);
  source.ended(0, 15);
  EXPECT_EQ(source.take(), 1U) << "at 20 both are due: the one with the lower number comes first";
  std::vector<TokenId> history = first;
  history.insert(history.end(), {100, 200});
  const std::vector<TokenId> second = source.prompt(1);
  ASSERT_EQ(second.size(), 9U);
  EXPECT_TRUE(std::equal(history.begin(), history.end(), second.begin()));
  EXPECT_EQ(source.take(), 2U);
  EXPECT_EQ(source.next(), std::nullopt);
  EXPECT_EQ(source.left(), 1U);
  source.ended(1, 40);
  EXPECT_EQ(source.next(), 40);
  EXPECT_EQ(source.take(), 3U);
  EXPECT_EQ(source.prompt(3).size(), 3U);
  EXPECT_EQ(source.left(), 0U);
}

TEST(WorkloadSource, MakesOnDemandWhatItWouldMakeAtOnce) {
  WorkloadConfig config;
  config.num_requests = 30;
  config.prefix_length = 20;
  config.num_prefixes = 2;
  config.turns = Lengths::parse("uniform:1:4", "");
  config.prompt = Lengths::parse("uniform:5:40", "");
  config.output = Lengths::parse("uniform:2:9", "");
  const Workload workload = make_workload(config);
  WorkloadSource eager(workload);
  WorkloadSource lazy(workload);
  size_t continued = 0;
  while (eager.left() > 0) {
    const size_t index = eager.take();
    ASSERT_EQ(lazy.take(), index);
    const TokenList later = lazy.prompt_on_demand(index);
    const size_t size = later.size();
    const std::vector<TokenId> now = eager.prompt(index);
    EXPECT_EQ(size, now.size());
    EXPECT_TRUE(std::ranges::equal(later, now));
    continued += workload.requests[index].continues ? 1 : 0;
    // An answer may end early.
    const uint32_t length =
        index % 4 < 2 ? static_cast<uint32_t>(index % 4) : workload.requests[index].output_length;
    for (WorkloadSource* source : {&eager, &lazy}) {
      for (uint32_t i = 0; i < length; ++i) source->sampled(index, static_cast<TokenId>(i));
      source->ended(index, 1);
    }
  }
  EXPECT_GT(continued, 5U);
}

TEST(WorkloadSource, ARefusedTurnEndsItsConversationAndNotItsUser) {
  Workload workload;
  workload.requests = {{.prompt_length = 4, .output_length = 2},
                       {.prompt_length = 9, .output_length = 1, .follows = 0, .continues = true},
                       {.prompt_length = 19, .output_length = 1, .follows = 1, .continues = true},
                       {.prompt_length = 3, .output_length = 1, .follows = 2, .think = 7}};
  WorkloadSource source(workload);
  source.take();
  std::vector<size_t> unsent;
  source.gave_up(0, 3, [&](const NumberedRequest& of) { unsent.push_back(of.number); });
  EXPECT_EQ(unsent, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(source.left(), 1U);
  EXPECT_EQ(source.next(), 10);
  EXPECT_EQ(source.take(), 3U);
  workload.requests[3].follows = 3;
  EXPECT_THROW(WorkloadSource{workload}, Error);
  workload.requests[3].follows = 1;
  EXPECT_THROW(WorkloadSource{workload}, Error);
}

TEST(Workload, PromptsBeginWithTheirPrefixAndGoOnAlone) {
  WorkloadConfig config;
  config.num_requests = 200;
  config.prompt = lengths("uniform:10:20");
  config.prefix_length = 50;
  config.num_prefixes = 3;
  const Workload workload = make_workload(config);
  std::map<uint32_t, std::vector<TokenId>> prefixes;
  std::map<std::vector<TokenId>, int> rests;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const SimRequest& request = workload.requests[i];
    ASSERT_EQ(request.pieces.size(), 1U);
    ASSERT_LT(request.pieces[0], 3U);
    const std::vector<TokenId> prompt = workload.prompt(i);
    ASSERT_EQ(prompt.size(), request.prompt_length);
    ASSERT_GE(prompt.size(), 60U);
    ASSERT_LE(prompt.size(), 70U);
    for (const TokenId token : prompt) ASSERT_TRUE(token >= 0 && token < 32000);
    const std::vector<TokenId> prefix(prompt.begin(), prompt.begin() + 50);
    EXPECT_EQ(prefixes.try_emplace(request.pieces[0], prefix).first->second, prefix);
    ++rests[std::vector<TokenId>(prompt.begin() + 50, prompt.end())];
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_NE(prefixes[0], prefixes[1]);
  EXPECT_EQ(rests.size(), 200U);
}

TEST(Workload, PrefixesAreUsedAsZipfHasIt) {
  WorkloadConfig config;
  config.num_requests = 100000;
  config.prefix_length = 1;
  config.num_prefixes = 100;
  for (const uint32_t alpha : {0U, 800U, 1500U}) {
    config.zipf_thousandths = alpha;
    std::vector<int> uses(100);
    for (const SimRequest& request : make_workload(config).requests) ++uses[request.pieces[0]];
    double sum = 0;
    for (int k = 1; k <= 100; ++k) sum += std::pow(k, alpha / -1000.0);
    for (const int k : {1, 2, 10, 100}) {
      const double expected = 1e5 * std::pow(k, alpha / -1000.0) / sum;
      EXPECT_NEAR(uses[k - 1], expected, 4 * std::sqrt(expected) + 1) << alpha << " " << k;
    }
  }
}

TEST(Workload, LengthsDoNotDependOnArrivalsButOnTheSeed) {
  WorkloadConfig config = poisson(1000, 50);
  config.prompt = lengths("lognormal:200:1");
  const Workload one = make_workload(config);
  config.rate_thousandths = 9000;
  const Workload two = make_workload(config);
  config.seed = 1;
  const Workload three = make_workload(config);
  int equal = 0;
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(one.prompt(i), two.prompt(i));
    equal += one.requests[i].prompt_length == three.requests[i].prompt_length ? 1 : 0;
    EXPECT_NE(one.prompt(i), three.prompt(i));
  }
  EXPECT_LT(equal, 10);
}

TEST(Workload, ServiceIsDrawnBesideAllElse) {
  WorkloadConfig config;
  config.num_requests = 30'000;
  config.output = Lengths::parse("uniform:1:1000", "");
  Workload workload = make_workload(config);
  const Workload before = workload;
  assign_service(
      workload,
      {.num_tenants = 3, .num_priorities = 5, .ttft_deadline_ms = Lengths::parse("uniform:10:20", "")});
  std::map<uint32_t, int> tenants;
  std::map<int32_t, int> priorities;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const SimRequest& request = workload.requests[i];
    EXPECT_EQ(request.output_length, before.requests[i].output_length);
    EXPECT_GE(request.ttft_deadline, 10'000'000);
    EXPECT_LE(request.ttft_deadline, 20'000'000);
    ++tenants[request.tenant];
    ++priorities[request.priority];
  }
  ASSERT_EQ(tenants.size(), 3U);  // in proportion 6 : 3 : 2
  EXPECT_NEAR(tenants[0], 30'000 * 6 / 11, 500);
  EXPECT_NEAR(tenants[2], 30'000 * 2 / 11, 500);
  ASSERT_EQ(priorities.size(), 5U);
  for (int32_t level = 0; level < 5; ++level) EXPECT_NEAR(priorities[level], 6'000, 400);
  EXPECT_THROW(assign_service(workload, {.num_tenants = 0}), Error);
  EXPECT_THROW(assign_service(workload, {.num_priorities = 2'000'000}), Error);
}

TEST(Workload, NonsenseIsRefused) {
  WorkloadConfig config;
  config.num_prefixes = 0;
  EXPECT_THROW(make_workload(config), Error);
  config = {};
  config.vocab_size = 0;
  EXPECT_THROW(make_workload(config), Error);
}

}  // namespace
}  // namespace quire::sim
