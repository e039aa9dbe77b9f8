// What a step computes, who comes in, who gives way, how sequences end. driver.h says how to read a plan.
#include "control/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/control/driver.h"

namespace quire::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- what a step computes ----

TEST(Scheduler, APromptIsComputedInChunksThenTokenByToken) {
  Driver driver(small());
  driver.add(a, text(18), 3);
  EXPECT_EQ(driver.step(), "+a a:0+8");
  EXPECT_EQ(driver.step(), "a:8+8");
  EXPECT_THAT(driver.events, IsEmpty());
  EXPECT_EQ(driver.step(), "a:16+2!");
  EXPECT_EQ(driver.events.size(), 1U);
  EXPECT_EQ(driver.step(), "a:18+1!");
  EXPECT_THAT(driver.last().seqs[0].tokens, ElementsAre(1000));
  EXPECT_EQ(driver.step(), "a:19+1!");
  ASSERT_EQ(driver.events.size(), 1U);
  EXPECT_EQ(driver.events[0].finish, control::FinishReason::kLength);
  EXPECT_EQ(driver.events[0].token->token, 1000);
  EXPECT_FALSE(driver.scheduler.has_work());
  EXPECT_EQ(driver.step(), "");
}

TEST(Scheduler, DecodesComeFirstThenRunningPrefillsThenAdmissions) {
  Driver driver(small());
  driver.add(a, text(2), 10);
  driver.step();
  driver.add(b, text(12, 100), 10);
  driver.add(c, text(3, 200), 10);
  EXPECT_EQ(driver.step(), "+b a:2+1! b:0+7");
  EXPECT_EQ(driver.step(), "+c a:3+1! b:7+5! c:0+2");
  EXPECT_EQ(driver.step(), "a:4+1! b:12+1! c:2+1!");
}

TEST(Scheduler, TheBudgetMayBeSetBetweenSteps) {
  Driver driver(small());
  driver.add(a, text(30), 1);
  EXPECT_EQ(driver.step(), "+a a:0+8");
  driver.scheduler.set_budget(5);
  EXPECT_EQ(driver.step(), "a:8+5");
  EXPECT_EQ(driver.scheduler.stats().token_budget, 5U);
  driver.scheduler.set_budget(1);  // no less than there are slots
  EXPECT_EQ(driver.step(), "a:13+4");
  driver.scheduler.set_budget(100);  // no more than was configured
  EXPECT_EQ(driver.step(), "a:17+8");
}

TEST(Scheduler, ATokenBehindAContextTakesMoreOfTheBudget) {
  control::SchedulerConfig config = small();
  config.context_cost = 125'000;  // an eighth for each token before it: behind 8 it costs two
  Driver driver(config);
  driver.add(a, text(60), 1);
  EXPECT_EQ(driver.step(), "+a a:0+8");
  EXPECT_EQ(driver.step(), "a:8+4");
  EXPECT_EQ(driver.step(), "a:12+3");
  EXPECT_EQ(driver.step(), "a:15+2");
  for (int i = 0; i < 10; ++i) driver.step();
  EXPECT_EQ(driver.step(), "a:37+2");  // never less than a quarter
}

TEST(Scheduler, WhatAContextCostsIsNotLeftForOthers) {
  control::SchedulerConfig config = small();
  config.context_cost = 125'000;
  Driver driver(config);
  driver.add(a, text(10), 4);
  driver.add(b, text(6, 100), 4);
  EXPECT_EQ(driver.step(), "+a a:0+8");
  EXPECT_EQ(driver.step(), "+b a:8+2! b:0+4");  // two tokens that cost two each
}

TEST(Scheduler, NewBlocksAreThoseItsTokensNeed) {
  Driver driver(small());
  driver.add(a, text(9), 10);
  driver.step();
  EXPECT_THAT(driver.last().seqs[0].new_blocks, ElementsAre(0, 1));
  driver.step();
  EXPECT_THAT(driver.last().seqs[0].new_blocks, ElementsAre(2));
  driver.step();
  EXPECT_THAT(driver.last().seqs[0].new_blocks, IsEmpty());
}

