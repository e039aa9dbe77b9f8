#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/executor.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/sampling_params.h"
#include "control/request.h"
#include "control/scheduler.h"
#include "tokenize/tokenizer.h"

namespace quire::record {
struct PrefixNode;
class RunWriter;
}  // namespace quire::record

namespace quire::engine {

/// What a client asks for, bounded by `serve`: every field in its documented range, tokens in the vocabulary.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  uint32_t n = 1;
  /// More than n: so many are sampled, and at the end the n of the highest logprob per token are the answer.
  uint32_t best_of = 0;
  /// The n likeliest answers that a beam of max(n, best_of) <= kMaxBeamWidth finds, at the end; see
  /// BeamSearch. Then `stop` is empty and of `sampling` only num_logprobs counts.
  bool beam_search = false;
  double length_penalty = 1.0;  // of beam search
  /// Empty: as many as the model's length leaves.
  std::optional<uint32_t> max_tokens;
  SamplingParams sampling;        // `choice` is set by the engine
  std::vector<std::string> stop;  // each non-empty; matched on the text, cut from it
  std::vector<TokenId> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  uint64_t salt = 0;
  // For the scheduling policies that go by them; see SeqSpec.
  int32_t priority = 0;
  std::optional<Nanos> ttft_deadline;
  std::optional<uint32_t> expected_tokens;
  uint64_t tenant = 0;
  uint64_t waits_as = 0;  // whom it counts for in EngineConfig::max_waiting_per_tenant
  bool goes_on = false;   // more of what was taken before: not refused while the engine drains
  std::string name;       // what its client knows it by; only for the decision log

  /// That it may have at once.
  uint32_t sequences() const { return std::max(n, best_of); }
};

/// News of one choice.
struct ChoiceOutput {
  uint32_t index = 0;
  std::string text;                  // whole UTF-8 characters; may be empty
  std::vector<SampledToken> tokens;  // what was sampled, a stop token that is not shown included
  std::optional<control::FinishReason> finish;
  std::optional<std::string> stop_string;  // with kStop: which one
  std::optional<TokenId> stop_token;       // with kStop: which one
};

/// News of one request, once per step at most.
struct RequestOutput {
  RequestId id = 0;
  std::vector<ChoiceOutput> choices;  // those with news
  bool done = false;                  // nothing comes after this
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;         // of the prompt, of choice 0
  uint32_t completion_tokens = 0;     // so far, of all choices, those that best_of drops included
  std::optional<RequestError> error;  // with done: why it was not finished, unless by abort()
};

/// Called on the engine's thread, in order; must not block and must not call the engine, except abort.
using OutputSink = std::function<void(RequestOutput)>;

struct EngineConfig {
  control::SchedulerConfig scheduler;
  std::vector<TokenId> eos;
  uint32_t vocab_size = 0;
  /// What a step should take: the token budget follows the speed (StepBudget), from the scheduler's down. 0:
  /// it stays.
  Nanos step_time = 0;
  /// Sequences of one GenerationRequest::waits_as that may wait; more than scheduler.max_waiting: no bound of
  /// its own.
  uint32_t max_waiting_per_tenant = UINT32_MAX;
  bool check_invariants = false;  // after every step; for tests

  /// That can run and wait at once.
  uint64_t max_sequences() const { return uint64_t{scheduler.max_waiting} + scheduler.max_num_seqs; }
  /// Of one tenant; a request for more could never be taken.
  uint64_t max_sequences_per_tenant() const {
    return uint64_t{std::min(max_waiting_per_tenant, scheduler.max_waiting)} + scheduler.max_num_seqs;
  }
};

/// A snapshot for metrics, the live page and `bench`.
struct EngineStats {
  control::StepStats step;
  uint64_t requests_finished[4] = {};  // by FinishReason
  uint64_t prompt_tokens = 0;          // of finished prefills
  uint64_t generation_tokens = 0;
  uint64_t peak_blocks_referenced = 0;
  double ended_per_second = 0;  // sequences, lately
};

class StepTrace;
class EngineMetrics;

/// What the prefix cache begins with, and where it goes at the end. Called on the engine's thread, before the
/// first request and after the last; not after a failure of the executor. May throw: that is logged, and the
/// engine goes on.
class WarmStart {
 public:
  virtual ~WarmStart() = default;
  /// Nodes as restore() (record/prefix_snapshot.h) takes them; then, with the blocks that they got, fill().
  virtual std::vector<record::PrefixNode> load() = 0;
  virtual void fill(const std::vector<record::PrefixNode>& nodes) = 0;
  virtual void save(const std::vector<record::PrefixNode>& nodes) = 0;
};

/// Owns the scheduler and its thread: takes requests from any thread, drives plan - submit - wait - commit,
/// turns tokens into text, matches stop strings, hands the news out. All methods are thread-safe.
class Engine {
 public:
  /// All must outlive the engine; the last four may be null. `record` gets all that the scheduler is told and
  /// decides.
  Engine(const EngineConfig& config, const tokenize::Tokenizer& tokenizer, backend::Executor& executor,
         const Clock& clock, StepTrace* trace = nullptr, EngineMetrics* metrics = nullptr,
         record::RunWriter* record = nullptr, WarmStart* warm = nullptr);
  /// Ends what runs as drain(0) does.
  ~Engine();

  /// Queues a request; from now on its news comes through `sink` until one is `done`. Refused as check() and
  /// Scheduler::add say, with kQueueFull where its tenant has its share of the queue already, and with
  /// kShuttingDown after drain(). What a sink throws ends its request: it is called once more, with the
  /// error; and should it throw at a request's end, a last time with the error alone.
  Expected<RequestId> submit(GenerationRequest request, OutputSink sink);

  /// Refuses what submit() would refuse at any time: too long a request, one for more sequences than may run
  /// and wait, and a prompt that is empty or has a token that is none of the model's (a tokenizer may know
  /// more of them than the model).
  Expected<void> check(const GenerationRequest& request) const;

  /// Seconds after which a request that was refused with kQueueFull may find room, from 1 to 600: what waits
  /// by how fast sequences ended lately.
  uint32_t retry_after() const;

  /// Its blocks are back by the next step. The sink gets a last RequestOutput with kAbort. Unknown ids are
  /// ignored. Allocates nothing.
  void abort(RequestId id) noexcept;

  /// No new requests; returns when all are done or `timeout` has passed: then the rest ends with kAbort and
  /// the error kShuttingDown. True if nothing was aborted, by this call or by another that ran out of time
  /// while this one waited.
  bool drain(Nanos timeout);

  EngineStats stats() const;
  /// Why the executor gave up; empty while it works. An engine that has failed refuses all requests.
  std::string failure() const;
  /// Why whoever watches the engine should start it anew: its failure(), or that the executor failed each of
  /// the last kMostFailures requests that ended. Empty once a request has been finished again. An engine of
  /// the second kind still takes requests.
  std::string health_fault() const;
  static constexpr uint32_t kMostFailures = 8;
  const EngineConfig& config() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
