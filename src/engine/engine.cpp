#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/kv_windows.h"
#include "base/log.h"
#include "engine/choice.h"
#include "engine/metrics.h"
#include "record/recorded_scheduler.h"
#include "engine/step_trace.h"

namespace quire {
namespace {

/// A request from its arrival until its last choice has ended.
struct ActiveRequest {
  RequestId id = 0;
  OutputSink sink;
  std::vector<Choice> choices;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  Nanos arrived = 0;
  Nanos last_token = 0;  // of choice 0
  bool touched = false;  // has news in this step
  RequestOutput news;

  ChoiceOutput& news_of(uint32_t index) {
    for (ChoiceOutput& choice : news.choices) {
      if (choice.index == index) return choice;
    }
    news.choices.emplace_back().index = index;
    return news.choices.back();
  }
  bool ended() const {
    return std::all_of(choices.begin(), choices.end(), [](const Choice& choice) { return choice.ended(); });
  }
};

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

constexpr const char* kShuttingDownText = "The server is shutting down.";
RequestError shutting_down() { return {RequestErrorCode::kShuttingDown, kShuttingDownText, {}}; }

}  // namespace

struct Engine::Impl {
  Impl(const EngineConfig& the_config, const Tokenizer& the_tokenizer, Executor& the_executor,
       const Clock& the_clock, StepTrace* the_trace, EngineMetrics* the_metrics, RunWriter* the_record)
      : config(the_config),
        tokenizer(the_tokenizer),
        executor(the_executor),
        clock(the_clock),
        trace(the_trace),
        metrics(the_metrics),
        scheduler(queue_in_front(the_config.scheduler), the_record) {
    thread = std::thread([this] { run(); });
  }

