#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backend/sim/cost_model.h"
#include "backend/sim/sim_executor.h"
#include "control/scheduler.h"
#include "record/recorded_scheduler.h"
#include "sim/digest.h"
#include "sim/reception.h"
#include "sim/request_stream.h"
#include "sim/simulation_listener.h"
#include "sim/virtual_clock.h"
#include "sim/workload.h"
#include "sim/workload_source.h"

namespace quire::sim {

struct SimulationConfig {
  control::SchedulerConfig scheduler;
  backend::sim::CostModel cost;
  uint32_t depth = 1;                   // Executor::depth
  bool jitter = false;                  // whether the times of steps deviate (SimTokens::jitter)
  std::optional<uint64_t> jitter_seed;  // of that; otherwise the workload's seed
  /// SimTokens::check_kv: then a wrong plan throws Error "K/V check: ..." from step().
  bool check_kv = false;
  /// From the sending of a request to its reception, with the way back of its first token; however many are
  /// under way.
  Nanos latency = 0;
  /// How long the server receives a request before it waits in the scheduler's queue (sim/reception.h).
  Nanos accept = 0;
};

/// Why a request was refused.
enum class Refusal : uint8_t {
  kTooLongForModel,  // prompt and answer exceed max_model_len, which is less than what the pool holds
  kTooLongForPool,
  kQueueFull,     // max_waiting sequences wait already, not counting one for each free slot
  kConversation,  // an earlier turn of its conversation was refused, so it was not sent
};
inline constexpr size_t kNumRefusals = 4;

/// The life of a request. Times are virtual; -1: it did not happen.
struct RequestRecord {
  Nanos arrival = -1;
  Nanos admitted = -1;  // for the first time
  Nanos first_token = -1;
  Nanos finished = -1;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;  // so far, of all choices
  uint32_t cached_tokens = 0;  // of the prompt, at the first admission
  uint32_t preemptions = 0;
  bool in_time = false;  // its first token came by its deadline
  std::optional<Refusal> refused;

  // Of one that has finished.
  Nanos ttft() const { return first_token - arrival; }
  Nanos e2e() const { return finished - arrival; }
  /// Per token after the first, if each of its answers has at least two.
  std::optional<Nanos> tpot(uint32_t choices) const {
    const uint32_t each = output_tokens / choices;
    if (each < 2) return std::nullopt;
    return (finished - first_token) / (each - 1);
  }
};

/// A request that was refused.
struct RefusedRequest {
  uint32_t number = 0;  // in the workload, from 0
  uint32_t line = 0;    // of the trace; 0: there is none
  uint64_t tokens = 0;  // of prompt and answer
};

/// Sums and maxima over the steps so far.
struct SimulationTotals {
  uint64_t steps = 0;
  uint64_t prefill_tokens = 0;  // computed, including recomputation
  uint64_t decode_tokens = 0;
  uint64_t output_tokens = 0;  // sampled, also of requests that have not ended
  uint64_t moved_blocks = 0;   // to the host and back
  uint64_t moved_out = 0;      // of these, to the host
  uint64_t finished = 0;
  uint64_t refused = 0;
  std::array<uint64_t, kNumRefusals> refused_by = {};           // by Refusal
  std::array<RefusedRequest, kNumRefusals> first_refused = {};  // by Refusal, where there is one
  uint32_t peak_running = 0;
  uint32_t peak_waiting = 0;
  uint32_t peak_blocks = 0;     // held at once
  Nanos busy = 0;               // time in steps
  uint64_t block_micros = 0;    // blocks held times microseconds
  uint64_t running_micros = 0;  // running sequences times microseconds
};

/// Runs a workload through the same Scheduler as the server, under a virtual clock: adds the requests that
/// are due, plans, takes the duration of the step from a SimExecutor, and continues at that time. Nothing
/// depends on the machine: the same configuration and workload give the same plans, times and digest. It
/// keeps the requests that run or wait; what has become of the others, it tells its listeners. Not
/// thread-safe.
///
/// The id of a sequence is the number of its request times the number of choices, plus its choice; the
/// sampling seed is the number of the request. A request has ended when all its choices have.
class Simulation {
 public:
  /// `requests`: of which none was handed out. `record` must outlive it; it ends with the last request.
  /// Throws Error if the configuration cannot work.
  Simulation(const SimulationConfig& config, std::unique_ptr<RequestStream> requests,
             record::RunWriter* record = nullptr);
  /// `workload` must outlive it. Throws Error as ListedRequests does, too.
  Simulation(const SimulationConfig& config, const Workload& workload, record::RunWriter* record = nullptr)
      : Simulation(config, stream_of(workload), record) {}

