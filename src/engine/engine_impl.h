#pragma once

// The implementation of an Engine: engine.cpp accepts requests and runs the steps, delivery.cpp delivers
// their output.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/describe.h"
#include "engine/abort_queue.h"
#include "engine/active_request.h"
#include "engine/end_rate.h"
#include "engine/engine.h"
#include "engine/mask_source.h"
#include "engine/metrics.h"
#include "engine/shadow.h"
#include "engine/step_observer.h"
#include "engine/tenant_queues.h"
#include "record/recorded_scheduler.h"

namespace quire::engine {

struct Arrival {
  RequestId id = 0;
  GenerationRequest request;
  OutputSink sink;
  Nanos arrived = 0;
  TenantQueues::Tenant* waits_as = nullptr;  // null if tenants have no limits
};
static_assert(std::is_nothrow_move_constructible_v<Arrival>, "or taking one in could lose it");

/// The error for the user about the exception that is being handled.
RequestError current_error() noexcept;
/// Reports to the sink that a request has ended with the exception that is being handled.
void tell_of_loss(const OutputSink& sink, RequestId id) noexcept;

struct Engine::Impl {
  Impl(const EngineConfig& the_config, const tokenize::Tokenizer& the_tokenizer,
       backend::Executor& the_executor, const Clock& the_clock, StepTrace* the_trace,
       EngineMetrics* the_metrics, record::RunWriter* the_record, WarmStart* the_warm, StepSink* the_log,
       Shadow* the_shadow)
      : config(the_config),
        tokenizer(the_tokenizer),
        executor(the_executor),
        clock(the_clock),
        metrics(the_metrics),
        warm(the_warm),
        shadow(the_shadow),
        scheduler(the_config.scheduler, the_record),
        observer(the_config, the_clock, the_trace, the_log, the_shadow) {
    publish_stats();
    thread = std::thread([this] { run(); });
  }

  bool bounds_tenants() const { return config.max_waiting_per_tenant < config.scheduler.max_waiting; }

  // Any thread.
  Expected<RequestId> submit(GenerationRequest request, OutputSink sink);
  Expected<void> check(const GenerationRequest& request) const;
  std::optional<RequestError> unknown_token(const GenerationRequest& request) const;
  std::optional<RequestError> no_room(const GenerationRequest& request);

  // Engine thread.
  void run();
  void begin_warm();
  void begin_watch() noexcept;
  void try_step();
  bool has_work() const { return scheduler.has_work() || !open.empty(); }
  bool may_watch() const { return watches_next && open.empty(); }
  void step();
  bool begin_step();
  void end_step();
  void provide_masks();  // to the newest step, once it is the only open one
  OpenStep take_oldest() {
    OpenStep step = std::move(open.front());
    open.pop_front();
    return step;
  }
  control::SeqSpec make_spec(const Arrival& arrival) const;
  void take(Arrival arrival) noexcept;
  void start(ActiveRequest& request, const Arrival& arrival);
  bool add(ActiveRequest& request, const control::SeqSpec& spec, std::unique_ptr<MaskSource> source = {});
  bool foresee(ActiveRequest& request, const Arrival& arrival, const control::SeqSpec& spec);
  Nanos next_begin() const;
  void note_first_token(ActiveRequest& request, Nanos now);
  void note_end(const ActiveRequest& request, Nanos now);
  void forget(SeqId seq);
  void note_plan(Nanos now);  // records which sequences the last plan admitted and preempted
  void deliver(std::vector<control::SeqEvent> events, Nanos now);  // what a commit gave; then the statistics
  void deliver(control::PromptEvent event) noexcept;
  void take_event(ActiveRequest& request, control::SeqEvent event, Nanos now);
  void take_beam(ActiveRequest& request, control::SeqEvent event, Nanos now);
  void advance_beams(ActiveRequest& request, Nanos now);
  void take_token(ActiveRequest& request, const Choice& choice, const control::SeqEvent& event, Nanos now);
  void count_end(const ActiveRequest& request, uint32_t choice, control::FinishReason reason, uint32_t tokens,
                 Nanos now);
  void fail(const RequestError& error) noexcept;
  void end_all(control::FinishReason reason, const RequestError& error) noexcept;
  void abort_sequences(RequestId id);
  void end_request(ActiveRequest& request, control::FinishReason reason,
                   const std::optional<RequestError>& error);
  void end_surely(RequestId id, control::FinishReason reason,
                  const std::optional<RequestError>& error) noexcept;
  void drop(RequestId id) noexcept;
  void touch(ActiveRequest& request);
  void send_news() noexcept;
  void send(ActiveRequest& request) noexcept;
  void note_outcome(const ActiveRequest& request, const RequestOutput& last) noexcept;
  void request_is_over(RequestId id) noexcept;
  void publish_stats(
      uint32_t taken = 0) noexcept;  // `taken`: arrivals that the scheduler's counts now include

  const EngineConfig config;
  const tokenize::Tokenizer& tokenizer;
  backend::Executor& executor;
  const Clock& clock;
  EngineMetrics* const metrics;
  WarmStart* const warm;
  Shadow* const shadow;

  TenantQueues tenants;  // its own comments say which thread may call what

  // Engine thread only.
  record::RecordedScheduler scheduler;
  std::deque<OpenStep> open;  // submitted and not waited for, the oldest first
  MaskSources masks;
  StepObserver observer;
  std::unordered_map<RequestId, ActiveRequest> requests;
  std::unordered_map<SeqId, RequestId> request_of;
  std::vector<ActiveRequest*> touched;
  std::vector<ActiveRequest*> sending;  // scratch memory of send_news
  SeqId next_seq = 0;
  EndRate end_rate;
  bool busy = false;             // there was work after the last step
  uint32_t failures_in_row = 0;  // requests that the executor failed
  std::string last_failure;
  EngineStats counted;
  std::shared_ptr<record::RunTap> tap;                          // that watches
  std::optional<std::shared_ptr<record::RunTap>> watches_next;  // instead, once no step is open

  mutable std::mutex mutex;       // guards all following members
  std::condition_variable wake;   // the engine thread waits on it for work
  std::condition_variable quiet;  // drain waits on it for the end of the last request
  std::vector<Arrival> inbox;
  AbortQueue aborts;
  bool abort_all = false;                                     // the drain's timeout has passed
  std::optional<std::shared_ptr<record::RunTap>> wanted_tap;  // watch() was called
  RequestId next_request = 0;
  uint32_t arriving = 0;  // sequences in the inbox, or taken from it and not yet counted in `published`
  size_t active = 0;      // requests submitted and not done
  EngineStats published;
  bool draining = false;
  bool drained = false;    // or timed out: no more requests are accepted
  bool cut_short = false;  // a drain aborted running requests
  bool stopping = false;
  std::string failure;   // why the executor failed as a whole; empty while it works
  std::string sickness;  // the message about failures_in_row, once there are too many

  std::thread thread;
};

}  // namespace quire::engine
