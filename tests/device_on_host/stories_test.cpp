// Random stories of the control plane over the device that fibers make: aborts, forks, preemptions by both
// ways, up to three steps in flight, in orders of blocks, warps, lanes and streams that the seed draws.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "control/scheduler.h"
#include "tests/backend/hash_masks.h"
#include "tests/device_on_host/device_executor.h"
#include "tests/device_on_host/tiny_model.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

constexpr uint32_t kVocabulary = kTinyVocabulary;
constexpr int kStories = 200;

/// What the stories went through, so that the test can tell whether it tested anything.
struct Seen {
  uint64_t aborts_inside = 0;  // of sequences that a step in flight computes
  uint64_t late_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t swapped_out = 0;
  uint64_t swapped_in = 0;
  uint64_t copies = 0;
  uint64_t hits = 0;
  uint64_t ended = 0;
  uint64_t overtakes = 0;
};

/// One story: some of the requests, in any order, in a small pool.
class Story {
 public:
  Story(uint64_t seed, const std::vector<control::SeqSpec>& specs, const std::vector<Continuation>& alone)
      : rng_(seed), depth_(1 + static_cast<uint32_t>(rng_.below(3))), scheduler_(draw_config()) {
    for (uint64_t left = 3 + rng_.below(8); left > 0; --left) {
      const uint64_t chosen = rng_.below(specs.size());
      control::SeqSpec spec = specs[chosen];
      spec.id = chosen;
      if (expected_.contains(chosen)) continue;
      // The choices of a request, as they are in `specs`, stand beside each other.
      const SeqId other = chosen ^ 1;
      if (expected_.contains(other) && one_in(2)) spec.fork_of = other;
      expected_[chosen] = &alone[chosen];
      to_come_.push_back(std::move(spec));
    }
  }

  /// Empty, or what was wrong.
  std::string run(backend::Executor& executor, Seen& seen) {
    while (error_.empty() && (!to_come_.empty() || scheduler_.has_work() || !open_.empty())) {
      interfere(seen);
      if (open_.size() < depth_ && !owes_masks_ && scheduler_.has_work() && !one_in(4))
        submit(executor, seen);
      interfere(seen);
      if (!open_.empty() && (open_.size() >= depth_ || owes_masks_ || one_in(3))) commit(executor);
    }
    seen.preemptions += scheduler_.stats().total_preemptions;
    seen.copies += scheduler_.stats().total_copies;
    seen.hits += scheduler_.stats().total_prefix_hit_tokens;
    if (error_.empty() && scheduler_.stats().blocks_referenced > 0) fail("blocks are left");
    return error_;
  }

  uint32_t num_blocks() const { return scheduler_.config().num_blocks; }
  uint32_t num_host_blocks() const { return scheduler_.config().num_host_blocks; }
  uint32_t num_slots() const { return scheduler_.config().max_num_seqs; }

 private:
  struct Open {
    control::StepPlan plan;
    backend::Ticket ticket;
  };

  bool one_in(uint64_t count) { return rng_.below(count) == 0; }

  control::SchedulerConfig draw_config() {
    control::SchedulerConfig config;
    config.num_blocks = 4 + static_cast<uint32_t>(rng_.below(5));
    config.block_size = kBlockSize;
    config.max_num_seqs = 2 + static_cast<uint32_t>(rng_.below(4));
    config.max_num_batched_tokens = config.max_num_seqs + static_cast<uint32_t>(rng_.below(48));
    config.max_model_len = 96;
    config.watermark_bp = 0;
    config.enable_prefix_caching = one_in(2);
    config.admit_eagerly = one_in(2);
    config.preemption = one_in(3) ? control::PreemptionKind::kRecompute : control::PreemptionKind::kSwap;
    config.num_host_blocks = static_cast<uint32_t>(rng_.below(12));
    return config;
  }

  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  /// What comes from outside at any moment: requests and aborts.
  void interfere(Seen& seen) {
    if (!to_come_.empty() && one_in(3)) {
      control::SeqSpec spec = masks_.number(std::move(to_come_.front()));
      to_come_.pop_front();
      const SeqId id = spec.id;
      if (const auto added = scheduler_.add(std::move(spec)); !added) {
        expected_.erase(id);
        return;
      }
      found_[id] = {};
    }
    if (!found_.empty() && one_in(40)) {
      auto chosen = found_.begin();
      std::advance(chosen, static_cast<ptrdiff_t>(rng_.below(found_.size())));
      const bool is_inside = std::ranges::any_of(
          scheduler_.running(), [&](const control::Sequence* seq) { return seq->spec.id == chosen->first; });
      if (is_inside && !open_.empty()) ++seen.aborts_inside;
      scheduler_.abort(chosen->first);
      expected_.erase(chosen->first);
    }
  }

