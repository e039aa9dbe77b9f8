#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/step_trace.h"
#include "tests/support/fake_executor.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/units.h"

namespace quire::test {

inline constexpr uint32_t kVocab = 256;

/// Collects the news of many requests and waits for their ends.
class Inbox {
 public:
  struct Answer {
    std::map<uint32_t, std::string> text;
    std::map<uint32_t, std::vector<TokenId>> tokens;
    std::map<uint32_t, control::FinishReason> finish;
    PromptYield prompt;
    bool rows_after_token = false;  // of choice 0
    engine::RequestOutput last;
    bool done = false;
    int pieces = 0;
  };

  engine::OutputSink sink(int name) {
    return [this, name](engine::RequestOutput output) {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers_[name];
      EXPECT_FALSE(answer.done) << "news after the end of request " << name;
      ++answer.pieces;
      if (!output.prompt.rows.empty() && !answer.tokens[0].empty()) answer.rows_after_token = true;
      std::ranges::copy(output.prompt.rows, std::back_inserter(answer.prompt.rows));
      std::ranges::copy(output.prompt.pooled, std::back_inserter(answer.prompt.pooled));
      for (const engine::ChoiceOutput& choice : output.choices) {
        EXPECT_FALSE(answer.finish.contains(choice.index)) << "news after the end of a choice";
        answer.text[choice.index] += choice.text;
        for (const SampledToken& token : choice.tokens) answer.tokens[choice.index].push_back(token.token);
        if (choice.finish) answer.finish[choice.index] = *choice.finish;
      }
      answer.done = output.done;
      answer.last = std::move(output);
      changed_.notify_all();
    };
  }

  Answer wait(int name) {
    return wait_until(name, [](const Answer& answer) { return answer.done; });
  }
  Answer wait_for_text(int name) {
    return wait_until(name, [](const Answer& answer) { return answer.pieces > 0; });
  }

 private:
  template <class Condition>
  Answer wait_until(int name, Condition condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return condition(answers_[name]); }))
        << "request " << name;
    return answers_[name];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Answer> answers_;
};

/// An engine over an executor that answers as it is told.
struct Rig {
  explicit Rig(FakeExecutorConfig fake = {}, control::SchedulerConfig scheduler = {},
               engine::StepTrace* trace = nullptr)
      : tokenizer(kVocab), executor(fake) {
    config.scheduler = scheduler;
    config.scheduler.num_blocks = fake.num_blocks;
    config.scheduler.block_size = fake.block_size;
    config.scheduler.max_num_seqs = std::min(config.scheduler.max_num_seqs, fake.max_slots);
    if (config.scheduler.max_model_len == 0) config.scheduler.max_model_len = 1024;
    config.vocab_size = kVocab;
    config.eos = {0};
    config.check_invariants = true;
    engine = std::make_unique<engine::Engine>(config, tokenizer, executor, clock, trace, &metrics);
  }

  LetterTokenizer tokenizer;
  FakeExecutor executor;
  SteadyClock clock;
  engine::EngineMetrics metrics{"letters"};
  engine::EngineConfig config;
  std::unique_ptr<engine::Engine> engine;
};

inline engine::GenerationRequest request_of(uint64_t seed, uint32_t prompt_length, uint32_t max_tokens) {
  engine::GenerationRequest request;
  SplitMix64 random(seed);
  for (uint32_t i = 0; i < prompt_length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1 + random.below(kVocab - 1)));
  }
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.ignore_eos = true;
  return request;
}

/// The pool is empty and nothing runs or waits; waits for the step that makes it so.
inline void expect_baseline(const engine::Engine& engine) {
  for (int i = 0; i < 1000; ++i) {
    const control::StepStats now = engine.stats().step;
    if (now.blocks_referenced == 0 && now.running == 0 && now.waiting == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const control::StepStats now = engine.stats().step;
  ADD_FAILURE() << now.blocks_referenced << " blocks held, " << now.running << " running, " << now.waiting
                << " waiting";
}

}  // namespace quire::test
