#include "engine/queue_forecast.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/engine/virtual_machine.h"
#include "tests/support/units.h"

namespace quire::engine {
namespace {

using test::kMillisecond;

using test::VirtualMachine;

/// A machine whose requests are foreseen when they arrive.
struct Foreseen {
  explicit Foreseen(const control::SchedulerConfig& config) : machine(config, test::some_costs()) {}

  Outlook foresee(const Newcomer& newcomer, bool promises = false) {
    return queue.foresee(machine.scheduler, machine.scheduler.pool().cache(), newcomer, machine.now,
                         machine.tokens(), promises);
  }
  Outlook arrives(const control::SeqSpec& spec) {
    const Outlook outlook = foresee({.spec = spec, .runs_on = true});
    EXPECT_TRUE(machine.scheduler.add(spec));
    return outlook;
  }

  VirtualMachine machine;
  QueueForecast queue{machine.costs};
};

/// The last of `count` requests, which arrive while the others run: how far its times were foreseen wrongly,
/// in parts of them. `step_time`: the target of its prompts; 0: the token budget is fixed.
double worst_error(const control::SchedulerConfig& config, uint64_t seed, int count, Nanos step_time = 0) {
  Foreseen all(config);
  VirtualMachine& machine = all.machine;
  if (step_time > 0) machine.budget.emplace(step_time, config);
  SplitMix64 random(seed);
  Outlook outlook;
  for (int i = 0; i < count; ++i) {
    outlook = all.arrives(machine.spec(1 + static_cast<uint32_t>(random.below(200)),
                                       1 + static_cast<uint32_t>(random.below(60))));
    for (uint64_t steps = random.below(4); steps-- > 0 && i + 1 < count;) machine.step();
  }
  const Nanos arrived = machine.now;
  const SeqId last = machine.next - 1;
  machine.run();
  const auto error = [&](Nanos foreseen, Nanos real) {
    return std::abs(static_cast<double>(foreseen - real)) / static_cast<double>(real - arrived);
  };
  return std::max(error(outlook.first_token, machine.first_token.at(last)),
                  error(outlook.end, machine.end.at(last)));
}

TEST(QueueForecast, AgreesWithTheScheduler) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    EXPECT_LT(worst_error(VirtualMachine::config(), seed, 1 + static_cast<int>(seed % 30)), 1e-5) << seed;
  }
}

TEST(QueueForecast, KnowsWhereDecodesTakeNoTokensFromPrompts) {
  control::SchedulerConfig config = VirtualMachine::config();
  config.max_num_batched_tokens = 40;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_LT(worst_error(config, seed, 20, 1000 * kMillisecond), 0.05) << seed;
  }
}

TEST(QueueForecast, AgreesWithASchedulerThatLacksBlocks) {
  double sum = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const double error = worst_error(VirtualMachine::config(40), seed, 20);
    EXPECT_LT(error, 0.6) << seed;
    sum += error;
  }
  EXPECT_LT(sum / 60, 0.1);
}

TEST(QueueForecast, AgreesWithEachPolicyThatItKnows) {
  using control::SchedulingKind;
  for (const SchedulingKind kind : {SchedulingKind::kSlo, SchedulingKind::kPriority, SchedulingKind::kSrpt}) {
    control::SchedulerConfig config = VirtualMachine::config();
    config.scheduling = kind;
    config.max_num_seqs = 2;
    Foreseen all(config);
    VirtualMachine& machine = all.machine;
    for (int i = 0; i < 12; ++i) all.arrives(machine.spec(40, 20));
    machine.step();
    control::SeqSpec spec = machine.spec(30, 5);
    spec.priority = -1;
    spec.ttft_deadline = 1;
    spec.expected_tokens = 5;
    const Outlook outlook = all.arrives(spec);
    machine.run();
    EXPECT_NEAR(static_cast<double>(outlook.first_token),
                static_cast<double>(machine.first_token.at(spec.id)), 1e3);
    int before = 0;
    for (const auto& [id, time] : machine.first_token)
      before += time < machine.first_token.at(spec.id) ? 1 : 0;
    EXPECT_LE(before, 2) << "it does not go before what waits";
  }
}