TEST(Scheduler, AStopTokenEndsASequence) {
  Driver driver(small());
  control::SeqSpec spec = Driver::spec(a, text(2), 10);
  spec.stop_tokens = {5, 7};
  driver.add(spec);
  driver.told[a] = {6, 7};
  driver.step();
  EXPECT_FALSE(driver.events[0].finish);
  driver.step();
  EXPECT_EQ(driver.events[0].finish, control::FinishReason::kStop);
  EXPECT_EQ(driver.events[0].stop_token, 7);
  EXPECT_EQ(driver.events[0].token->token, 7);
  EXPECT_EQ(driver.scheduler.stats().finished, 1U);
}

TEST(Scheduler, HistoryIsGivenOnlyForPenalties) {
  Driver driver(small());
  driver.add(a, text(2), 3);
  control::SeqSpec spec = Driver::spec(b, text(3, 50), 3);
  spec.sampling.presence_penalty = 1.0F;
  driver.add(spec);
  driver.step();
  EXPECT_THAT(driver.last().added[0].history, IsEmpty());
  EXPECT_THAT(driver.last().added[1].history, ElementsAre(50, 51, 52));
  EXPECT_EQ(driver.last().added[1].prompt_length, 3U);
}

// ---- admission ----

TEST(Scheduler, NobodyOvertakesTheHeadOfTheQueue) {
  Driver driver(with_blocks(6));
  driver.add(a, text(12), 5);       // 3 blocks
  driver.add(b, text(16, 100), 5);  // 4: does not fit beside a
  driver.add(c, text(2, 200), 1);   // 1: would
  EXPECT_EQ(driver.step(), "+a a:0+12!");
  driver.steps(4);
  EXPECT_EQ(driver.step(), "-a +b +c b:0+16! c:0+2!");
}

TEST(Scheduler, TheTokensOfAPromptAreReadWhenItIsFirstInLine) {
  struct Maker final : TokenMaker {
    explicit Maker(int& count) : made(count) {}
    uint32_t size() const override { return 12; }
    std::vector<TokenId> make() const override {
      ++made;
      return text(12);
    }
    int& made;
  };
  for (const auto eviction : {control::EvictionKind::kLru, control::EvictionKind::kQueueLru}) {
    control::SchedulerConfig config = with_blocks(4);
    config.eviction = eviction;
    Driver driver(config);
    int made = 0;
    driver.add(a, text(8, 100), 4);
    for (const SeqId id : {b, c, d}) {
      control::SeqSpec spec = Driver::spec(id, {}, 1);
      spec.prompt = TokenList(std::make_unique<Maker>(made));
      driver.add(std::move(spec));
    }
    EXPECT_EQ(driver.step(), "+a a:0+8!");
    const int to_count = eviction == control::EvictionKind::kQueueLru ? 3 : 0;  // queue-lru counts what waits
    EXPECT_EQ(made, to_count + 1) << "of b";
    driver.scheduler.abort(d);
    made = 0;
    driver.steps(3);
    EXPECT_EQ(driver.step(), "-a +b b:0+12!");
    EXPECT_EQ(driver.step(), "-b +c c:8+4!") << "its first blocks are those of b";
    EXPECT_EQ(made, 1) << "those of c; b has kept its own since it was first in line";
  }
}

TEST(Scheduler, AnAdmissionLeavesTheWatermark) {
  control::SchedulerConfig config = with_blocks(8);
  config.watermark_bp = 1300;  // 13 % of 8 blocks, rounded up: 2
  Driver driver(config);
  driver.add(a, text(8), 4);        // 2 blocks
  driver.add(b, text(20, 100), 4);  // 5 of the other 6: one is left
  EXPECT_EQ(driver.step(), "+a a:0+8!");
  driver.scheduler.abort(b);
  driver.add(c, text(12, 200), 4);  // a has a third block by now; 3 of the other 5
  EXPECT_EQ(driver.step(), "+c a:8+1! c:0+12!");
}

TEST(Scheduler, AWatermarkBeyondThePoolLetsOneRunAtATime) {
  control::SchedulerConfig config = with_blocks(8);
  config.watermark_bp = 50000;
  Driver driver(config);
  driver.add(a, text(4), 2);
  driver.add(b, text(4, 100), 2);
  EXPECT_EQ(driver.step(), "+a a:0+4!");
  EXPECT_EQ(driver.step(), "a:4+1!");
  EXPECT_EQ(driver.step(), "-a +b b:0+4!");
}

