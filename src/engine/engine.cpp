#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/kv_windows.h"
#include "base/log.h"
#include "engine/engine_impl.h"

namespace quire {
namespace {

constexpr const char* kShuttingDownText = "The server is shutting down.";
RequestError shutting_down() { return {RequestErrorCode::kShuttingDown, kShuttingDownText, {}}; }

}  // namespace

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
  if (request.sequences() > most) {
    return refuse(RequestErrorCode::kInvalid,
                  fmt::format("{} sequences are asked for, and no more than {} can run and wait here",
                              request.sequences(), most),
                  request.n > most ? "n" : "best_of");
  }
  const Nanos arrived = clock.now();
  const std::lock_guard lock(mutex);
  if (draining || stopping) return refuse(RequestErrorCode::kShuttingDown, kShuttingDownText);
  if (!failure.empty()) return refuse(RequestErrorCode::kInternal, failure);
  if (!has_room(request.sequences())) {
    return refuse(
        RequestErrorCode::kQueueFull,
        fmt::format("The queue is full: {} sequences run, {} wait, and no more than {} may wait.",
                    published.step.running, published.step.waiting + arriving, config.scheduler.max_waiting));
  }
  const RequestId id = next_request++;
  arriving += request.sequences();
  ++active;
  inbox.emplace_back(Arrival{id, std::move(request), std::move(sink), arrived});
  wake.notify_one();
  return id;
}

void Engine::Impl::run() {
  std::vector<Command> commands;
  bool stop = false;
  begin_warm();
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
  try {
    if (warm != nullptr && failure.empty()) warm->save(snapshot(scheduler.cache()));
  } catch (const std::exception& error) {
    log_warning(fmt::format("the prefix cache is not saved: {}", error.what()));
  }
}

void Engine::Impl::begin_warm() {
  if (warm == nullptr) return;
  try {
    std::vector<PrefixNode> nodes = warm->load();
    const std::vector<PrefixNode> given = scheduler.restore(std::move(nodes));
    warm->fill(given);
  } catch (const std::exception& error) {
    log_warning(fmt::format("the prefix cache begins empty: {}", error.what()));
  }
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
  note_admitted(started);
  const Nanos planned = clock.now();
  StepResult result = executor.wait(executor.submit(plan));
  const PhaseTimes times = result.times;
  const Nanos computed = clock.now();
  std::vector<SeqEvent> events = scheduler.commit(plan, std::move(result), computed);
  const Nanos committed = clock.now();
  if (budget) follow(budget->after(plan, computed - planned));
  if (config.check_invariants) {
    if (const std::string broken = scheduler.scheduler().check_invariants(); !broken.empty())
      throw Error(broken);
  }
  if (trace != nullptr) {
    trace->write(started, scheduler.stats(), times, planned - started, committed - computed);
  }
  deliver(std::move(events), committed);
  publish_stats();
}

void Engine::Impl::follow(uint32_t tokens) {
  if (std::exchange(current_budget, tokens) != tokens) scheduler.set_budget(tokens);
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

/// Of its first sequence, but for the id.
SeqSpec Engine::Impl::make_spec(const Arrival& arrival) const {
  const GenerationRequest& request = arrival.request;
  SeqSpec spec;
  spec.prompt = request.prompt;
  spec.max_tokens = request.max_tokens.value_or(longest() - static_cast<uint32_t>(request.prompt.size()));
  spec.sampling = request.sampling;
  if (request.best_of > request.n) spec.sampling.num_logprobs = std::max(0, request.sampling.num_logprobs);
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
  return spec;
}

void Engine::Impl::start(Arrival arrival) {
  SeqSpec spec = make_spec(arrival);
  ActiveRequest& request = requests[arrival.id];
  request.id = arrival.id;
  request.name = arrival.request.name;
  request.sink = std::move(arrival.sink);
  request.answers = arrival.request.n;
  request.prompt_tokens = static_cast<uint32_t>(arrival.request.prompt.size());
  request.arrived = arrival.arrived;
  request.times.resize(arrival.request.beam_search ? 1 : arrival.request.sequences());

  const bool beams = arrival.request.beam_search;
  const SeqId first = next_seq;
  for (uint32_t index = 0; index < (beams ? 1 : arrival.request.sequences()); ++index) {
    spec.id = next_seq++;
    spec.sampling.choice = index;
    if (index > 0) spec.fork_of = first;
    try {
      if (beams) {
        request.beams = std::make_unique<BeamRun>(arrival.request, spec);
      } else {
        request.choices.emplace_back(spec.id, index, arrival.request, tokenizer);
      }
    } catch (const std::exception& error) {
      end_request(request, FinishReason::kError, RequestError{RequestErrorCode::kInternal, error.what(), {}});
      return;
    }
    if (!add(request, spec)) return;
  }
  counted.prompt_tokens += request.prompt_tokens;
  if (metrics != nullptr) metrics->prompt_tokens(request.prompt_tokens);
}

/// False if it was refused; then the request has ended.
bool Engine::Impl::add(ActiveRequest& request, const SeqSpec& spec) {
  request_of[spec.id] = request.id;
  auto added = scheduler.add(spec, request.name);
  if (!added) end_request(request, FinishReason::kError, added.error());
  return added.has_value();
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
               StepTrace* trace, EngineMetrics* metrics, RunWriter* record, WarmStart* warm)
    : impl_(std::make_unique<Impl>(config, tokenizer, executor, clock, trace, metrics, record, warm)) {}

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
