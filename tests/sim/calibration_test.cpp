#include "sim/calibration.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/sim/cost_file.h"
#include "base/error.h"
#include "base/rng.h"
#include "tests/support/data.h"

namespace quire::sim {
namespace {

using backend::StepRecord;
using backend::StepWork;
using backend::sim::CostFile;
using backend::sim::CostModel;
using backend::sim::FittedCost;

/// A machine whose matrices take longer from 8 and from 128 tokens on.
double device_time(const StepWork& work) {
  const auto tokens = static_cast<double>(work.tokens());
  const double matrices = 2e6 + 1e4 * std::min(tokens, 8.0) +
                          6e4 * std::max(0.0, std::min(tokens, 128.0) - 8) +
                          9e4 * std::max(0.0, tokens - 128);
  return matrices + 40.0 * static_cast<double>(work.decode_context) +
         11.0 * static_cast<double>(work.chunk_prefix) + 6.0 * static_cast<double>(work.chunk_squares) +
         3e4 * static_cast<double>(work.logit_rows);
}
double host_time(const StepWork& work) {
  return 2e4 + 900.0 * static_cast<double>(work.decoding + work.chunks);
}

StepWork draw_work(SplitMix64& random) {
  StepWork work;
  const uint64_t kind = random.below(3);
  if (kind != 1) {
    work.decoding = 1 + random.below(64);
    work.decode_context = work.decoding * (1 + random.below(2000));
    work.logit_rows = work.decoding;
  }
  if (kind != 0) {
    work.chunks = 1 + random.below(3);
    for (uint64_t i = 0; i < work.chunks; ++i) {
      const uint64_t length = 2 + random.below(random.below(2) == 0 ? 40 : 600);
      work.prefill_tokens += length;
      work.chunk_squares += length * length;
      work.chunk_prefix += length * random.below(2000);
    }
    ++work.logit_rows;
  }
  work.sampled_rows = work.logit_rows;
  return work;
}

/// `noise`: the most by which a time deviates, in parts of it.
std::vector<StepRecord> draw(uint64_t seed, size_t count, double noise) {
  SplitMix64 random(seed);
  std::vector<StepRecord> out;
  for (size_t i = 0; i < count; ++i) {
    StepRecord& record = out.emplace_back();
    record.step = i + 1;
    record.open = 1;
    record.work = draw_work(random);
    const double factor = 1 + noise * (2 * unit_interval(random.next()) - 1);
    record.compute = static_cast<int64_t>(factor * device_time(record.work));
    record.whole = record.compute + static_cast<int64_t>(factor * host_time(record.work));
  }
  return out;
}

double most_error(const FittedCost& cost, const std::vector<StepRecord>& records) {
  double most = 0;
  for (const StepRecord& record : records) {
    const double fitted = static_cast<double>(cost.duration(record.work));
    most = std::max(most, std::abs(fitted / (device_time(record.work) + host_time(record.work)) - 1));
  }
  return most;
}

TEST(Calibration, FindsTheTimesOfStepsThatItHasNotSeen) {
  const Calibration exact = calibrate(draw(1, 600, 0));
  EXPECT_LT(most_error(exact.file.cost, draw(2, 300, 0)), 0.01);
  EXPECT_TRUE(exact.slow.empty());
  const Calibration noisy = calibrate(draw(1, 3000, 0.1));
  EXPECT_LT(most_error(noisy.file.cost, draw(2, 300, 0)), 0.03);
}

TEST(Calibration, TellsItsErrorByKind) {
  const Calibration of = calibrate(draw(1, 3000, 0.1));
  ASSERT_EQ(of.file.errors.size(), 4U);
  uint64_t steps = 0;
  for (const backend::sim::FitError& each : of.file.errors) {
    steps += each.steps;
    if (each.kind == "swap") {
      EXPECT_EQ(each.steps, 0U);
      continue;
    }
    // A factor that is uniform from 0.9 to 1.1 is off by 0.05 in the median and by 0.09 in nine of ten cases.
    EXPECT_NEAR(each.median, 0.05, 0.01) << each.kind;
    EXPECT_NEAR(each.p90, 0.09, 0.015) << each.kind;
    EXPECT_NEAR(each.bias, 0, 0.01) << each.kind;
  }
  EXPECT_EQ(steps, 3000U);
}

// A core was taken away for a while.
TEST(Calibration, LeavesOutWhatTookTooLongAndNamesIt) {
  std::vector<StepRecord> records = draw(1, 1000, 0.05);
  for (size_t i = 400; i < 450; ++i) {
    records[i].compute *= 2;
    records[i].whole *= 2;
  }
  const Calibration of = calibrate(records);
  EXPECT_EQ(of.file.left_out, 50U);
  ASSERT_EQ(of.slow.size(), 1U);
  EXPECT_EQ(of.slow[0].first, 401U);
  EXPECT_EQ(of.slow[0].last, 450U);
  EXPECT_NEAR(of.slow[0].factor, 2, 0.15);
  EXPECT_LT(most_error(of.file.cost, draw(2, 300, 0)), 0.03);
  EXPECT_DOUBLE_EQ(of.file.cost.slow_part, 0.05);
  EXPECT_NEAR(of.file.cost.slow_factor, 2, 0.05);
}

TEST(Calibration, WhatItLeavesOutWidensNoRange) {
  std::vector<StepRecord> records = draw(1, 1000, 0.05);
  StepRecord& interrupted = records[500];
  interrupted.work = {.decoding = 60,
                      .decode_context = 400'000,
                      .chunks = 1,
                      .prefill_tokens = 1,
                      .chunk_squares = 1,
                      .logit_rows = 61,
                      .sampled_rows = 61};
  interrupted.compute = static_cast<int64_t>(10 * device_time(interrupted.work));
  interrupted.whole = interrupted.compute + 1000;
  const Calibration of = calibrate(records);
  EXPECT_EQ(of.file.left_out, 1U);
  EXPECT_LE(of.file.cost.most.decode_context, 64U * 2000);
  EXPECT_GE(of.file.cost.least.prefill_tokens, 2U);
  EXPECT_TRUE(of.file.cost.extrapolates(interrupted.work));
}

TEST(CostModel, WhatTookTooLongIsDrawnAsOften) {
  FittedCost fitted = calibrate(draw(1, 600, 0.1)).file.cost;
  const StepWork work{.decoding = 8, .decode_context = 800, .logit_rows = 8};
  const auto time = static_cast<double>(fitted.duration(work));
  fitted.slow_part = 0.1;
  fitted.slow_factor = 5;
  const CostModel cost(fitted);
  double sum = 0;
  int slow = 0;
  for (uint64_t step = 0; step < 20'000; ++step) {
    const double factor = static_cast<double>(cost.duration(work, 3, step)) / time;
    slow += factor > 2 ? 1 : 0;
    sum += factor;
  }
  EXPECT_NEAR(slow / 20'000.0, 0.1, 0.01);
  EXPECT_NEAR(sum / 20'000, 0.9 * 1 + 0.1 * 5, 0.05);
  fitted.deviations.clear();
  EXPECT_DOUBLE_EQ(fitted.deviation(0.09), 5);
  EXPECT_DOUBLE_EQ(fitted.deviation(0.11), 1);
}

// As where prompts want log probabilities: many rows need logits, and few of them are sampled.
TEST(Calibration, TellsSamplingFromLogitsOnlyWhereThatForeseesMore) {
  const auto with_prompt_rows = [](double sampling) {
    std::vector<StepRecord> records = draw(1, 1500, 0.05);
    for (size_t i = 0; i < records.size(); ++i) {
      StepRecord& record = records[i];
      const uint64_t more = i % 3 == 0 ? record.work.prefill_tokens : 0;
      record.work.logit_rows += more;
      const auto added = static_cast<int64_t>(3e4 * static_cast<double>(more) +
                                              sampling * static_cast<double>(record.work.sampled_rows));
      record.sample += added;
      record.whole += added;
    }
    return calibrate(records);
  };
  const Calibration apart = with_prompt_rows(5e5);
  EXPECT_TRUE(apart.samples_apart);
  EXPECT_NEAR(apart.file.cost.device.sampled_row, 5e5, 1e5);
  EXPECT_NEAR(apart.file.cost.device.logit_row, 3e4, 1e4);
  const Calibration together = with_prompt_rows(0);
  EXPECT_FALSE(together.samples_apart);
  EXPECT_EQ(together.file.cost.device.sampled_row, 0);
}

TEST(Calibration, FindsWhatMovingABlockCosts) {
  std::vector<StepRecord> records = draw(1, 1500, 0.05);
  for (size_t i = 0; i < records.size(); i += 20) {
    records[i].work.moved_blocks = 1 + i % 60;
    records[i].compute += static_cast<int64_t>(3e5 * static_cast<double>(records[i].work.moved_blocks));
    records[i].whole += static_cast<int64_t>(3e5 * static_cast<double>(records[i].work.moved_blocks));
  }
  const Calibration of = calibrate(records);
  EXPECT_NEAR(of.file.cost.device.moved_block, 3e5, 2e4);
  EXPECT_EQ(of.file.errors.back().kind, "swap");
  EXPECT_EQ(of.file.errors.back().steps, 75U);
  EXPECT_EQ(of.file.left_out, 0U);
}

TEST(Calibration, ATimeNeverFallsWithTheTokens) {
  std::vector<StepRecord> records = draw(1, 300, 0.3);
  const FittedCost cost = calibrate(records).file.cost;
  Nanos before = 0;
  for (uint64_t tokens = 1; tokens < 5000; ++tokens) {
    const Nanos time = cost.duration({.chunks = 1, .prefill_tokens = tokens});
    EXPECT_GE(time, before) << tokens;
    before = time;
  }
}

TEST(Calibration, RefusesWhatItCannotFit) {
  EXPECT_THROW(calibrate(draw(1, kLeastSteps - 1, 0)), Error);
  std::vector<StepRecord> records = draw(1, 100, 0);
  records[50].open = 2;
  EXPECT_THROW(calibrate(records), Error);
}

// A cost file holds no factor of more than a million.
TEST(Calibration, RefusesWhatNoCostFileHolds) {
  std::vector<StepRecord> records = draw(1, 600, 0.05);
  records[50].whole = 1'000'000'000'000'000;
  try {
    calibrate(records);
    ADD_FAILURE() << "was fitted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no cost model fits these steps: cost model: slow: factor"));
    EXPECT_THAT(error.what(), testing::HasSubstr("steps 51 to 51 took up to"));
  }
}

TEST(Calibration, ItsDeviationsAreThoseOfTheSteps) {
  const CostModel cost = calibrate(draw(1, 3000, 0.1)).file.cost;
  const StepWork work{.decoding = 8, .decode_context = 800, .logit_rows = 8};
  double least = 10;
  double most = 0;
  double sum = 0;
  for (uint64_t step = 0; step < 2000; ++step) {
    const double factor =
        static_cast<double>(cost.duration(work, 3, step)) / static_cast<double>(cost.duration(work));
    EXPECT_EQ(cost.duration(work, 3, step), cost.duration(work, 3, step));
    least = std::min(least, factor);
    most = std::max(most, factor);
    sum += factor;
  }
  EXPECT_NEAR(least, 0.9, 0.02);
  EXPECT_NEAR(most, 1.1, 0.03);
  EXPECT_NEAR(sum / 2000, 1, 0.01);
}

TEST(CostModel, SaysWhatLiesBeyondWhatItWasFittedTo) {
  const FittedCost cost = calibrate(draw(1, 300, 0)).file.cost;
  EXPECT_FALSE(cost.extrapolates({.decoding = 10, .decode_context = 1000}));
  EXPECT_TRUE(cost.extrapolates({.decoding = 65, .decode_context = 1000}));
  EXPECT_TRUE(cost.extrapolates({.decoding = 10, .decode_context = 1'000'000}));
  EXPECT_TRUE(cost.extrapolates({.chunks = 1, .prefill_tokens = 5000}));
  EXPECT_EQ(cost.most.copies, 0U);
  const auto beyond = [&](std::string_view wanted, uint64_t more) {
    StepWork work = cost.most;
    work.moved_blocks = 0;  // none were, and so no such kind of step
    StepWork::for_each_count(work, [&](std::string_view name, uint64_t& count) {
      if (name == wanted) count += more;
    });
    return cost.extrapolates(work);
  };
  StepWork::for_each_count(cost.most, [&](std::string_view name, uint64_t) {
    EXPECT_FALSE(beyond(name, 0)) << name;
    EXPECT_TRUE(beyond(name, 1)) << name;
  });
}

TEST(CostModel, SaysWhatLiesBelowOrBesideWhatItWasFittedTo) {
  const auto fitted_to = [](const auto& is_kept) {
    std::vector<StepRecord> records = draw(1, 900, 0);
    std::erase_if(records, [&](const StepRecord& record) { return !is_kept(record.work); });
    return calibrate(records).file.cost;
  };
  const StepWork one{.decoding = 1, .decode_context = 100};
  const StepWork prompt{.chunks = 1, .prefill_tokens = 60};
  const StepWork both{.decoding = 9, .decode_context = 900, .chunks = 1, .prefill_tokens = 60};
  const FittedCost all = fitted_to([](const StepWork&) { return true; });
  EXPECT_THAT(all.kinds, testing::ElementsAre("decode", "prefill", "mixed"));
  for (const StepWork& work : {one, prompt, both}) EXPECT_FALSE(all.extrapolates(work));
  const FittedCost many = fitted_to([](const StepWork& of) { return of.decoding == 0 || of.decoding >= 8; });
  EXPECT_EQ(many.least.decoding, 8U);
  EXPECT_TRUE(many.extrapolates({.decoding = 7, .decode_context = 700}));
  EXPECT_FALSE(many.extrapolates({.decoding = 8, .decode_context = 800}));
  EXPECT_FALSE(many.extrapolates(prompt)) << "nothing decodes";
  const FittedCost tokens =
      fitted_to([](const StepWork& of) { return of.chunks == 0 || of.prefill_tokens >= 100; });
  const uint64_t least = tokens.least.prefill_tokens;
  ASSERT_TRUE(least >= 100 && least < 120) << least;
  EXPECT_FALSE(tokens.extrapolates({.chunks = 1, .prefill_tokens = (least + 1) / 2}))
      << "the rest of a prompt";
  EXPECT_TRUE(tokens.extrapolates({.chunks = 1, .prefill_tokens = (least + 1) / 2 - 1}));
  FittedCost three = all;
  three.least.prefill_tokens = 3;
  EXPECT_TRUE(three.extrapolates({.chunks = 1, .prefill_tokens = 1})) << "less than half of 3";
  EXPECT_FALSE(three.extrapolates({.chunks = 1, .prefill_tokens = 2}));
  EXPECT_FALSE(tokens.extrapolates(one)) << "there is no prompt";
  const FittedCost alone = fitted_to([](const StepWork& of) { return of.decoding == 0 || of.chunks == 0; });
  EXPECT_FALSE(alone.extrapolates(one) || alone.extrapolates(prompt));
  EXPECT_TRUE(alone.extrapolates(both)) << "no step did both";
  const FittedCost prompts = fitted_to([](const StepWork& of) { return of.decoding == 0; });
  EXPECT_TRUE(prompts.extrapolates(one) && !prompts.extrapolates(prompt));
}

TEST(CostModel, AFittedOneSaysWhatFitsATimeAndWhatThingsCost) {
  const CostModel cost = calibrate(draw(1, 600, 0)).file.cost;
  const uint64_t fits = cost.prefill_tokens_in(50'000'000);
  const auto time = [&](uint64_t tokens) {
    return cost.duration(
        {.chunks = 1, .prefill_tokens = tokens, .chunk_squares = tokens * tokens, .logit_rows = 1});
  };
  EXPECT_LE(time(fits), 50'000'000);
  EXPECT_GT(time(fits + 1), 50'000'000);
  EXPECT_EQ(cost.prefill_tokens_in(1000), 0U);
  const control::CostHints hints = cost.hints(16);
  EXPECT_NEAR(static_cast<double>(hints.prefill_token), 85'000, 10'000);
  EXPECT_GT(hints.decode_token, 0);
  EXPECT_GE(hints.swap_block, 1);
}

TEST(CostFile, GivesBackWhatWasWritten) {
  const std::filesystem::path path = test::temp_dir() / "cost.json";
  CostFile file = calibrate(draw(1, 600, 0.1)).file;
  file.cost.model = "fox";
  file.cost.machine = "2 cores";
  file.device = "bf16 weights on 2 threads";
  file.build = "1.2.3";
  file.cost.slow_part = 0.25;
  file.cost.slow_factor = 3.5;
  write_cost_file(path, file);
  const CostFile read = backend::sim::read_cost_file(path);
  EXPECT_EQ(read.cost.model, "fox");
  EXPECT_EQ(read.cost.machine, "2 cores");
  EXPECT_EQ(read.device, "bf16 weights on 2 threads");
  EXPECT_EQ(read.build, "1.2.3");
  EXPECT_EQ(read.steps, file.steps);
  EXPECT_EQ(read.errors.size(), 4U);
  EXPECT_EQ(read.errors[1].median, file.errors[1].median);
  EXPECT_THAT(read.cost.deviations, testing::Pointwise(testing::DoubleEq(), file.cost.deviations));
  EXPECT_EQ(read.cost.slow_part, 0.25);
  EXPECT_EQ(read.cost.slow_factor, 3.5);
  for (const StepRecord& record : draw(3, 200, 0)) {
    EXPECT_EQ(read.cost.duration(record.work), file.cost.duration(record.work));
    EXPECT_EQ(read.cost.extrapolates(record.work), file.cost.extrapolates(record.work));
  }
  EXPECT_EQ(read.cost.kinds, file.cost.kinds);
  EXPECT_GT(read.cost.least.chunk_squares, 3U);
  EXPECT_EQ(read.cost.least.chunk_squares, file.cost.least.chunk_squares);
}

void expect_refused(const std::string& text, const std::string& why) {
  const std::filesystem::path path = test::temp_dir() / "cost.json";
  std::ofstream(path) << text;
  try {
    backend::sim::read_cost_file(path);
    ADD_FAILURE() << "was read: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(why));
    EXPECT_THAT(error.what(), testing::HasSubstr(path.string()));
  }
}

TEST(CostFile, SaysWhatIsWrong) {
  const std::filesystem::path path = test::temp_dir() / "good.json";
  write_cost_file(path, calibrate(draw(1, 600, 0)).file);
  std::ifstream in(path);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  expect_refused("{}", "is no cost model");
  expect_refused("hello", "byte");
  expect_refused(with("\"quire_cost\":2", "\"quire_cost\":1"), "another version");
  expect_refused(with("\"knots\":[0,1", "\"knots\":[1,1"), "must rise from 0");
  expect_refused(with("\"knots\":[0,", "\"knots\":["), "knots");
  expect_refused(with("\"knots\":", "\"nuts\":"), "'knots'");
  expect_refused(with("\"device_ns\":{\"step\":", "\"device_ns\":{\"step\":-"), "device: step");
  expect_refused(with("\"decoding\":", "\"decoding\":-"), "'most.decoding'");
  expect_refused(with("\"least\":{\"decoding\":", "\"least\":{\"decoding\":-"), "'least.decoding'");
  expect_refused(with("\"kinds\":[\"decode\"", "\"kinds\":[\"decade\""),
                 "must be a list of decode, prefill, mixed");
  expect_refused(with("\"kinds\":[\"decode\"", "\"kinds\":[1"), "'kinds'");
  expect_refused(with("\"kinds\":[\"decode\",", "\"kinds\":[\"decode\",\"decode\","),
                 "'kinds': has 'decode' twice");
  expect_refused(with("\"least\":{\"decoding\":1", "\"least\":{\"decoding\":65"),
                 "'least.decoding': is 65, and the most is 64");
  expect_refused(with("\"deviations\":[", "\"deviations\":[-1,"), "deviations");
  expect_refused(with("\"part\":0", "\"part\":1"), "slow: part: 1 is no part of all steps");
  expect_refused(with("\"factor\":1", "\"factor\":-1"), "slow: factor: -1");
  expect_refused(with("\"factor\":", "\"fact\":"), "factor");
}

TEST(CostFile, OfAnotherModelOrMachineIsTakenOnlyByForce) {
  CostFile file;
  file.cost.model = "fox";
  file.cost.machine = "2 cores";
  const auto check = [&](const backend::sim::CostRun& run, bool force) {
    return check_cost_file_for(run, file, "cost.json", force);
  };
  EXPECT_EQ(check({}, false), "") << "it knows neither";
  EXPECT_EQ(check({.model = "fox", .machine = "2 cores"}, false), "");
  for (const backend::sim::CostRun& other : {backend::sim::CostRun{.model = "hen", .machine = "2 cores"},
                                             {.model = "fox", .machine = "8 cores"}}) {
    const bool of_model = other.model != "fox";
    const std::string of_file = of_model ? "'fox'" : "'2 cores'";
    const std::string of_run = of_model ? "'hen'" : "'8 cores'";
    try {
      check(other, false);
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      for (const std::string& named : {std::string("cost.json"), of_file, of_run, std::string("--force")}) {
        EXPECT_THAT(error.what(), testing::HasSubstr(named));
      }
    }
    const std::string warning = check(other, true);
    EXPECT_THAT(warning, testing::HasSubstr(of_file));
    EXPECT_THAT(warning, testing::HasSubstr(of_run));
  }
}

TEST(CostFile, OfAnotherSetupIsTakenOnlyByForce) {
  using backend::sim::setup_in;
  const std::string of_cpu =
      "15,191,712 parameters, Q4_K+Q6_K weights, K/V in i8, kernels avx2 on 12 threads";
  EXPECT_EQ(setup_in(of_cpu).parameters, "15,191,712");
  EXPECT_EQ(setup_in(of_cpu).weights, "Q4_K+Q6_K");
  EXPECT_EQ(setup_in(of_cpu).kv, "int8");
  EXPECT_EQ(setup_in(of_cpu).kernels, "avx2");
  EXPECT_EQ(setup_in(of_cpu).threads, "12");
  const std::string of_gpu = "9 parameters, bf16 weights and K/V on NVIDIA A10G; warning: 2 threads";
  EXPECT_EQ(setup_in("9 parameters, int8 weights, K/V in bf16").kv, "bf16");
  EXPECT_EQ(setup_in(of_gpu).parameters, "9");
  EXPECT_EQ(setup_in(of_gpu).weights, "bf16");
  EXPECT_EQ(setup_in(of_gpu).kv, "bf16");
  for (const char* none :
       {"simulated, at 1 times the speed: the words are arbitrary on 2 threads", "", " parameters, "}) {
    const backend::sim::DeviceSetup of = setup_in(none);
    EXPECT_EQ(of.parameters + of.weights + of.kv + of.kernels + of.threads, "") << none;
  }
  struct Case {
    backend::sim::DeviceSetup other;
    const char* said;
  };
  CostFile file;
  file.device = of_cpu;
  const backend::sim::CostRun same{.setup = setup_in(of_cpu)};
  EXPECT_EQ(check_cost_file_for(same, file, "cost.json", false), "");
  EXPECT_EQ(check_cost_file_for({}, file, "cost.json", false), "") << "the run does not know its own";
  const Case cases[] = {
      {{.parameters = "9"}, "the number of parameters is '15,191,712', and this run's is '9'"},
      {{.weights = "bf16"}, "the format of the weights is 'Q4_K+Q6_K', and this run's is 'bf16'"},
      {{.kv = "bf16"}, "the type of K/V is 'int8', and this run's is 'bf16'"},
      {{.kernels = "amx"}, "the level of the kernels is 'avx2', and this run's is 'amx'"},
      {{.threads = "2"}, "the number of threads is '12', and this run's is '2'"}};
  for (const auto& [other, said] : cases) {
    file.device = of_cpu;
    EXPECT_THROW(check_cost_file_for({.setup = other}, file, "cost.json", false), Error);
    EXPECT_THAT(check_cost_file_for({.setup = other}, file, "cost.json", true), testing::HasSubstr(said));
    file.device = "simulated";
    EXPECT_EQ(check_cost_file_for({.setup = other, .runs_on = backend::sim::RunsOn::kSimulated}, file,
                                  "cost.json", false),
              "")
        << "the file names none";
  }
}

TEST(CostFile, OfASimulatedDeviceIsNoMachines) {
  using backend::sim::RunsOn;
  CostFile file;
  file.device = "simulated, at 1 times the speed of a card: the words are arbitrary";
  const std::string said = "the device is '" + file.device + "', and this run's computes";
  try {
    check_cost_file_for({.runs_on = RunsOn::kMachine}, file, "cost.json", false);
    ADD_FAILURE() << "was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(said + "; --force"));
  }
  EXPECT_THAT(check_cost_file_for({.runs_on = RunsOn::kMachine}, file, "cost.json", true),
              testing::HasSubstr(said));
  EXPECT_EQ(check_cost_file_for({.runs_on = RunsOn::kSimulated}, file, "cost.json", false), "");
  EXPECT_EQ(check_cost_file_for({}, file, "cost.json", false),
            "cost.json: its times are those of a simulated device (" + file.device + ")");
}

TEST(CostFile, KeepsTheWarningOfItsSteps) {
  using backend::sim::RunsOn;
  CostFile file;
  file.device = "9 parameters, bf16 weights and K/V on NVIDIA A10G; warning: w";
  for (const RunsOn on : {RunsOn::kNothing, RunsOn::kSimulated, RunsOn::kMachine}) {
    EXPECT_EQ(check_cost_file_for({.runs_on = on}, file, "cost.json", false),
              "cost.json: its steps were logged with a warning: w");
  }
  file.device = "simulated; warning: w";
  EXPECT_EQ(
      check_cost_file_for({}, file, "cost.json", false),
      "cost.json: its times are those of a simulated device (simulated); cost.json: its steps were logged "
      "with a warning: w");
}

}  // namespace
}  // namespace quire::sim