  /// The bound on waiting requests is kept where they arrive (has_room); the scheduler sees at most as many
  /// more as could be running.
  static SchedulerConfig queue_in_front(SchedulerConfig scheduler) {
    scheduler.max_waiting += scheduler.max_num_seqs;
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
  void try_step();
  void step();
  void apply(Command command);
  void start(Arrival arrival);
  void deliver(std::vector<SeqEvent> events, Nanos now);
  bool take_text(ActiveRequest& request, Choice& choice, const SeqEvent& event, ChoiceOutput& out);
  void take_token(ActiveRequest& request, const Choice& choice, const SeqEvent& event, Nanos now);
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

  // The engine's thread alone.
  RecordedScheduler scheduler;
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

std::optional<RequestError> Engine::Impl::too_long(const GenerationRequest& request) const {
  const SchedulerConfig& limits = config.scheduler;
  const uint64_t prompt = request.prompt.size();
  const uint64_t wanted = request.max_tokens.value_or(1);
  const uint64_t most = longest();
  if (prompt + wanted <= most) return std::nullopt;
  return RequestError{
      RequestErrorCode::kTooLong,
      fmt::format("{} {} tokens. However, you requested {} tokens ({} in the prompt, {} for the answer).",
                  most < limits.max_model_len ? "The K/V memory of this server holds"
                                              : "This model's maximum context length is",
                  most, prompt + wanted, prompt, wanted),
      {}};
}

std::optional<RequestError> Engine::Impl::unknown_token(const GenerationRequest& request) const {
  const auto known = [this](TokenId id) { return id >= 0 && static_cast<uint32_t>(id) < config.vocab_size; };
  const auto found = std::find_if_not(request.prompt.begin(), request.prompt.end(), known);
  if (found == request.prompt.end()) return std::nullopt;
  return RequestError{RequestErrorCode::kInvalid,
                      fmt::format("Token {} of the prompt is {}, and the model knows {} tokens.",
                                  found - request.prompt.begin(), *found, config.vocab_size),
                      "prompt"};
}

bool Engine::Impl::has_room(uint32_t sequences) const {
  const SchedulerConfig& limits = config.scheduler;
  const StepStats& now = published.step;
  const uint64_t free_slots = limits.max_num_seqs - std::min(limits.max_num_seqs, now.running);
  return uint64_t{now.waiting} + arriving + sequences <= uint64_t{limits.max_waiting} + free_slots;
}

Expected<RequestId> Engine::Impl::submit(GenerationRequest request, OutputSink sink) {
  if (request.prompt.empty()) return refuse(RequestErrorCode::kInvalid, "The prompt is empty.", "prompt");
  if (auto error = too_long(request)) return tl::unexpected(std::move(*error));
  if (auto error = unknown_token(request)) return tl::unexpected(std::move(*error));
  const uint64_t most = config.max_sequences();
  if (request.n > most) {
    return refuse(
        RequestErrorCode::kInvalid,
        fmt::format("n is {}, and no more than {} sequences can run and wait here", request.n, most), "n");
  }
  const Nanos arrived = clock.now();
  const std::lock_guard lock(mutex);
  if (draining || stopping) return refuse(RequestErrorCode::kShuttingDown, kShuttingDownText);
  if (!failure.empty()) return refuse(RequestErrorCode::kInternal, failure);
  if (!has_room(request.n)) {
    return refuse(
        RequestErrorCode::kQueueFull,
        fmt::format("The queue is full: {} sequences run, {} wait, and no more than {} may wait.",
                    published.step.running, published.step.waiting + arriving, config.scheduler.max_waiting));
  }
  const RequestId id = next_request++;
  arriving += request.n;
  ++active;
  inbox.emplace_back(Arrival{id, std::move(request), std::move(sink), arrived});
  wake.notify_one();
  return id;
}

void Engine::Impl::run() {
  std::vector<Command> commands;
  bool stop = false;
  while (!stop) {
    uint32_t taken = 0;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [this] { return stopping || !inbox.empty() || scheduler.has_work(); });
      stop = stopping;
      commands.swap(inbox);
      taken = arriving;
    }
    for (Command& command : commands) apply(std::move(command));
    if (!commands.empty()) publish_stats(taken);
    commands.clear();
    if (stop) end_all(FinishReason::kAbort, shutting_down());
    if (scheduler.has_work()) try_step();
    send_news();
  }
  if (trace != nullptr) trace->flush();
  scheduler.end_record();
}

void Engine::Impl::try_step() {
  try {
    step();
  } catch (const std::exception& error) {
    log_error(fmt::format("the executor failed, all requests end: {}", error.what()));
    {
      const std::lock_guard lock(mutex);
      failure = fmt::format("The engine has failed: {}", error.what());
    }
    end_all(FinishReason::kError, RequestError{RequestErrorCode::kInternal, error.what(), {}});
  }
}

void Engine::Impl::step() {
  const Nanos started = clock.now();
  const StepPlan plan = scheduler.plan(started);
  const Nanos planned = clock.now();
  StepResult result = executor.wait(executor.submit(plan));
  const PhaseTimes times = result.times;
  const Nanos computed = clock.now();
  std::vector<SeqEvent> events = scheduler.commit(plan, std::move(result));
  const Nanos committed = clock.now();
  if (config.check_invariants) {
    if (const std::string broken = scheduler.scheduler().check_invariants(); !broken.empty()) throw Error(broken);
  }
  if (trace != nullptr) {
    trace->write(started, scheduler.stats(), times, planned - started, committed - computed);
  }
  deliver(std::move(events), committed);
  publish_stats();
}

void Engine::Impl::apply(Command command) {
  if (auto* arrival = std::get_if<Arrival>(&command)) {
    start(std::move(*arrival));
  } else if (const auto* abort = std::get_if<Abort>(&command)) {
    const auto found = requests.find(abort->id);
    if (found != requests.end()) end_request(found->second, FinishReason::kAbort, std::nullopt);
  } else {
    end_all(FinishReason::kAbort, shutting_down());
  }
}

void Engine::Impl::start(Arrival arrival) {
  GenerationRequest& request = arrival.request;
  ActiveRequest& active_request = requests[arrival.id];
  active_request.id = arrival.id;
  active_request.sink = std::move(arrival.sink);
  active_request.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  active_request.arrived = arrival.arrived;

  SeqSpec spec;
  spec.prompt = request.prompt;
  spec.max_tokens = request.max_tokens.value_or(longest() - active_request.prompt_tokens);
  spec.sampling = request.sampling;
  spec.salt = request.salt;
  spec.arrived = arrival.arrived;
  spec.priority = request.priority;
  if (request.ttft_deadline) spec.ttft_deadline = *request.ttft_deadline;
  spec.tenant = request.tenant;
  spec.expected_tokens = request.expected_tokens;
  spec.stop_tokens = request.stop_token_ids;
  if (!request.ignore_eos)
    spec.stop_tokens.insert(spec.stop_tokens.end(), config.eos.begin(), config.eos.end());
  std::sort(spec.stop_tokens.begin(), spec.stop_tokens.end());
  spec.stop_tokens.erase(std::unique(spec.stop_tokens.begin(), spec.stop_tokens.end()),
                         spec.stop_tokens.end());

  const SeqId first = next_seq;
  for (uint32_t index = 0; index < request.n; ++index) {
    spec.id = next_seq++;
    spec.sampling.choice = index;
    if (index > 0) spec.fork_of = first;
    try {
      active_request.choices.emplace_back(spec.id, index, request, tokenizer);
    } catch (const std::exception& error) {
      end_request(active_request, FinishReason::kError,
                  RequestError{RequestErrorCode::kInternal, error.what(), {}});
      return;
    }
    request_of[spec.id] = arrival.id;
    if (auto added = scheduler.add(spec); !added) {
      end_request(active_request, FinishReason::kError, added.error());
      return;
    }
  }
  counted.prompt_tokens += active_request.prompt_tokens;
  if (metrics != nullptr) metrics->prompt_tokens(active_request.prompt_tokens);
}

void Engine::Impl::touch(ActiveRequest& request) {
  if (std::exchange(request.touched, true)) return;
  touched.push_back(&request);
}

void Engine::Impl::deliver(std::vector<SeqEvent> events, Nanos now) {
  for (SeqEvent& event : events) {
    const auto owner = request_of.find(event.id);
    if (owner == request_of.end()) continue;  // ended by a stop string or an abort meanwhile
    ActiveRequest& request = requests.at(owner->second);
    Choice& choice = request.choices[event.id - request.choices.front().seq()];
    if (choice.ended()) continue;
    touch(request);
    ChoiceOutput& out = request.news_of(choice.index());
    if (event.token) take_token(request, choice, event, now);
    if (!take_text(request, choice, event, out)) continue;
    if (!event.error.empty()) {
      request.news.error = RequestError{RequestErrorCode::kInternal, std::move(event.error), {}};
    }
    if (choice.ended()) {
      request_of.erase(event.id);
      ++counted.requests_finished[static_cast<size_t>(*out.finish)];
      if (metrics != nullptr) metrics->request_finished(*out.finish, now - request.arrived);
    }
  }
}

/// False if the tokenizer cannot make text of it (a file's patterns have limits): then the request has ended.
bool Engine::Impl::take_text(ActiveRequest& request, Choice& choice, const SeqEvent& event,
                             ChoiceOutput& out) {
  try {
    if (choice.take(event, out)) scheduler.abort(event.id);
    return true;
  } catch (const std::exception& error) {
    end_request(request, FinishReason::kError, RequestError{RequestErrorCode::kInternal, error.what(), {}});
    return false;
  }
}

void Engine::Impl::take_token(ActiveRequest& request, const Choice& choice, const SeqEvent& event,
                              Nanos now) {
  ++counted.generation_tokens;
  if (choice.index() == 0 && choice.num_tokens() == 0) request.cached_tokens = event.cached_tokens;
  if (metrics != nullptr) {
    metrics->generated_tokens(1);
    if (choice.index() == 0) {
      if (choice.num_tokens() == 0) {
        metrics->time_to_first_token(now - request.arrived);
      } else {
        metrics->inter_token_latency(now - request.last_token);
      }
    }
  }
  if (choice.index() == 0) request.last_token = now;
}

void Engine::Impl::end_request(ActiveRequest& request, FinishReason reason,
                               const std::optional<RequestError>& error) {
  touch(request);
  for (Choice& choice : request.choices) {
    scheduler.abort(choice.seq());
    request_of.erase(choice.seq());
    if (choice.ended()) continue;
    choice.end(reason, request.news_of(choice.index()));
    ++counted.requests_finished[static_cast<size_t>(reason)];
    if (metrics != nullptr) metrics->request_finished(reason, clock.now() - request.arrived);
  }
  if (error) request.news.error = error;
}

void Engine::Impl::end_all(FinishReason reason, const RequestError& error) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) end_request(requests.at(id), reason, error);
  publish_stats();
}

