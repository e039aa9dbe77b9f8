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
#include "base/prompt_wants.h"
#include "base/sampling_params.h"
#include "control/request.h"
#include "control/scheduler.h"
#include "engine/mask_source.h"
#include "tokenize/tokenizer.h"

namespace quire::record {
struct PrefixNode;
class RunTap;
class RunWriter;
}  // namespace quire::record

namespace quire::engine {

/// A client's request, checked by `serve`: every field is in its documented range, and every token in the
/// vocabulary.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  uint32_t n = 1;
  /// If more than n: this many are sampled, and at the end the n with the highest logprob per token are the
  /// answer.
  uint32_t best_of = 0;
  /// The n most likely answers that a beam of width max(n, best_of) <= kMaxBeamWidth finds, at the end; see
  /// BeamSearch. With it, `stop` must be empty, and of `sampling` only num_logprobs is used.
  bool beam_search = false;
  double length_penalty = 1.0;  // for beam search
  /// Empty: as many as the model's length allows. 0: no token, so only `wants`.
  std::optional<uint32_t> max_tokens;
  SamplingParams sampling;  // `choice`, `mask` and `end_tokens` are set by the engine
  /// If set: called on the engine thread for each choice, whose tokens are then restricted by the source that
  /// it returns. Not with beam search.
  MakeMaskSource make_mask_source;
  /// Logprobs of the prompt's tokens, a pooled hidden state. The first choice yields them; not with beam
  /// search.
  PromptWants wants;
  std::vector<std::string> stop;  // each non-empty; matched against the text and removed from it
  std::vector<TokenId> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::vector<TokenId> shown_special_tokens;  // that are not skipped nevertheless
  uint64_t salt = 0;
  // For the scheduling policies that use them; see SeqSpec.
  int32_t priority = 0;
  std::optional<Nanos> ttft_deadline;
  std::optional<uint32_t> expected_tokens;
  uint64_t tenant = 0;
  uint64_t waits_as = 0;  // the tenant for which it counts in EngineConfig::max_waiting_per_tenant
  /// Continues a request that was accepted: not refused while the engine drains, nor for a deadline.
  bool goes_on = false;
  bool wants_outlook = false;  // RequestOutput::foretold; without a Shadow there is none
  std::string name;            // the id that its client knows; only for the decision log

  /// Sequences that it may have at once.
  uint32_t sequences() const { return std::max(n, best_of); }
};

/// New output of one choice.
struct ChoiceOutput {
  uint32_t index = 0;
  std::string text;                  // whole UTF-8 characters; may be empty
  std::vector<SampledToken> tokens;  // the sampled tokens, including a stop token that is not shown
  std::optional<control::FinishReason> finish;
  std::optional<std::string> stop_string;  // with kStop: which one
  std::optional<TokenId> stop_token;       // with kStop: which one
};

/// What was predicted of a request when it arrived, in times since then.
struct Foretold {
  Nanos first_token = 0;
  Nanos end = 0;
  Nanos real_first_token = -1;  // observed; -1: it is still to come
};

/// New output of one request, at most once per step. Where deadlines are promised (Shadow), and to a request
/// that wants an outlook, one without choices comes first: it has been admitted.
struct RequestOutput {
  RequestId id = 0;
  std::vector<ChoiceOutput> choices;  // those with new output
  /// The new part of what GenerationRequest::wants asks for. Rows come in order, each once, all before the
  /// first token of choice 0; the pooled state comes once, with or after the last row.
  PromptYield prompt;
  bool done = false;  // this is the last output
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;         // of the prompt, for choice 0
  uint32_t completion_tokens = 0;     // so far, of all choices, including those that best_of drops
  std::optional<RequestError> error;  // with done: why it did not finish, unless abort() ended it
  uint32_t retry_after = 0;           // with kQueueFull, if it was refused for a deadline: see Outlook
  std::optional<Foretold> foretold;   // if GenerationRequest::wants_outlook
};

/// Called on the engine thread, in order; must not block and must not call the engine, except abort().
using OutputSink = std::function<void(RequestOutput)>;

struct EngineConfig {
  control::SchedulerConfig scheduler;
  std::vector<TokenId> eos;
  uint32_t vocab_size = 0;
  /// The target time of a step's prompts: the token budget follows the measured speed (StepBudget), up to the
  /// scheduler's maximum. 0: the budget stays fixed.
  Nanos step_time = 0;
  /// The most sequences of one GenerationRequest::waits_as that may wait; more than scheduler.max_waiting: no
  /// separate limit.
  uint32_t max_waiting_per_tenant = UINT32_MAX;
  bool check_invariants = false;  // after every step; for tests
  /// Changes the sampling parameters of each sequence before it is added; for executors that need more than
  /// others (backend::sim::tell_history).
  void (*adapt_sampling)(SamplingParams& sampling) = nullptr;

