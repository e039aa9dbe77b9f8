#pragma once

#include <cstdint>

#include "base/ids.h"
#include "control/step.h"

// What a step has to do and how long it took: what a model of its time depends on, and is fitted to.
namespace quire::backend {

/// What a step computes and moves.
struct StepWork {
  uint64_t decoding = 0;        // sequences that compute one token and sample the next
  uint64_t decode_context = 0;  // the tokens before theirs, in all
  uint64_t chunks = 0;          // of other sequences, of prompts mostly
  uint64_t prefill_tokens = 0;  // in these chunks
  uint64_t chunk_squares = 0;   // the sum of the squares of their lengths
  uint64_t chunk_prefix = 0;    // the sum of their lengths times the tokens before them
  uint64_t logit_rows = 0;      // rows that need logits, also those of prompts
  uint64_t sampled_rows = 0;    // of them those from which a token is sampled
  uint64_t moved_blocks = 0;    // to the host and back
  uint64_t copies = 0;          // of blocks

  uint64_t tokens() const { return decoding + prefill_tokens; }

  /// Calls each(name, count) for all of them.
  template <class Work, class Each>
  static void for_each_count(Work& work, const Each& each) {
    each("decoding", work.decoding);
    each("decode_context", work.decode_context);
    each("chunks", work.chunks);
    each("prefill_tokens", work.prefill_tokens);
    each("chunk_squares", work.chunk_squares);
    each("chunk_prefix", work.chunk_prefix);
    each("logit_rows", work.logit_rows);
    each("sampled_rows", work.sampled_rows);
    each("moved_blocks", work.moved_blocks);
    each("copies", work.copies);
  }
};

/// A chunk of one token that samples the next counts as decoding, also if it ends a prompt: it costs as much.
inline StepWork work_of(const control::StepPlan& plan) {
  StepWork work;
  for (const control::SeqStep& seq : plan.seqs) {
    const uint64_t tokens = seq.tokens.size();
    const uint64_t sampled = seq.rows == control::LogitRows::kLast ? 1 : 0;
    work.logit_rows += sampled;
    work.sampled_rows += sampled;
    if (tokens == 1 && sampled == 1) {
      ++work.decoding;
      work.decode_context += seq.first_position;
      continue;
    }
    ++work.chunks;
    work.prefill_tokens += tokens;
    work.chunk_squares += tokens * tokens;
    work.chunk_prefix += tokens * seq.first_position;
  }
  work.moved_blocks = plan.moves_out.size() + plan.moves_in.size();
  work.copies = plan.copies.size();
  for (const control::PromptStep& part : plan.prompts) work.logit_rows += part.end_row - part.first_row;
  return work;
}

/// Of a step that decodes so many sequences, with so many tokens before theirs in all.
inline StepWork decode_work_of(uint64_t sequences, uint64_t context) {
  return {
      .decoding = sequences, .decode_context = context, .logit_rows = sequences, .sampled_rows = sequences};
}

/// Of a step that computes a prompt alone and samples the token after it.
inline StepWork prompt_work_of(uint64_t tokens) {
  return {.chunks = 1,
          .prefill_tokens = tokens,
          .chunk_squares = tokens * tokens,
          .logit_rows = 1,
          .sampled_rows = 1};
}

/// The version of step logs, which their first line names; it changes with the columns and what they mean.
inline constexpr int kStepLogVersion = 3;

/// A line of a step log. Times are in nanoseconds.
struct StepRecord {
  uint64_t step = 0;    // StepPlan::step, as in a decision log
  int64_t started = 0;  // when its planning began
  uint64_t budget = 0;  // tokens that it might have
  uint64_t open = 0;    // steps in flight, with this one
  StepWork work;
  int64_t plan = 0;     // in the scheduler
  int64_t submit = 0;   // in Executor::submit
  int64_t wait = 0;     // in Executor::wait
  int64_t compute = 0;  // PhaseTimes
  int64_t sample = 0;
  int64_t commit = 0;   // in the scheduler
  int64_t deliver = 0;  // of what it gave
  int64_t idle = 0;     // before it, while nothing was to do: since the step before had been delivered
  int64_t whole = 0;    // from the delivery of the step before, or if it was idle from its start, to its own

  /// Calls each(name, field) in the order of the columns.
  template <class Record, class Each>
  static void for_each_field(Record& record, const Each& each) {
    each("step", record.step);
    each("started", record.started);
    each("budget", record.budget);
    each("open", record.open);
    StepWork::for_each_count(record.work, each);
    each("plan", record.plan);
    each("submit", record.submit);
    each("wait", record.wait);
    each("compute", record.compute);
    each("sample", record.sample);
    each("commit", record.commit);
    each("deliver", record.deliver);
    each("idle", record.idle);
    each("whole", record.whole);
  }
};

}  // namespace quire::backend