TEST(Scheduler, NobodyComesInBehindAHalfComputedPrompt) {
  Driver driver(with_blocks(8, 12));
  driver.add(a, text(20), 2);       // 5 blocks, 3 in the first step
  driver.add(b, text(16, 100), 2);  // 4: would fit now, not with a whole
  EXPECT_EQ(driver.step(), "+a a:0+12");
  EXPECT_EQ(driver.step(), "a:12+8!");
  EXPECT_EQ(driver.step(), "a:20+1!");
  EXPECT_EQ(driver.step(), "-a +b b:0+12");
}

TEST(Scheduler, RunsNoMoreThanItsSlots) {
  Driver driver(small());
  for (SeqId id = 0; id < 4; ++id) driver.add(id, text(1, static_cast<TokenId>(100 * id)), 2);
  EXPECT_EQ(driver.step(), "+a +b +c +d a:0+1! b:0+1! c:0+1! d:0+1!");
  driver.add(4, text(1, 900), 2);
  EXPECT_EQ(driver.step(), "a:1+1! b:1+1! c:1+1! d:1+1!");
  EXPECT_EQ(driver.step(), "-a -b -c -d +e e:0+1!");
}

TEST(Scheduler, RefusesWhatCannotRun) {
  control::SchedulerConfig config = with_blocks(5);  // 20 tokens
  config.max_model_len = 30;
  config.max_num_seqs = 2;
  config.max_waiting = 0;
  control::Scheduler scheduler(config);
  const auto code = [&](control::SeqSpec spec) {
    const auto added = scheduler.add(std::move(spec));
    EXPECT_FALSE(added);
    return added.error();
  };
  EXPECT_EQ(code(Driver::spec(a, text(20), 11)).code, RequestErrorCode::kTooLong);
  EXPECT_THAT(code(Driver::spec(a, text(20), 11)).message,
              testing::AllOf(HasSubstr("holds 21 tokens"), HasSubstr("requested 31")));
  EXPECT_EQ(code(Driver::spec(a, text(18), 4)).code, RequestErrorCode::kTooLong);
  EXPECT_THAT(code(Driver::spec(a, text(18), 4)).message, HasSubstr("21 tokens"));
  EXPECT_EQ(code(Driver::spec(a, {}, 4)).code, RequestErrorCode::kInternal);
  EXPECT_THAT(code(Driver::spec(a, text(21), 0)).message,
              testing::AllOf(HasSubstr("holds 20 tokens"), HasSubstr("requested 21")));
  ASSERT_TRUE(scheduler.add(Driver::spec(a, text(18), 3)));  // the last token is never computed
  EXPECT_EQ(scheduler.stats().waiting, 1U) << "it counts at once, before any step";
  EXPECT_EQ(code(Driver::spec(a, text(1), 1)).code, RequestErrorCode::kInternal);
  ASSERT_TRUE(scheduler.add(Driver::spec(b, text(1), 1))) << "there is a slot for each";
  EXPECT_EQ(code(Driver::spec(c, text(1), 1)).code, RequestErrorCode::kQueueFull);
  scheduler.plan();
  EXPECT_EQ(code(Driver::spec(c, text(1), 1)).code, RequestErrorCode::kQueueFull);
  EXPECT_EQ(scheduler.check_invariants(), "");
}

TEST(Scheduler, RefusesAConfigurationThatCannotWork) {
  for (uint32_t control::SchedulerConfig::*field :
       {&control::SchedulerConfig::num_blocks, &control::SchedulerConfig::block_size,
        &control::SchedulerConfig::max_num_seqs, &control::SchedulerConfig::max_model_len}) {
    control::SchedulerConfig config = small();
    config.*field = 0;
    EXPECT_THROW(control::Scheduler{config}, Error);
  }
  control::SchedulerConfig config = small();
  config.max_num_batched_tokens = config.max_num_seqs - 1;
  EXPECT_THROW(control::Scheduler{config}, Error);
}

// ---- preemption ----

