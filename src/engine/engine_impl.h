#pragma once

// The inside of an Engine: engine.cpp takes requests in and drives the steps, delivery.cpp hands out what
// they bring.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/kv_windows.h"
#include "engine/active_request.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/step_budget.h"
#include "engine/step_trace.h"
#include "record/recorded_scheduler.h"

namespace quire {

struct Arrival {
  RequestId id = 0;
  GenerationRequest request;
  OutputSink sink;
  Nanos arrived = 0;
};
struct Abort {
  RequestId id = 0;
};
struct AbortAll {};  // the time to finish is over
using Command = std::variant<Arrival, Abort, AbortAll>;

struct Engine::Impl {
  Impl(const EngineConfig& the_config, const Tokenizer& the_tokenizer, Executor& the_executor,
       const Clock& the_clock, StepTrace* the_trace, EngineMetrics* the_metrics, RunWriter* the_record,
       WarmStart* the_warm)
      : config(the_config),
        tokenizer(the_tokenizer),
        executor(the_executor),
        clock(the_clock),
        trace(the_trace),
        metrics(the_metrics),
        warm(the_warm),
        scheduler(queue_in_front(the_config.scheduler), the_record) {
    if (config.step_time > 0) budget.emplace(config.step_time, config.scheduler);
    thread = std::thread([this] { run(); });
  }

  /// The bound on waiting requests is kept where they arrive (has_room); the scheduler sees at most as many
  /// more as could be running.
  static SchedulerConfig queue_in_front(SchedulerConfig scheduler) {
    scheduler.max_waiting += std::min(scheduler.max_num_seqs, UINT32_MAX - scheduler.max_waiting);
    return scheduler;
  }

  /// Tokens that one sequence can have, alone in the pool.
  uint32_t longest() const {
    const SchedulerConfig& limits = config.scheduler;
    return static_cast<uint32_t>(
        longest_sequence(limits.kv_windows, limits.num_blocks, limits.block_size, limits.max_model_len));
  }

  // Any thread.
  Expected<RequestId> submit(GenerationRequest request, OutputSink sink);
  std::optional<RequestError> too_long(const GenerationRequest& request) const;
  std::optional<RequestError> unknown_token(const GenerationRequest& request) const;
  bool has_room(uint32_t sequences) const;

  // The engine's thread.
  void run();
  void begin_warm();
  void try_step();
  void step();
  void follow(uint32_t tokens);
  void apply(Command command);
  SeqSpec make_spec(const Arrival& arrival) const;
  void start(Arrival arrival);
  bool add(ActiveRequest& request, const SeqSpec& spec);
  void note_admitted(Nanos now);  // those of the last plan
  void deliver(std::vector<SeqEvent> events, Nanos now);
  void take_beam(ActiveRequest& request, SeqEvent event, Nanos now);
  void advance_beams(ActiveRequest& request, Nanos now);
  bool take_text(ActiveRequest& request, Choice& choice, const SeqEvent& event, ChoiceOutput& out);
  void take_token(ActiveRequest& request, const Choice& choice, const SeqEvent& event, Nanos now);
  void count_end(const ActiveRequest& request, uint32_t choice, FinishReason reason, uint32_t tokens,
                 Nanos now);
  void end_all(FinishReason reason, const RequestError& error);
  void end_request(ActiveRequest& request, FinishReason reason, const std::optional<RequestError>& error);
  void touch(ActiveRequest& request);
  void send_news();
  void publish_stats(uint32_t taken = 0);  // `taken`: arrivals that the scheduler now counts

  const EngineConfig config;
  const Tokenizer& tokenizer;
  Executor& executor;
  const Clock& clock;
  StepTrace* const trace;
  EngineMetrics* const metrics;
  WarmStart* const warm;

  // The engine's thread alone.
  RecordedScheduler scheduler;
  std::optional<StepBudget> budget;
  uint32_t current_budget = config.scheduler.max_num_batched_tokens;
  std::unordered_map<RequestId, ActiveRequest> requests;
  std::unordered_map<SeqId, RequestId> request_of;
  std::vector<ActiveRequest*> touched;
  SeqId next_seq = 0;
  EngineStats counted;

  mutable std::mutex mutex;       // guards all that follows
  std::condition_variable wake;   // the engine's thread waits on it for work
  std::condition_variable quiet;  // drain waits on it for the end of the last request
  std::vector<Command> inbox;
  RequestId next_request = 0;
  uint32_t arriving = 0;  // sequences in the inbox, or out of it and not yet in `published`
  size_t active = 0;      // requests submitted and not done
  EngineStats published;
  bool draining = false;
  bool stopping = false;
  std::string failure;  // why the executor gave up; empty while it works

  std::thread thread;
};

}  // namespace quire