TEST(QueueForecast, KnowsWhatEachTenantWasServed) {
  control::SchedulerConfig config = VirtualMachine::config();
  config.scheduling = control::SchedulingKind::kFair;
  config.max_num_seqs = 2;
  double sum = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Foreseen all(config);
    VirtualMachine& machine = all.machine;
    SplitMix64 random(seed);
    const auto arrives = [&](uint64_t tenant) {
      control::SeqSpec spec = machine.spec(1 + static_cast<uint32_t>(random.below(80)),
                                           1 + static_cast<uint32_t>(random.below(30)));
      spec.tenant = tenant;
      return all.arrives(spec);
    };
    for (int i = 0; i < 20; ++i) {
      arrives(random.below(4) == 0 ? 1 + random.below(3) : 0);
      for (uint64_t steps = random.below(4); steps-- > 0 && machine.scheduler.has_work();) machine.step();
      for (const auto& [id, time] : machine.end) all.queue.forget(id);
    }
    const Nanos arrived = machine.now;
    const Outlook outlook = arrives(random.below(5));
    const SeqId last = machine.next - 1;
    machine.run();
    const auto real = static_cast<double>(machine.first_token.at(last) - arrived);
    sum += std::abs(static_cast<double>(outlook.first_token - arrived) / real - 1);
  }
  EXPECT_LT(sum / 60, 0.02);
}

TEST(QueueForecast, ATenantThatWasServedLittleGoesFirst) {
  control::SchedulerConfig config = VirtualMachine::config();
  config.scheduling = control::SchedulingKind::kFair;
  config.max_num_seqs = 2;
  for (const uint64_t tenant : {0, 1}) {
    Foreseen all(config);
    VirtualMachine& machine = all.machine;
    for (int i = 0; i < 12; ++i) all.arrives(machine.spec(40, 20));
    machine.step();
    control::SeqSpec spec = machine.spec(30, 5);
    spec.tenant = tenant;
    const Outlook outlook = all.arrives(spec);
    machine.run();
    EXPECT_NEAR(static_cast<double>(outlook.first_token),
                static_cast<double>(machine.first_token.at(spec.id)), 1e3);
    const auto before = std::ranges::count_if(
        machine.first_token, [&](const auto& each) { return each.second < machine.first_token.at(spec.id); });
    EXPECT_EQ(before, tenant == 0 ? 12 : 2);
  }
}

TEST(QueueForecast, APromptCountsOnceForItsTenant) {
  control::SchedulerConfig config = VirtualMachine::config(12);
  config.scheduling = control::SchedulingKind::kFair;
  config.max_num_seqs = 2;
  config.watermark_bp = 0;
  config.enable_prefix_caching = false;  // a forecast takes the blocks of what was preempted to be lost
  Foreseen all(config);
  VirtualMachine& machine = all.machine;
  const auto arrives = [&](uint64_t tenant, uint32_t prompt, uint32_t answer) {
    control::SeqSpec spec = machine.spec(prompt, answer);
    spec.tenant = tenant;
    return all.arrives(spec);
  };
  arrives(0, 10, 120);
  for (int i = 0; i < 5; ++i) machine.step();
  arrives(1, 170, 4);  // loses its blocks to the first one before it has a token
  arrives(1, 10, 5);
  for (int i = 0; i < 95; ++i) machine.step();
  ASSERT_EQ(machine.scheduler.stats().total_preemptions, 1U);
  ASSERT_EQ(machine.first_token.size(), 1U);
  const Outlook outlook = arrives(0, 10, 5);  // tenant 1 counts 170, this one 210
  machine.run();
  EXPECT_NEAR(static_cast<double>(outlook.first_token), static_cast<double>(machine.first_token.at(4)), 1e3);
  EXPECT_LT(machine.first_token.at(3), machine.first_token.at(4));
}

