#include "backend/sim/sim_executor.h"

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/sim/paced_executor.h"
#include "base/error.h"
#include "sim/virtual_clock.h"

namespace quire::sim {
namespace {

constexpr backend::sim::LinearCost kCost = {
    .step = 1000, .prefill_tokens_per_ms = 3, .decode = 500, .decode_more = 20};

TEST(CostModel, AddsUpInWholeNanoseconds) {
  EXPECT_EQ(kCost.duration(0, 0), 1000);
  EXPECT_EQ(kCost.duration(1, 0), 1000 + 333334);  // rounded up
  EXPECT_EQ(kCost.duration(3, 0), 1000 + 1000000);
  EXPECT_EQ(kCost.duration(0, 1), 1500);
  EXPECT_EQ(kCost.duration(0, 64), 1000 + 500 + 63 * 20);
  EXPECT_EQ(kCost.duration(6, 2), 1000 + 2000000 + 520);
  EXPECT_EQ(kCost.duration(6, 2, 4), kCost.duration(6, 2) + 4 * kCost.swap_block);
  EXPECT_EQ(kCost.duration(1 << 30, 0), 1000 + (Nanos{1} << 30) * 1000000 / 3 + 1);
}

TEST(CostModel, ATokenIsTheCheaperTheMoreDecodeAtOnce) {
  const backend::sim::LinearCost cost;
  Nanos last = cost.duration(0, 1);
  for (uint64_t n = 2; n <= 4096; n *= 2) {
    const auto each = cost.duration(0, n) / static_cast<Nanos>(n);
    EXPECT_LT(each, last) << n;
    EXPECT_LT(cost.duration(0, n), 2 * cost.duration(0, n / 2)) << n;
    EXPECT_GE(cost.duration(0, n), cost.duration(0, n / 2)) << n;
    last = each;
  }
}

TEST(CostModel, HintsAreSharesOfAFullBatch) {
  const backend::sim::LinearCost cost{
      .step = 1000, .prefill_tokens_per_ms = 4, .decode = 500, .decode_more = 20, .swap_block = 7};
  EXPECT_EQ(cost.hints(1).prefill_token, 250'000);
  EXPECT_EQ(cost.hints(1).decode_token, cost.duration(0, 1));
  EXPECT_EQ(cost.hints(10).decode_token, cost.duration(0, 10) / 10);
  EXPECT_EQ(cost.hints(1).swap_block, 7);
  EXPECT_EQ((backend::sim::LinearCost{.swap_block = 0}.hints(1).swap_block),
            1);  // a scheduler wants no zeros
}

TEST(CostModel, SaysWhatFitsATime) {
  const backend::sim::LinearCost cost;
  for (const Nanos time : {Nanos{0}, Nanos{1'000'000}, Nanos{1'000'001}, Nanos{400'000'000}}) {
    const uint64_t tokens = cost.prefill_tokens_in(time);
    if (tokens > 0) {
      EXPECT_LE(cost.duration(tokens, 0), time);
    }
    EXPECT_GT(cost.duration(tokens + 1, 0), time);
  }
}

TEST(CostModel, NonsenseIsRefused) {
  EXPECT_NO_THROW(backend::sim::LinearCost().check());
  EXPECT_THROW((backend::sim::LinearCost{.step = -1}.check()), Error);
  EXPECT_THROW((backend::sim::LinearCost{.prefill_tokens_per_ms = 0}.check()), Error);
  EXPECT_THROW((backend::sim::LinearCost{.decode = 5, .decode_more = 6}.check()), Error);
  EXPECT_THROW((backend::sim::LinearCost{.swap_block = -1}.check()), Error);
  EXPECT_THROW((backend::sim::LinearCost{.decode = INT64_MAX, .decode_more = 6}.check()), Error);
}

TEST(VirtualClock, GoesOnOnlyWhenTold) {
  VirtualClock clock;
  EXPECT_EQ(clock.now(), 0);
  clock.advance_to(5);
  clock.advance_to(5);
  EXPECT_EQ(clock.now(), 5);
  EXPECT_THROW(clock.advance_to(4), Error);
  EXPECT_EQ(clock.now(), 5);
}

control::SchedulerConfig four_slots() {
  control::SchedulerConfig config;
  config.num_blocks = 8;
  config.block_size = 4;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 24;
  return config;
}

backend::sim::SimExecutor executor() {
  return {four_slots(), kCost, backend::sim::SimTokens{.vocab_size = 100, .seed = 3}};
}

control::NewSeq new_seq(SlotId slot, uint64_t seed = 0, std::vector<BlockId> blocks = {}) {
  control::NewSeq seq;
  seq.slot = slot;
  seq.prompt_length = 3;
  seq.sampling.seed = seed;
  seq.blocks = std::move(blocks);
  return seq;
}

control::SeqStep seq_step(SlotId slot, uint32_t first, std::vector<TokenId> tokens,
                          std::vector<BlockId> blocks, control::LogitRows rows = control::LogitRows::kLast) {
  control::SeqStep seq;
  seq.slot = slot;
  seq.first_position = first;
  seq.tokens = std::move(tokens);
  seq.new_blocks = std::move(blocks);
  seq.rows = rows;
  return seq;
}

/// A plan in which slot 0 computes its prompt.
control::StepPlan prompt_plan(uint64_t seed = 0) {
  control::StepPlan plan;
  plan.step = 1;
  plan.added = {new_seq(0, seed)};
  plan.seqs = {seq_step(0, 0, {1, 2, 3}, {0})};
  return plan;
}

control::StepResult execute(backend::sim::SimExecutor& sim, const control::StepPlan& plan) {
  return sim.wait(sim.submit(plan));
}

TokenId only_token(const control::StepResult& result) { return result.seqs.at(0).token.value().token; }

/// Allows the multiples of a number; of 0, none.
class Multiples final : public backend::TokenMasks {
 public:
  explicit Multiples(size_t of) : of_(of) {}
  void fill(uint32_t source, std::span<uint32_t> mask) override {
    EXPECT_EQ(source, 7U);
    for (size_t id = 0; id < mask.size() * 32; ++id) {
      if (of_ == 0 || id % of_ != 0) mask[id / 32] &= ~(1U << (id % 32));
    }
  }

 private:
  size_t of_;
};

TEST(SimExecutor, SaysOfALateRowTheNextTokenThatItsMaskAllows) {
  const auto say = [](size_t multiples_of, std::vector<TokenId> sayable) {
    backend::sim::SimExecutor sim(four_slots(), kCost,
                                  {.vocab_size = 100, .seed = 3, .sayable = std::move(sayable)});
    control::StepPlan plan = prompt_plan();
    plan.added[0].sampling.mask = 7;
    const backend::Ticket ticket = sim.submit(plan);
    EXPECT_THROW(sim.wait(ticket), Error);
    Multiples masks(multiples_of);
    sim.provide(ticket, masks);
    return sim.wait(ticket);
  };
  backend::sim::SimExecutor free = executor();
  const TokenId unmasked = only_token(execute(free, prompt_plan()));
  EXPECT_EQ(only_token(say(1, {})), unmasked);
  EXPECT_EQ(only_token(say(40, {})), unmasked > 80 ? 0 : (unmasked + 39) / 40 * 40);
  EXPECT_EQ(only_token(say(9, {4, 5, 9, 10})), 9);
  EXPECT_EQ(only_token(say(95, {4, 5})) % 95, 0) << "none that is sayable is allowed";
  for (const std::vector<TokenId>& sayable : {std::vector<TokenId>{}, {4, 5}}) {
    const control::StepResult none = say(0, sayable);
    EXPECT_EQ(none.seqs.at(0).error, "the grammar leaves no token for position 3");
    EXPECT_TRUE(none.seqs.at(0).refused);
  }
}

TEST(SimExecutor, CountsPrefillAndDecodes) {
  backend::sim::SimExecutor sim = executor();
  const control::StepResult prompt = execute(sim, prompt_plan());
  EXPECT_EQ(prompt.times.compute, kCost.duration(3, 0));
  control::StepPlan next;
  next.added = {new_seq(1)};
  next.seqs = {seq_step(0, 3, {only_token(prompt)}, {}),
               seq_step(1, 0, {5, 6}, {1}, control::LogitRows::kNone)};
  const control::StepResult mixed = execute(sim, next);
  EXPECT_EQ(mixed.times.compute, kCost.duration(2, 1));
  EXPECT_TRUE(mixed.seqs[0].token);
  EXPECT_FALSE(mixed.seqs[1].token);
  EXPECT_EQ(sim.slots_in_use(), 2U);
}

// As a step log, a shadow and a forecast count it.
TEST(SimExecutor, AChunkOfOneTokenThatEndsAPromptIsADecode) {
  backend::sim::SimExecutor sim = executor();
  control::StepPlan first = prompt_plan();
  first.seqs = {seq_step(0, 0, {1}, {0}, control::LogitRows::kNone)};
  EXPECT_EQ(execute(sim, first).times.compute, kCost.duration(1, 0)) << "it does not end the prompt";
  control::StepPlan second;
  second.seqs = {seq_step(0, 1, {2}, {}, control::LogitRows::kNone)};
  EXPECT_EQ(execute(sim, second).times.compute, kCost.duration(1, 0));
  control::StepPlan last;
  last.seqs = {seq_step(0, 2, {3}, {})};
  EXPECT_EQ(execute(sim, last).times.compute, kCost.duration(0, 1));
  EXPECT_EQ(kCost.duration(backend::work_of(last)), kCost.duration(0, 1));
}

TEST(SimExecutor, MovingBlocksTakesTime) {
  control::SchedulerConfig config = four_slots();
  config.num_host_blocks = 2;
  backend::sim::SimExecutor sim(config, kCost, backend::sim::SimTokens{.vocab_size = 100});
  control::StepPlan plan = prompt_plan();
  plan.moves_out = {{5, 0}, {6, 1}};
  plan.moves_in = {{7, 0}};
  EXPECT_EQ(execute(sim, plan).times.compute, kCost.duration(3, 0, 3));
}

TEST(SimExecutor, TokensDependOnSeedChoiceAndPositionAlone) {
  std::set<TokenId> said;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    backend::sim::SimExecutor sim = executor();
    backend::sim::SimExecutor again = executor();
    const control::StepResult result = execute(sim, prompt_plan(seed));
    control::StepPlan other_slot = prompt_plan(seed);
    other_slot.added[0].slot = other_slot.seqs[0].slot = 2;
    other_slot.seqs[0].new_blocks = {7};
    EXPECT_EQ(only_token(execute(again, other_slot)), only_token(result));
    ASSERT_TRUE(only_token(result) >= 0 && only_token(result) < 100);
    said.insert(only_token(result));
  }
  EXPECT_GT(said.size(), 10U);
}

TEST(SimExecutor, SaysOnlyWhatIsSayableOrGiven) {
  backend::sim::SimTokens tokens{.vocab_size = 100, .sayable = {7, 9}};
  std::set<TokenId> said;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    backend::sim::SimExecutor sim(four_slots(), kCost, tokens);
    said.insert(only_token(execute(sim, prompt_plan(seed))));
  }
  EXPECT_EQ(said, (std::set<TokenId>{7, 9}));

