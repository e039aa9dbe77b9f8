#include "tests/backend/bad_plans.h"

#include <utility>

namespace quire::test {
namespace {

control::NewSeq new_seq(SlotId slot, std::vector<BlockId> blocks = {}) {
  control::NewSeq seq;
  seq.slot = slot;
  seq.prompt_length = 4;
  seq.blocks = std::move(blocks);
  return seq;
}

control::SeqStep step(SlotId slot, uint32_t first, std::vector<TokenId> tokens,
                      std::vector<BlockId> blocks = {}) {
  control::SeqStep seq;
  seq.slot = slot;
  seq.first_position = first;
  seq.tokens = std::move(tokens);
  seq.new_blocks = std::move(blocks);
  return seq;
}

}  // namespace

control::StepPlan first_plan() {
  control::StepPlan plan;
  plan.added = {new_seq(0)};
  plan.seqs = {step(0, 0, {1, 2, 3, 4, 5}, {0})};
  return plan;
}

std::vector<BadPlan> bad_plans() {
  std::vector<BadPlan> out;
  const auto add = [&](std::string name, auto fill) {
    control::StepPlan plan;
    fill(plan);
    out.push_back({std::move(name), std::move(plan)});
  };
  add("removes an empty slot", [](control::StepPlan& p) { p.removed = {1}; });
  add("removes a slot that is none", [](control::StepPlan& p) { p.removed = {2}; });
  add("removes a slot twice", [](control::StepPlan& p) { p.removed = {0, 0}; });
  add("adds to a taken slot", [](control::StepPlan& p) { p.added = {new_seq(0)}; });
  add("adds to a slot that is none", [](control::StepPlan& p) { p.added = {new_seq(2)}; });
  add("adds with a block that is none", [](control::StepPlan& p) { p.added = {new_seq(1, {8})}; });
  add("adds penalties without history", [](control::StepPlan& p) {
    p.added = {new_seq(1)};
    p.added[0].sampling.presence_penalty = 1.0F;
  });
  add("adds bad words without history", [](control::StepPlan& p) {
    p.added = {new_seq(1)};
    p.added[0].sampling.bad_words = {{1}};
  });
  add("adds a bad word without a token", [](control::StepPlan& p) {
    p.added = {new_seq(1)};
    p.added[0].history = {1, 2, 3, 4};
    p.added[0].sampling.bad_words = {{}};
  });
  add("allows a token above the vocabulary", [](control::StepPlan& p) {
    p.added = {new_seq(1)};
    p.added[0].sampling.allowed_tokens = {1'000'000};
  });
  add("copies from a block that is none", [](control::StepPlan& p) { p.copies = {{8, 1}}; });
  add("copies to a block that is none", [](control::StepPlan& p) { p.copies = {{1, 8}}; });
  add("moves out a block that is none", [](control::StepPlan& p) { p.moves_out = {{8, 0}}; });
  add("moves out to a host block that is none", [](control::StepPlan& p) { p.moves_out = {{0, 1U << 20}}; });
  add("moves in to a block that is none", [](control::StepPlan& p) { p.moves_in = {{8, 0}}; });
  add("moves in a host block that is none", [](control::StepPlan& p) { p.moves_in = {{1, 1U << 20}}; });
  add("updates an empty slot", [](control::StepPlan& p) { p.updates = {{1, 0, 1}}; });
  add("updates beyond the table", [](control::StepPlan& p) { p.updates = {{0, 1, 1}}; });
  add("updates to a block that is none", [](control::StepPlan& p) { p.updates = {{0, 0, 8}}; });
  add("steps an empty slot", [](control::StepPlan& p) { p.seqs = {step(1, 0, {1}, {1})}; });
  add("steps a slot that is none", [](control::StepPlan& p) { p.seqs = {step(2, 0, {1}, {1})}; });
  add("steps a slot twice", [](control::StepPlan& p) { p.seqs = {step(0, 5, {1}), step(0, 6, {1})}; });
  add("leaves a position out", [](control::StepPlan& p) { p.seqs = {step(0, 6, {1})}; });
  add("computes a position again", [](control::StepPlan& p) { p.seqs = {step(0, 4, {1})}; });
  add("starts behind what is shared", [](control::StepPlan& p) {
    p.added = {new_seq(1, {1})};
    p.seqs = {step(1, 17, {1}, {2})};
  });
  add("steps without tokens", [](control::StepPlan& p) { p.seqs = {step(0, 5, {})}; });
  add("has too few blocks", [](control::StepPlan& p) {
    p.seqs = {step(0, 5, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})};
  });
  add("appends a block that is none", [](control::StepPlan& p) { p.seqs = {step(0, 5, {1}, {8})}; });
  add("has a token below the vocabulary", [](control::StepPlan& p) { p.seqs = {step(0, 5, {-1})}; });
  add("has a token above the vocabulary", [](control::StepPlan& p) { p.seqs = {step(0, 5, {1'000'000})}; });
  const auto add_prompt = [&](std::string name, PromptWants wants, control::PromptStep part) {
    add(std::move(name), [&](control::StepPlan& p) {
      p.added = {new_seq(1)};
      p.added[0].wants = wants;
      p.seqs = {step(1, 0, {1, 2, 3}, {1})};
      p.prompts = {part};
    });
  };
  const PromptWants rows{.logprobs = 2};
  add_prompt("yields of a sequence that is none", rows, {.seq = 1, .end_row = 1, .next = 1});
  add_prompt("yields rows that nobody wants", {}, {.end_row = 1, .next = 1});
  add_prompt("yields rows behind the chunk", rows, {.first_row = 2, .end_row = 4, .next = 1});
  add_prompt("yields rows that end before they begin", rows, {.first_row = 2, .end_row = 1, .next = 1});
  add_prompt("yields a row for a token above the vocabulary", rows, {.end_row = 1, .next = 1'000'000});
  add_prompt("calls a part of a prompt its end", rows, {.end_row = 1, .next = 1, .last = true});
  add("yields of one sequence twice", [](control::StepPlan& p) {
    p.added = {new_seq(1)};
    p.seqs = {step(1, 0, {1, 2, 3}, {1})};
    p.prompts.resize(2);
  });
  add("adds up a prompt that is computed in part", [](control::StepPlan& p) {
    p.added = {new_seq(1, {1})};
    p.added[0].wants.pooling = Pooling::kMean;
  });
  return out;
}

}  // namespace quire::test