TEST(QueueForecast, ARefusedRequestCountsNothing) {
  control::SchedulerConfig config = VirtualMachine::config();
  config.scheduling = control::SchedulingKind::kFair;
  config.max_num_seqs = 1;
  Foreseen all(config);
  VirtualMachine& machine = all.machine;
  const auto of_tenant = [&](uint64_t tenant, uint32_t prompt) {
    control::SeqSpec spec = machine.spec(prompt, 5);
    spec.tenant = tenant;
    return spec;
  };
  all.arrives(of_tenant(0, 300));
  machine.step();
  const control::SeqSpec gives_up = of_tenant(0, 10);
  all.arrives(gives_up);
  const control::SeqSpec refused = of_tenant(1, 10);
  ASSERT_TRUE(all.foresee({.spec = refused, .runs_on = true, .ttft_deadline = kMillisecond}, true)
                  .unkept.has_value());
  machine.scheduler.abort(gives_up.id);
  all.queue.forget(gives_up.id);
  all.arrives(of_tenant(2, 50));
  const control::SeqSpec second = of_tenant(2, 50);
  all.arrives(second);
  const control::SeqSpec spec = of_tenant(1, 10);
  const Outlook outlook = all.arrives(spec);
  machine.run();
  EXPECT_NEAR(static_cast<double>(outlook.first_token), static_cast<double>(machine.first_token.at(spec.id)),
              1e3);
  EXPECT_LT(machine.first_token.at(spec.id), machine.first_token.at(second.id));
}

TEST(QueueForecast, KnowsWhatIsCached) {
  Foreseen all(VirtualMachine::config());
  VirtualMachine& machine = all.machine;
  control::SeqSpec spec = machine.spec(160, 4);
  all.arrives(spec);
  machine.run();
  spec.id = machine.next++;
  spec.arrived = machine.now;
  const Outlook outlook = all.arrives(spec);
  const Nanos arrived = machine.now;
  machine.run();
  EXPECT_NEAR(static_cast<double>(outlook.first_token), static_cast<double>(machine.first_token.at(spec.id)),
              10);
  EXPECT_LT(outlook.first_token - arrived, 10 * kMillisecond);  // a step instead of three
}

TEST(QueueForecast, ForksShareThePrompt) {
  Foreseen all(VirtualMachine::config());
  VirtualMachine& machine = all.machine;
  control::SeqSpec spec = machine.spec(100, 10);
  const Outlook outlook = all.foresee({.spec = spec, .sequences = 3, .runs_on = true});
  for (int i = 0; i < 3; ++i) {
    if (i > 0) spec.fork_of = 1;
    spec.id = static_cast<SeqId>(1 + i);
    ASSERT_TRUE(machine.scheduler.add(spec));
  }
  machine.run();
  // The scheduler admits them a step later than the forecast does, whose first step takes longer by their
  // last tokens of the prompt.
  EXPECT_NEAR(static_cast<double>(outlook.first_token), static_cast<double>(machine.first_token.at(1)), 2e6);
  EXPECT_NEAR(static_cast<double>(outlook.end), static_cast<double>(machine.end.at(3)), 8e6);
}

TEST(QueueForecast, AnAnswerIsAsLongAsTheRecentOnes) {
  Foreseen all(VirtualMachine::config());
  VirtualMachine& machine = all.machine;
  for (int i = 0; i < 8; ++i) all.queue.answer_ended(20, false);
  const control::SeqSpec spec = machine.spec(10, 500);
  const Outlook guessed = all.foresee({.spec = spec});
  const Outlook sure = all.foresee({.spec = spec, .runs_on = true});
  control::SeqSpec told = spec;
  told.expected_tokens = 40;
  const Outlook said = all.foresee({.spec = told});
  const auto end_of = [&](uint32_t tokens) {
    control::SeqSpec exact = spec;
    exact.max_tokens = tokens;
    return all.foresee({.spec = exact, .runs_on = true}).end;
  };
  EXPECT_EQ(guessed.end, end_of(20));
  EXPECT_EQ(said.end, end_of(40));
  EXPECT_EQ(sure.end, end_of(500));
}

