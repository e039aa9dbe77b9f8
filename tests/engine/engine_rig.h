#pragma once

#include <memory>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/engine/ends.h"
#include "tests/support/failing_memory.h"
#include "tests/support/fake_executor.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::test {

/// An engine whose memory may be made to fail.
struct EngineRig {
  static constexpr uint32_t kVocab = 256;

  EngineRig() : tokenizer(kVocab), executor({.num_blocks = 256, .vocab_size = kVocab}) {
    config.scheduler.num_blocks = 256;
    config.scheduler.max_model_len = 1024;
    config.scheduler.max_waiting = 2048;
    config.vocab_size = kVocab;
    config.check_invariants = true;
    engine = std::make_unique<engine::Engine>(config, tokenizer, executor, clock);
  }
  ~EngineRig() { failing_size = 0; }

  static engine::GenerationRequest request(uint32_t prompt_length = 8, uint32_t max_tokens = 20) {
    engine::GenerationRequest out;
    out.prompt.assign(prompt_length, 5);
    out.max_tokens = max_tokens;
    out.ignore_eos = true;
    return out;
  }
  /// Another request is answered, nothing is left over, and the engine can be drained.
  void expect_well() {
    ASSERT_TRUE(engine->submit(request(), ends.sink(999)));
    EXPECT_FALSE(ends.wait(999).error);
    EXPECT_EQ(engine->failure(), "");
    EXPECT_TRUE(engine->drain(20'000'000'000)) << "a request that has ended still counts";
    EXPECT_EQ(engine->stats().step.blocks_referenced, 0U);
    EXPECT_EQ(engine->stats().step.running + engine->stats().step.waiting, 0U);
  }

  LetterTokenizer tokenizer;
  FakeExecutor executor;
  SteadyClock clock;
  engine::EngineConfig config;
  Ends ends;
  std::unique_ptr<engine::Engine> engine;
};

}  // namespace quire::test
