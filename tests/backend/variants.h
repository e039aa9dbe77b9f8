#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/backend/harness.h"

namespace quire::test {

/// Makes an executor for a pool of so many blocks and slots, with nothing in it.
struct MakeExecutor {
  std::function<std::unique_ptr<backend::Executor>(uint32_t num_blocks, uint32_t max_slots,
                                                   uint32_t num_host_blocks)>
      make;
  std::vector<uint32_t> kv_windows = {0};

  std::unique_ptr<backend::Executor> operator()(uint32_t num_blocks, uint32_t max_slots,
                                                uint32_t num_host_blocks = 0) const {
    return make(num_blocks, max_slots, num_host_blocks);
  }
};

inline constexpr uint32_t kBlockSize = 16;

/// One sequence at a time, each in a pool of its own use, the whole prompt in one step.
std::vector<Continuation> run_alone(const MakeExecutor& make, const std::vector<control::SeqSpec>& specs);

/// Runs `specs` in all the ways that must change nothing and expects `alone` of each: one batch of all,
/// chunks of 16 tokens, after prefix hits, through preemptions by recomputation and by swap, and as forks.
/// Expects too that each way really happened.
void expect_same_in_every_way(const MakeExecutor& make, const std::vector<control::SeqSpec>& specs,
                              const std::vector<Continuation>& alone);

/// Forks: every sequence of `specs` with a second choice that shares its prompt. `alone_second`: the second
/// choices run alone.
std::vector<control::SeqSpec> second_choices(const std::vector<control::SeqSpec>& specs);
void expect_same_as_forks(const MakeExecutor& make, const std::vector<control::SeqSpec>& specs,
                          const std::vector<Continuation>& alone,
                          const std::vector<Continuation>& alone_second);

}  // namespace quire::test