  /// `listener`, which must be there for all calls of step() and break_off(), is told of all that follows; it
  /// changes nothing.
  void listen(SimulationListener& listener);

  /// From when `flag` is set, which must be there for all calls of step(), that does nothing more and returns
  /// false, also between requests that are refused.
  void stop_at(const std::atomic<bool>& flag) { stop_ = &flag; }

  /// Executes one step, after waiting for the next arrival if there is no work. Once all requests have ended
  /// it does nothing and returns false.
  bool step();
  void run() {
    while (step()) {
    }
  }
  /// Tells the listeners of all requests that have not ended. Must be the last call that changes anything;
  /// after the last step there is nothing to tell.
  void break_off();

  Nanos now() const { return clock_.now(); }
  const Clock& clock() const { return clock_; }
  const control::Scheduler& scheduler() const { return scheduler_.scheduler(); }
  const backend::sim::SimExecutor& executor() const { return executor_; }
  const control::StepStats& stats() const { return scheduler_.stats(); }
  /// Whether the last step lies beyond what the cost model was fitted to.
  bool step_extrapolated() const { return step_extrapolated_; }
  /// What a step was planned with, of which some ends with it: stats() no longer counts that.
  struct Planned {
    uint32_t running = 0;
    uint32_t blocks_held = 0;
    uint32_t blocks_cached = 0;
  };
  const Planned& step_planned() const { return step_planned_; }
  const SimulationTotals& totals() const { return totals_; }
  const WorkloadSettings& settings() const { return source_.settings(); }
  /// Of the workload.
  size_t num_requests() const { return source_.size(); }
  /// What is in memory for requests: up to four entries for each that runs, three for each that waits, and
  /// two for each that is due after a think time. 0 after the last request.
  size_t num_kept() const { return source_.kept() + open_.size(); }
  /// The number of the request that continues this one, which has arrived and was not said to have ended.
  std::optional<size_t> next_turn(size_t request) const { return source_.next_turn(request); }
  /// A hash over all decisions, tokens, times and refusals so far.
  uint64_t digest() const { return digest_.value(); }

 private:
  /// One that was admitted; of one that waits for the first time there is nothing but what the source has.
  struct alignas(64) OpenRequest {  // what each token needs is in a cache line
    size_t number = 0;
    RequestRecord record;
    uint32_t open_choices = 0;       // that have not ended
    std::vector<bool> was_admitted;  // by choice
  };
  struct OpenStep {
    control::StepPlan plan;
    backend::Ticket ticket = 0;
    Nanos submitted = 0;
    bool extrapolated = false;
    Planned planned;
  };

  bool is_stopped() const { return stop_ != nullptr && *stop_; }
  std::optional<Nanos> next_arrival() const;
  void add_due();
  void receive();
  bool plan_step();
  RequestRecord sent_record(size_t number) const;
  std::optional<Refusal> add(size_t number);
  Refusal too_long() const;
  void note_refusal(size_t number, const SimRequest& request, RequestRecord record, Refusal why, Nanos now);
  void note_plan(const control::StepPlan& plan);
  OpenRequest& note_admitted(size_t number);
  void note_events(const std::vector<control::SeqEvent>& events);
  void note_first_token(const control::SeqEvent& event, OpenRequest& open);
  void note_end(const control::SeqEvent& event, OpenRequest& open);
  void note_step(Nanos took);

  const bool check_kv_;
  VirtualClock clock_;
  WorkloadSource source_;
  record::RecordedScheduler scheduler_;
  backend::sim::SimExecutor executor_;
  std::deque<OpenStep> open_steps_;  // the oldest first
  Nanos done_ = 0;                   // when the device finished the last committed step
  bool ended_ = false;
  bool step_extrapolated_ = false;
  Planned step_planned_;
  Nanos latency_;  // SimulationConfig::latency
  const std::atomic<bool>* stop_ = nullptr;
  Reception reception_;
  std::unordered_map<size_t, OpenRequest> open_;  // by number
  /// Whose event came at each place of a step's: the next step mostly has the same ones there. An entry of a
  /// request that has ended stays, as no id comes again.
  struct Place {
    SeqId id = kNoSeq;
    OpenRequest* open = nullptr;
  };
  std::vector<Place> places_;
  std::vector<SimulationListener*> listeners_;
  bool wants_prompts_ = false;  // one of the listeners does
  SimulationTotals totals_;
  Digest digest_;
};

}  // namespace quire::sim