  tokens.next = [](const backend::sim::SimPosition& at) {
    EXPECT_EQ(at.step, 1U);
    EXPECT_EQ(at.slot, 0U);
    EXPECT_EQ(at.prompt_length, 3U);
    return static_cast<TokenId>(at.sampling.seed + at.position);
  };
  backend::sim::SimExecutor sim(four_slots(), kCost, tokens);
  EXPECT_EQ(only_token(execute(sim, prompt_plan(40))), 43);

  EXPECT_THROW(backend::sim::SimExecutor(four_slots(), kCost, {.vocab_size = 5, .sayable = {5}}), Error);
  EXPECT_THROW(backend::sim::SimExecutor(four_slots(), kCost, {.vocab_size = 0}), Error);
}

TEST(SimExecutor, GivesAsManyLogprobsAsAskedFor) {
  backend::sim::SimExecutor sim = executor();
  control::StepPlan plan = prompt_plan();
  plan.added[0].sampling.num_logprobs = 3;
  const SampledToken sampled = execute(sim, plan).seqs[0].token.value();
  EXPECT_EQ(sampled.rank, 1U);
  ASSERT_EQ(sampled.top.size(), 3U);
  EXPECT_EQ(sampled.top[0].token, sampled.token);
  EXPECT_EQ(sampled.top[0].logprob, sampled.logprob);
  EXPECT_EQ(std::set<TokenId>({sampled.top[0].token, sampled.top[1].token, sampled.top[2].token}).size(), 3U);
  EXPECT_GT(sampled.top[1].logprob, sampled.top[2].logprob);

  plan.added[0].sampling.logprob_tokens = {sampled.token, 2, 1};
  backend::sim::SimExecutor other = executor();
  std::vector<TokenId> named;
  const SampledToken again = execute(other, plan).seqs[0].token.value();
  for (const TokenLogprob& entry : again.top) named.push_back(entry.token);
  std::vector<TokenId> expected = {sampled.token};
  for (const TokenId id : {2, 1}) {
    if (id != sampled.token) expected.push_back(id);
  }
  EXPECT_EQ(named, expected);
}

TEST(SimExecutor, RefusesPlansThatContradictThemselvesOrTheFormer) {
  const std::vector<std::pair<const char*, std::function<void(control::StepPlan&)>>> wrongs = {
      {"slot 4 of 4", [](control::StepPlan& plan) { plan.seqs[0].slot = 4; }},
      {"slot 4 of 4", [](control::StepPlan& plan) { plan.added = {new_seq(4)}; }},
      {"slot 3 holds no sequence", [](control::StepPlan& plan) { plan.removed = {3}; }},
      {"slot 1 holds no sequence", [](control::StepPlan& plan) { plan.seqs[0].slot = 1; }},
      {"slot 0 is taken", [](control::StepPlan& plan) { plan.added = {new_seq(0)}; }},
      {"slot 0 twice", [](control::StepPlan& plan) { plan.seqs.resize(2, plan.seqs[0]); }},
      {"position 4 where 3 tokens", [](control::StepPlan& plan) { plan.seqs[0].first_position = 4; }},
      {"position 2 where 3 tokens", [](control::StepPlan& plan) { plan.seqs[0].first_position = 2; }},
      {"position 5 where 4 tokens",
       [](control::StepPlan& plan) {
         plan.added = {new_seq(1, 0, {1})};
         plan.seqs[0] = seq_step(1, 5, {1}, {2});
       }},
      {"block 8 of 8", [](control::StepPlan& plan) { plan.seqs[0].new_blocks = {8}; }},
      {"block 4294967295 of 8", [](control::StepPlan& plan) { plan.added = {new_seq(1, 0, {kNoBlock})}; }},
      {"block 9 of 8",
       [](control::StepPlan& plan) {
         plan.copies = {{0, 9}};
       }},
      {"moves_out: host block 0 of 0",
       [](control::StepPlan& plan) {
         plan.moves_out = {{0, 0}};
       }},
      {"moves_in: block 8 of 8",
       [](control::StepPlan& plan) {
         plan.moves_in = {{8, 0}};
       }},
      {"there is no entry 1 of group 0",
       [](control::StepPlan& plan) {
         plan.updates = {{0, 1, 3, 0}};
       }},
      {"there is no entry 0 of group 1",
       [](control::StepPlan& plan) {
         plan.updates = {{0, 0, 3, 1}};
       }},
      {"2 tokens from position 3", [](control::StepPlan& plan) { plan.seqs[0].tokens.push_back(1); }},
      {"0 tokens from position 3", [](control::StepPlan& plan) { plan.seqs[0].tokens.clear(); }},
      {"model length 24",
       [](control::StepPlan& plan) {
         plan.seqs[0].tokens.resize(22);
         plan.seqs[0].new_blocks = {1, 2, 3, 4, 5, 6};
       }},
      {"token 100 of 100",
       [](control::StepPlan& plan) {
         plan.seqs[0].tokens.push_back(100);
         plan.seqs[0].new_blocks = {1};
       }},
      {"token -1 of 100",
       [](control::StepPlan& plan) {
         plan.seqs[0].tokens.push_back(-1);
         plan.seqs[0].new_blocks = {1};
       }},
      {"and goes on with", [](control::StepPlan& plan) { plan.seqs[0].tokens[0] ^= 1; }},
      {"a prompt of 0 tokens",
       [](control::StepPlan& plan) {
         plan.added = {new_seq(1)};
         plan.added[0].prompt_length = 0;
       }},
  };
  for (const auto& [what, damage] : wrongs) {
    backend::sim::SimExecutor sim = executor();
    control::StepPlan next;
    next.step = 2;
    next.seqs = {seq_step(0, 3, {only_token(execute(sim, prompt_plan()))}, {})};
    damage(next);
    try {
      sim.submit(next);
      ADD_FAILURE() << "taken: " << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what() << " / " << what;
    }
  }
}

/// What slot 0 computes after its prompt, before the token is known.
control::StepPlan late_plan(uint64_t step, uint32_t position) {
  control::StepPlan plan;
  plan.step = step;
  plan.seqs = {seq_step(0, position, {control::kLateToken}, {})};
  if (position == 4) plan.seqs[0].new_blocks = {1};
  return plan;
}

TEST(SimExecutor, AFewTicketsInTheirOrder) {
  backend::sim::SimExecutor sim = executor();
  EXPECT_THROW(sim.wait(1), Error);
  const backend::Ticket first = sim.submit(prompt_plan());
  const backend::Ticket second = sim.submit(late_plan(2, 3));
  const backend::Ticket third = sim.submit(late_plan(3, 4));
  EXPECT_THROW(sim.submit(late_plan(4, 5)), Error);
  EXPECT_THROW(sim.wait(second), Error);
  std::vector<TokenId> said;
  for (const backend::Ticket ticket : {first, second, third}) said.push_back(only_token(sim.wait(ticket)));
  EXPECT_THROW(sim.wait(third), Error);

  backend::sim::SimExecutor in_turn = executor();
  std::vector<TokenId> known = {only_token(execute(in_turn, prompt_plan()))};
  for (uint32_t i = 0; i < 2; ++i) {
    control::StepPlan plan = late_plan(2 + i, 3 + i);
    plan.seqs[0].tokens = {known.back()};
    known.push_back(only_token(execute(in_turn, plan)));
  }
  EXPECT_EQ(said, known);
}

TEST(SimExecutor, RefusesALateTokenThatNobodySamplesOrOfAnotherGeneration) {
  backend::sim::SimExecutor sim = executor();
  execute(sim, prompt_plan());
  control::StepPlan plan = late_plan(2, 3);
  plan.seqs[0].tokens = {control::kLateToken, control::kLateToken};
  EXPECT_THROW(sim.submit(plan), Error);
  backend::sim::SimExecutor unsampled = executor();
  plan = prompt_plan();
  plan.seqs[0].rows = control::LogitRows::kNone;
  execute(unsampled, plan);
  EXPECT_THROW(unsampled.submit(late_plan(2, 3)), Error);
  backend::sim::SimExecutor other = executor();
  execute(other, prompt_plan());
  plan = late_plan(2, 3);
  plan.seqs[0].generation = 1;
  EXPECT_THROW(other.submit(plan), Error);
}

TEST(PacedExecutor, StepsLastAsLongAsTheModelSays) {
  const backend::sim::LinearCost cost = {.step = 30'000'000};
  for (const uint32_t speed : {100U, 200U}) {
    backend::sim::PacedExecutor paced(
        std::make_unique<backend::sim::SimExecutor>(four_slots(), cost, backend::sim::SimTokens{}), speed);
    const auto start = std::chrono::steady_clock::now();
    control::StepPlan plan = prompt_plan();
    plan.added[0].slot = plan.seqs[0].slot = speed / 100;
    const control::StepResult result = paced.wait(paced.submit(plan));
    const auto took = (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
    EXPECT_EQ(result.times.compute, Nanos{30'300'000} * 100 / speed);
    EXPECT_GE(took, result.times.compute);
    EXPECT_LT(took, result.times.compute + 1'000'000'000);
  }
}

TEST(PacedExecutor, WarnsOnceOfTimesThatAreExtrapolated) {
  backend::sim::FittedCost cost;
  cost.knots = {0};
  cost.device.token = cost.host.token = {1};
  const auto warnings = [&] {
    backend::sim::PacedExecutor paced(
        std::make_unique<backend::sim::SimExecutor>(four_slots(), cost, backend::sim::SimTokens{}), 100);
    testing::internal::CaptureStderr();
    for (const uint32_t slot : {0U, 1U}) {
      control::StepPlan plan = prompt_plan();
      plan.added[0].slot = plan.seqs[0].slot = slot;
      paced.wait(paced.submit(plan));
    }
    return testing::internal::GetCapturedStderr();
  };
  const std::string said = warnings();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_NE(said.find("beyond what the cost model was fitted to"), std::string::npos);
  cost.most = backend::prompt_work_of(1000);
  EXPECT_EQ(warnings(), "");
}

}  // namespace
}  // namespace quire::sim