void Engine::Impl::send_news() {
  size_t done = 0;
  for (ActiveRequest* request : touched) {
    RequestOutput news = std::exchange(request->news, {});
    request->touched = false;
    news.id = request->id;
    news.done = request->ended();
    news.prompt_tokens = request->prompt_tokens;
    news.cached_tokens = request->cached_tokens;
    for (const Choice& choice : request->choices) news.completion_tokens += choice.num_tokens();
    const OutputSink sink = request->sink;
    if (news.done) {
      ++done;
      requests.erase(request->id);
    }
    sink(std::move(news));
  }
  touched.clear();
  if (done == 0) return;
  const std::lock_guard lock(mutex);
  active -= done;
  if (active == 0) quiet.notify_all();
}

void Engine::Impl::publish_stats(uint32_t taken) {
  counted.step = scheduler.stats();
  counted.peak_blocks_referenced =
      std::max<uint64_t>(counted.peak_blocks_referenced, counted.step.blocks_referenced);
  if (metrics != nullptr) metrics->step(counted.step);
  const std::lock_guard lock(mutex);
  published = counted;
  arriving -= taken;
}

Engine::Engine(const EngineConfig& config, const Tokenizer& tokenizer, Executor& executor, const Clock& clock,
               StepTrace* trace, EngineMetrics* metrics, RunWriter* record)
    : impl_(std::make_unique<Impl>(config, tokenizer, executor, clock, trace, metrics, record)) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_one();
  impl_->thread.join();
}

Expected<RequestId> Engine::submit(GenerationRequest request, OutputSink sink) {
  return impl_->submit(std::move(request), std::move(sink));
}

void Engine::abort(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->inbox.emplace_back(Abort{id});
  impl_->wake.notify_one();
}

bool Engine::drain(Nanos timeout) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  const auto idle = [this] { return impl_->active == 0; };
  if (impl_->quiet.wait_for(lock, std::chrono::nanoseconds(timeout), idle)) return true;
  impl_->inbox.emplace_back(AbortAll{});
  impl_->wake.notify_one();
  impl_->quiet.wait(lock, idle);
  return false;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->published;
}

std::string Engine::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

const EngineConfig& Engine::config() const { return impl_->config; }

}  // namespace quire
