#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/scheduler.h"
#include "tests/control/property/oracle_executor.h"

// A story is all that happens to one control plane, as plain data: a configuration and operations. A failing
// one is cut down and printed as the C++ that makes it.
namespace quire::test {

/// A request. Its prompt are the first `length` tokens of a text that requests have in common, then `own`
/// tokens that depend on its id.
struct Request {
  SeqId id = 0;
  uint32_t text = 0;  // of kTexts; all of them begin with the same tokens
  uint32_t length = 0;
  uint32_t own = 1;
  uint32_t max_tokens = 1;
  uint64_t salt = 0;
  uint32_t choice = 0;      // others sample other tokens after the same prompt
  uint32_t stop_token = 0;  // ends by sampling this token - 1; 0: by none
  uint32_t stop_after = 0;  // ends from outside after so many tokens, as by a stop string; 0: does not
  uint32_t rows = 0;        // 1 + PromptWants::logprobs
  uint32_t first_row = 0;   // and its other fields
  uint32_t pooling = 0;
  bool penalties = false;  // whoever samples needs all its tokens
  int32_t priority = 0;
  uint64_t tenant = 0;
  uint32_t deadline = 0;  // milliseconds
  uint32_t expected = 0;  // tokens of the answer; 0: nobody knows
  friend bool operator==(const Request&, const Request&) = default;
};
inline constexpr uint32_t kTexts = 4;
inline constexpr uint32_t kMostDepth = 3;
std::vector<TokenId> prompt(const Request& request);

struct Operation {
  enum class Kind : uint8_t {
    kAdd,    // `request`
    kFork,   // `request` with the prompt, the first own - 1 answered tokens and the salt of `other`, if taken
    kAbort,  // `other`
    kReset,  // the prefix cache
    kStep,   // plan and execute one more, commit the oldest once `depth` are open
    kPlan,   // plan and execute; what comes until kCommit (or the next step) happens in between
    kCommit,  // of the oldest open plan
    kBudget,  // of the steps from now on, `tokens`
    kLose,    // the executor fails as a whole, in a step if one is open: all end, and K/V is lost
  };
  Kind kind = Kind::kStep;
  Request request;
  SeqId other = 0;
  uint32_t milliseconds = 0;  // that pass before a step
  uint32_t tokens = 0;
  uint32_t fails = 0;  // this one of the sequences of a step (counted round) fails; 0: none
  friend bool operator==(const Operation&, const Operation&) = default;
};
Operation add(const Request& request);
Operation fork_of(SeqId parent, const Request& request);
Operation abort_of(SeqId id);
Operation reset_cache();
Operation step(uint32_t milliseconds = 0, uint32_t fails = 0);
Operation plan_only(uint32_t milliseconds = 0, uint32_t fails = 0);
Operation commit_open();
Operation set_budget(uint32_t tokens);
Operation lose_executor();

struct Story {
  control::SchedulerConfig config;
  uint32_t depth = 1;  // so many steps may be open
  std::vector<Operation> operations;
};

/// A random one; everything follows from the seed, on every machine. `prompts`: some requests want something
/// of their prompts.
Story make_story(uint64_t seed, bool prompts = true);

/// The C++ that makes it.
std::string to_string(const Operation& operation);
std::string to_string(const Story& story);

}  // namespace quire::test