TEST(QueueForecast, RefusesADeadlineThatCannotBeKept) {
  control::SchedulerConfig config = VirtualMachine::config();
  config.max_num_seqs = 1;
  Foreseen all(config);
  VirtualMachine& machine = all.machine;
  all.arrives(machine.spec(10, 400));  // some 5 ms a token
  const control::SeqSpec spec = machine.spec(10, 10);
  const Outlook late =
      all.foresee({.spec = spec, .runs_on = true, .ttft_deadline = 500 * kMillisecond}, true);
  ASSERT_EQ(late.unkept, Unkept::kOwn);
  EXPECT_THAT(late.reason, testing::HasSubstr("within 500 ms (ttft_deadline_ms) and predicted after 2"));
  const double early = static_cast<double>(late.first_token) * 1e-9 - 0.5;
  EXPECT_EQ(late.retry_after, static_cast<uint32_t>(std::ceil(early)));
  EXPECT_THAT(late.reason, testing::EndsWith("Try again in " + std::to_string(late.retry_after) + " s."));

  EXPECT_FALSE(
      all.foresee({.spec = spec, .runs_on = true, .ttft_deadline = 4000 * kMillisecond}, true).unkept);
  EXPECT_FALSE(all.foresee({.spec = spec, .runs_on = true}, true).unkept);
  EXPECT_FALSE(all.foresee({.spec = spec, .runs_on = true, .ttft_deadline = 500 * kMillisecond}).unkept)
      << "nothing is promised";
  const Newcomer more{.spec = spec, .runs_on = true, .ttft_deadline = kMillisecond, .accepted = true};
  EXPECT_FALSE(all.foresee(more, true).unkept);
  const Outlook never = all.foresee({.spec = spec, .runs_on = true, .ttft_deadline = kMillisecond}, true);
  ASSERT_EQ(never.unkept, Unkept::kNever);
  EXPECT_THAT(never.reason, testing::HasSubstr("even alone here this prompt of 10 tokens"));
}

TEST(QueueForecast, RefusesWhatWouldBreakThePromiseToAnother) {
  control::SchedulerConfig config = VirtualMachine::config();
  config.max_num_seqs = 1;
  config.scheduling = control::SchedulingKind::kPriority;
  Foreseen all(config);
  VirtualMachine& machine = all.machine;
  all.arrives(machine.spec(10, 20));
  control::SeqSpec promised = machine.spec(10, 20);
  ASSERT_FALSE(
      all.foresee({.spec = promised, .runs_on = true, .ttft_deadline = 200 * kMillisecond}, true).unkept);
  ASSERT_TRUE(machine.scheduler.add(promised));
  control::SeqSpec urgent = machine.spec(10, 200);
  urgent.priority = -5;
  const Outlook refused = all.foresee({.spec = urgent, .runs_on = true}, true);
  ASSERT_EQ(refused.unkept, Unkept::kAnother);
  EXPECT_THAT(refused.reason, testing::HasSubstr("after the time for which it was promised"));
  EXPECT_EQ(refused.retry_after, 1U);
  urgent.max_tokens = 5;
  EXPECT_FALSE(all.foresee({.spec = urgent, .runs_on = true}, true).unkept) << "there is time for both";
  urgent.max_tokens = 200;
  machine.now += 300 * kMillisecond;
  EXPECT_FALSE(all.foresee({.spec = urgent, .runs_on = true}, true).unkept) << "it is broken anyway";
}

}  // namespace
}  // namespace quire::engine