TEST(Scheduler, OutOfBlocksTheLastAdmittedGivesWayAndIsComputedAgain) {
  control::SchedulerConfig config = with_blocks(4);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(7), 8);
  driver.add(b, text(7, 100), 4);
  driver.step();  // two blocks each
  driver.step();  // both full
  EXPECT_EQ(driver.step(), "-b a:8+1!");
  EXPECT_EQ(driver.scheduler.stats().preempted, 1U);
  EXPECT_EQ(driver.scheduler.stats().waiting, 1U);
  driver.steps(3);
  driver.scheduler.abort(a);
  EXPECT_EQ(driver.step(), "-a +b b:0+9!");  // its prompt and the two tokens it had
  EXPECT_THAT(driver.last().seqs[0].tokens, ElementsAre(100, 101, 102, 103, 104, 105, 106, 1001, 1001));
  EXPECT_EQ(driver.step(), "b:9+1!");
  EXPECT_EQ(driver.events[0].finish, control::FinishReason::kLength);
}

TEST(Scheduler, APreemptedSequenceFindsItsPublishedBlocks) {
  Driver driver(with_blocks(5));
  driver.add(a, text(7), 6);
  driver.add(b, text(7, 100), 4);
  driver.step();
  driver.step();
  driver.add(c, text(1, 200), 1);
  EXPECT_EQ(driver.step(), "-b a:8+1!");
  driver.scheduler.abort(a);
  EXPECT_EQ(driver.step(), "-a +b +c b:8+1! c:0+1!");  // back before c, which came later
  EXPECT_THAT(driver.last().added[0].blocks, ElementsAre(2, 3));
  EXPECT_EQ(driver.scheduler.stats().total_prefix_hit_tokens, 0U);  // its own do not count
  EXPECT_EQ(driver.scheduler.stats().total_prefix_queried_tokens, 7U + 7U + 1U);
}

TEST(Scheduler, NobodyIsAdmittedInAStepThatPreempted) {
  control::SchedulerConfig config = with_blocks(5);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(8), 8);       // 2 blocks, a third at once
  driver.add(b, text(8, 100), 8);  // likewise
  driver.add(c, text(1, 200), 1);  // would fit at any time
  EXPECT_EQ(driver.step(), "+a +b +c a:0+8! b:0+8! c:0+1!");
  driver.add(d, text(1, 300), 1);
  EXPECT_EQ(driver.step(), "-c -b a:8+1!");
  EXPECT_EQ(driver.step(), "a:9+1!");  // b is first again and does not fit
}

TEST(Scheduler, TheLastAdmittedGivesWayEvenIfItIsTheOneThatAsks) {
  control::SchedulerConfig config = with_blocks(4, 8);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(3), 12);
  driver.add(b, text(8, 100), 4);
  EXPECT_EQ(driver.step(), "+a +b a:0+3! b:0+5");
  EXPECT_EQ(driver.step(), "a:3+1! b:5+3!");
  EXPECT_EQ(driver.step(), "-b a:4+1!");  // a takes the last block, b needs one
}

TEST(Scheduler, APrefillTakesTheBlocksThereAreAndWaitsForTheRest) {
  control::SchedulerConfig config = with_blocks(8, 9);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(4), 5);  // a second block at once
  driver.step();
  driver.add(b, text(4, 100), 6);
  driver.add(c, text(20, 200), 2);
  EXPECT_EQ(driver.step(), "+b +c a:4+1! b:0+4! c:0+4");  // the 5 blocks that are left, but b grows
  EXPECT_EQ(driver.step(), "a:5+1! b:4+1! c:4+7");
  EXPECT_EQ(driver.step(), "a:6+1! b:5+1! c:11+5");  // all it has room for
  EXPECT_EQ(driver.step(), "a:7+1! b:6+1!");
  EXPECT_EQ(driver.step(), "-a b:7+1! c:16+4!");
}

// ---- ends from outside ----

TEST(Scheduler, AnAbortGivesBlocksAndSlotBackAtOnce) {
  control::SchedulerConfig config = with_blocks(4);
  config.max_num_seqs = 1;
  Driver driver(config);
  driver.add(a, text(14), 2);
  driver.add(b, text(14, 100), 2);
  driver.add(c, text(1, 200), 2);
  driver.step();
  driver.scheduler.abort(a);
  driver.scheduler.abort(c);  // while it waits
  driver.scheduler.abort(99);
  EXPECT_EQ(driver.scheduler.check_invariants(), "");
  EXPECT_EQ(driver.step(), "-a +b b:0+14!");
  driver.scheduler.abort(a);  // ended long ago
  driver.scheduler.abort(b);
  EXPECT_FALSE(driver.scheduler.has_work());
  EXPECT_EQ(driver.plan(), "");  // an empty plan tells nothing, the next does
  driver.add(d, text(1), 1);
  EXPECT_EQ(driver.step(), "-b +d d:0+1!");
}