  void submit(backend::Executor& executor, Seen& seen) {
    control::StepPlan plan = scheduler_.plan();
    if (plan.empty()) return;
    for (const control::SeqStep& seq : plan.seqs) seen.late_tokens += seq.is_late() ? 1 : 0;
    seen.swapped_out += plan.moves_out.size();
    seen.swapped_in += plan.moves_in.size();
    const backend::Ticket ticket = executor.submit(plan);
    open_.push_back({std::move(plan), ticket});
    owes_masks_ = !masks_.empty();
    provide(executor);
  }

  void provide(backend::Executor& executor) {
    if (open_.size() == 1 && std::exchange(owes_masks_, false)) {
      executor.provide(open_.front().ticket, masks_);
    }
  }

  void commit(backend::Executor& executor) {
    const Open oldest = std::move(open_.front());
    open_.pop_front();
    for (control::SeqEvent& event : scheduler_.commit(oldest.plan, executor.wait(oldest.ticket))) {
      if (event.token) {
        masks_.accept(event.id, event.token->token);
        found_[event.id].push_back(event.token->token);
      }
      if (!event.error.empty()) fail(fmt::format("sequence {}: {}", event.id, event.error));
      check_against_alone(event.id, event.finish.has_value());
    }
    provide(executor);
    if (const std::string broken = scheduler_.check_invariants(); !broken.empty()) fail(broken);
  }

  void check_against_alone(SeqId id, bool is_end) {
    const auto wanted = expected_.find(id);
    if (wanted == expected_.end()) return;
    const std::vector<SampledToken>& tokens = wanted->second->tokens;
    const std::vector<TokenId>& own = found_[id];
    const bool is_same =
        own.size() <= tokens.size() && std::ranges::equal(own, std::span(tokens).first(own.size()), {}, {},
                                                          [](const SampledToken& one) { return one.token; });
    if (!is_same || (is_end && own.size() != tokens.size())) {
      fail(fmt::format("sequence {}: another token {} than alone", id, own.size()));
    }
  }

  SplitMix64 rng_;
  uint32_t depth_;
  control::Scheduler scheduler_;
  HashMasks masks_;
  std::deque<control::SeqSpec> to_come_;
  std::map<SeqId, const Continuation*> expected_;  // of those that nobody aborted
  std::map<SeqId, std::vector<TokenId>> found_;
  std::deque<Open> open_;
  bool owes_masks_ = false;
  std::string error_;
};

/// Each with its second choice behind it.
std::vector<control::SeqSpec> requests() {
  std::vector<control::SeqSpec> all;
  const std::vector<control::SeqSpec> firsts = mixed_requests(kVocabulary, 12, 16);
  const std::vector<control::SeqSpec> seconds = second_choices(firsts);
  for (size_t i = 0; i < firsts.size(); ++i) {
    for (control::SeqSpec spec : {firsts[i], seconds[i]}) {
      spec.wants = {};
      if (i % 4 != 0) spec.sampling.num_logprobs = -1;  // which take most of the time
      spec.max_tokens = 4 + i;
      std::vector<TokenId> prompt(spec.prompt.begin(), spec.prompt.end());
      prompt.resize(std::min<size_t>(prompt.size(), 20 + i));
      spec.prompt = std::move(prompt);
      spec.id = all.size();
      all.push_back(std::move(spec));
    }
  }
  return all;
}

TEST(DeviceStories, EndAsEachSequenceDoesAlone) {
  const std::filesystem::path model = temp_dir();
  write_tiny_model(model);
  const MakeExecutor make =
      on_device(model, DType::kBF16, {.rows = 64, .seqs = 8, .positions = 128, .logit_rows = 64});
  const std::vector<control::SeqSpec> specs = requests();
  std::vector<Continuation> alone;
  {
    Device device(1);
    alone = run_alone(make, specs);
  }
  Seen seen;
  for (uint64_t seed = 0; seed < kStories; ++seed) {
    SCOPED_TRACE(fmt::format("story {}", seed));
    Device device(seed);
    Story story(seed, specs, alone);
    const auto executor = make(story.num_blocks(), story.num_slots(), story.num_host_blocks());
    ASSERT_EQ(story.run(*executor, seen), "");
    ASSERT_TRUE(device.findings().empty()) << device.report();
#ifndef QUIRE_REAL_DEVICE
    seen.overtakes += device.streams().overtakes();
#endif
  }
  EXPECT_GT(seen.aborts_inside, 20U);
  EXPECT_GT(seen.late_tokens, 1000U);
  EXPECT_GT(seen.preemptions, 100U);
  EXPECT_GT(seen.swapped_out, 100U);
  EXPECT_GT(seen.swapped_in, 50U);
  EXPECT_GT(seen.copies, 10U);
  EXPECT_GT(seen.hits, 100U);
#ifndef QUIRE_REAL_DEVICE
  EXPECT_GT(seen.overtakes, 100U);
#endif
}

}  // namespace
}  // namespace quire::test::fibers