  /// Sequences that can run and wait at once.
  uint64_t max_sequences() const { return uint64_t{scheduler.max_waiting} + scheduler.max_num_seqs; }
  /// The same for one tenant; a request for more could never be accepted.
  uint64_t max_sequences_per_tenant() const {
    return uint64_t{std::min(max_waiting_per_tenant, scheduler.max_waiting)} + scheduler.max_num_seqs;
  }
};

/// A snapshot for metrics, the live page and `bench`: as of the last step or arrival; before the first, of
/// the pool after the warm start.
struct EngineStats {
  control::StepStats step;
  uint64_t requests_finished[4] = {};  // by FinishReason
  uint64_t prompt_tokens = 0;          // of completed prefills
  uint64_t generation_tokens = 0;
  uint64_t peak_blocks_referenced = 0;
  double ended_per_second = 0;  // sequences, recently
};

class Shadow;
class StepSink;
class StepTrace;
class EngineMetrics;

/// Loads the prefix cache at the start and saves it at the end. Called on the engine thread, before the first
/// request and after the last; not after a failure of the executor. May throw: the exception is logged, and
/// the engine continues.
class WarmStart {
 public:
  virtual ~WarmStart() = default;
  /// The nodes for restore() (record/prefix_snapshot.h); then fill() is called with the blocks that they got.
  virtual std::vector<record::PrefixNode> load() = 0;
  virtual void fill(const std::vector<record::PrefixNode>& nodes) = 0;
  virtual void save(const std::vector<record::PrefixNode>& nodes) = 0;
};

/// Owns the scheduler and its thread: accepts requests from any thread, runs plan - submit - wait - commit,
/// turns tokens into text, matches stop strings, and delivers the output. All methods are thread-safe.
class Engine {
 public:
  /// All must outlive the engine; the last six may be null. `record` gets all inputs and decisions of the
  /// scheduler, `log` the work and the times of each step; so does `shadow`, which foretells requests.
  Engine(const EngineConfig& config, const tokenize::Tokenizer& tokenizer, backend::Executor& executor,
         const Clock& clock, StepTrace* trace = nullptr, EngineMetrics* metrics = nullptr,
         record::RunWriter* record = nullptr, WarmStart* warm = nullptr, StepSink* log = nullptr,
         Shadow* shadow = nullptr);
  /// Ends running requests as drain(0) does.
  ~Engine();

  /// Queues a request; from now on its output goes to `sink`, until one has `done`. Errors: those of check()
  /// and Scheduler::add, kQueueFull if its tenant has used up its share of the queue, and kShuttingDown after
  /// drain(). If a sink throws, its request ends: the sink is called once more, with the error. If it throws
  /// at the end of a request, it is called a last time with the error alone.
  Expected<RequestId> submit(GenerationRequest request, OutputSink sink);

  /// Refuses what submit() would refuse at any time: a request that is too long or has more sequences than
  /// may run and wait, and a prompt that is empty or has a token that the model does not have (a tokenizer
  /// may have more tokens than the model).
  Expected<void> check(const GenerationRequest& request) const;

  /// Seconds after which a request that was refused with kQueueFull may find room, from 1 to 600: the number
  /// of waiting sequences, divided by the recent rate at which sequences ended.
  uint32_t retry_after() const;

  /// Whether it has a Shadow, and whether that promises deadlines.
  bool foresees() const;
  bool promises() const;

  /// Ends a request. Its blocks are free by the next step. The sink gets a last RequestOutput with kAbort.
  /// Unknown ids are ignored. Allocates nothing.
  void abort(RequestId id) noexcept;

  /// Refuses new requests, and returns when all are done or `timeout` has passed; then the remaining ones end
  /// with kAbort and the error kShuttingDown. True if nothing was aborted, by this call or by a concurrent
  /// one that timed out.
  bool drain(Nanos timeout);

  /// From the next moment without an open step on, the tap gets the state of the run and all that follows,
  /// until the next call; null: no tap gets any more. Also for a tap that has lost its place. The engine may
  /// hold it until its thread has seen the next call.
  void watch(std::shared_ptr<record::RunTap> tap);

  EngineStats stats() const;
  /// Why the executor failed as a whole; empty while it works. An engine that has failed refuses all
  /// requests.
  std::string failure() const;
  /// Why a supervisor should restart the engine: its failure(), or that the executor failed each of the last
  /// kMostFailures requests that ended. Empty again once a request has finished. In the second case the
  /// engine still accepts requests.
  std::string health_fault() const;
  static constexpr uint32_t kMostFailures = 8;
  const EngineConfig& config() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