TEST(Scheduler, AnAbortWithinAStepDropsItsResultOnly) {
  Driver driver(with_blocks(16));
  driver.add(a, text(8), 5);
  driver.add(b, text(8, 100), 5);
  EXPECT_EQ(driver.plan(), "+a +b a:0+8! b:0+8!");
  driver.scheduler.abort(a);
  driver.commit(driver.execute());
  ASSERT_EQ(driver.events.size(), 1U);
  EXPECT_EQ(driver.events[0].id, b);
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 0U);  // a's blocks were not published
  EXPECT_EQ(driver.step(), "-a b:8+1!");
}

TEST(Scheduler, AnExecutorsErrorEndsOneSequence) {
  Driver driver(with_blocks(16));
  driver.add(a, text(8), 5);
  driver.add(b, text(8, 100), 5);
  driver.plan();
  control::StepResult result = driver.execute();
  result.seqs[0].error = "NaN in the logits";
  driver.commit(std::move(result));
  ASSERT_EQ(driver.events.size(), 2U);
  EXPECT_EQ(driver.events[0].finish, control::FinishReason::kError);
  EXPECT_EQ(driver.events[0].error, "NaN in the logits");
  EXPECT_FALSE(driver.events[0].token);
  EXPECT_FALSE(driver.events[1].finish);
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 0U);  // what failed is not kept
  EXPECT_EQ(driver.step(), "-a b:8+1!");
}

TEST(Scheduler, AResultThatIsNotOfThePlanIsAnError) {
  Driver driver(with_blocks(16));
  driver.add(a, text(8), 5);
  driver.plan();
  EXPECT_THROW(driver.scheduler.commit(driver.last(), {}), Error);
  control::StepResult no_token = driver.execute();
  no_token.seqs[0].token.reset();
  driver.commit(std::move(no_token));
  EXPECT_EQ(driver.events[0].finish, control::FinishReason::kError);
  EXPECT_THAT(driver.events[0].error, HasSubstr("no token"));
}

TEST(Scheduler, GoesOnAfterAnExecutorThatFailedAsAWhole) {
  Driver driver(with_blocks(16));
  driver.add(a, text(8), 5);
  driver.step();
  driver.plan();
  driver.plan();
  driver.scheduler.reset();
  EXPECT_FALSE(driver.scheduler.has_work());
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 0U);
  EXPECT_THROW(driver.commit(driver.execute()), Error);
  driver.add(b, text(8), 1);
  EXPECT_EQ(driver.step(), "-a +b b:0+8!");  // nothing was cached
}

// ---- statistics ----

TEST(Scheduler, StatsTellTheStateAfterTheStep) {
  Driver driver(with_blocks(16, 8));
  EXPECT_EQ(driver.scheduler.stats().blocks_total, 16U);
  driver.add(a, text(3), 5);
  driver.step();
  driver.add(b, text(12, 100), 5);
  driver.add(c, text(12, 200), 5);
  driver.step();
  const control::StepStats& stats = driver.scheduler.stats();
  EXPECT_EQ(stats.step, 2U);
  EXPECT_EQ(stats.running, 2U);
  EXPECT_EQ(stats.waiting, 1U);
  EXPECT_EQ(stats.prefill_tokens, 7U);
  EXPECT_EQ(stats.decode_tokens, 1U);
  EXPECT_EQ(stats.admitted, 1U);
  EXPECT_EQ(stats.blocks_referenced, 3U);
  EXPECT_EQ(stats.slots_unused, 0U + 1U);
  driver.step();
  EXPECT_EQ(stats.slots_unused, 3U + 0U + 2U);  // c came in
  driver.scheduler.abort(a);
  driver.scheduler.abort(b);
  driver.scheduler.abort(c);
  driver.add(d, text(1), 1);
  driver.step();
  EXPECT_EQ(stats.finished, 1U);
  EXPECT_EQ(stats.running, 0U);
  EXPECT_EQ(stats.blocks_referenced, 0U);
  EXPECT_EQ(stats.blocks_cached, 4U);  // a's first, b's three
}

}  // namespace
}  // namespace quire::test
