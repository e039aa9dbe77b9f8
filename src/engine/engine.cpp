#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/describe.h"
#include "base/log.h"
#include "engine/engine_impl.h"
#include "record/run_tap.h"

namespace quire::engine {
namespace {

constexpr const char* kShuttingDownText = "The server is shutting down.";
RequestError shutting_down() { return {RequestErrorCode::kShuttingDown, kShuttingDownText, {}}; }

/// REQUIRES: an exception is being handled.
void warn_of_current(const char* what) noexcept {
  const std::string why = describe_current_exception();
  try {
    log_warning(fmt::format("{}: {}", what, why));
  } catch (...) {
    log_warning(what);
  }
}

}  // namespace

RequestError current_error() noexcept {
  return {RequestErrorCode::kInternal, describe_current_exception(), {}};
}

void tell_of_loss(const OutputSink& sink, RequestId id) noexcept {
  try {
    RequestOutput last;
    last.id = id;
    last.done = true;
    last.error = current_error();
    sink(std::move(last));
  } catch (...) {
    log_error("a request was ended without a final message because its receiver failed");
  }
}

std::optional<RequestError> Engine::Impl::unknown_token(const GenerationRequest& request) const {
  const auto known = [this](TokenId id) { return id >= 0 && static_cast<uint32_t>(id) < config.vocab_size; };
  const auto found = std::find_if_not(request.prompt.begin(), request.prompt.end(), known);
  if (found == request.prompt.end()) return std::nullopt;
  return RequestError{RequestErrorCode::kInvalid,
                      fmt::format("Token {} of the prompt is {}, but the model's vocabulary has {} tokens.",
                                  found - request.prompt.begin(), *found, config.vocab_size),
                      "prompt"};
}

/// REQUIRES: the mutex is held.
std::optional<RequestError> Engine::Impl::no_room(const GenerationRequest& request) {
  const control::SchedulerConfig& limits = config.scheduler;
  const control::StepStats& now = published.step;
  const uint32_t sequences = request.sequences();
  const uint32_t free_slots = limits.max_num_seqs - std::min(limits.max_num_seqs, now.running);
  const auto fits = [&](uint64_t waiting, uint32_t most) {
    return waiting + sequences <= uint64_t{most} + free_slots;
  };
  const auto full = [&](const char* whose, uint64_t waiting, uint32_t most) {
    const uint64_t waits = waiting - std::min<uint64_t>(waiting, free_slots);
    return RequestError{
        RequestErrorCode::kQueueFull,
        fmt::format("{} queue is full: {} of {} places are taken{}. Try again later.", whose, waits, most,
                    sequences > 1 ? fmt::format(", and this request needs {}", sequences) : ""),
        {}};
  };
  if (const uint64_t waiting = uint64_t{now.waiting} + arriving; !fits(waiting, limits.max_waiting)) {
    return full("The", waiting, limits.max_waiting);
  }
  if (!bounds_tenants()) return std::nullopt;
  const uint32_t waiting = tenants.count(request.waits_as);
  if (fits(waiting, config.max_waiting_per_tenant)) return std::nullopt;
  return full("Your share of the", waiting, config.max_waiting_per_tenant);
}

Expected<void> Engine::Impl::check(const GenerationRequest& request) const {
  if (request.prompt.empty()) return refuse(RequestErrorCode::kInvalid, "The prompt is empty.", "prompt");
  const control::Scheduler& limits = scheduler.scheduler();
  if (auto fits = limits.check_length(request.prompt.size(), request.max_tokens.value_or(1)); !fits)
    return fits;
  if (auto error = unknown_token(request)) return tl::unexpected(std::move(*error));
  if (request.beam_search && request.max_tokens == 0) {
    return refuse(RequestErrorCode::kInvalid, "A beam search generates at least one token.", "max_tokens");
  }
  if (request.beam_search && request.wants.any()) {
    return refuse(RequestErrorCode::kInvalid,
                  "A beam search yields only tokens: no logprobs of the prompt, no pooled state.", {});
  }
  if (request.beam_search && request.make_mask_source) {
    return refuse(RequestErrorCode::kInvalid, "A beam search cannot follow a grammar.", {});
  }
  const uint64_t most = config.max_sequences_per_tenant();
  if (request.sequences() <= most) return {};
  return refuse(RequestErrorCode::kInvalid,
                fmt::format("{} sequences were requested, but at most {} can run and wait here",
                            request.sequences(), most),
                request.n > most ? "n" : "best_of");
}

Expected<RequestId> Engine::Impl::submit(GenerationRequest request, OutputSink sink) {
  if (auto fine = check(request); !fine) return tl::unexpected(std::move(fine.error()));
  const uint32_t sequences = request.sequences();
  const Nanos arrived = clock.now();
  const std::lock_guard lock(mutex);
  if (stopping || drained || (draining && !request.goes_on))
    return refuse(RequestErrorCode::kShuttingDown, kShuttingDownText);
  if (!failure.empty()) return refuse(RequestErrorCode::kInternal, failure);
  if (auto error = no_room(request)) return tl::unexpected(std::move(*error));
  const RequestId id = next_request;
  if (inbox.size() == inbox.capacity()) inbox.reserve(std::max<size_t>(8, 2 * inbox.size()));
  aborts.open(id);
  TenantQueues::Tenant* const waits_as = bounds_tenants() ? &tenants.find(request.waits_as) : nullptr;
  // Nothing throws from here on.
  inbox.push_back({id, std::move(request), std::move(sink), arrived, waits_as});
  if (waits_as != nullptr) TenantQueues::arrive(*waits_as, sequences);
  arriving += sequences;
  ++active;
  wake.notify_one();
  ++next_request;
  return id;
}

void Engine::Impl::run() {
  std::vector<Arrival> arrivals;
  bool stop = false;
  begin_warm();
  publish_stats();
  while (!stop) {
    bool end = false;
    uint32_t taken = 0;
    std::list<RequestId> aborted;
    if (!has_work()) observer.rests();
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [this] {
        return stopping || abort_all || !inbox.empty() || !aborts.empty() || wanted_tap || has_work();
      });
      stop = stopping;
      end = std::exchange(abort_all, false) || stop;
      arrivals.swap(inbox);
      aborted = aborts.take();
      taken = arriving;
      if (wanted_tap) watches_next = std::exchange(wanted_tap, std::nullopt);
    }
    if (may_watch()) begin_watch();
    const bool changed = !arrivals.empty() || !aborted.empty();
    for (Arrival& arrival : arrivals) take(std::move(arrival));
    arrivals.clear();
    for (const RequestId id : aborted) end_surely(id, control::FinishReason::kAbort, std::nullopt);
    if (!std::exchange(busy, scheduler.has_work()) && busy) end_rate.begin(clock.now());
    if (changed) publish_stats(taken);
    if (shadow != nullptr && changed) send_news();  // what was foretold need not wait for the next step
    if (end) end_all(control::FinishReason::kAbort, shutting_down());
    if (has_work()) try_step();
    while (stop && !open.empty()) try_step();  // then K/V is no longer written
    busy = scheduler.has_work();
    send_news();
  }
  observer.end();
  scheduler.end_record();
  try {
    if (warm != nullptr && failure.empty()) warm->save(record::snapshot(scheduler.cache()));
  } catch (...) {
    warn_of_current("the prefix cache is not saved");
  }
}

void Engine::Impl::begin_warm() {
  if (warm == nullptr) return;
  try {
    std::vector<record::PrefixNode> nodes = warm->load();
    const std::vector<record::PrefixNode> given = scheduler.restore(std::move(nodes));
    warm->fill(given);
  } catch (...) {
    warn_of_current("the prefix cache starts empty");
  }
}

/// REQUIRES: may_watch().
void Engine::Impl::begin_watch() noexcept {
  const auto name_of = [this](SeqId seq) {
    const auto owner = request_of.find(seq);
    const auto found = owner == request_of.end() ? requests.end() : requests.find(owner->second);
    return found == requests.end() ? std::string() : found->second.name;
  };
  std::shared_ptr<record::RunTap> next = *std::exchange(watches_next, std::nullopt);
  try {
    scheduler.watch(next.get(), name_of);
    tap = std::move(next);
  } catch (...) {
    scheduler.unwatch();
    tap.reset();
    warn_of_current("the run cannot be watched");
  }
}

void Engine::Impl::try_step() {
  try {
    step();
  } catch (...) {
    fail(current_error());
  }
}

/// The engine has failed: all requests end, and no more are accepted.
void Engine::Impl::fail(const RequestError& error) noexcept {
  try {
    log_error(fmt::format("the executor failed, and all requests were ended: {}", error.message));
  } catch (...) {
    log_error("the executor failed, and all requests were ended");
  }
  {
    const std::lock_guard lock(mutex);
    try {
      failure = fmt::format("The engine has failed: {}", error.message);
    } catch (...) {
      failure = kOutOfMemory;
    }
  }
  open.clear();
  end_all(control::FinishReason::kError, error);
}

void Engine::Impl::step() {
  const auto may_begin = [&] {
    if (open.empty()) return true;
    return open.size() < executor.depth() && !open.back().lacks_masks && !watches_next;
  };
  while (may_begin() && scheduler.has_work() && begin_step()) provide_masks();
  if (!open.empty()) end_step();
}

/// False if there is nothing to do before open steps have ended.
bool Engine::Impl::begin_step() {
  OpenStep& step = open.emplace_back();
  observer.begins(step, scheduler);
  step.plan = scheduler.plan(step.started);
  note_plan(step.started);
  observer.planned(step);
  if (step.plan.empty()) {
    open.pop_back();
    return false;
  }
  step.lacks_masks = !masks.empty();
  step.ticket = executor.submit(step.plan);
  observer.submitted(step);
  return true;
}

/// Masks depend on the tokens of all earlier steps, so these have been committed and delivered.
void Engine::Impl::provide_masks() {
  if (open.size() != 1 || !std::exchange(open.front().lacks_masks, false)) return;
  executor.provide(open.front().ticket, masks);
}

void Engine::Impl::end_step() {
  const size_t in_flight = open.size();
  OpenStep step = take_oldest();
  observer.waits(step);
  control::StepResult result = observer.computed(step, executor.wait(step.ticket));
  std::vector<control::SeqEvent> events = scheduler.commit(step.plan, std::move(result), step.computed);
  deliver(std::move(events), observer.committed(step, scheduler));
  observer.delivered(step, in_flight);
  provide_masks();
}

/// The spec of its first sequence, without the id.
control::SeqSpec Engine::Impl::make_spec(const Arrival& arrival) const {
  const GenerationRequest& request = arrival.request;
  control::SeqSpec spec;
  spec.prompt = request.prompt;
  spec.max_tokens = request.max_tokens.value_or(scheduler.scheduler().most_tokens() -
                                                static_cast<uint32_t>(request.prompt.size()));
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
  if (spec.sampling.min_tokens > 0) {
    // The end of the answer too, also where it is ignored: as in vLLM.
    std::vector<TokenId>& ends = spec.sampling.end_tokens.write() = spec.stop_tokens;
    ends.insert(ends.end(), config.eos.begin(), config.eos.end());
  }
  return spec;
}

/// An exception ends only this request.
void Engine::Impl::take(Arrival arrival) noexcept {
  const RequestId id = arrival.id;
  try {
    if (arrival.waits_as != nullptr) tenants.leave_inbox(*arrival.waits_as, arrival.request.sequences());
    ActiveRequest& request = requests[id];
    request.id = id;
    request.sink = std::move(arrival.sink);
    start(request, arrival);
  } catch (...) {
    if (requests.contains(id)) {
      end_surely(id, control::FinishReason::kError, current_error());
    } else {
      tell_of_loss(arrival.sink, id);
      request_is_over(id);
    }
  }
}

void Engine::Impl::start(ActiveRequest& request, const Arrival& arrival) {
  control::SeqSpec spec = make_spec(arrival);
  request.name = arrival.request.name;
  request.answers = arrival.request.n;
  request.prompt_tokens = static_cast<uint32_t>(arrival.request.prompt.size());
  request.arrived = arrival.arrived;
  request.times.resize(arrival.request.beam_search ? 1 : arrival.request.sequences());
  request.waits_as = arrival.waits_as;

  const bool beams = arrival.request.beam_search;
  const SeqId first = next_seq;
  spec.id = first;
  if (shadow != nullptr && !foresee(request, arrival, spec)) return;
  for (uint32_t index = 0; index < (beams ? 1 : arrival.request.sequences()); ++index) {
    spec.id = next_seq++;
    spec.sampling.choice = index;
    if (index > 0) spec.fork_of = first;
    spec.wants = index == 0 ? arrival.request.wants : PromptWants{};
    std::unique_ptr<MaskSource> source;
    if (arrival.request.make_mask_source) {
      source = arrival.request.make_mask_source();
      spec.sampling.mask = MaskSources::number(spec.id);
    }
    if (beams) {
      request.beams = std::make_unique<BeamRun>(arrival.request, spec);
    } else {
      request.choices.emplace_back(spec.id, index, arrival.request, tokenizer);
    }
    if (!add(request, spec, std::move(source))) return;
  }
  counted.prompt_tokens += request.prompt_tokens;
  if (metrics != nullptr) metrics->prompt_tokens(request.prompt_tokens);
}

/// False if it was refused; then the request has ended.
bool Engine::Impl::add(ActiveRequest& request, const control::SeqSpec& spec,
                       std::unique_ptr<MaskSource> source) {
  request_of[spec.id] = request.id;
  if (source != nullptr) masks.add(spec.id, std::move(source));
  if (request.waits_as != nullptr) tenants.add(spec.id, *request.waits_as);
  control::SeqSpec own = spec;
  if (config.adapt_sampling != nullptr) config.adapt_sampling(own.sampling);
  auto added = scheduler.add(std::move(own), request.name);
  if (!added) end_request(request, control::FinishReason::kError, added.error());
  return added.has_value();
}

/// A sequence that has ended.
void Engine::Impl::forget(SeqId seq) {
  if (request_of.erase(seq) == 0) return;
  masks.remove(seq);
  end_rate.end(clock.now());
  if (shadow != nullptr) shadow->forget(seq);
  if (bounds_tenants()) tenants.remove(seq);
}

void Engine::Impl::publish_stats(uint32_t taken) noexcept {
  try {
    counted.step = scheduler.stats();
    counted.peak_blocks_referenced =
        std::max<uint64_t>(counted.peak_blocks_referenced, counted.step.blocks_referenced);
    counted.ended_per_second = end_rate.per_second(clock.now());
    if (metrics != nullptr) metrics->step(counted.step);
  } catch (...) {
    log_error("the engine's statistics are out of date: they could not be collected");
  }
  const std::lock_guard lock(mutex);
  arriving -= taken;
  try {
    published = counted;
    tenants.settle();
  } catch (...) {
    log_error("the engine's statistics are out of date: they could not be published");
  }
}

Engine::Engine(const EngineConfig& config, const tokenize::Tokenizer& tokenizer, backend::Executor& executor,
               const Clock& clock, StepTrace* trace, EngineMetrics* metrics, record::RunWriter* record,
               WarmStart* warm, StepSink* log, Shadow* shadow)
    : impl_(std::make_unique<Impl>(config, tokenizer, executor, clock, trace, metrics, record, warm, log,
                                   shadow)) {}

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

Expected<void> Engine::check(const GenerationRequest& request) const { return impl_->check(request); }

bool Engine::foresees() const { return impl_->shadow != nullptr; }
bool Engine::promises() const { return foresees() && impl_->shadow->promises(); }

uint32_t Engine::retry_after() const {
  const std::lock_guard lock(impl_->mutex);
  const EngineStats& now = impl_->published;
  const double waiting = now.step.waiting + impl_->arriving;
  const double seconds = now.ended_per_second > 0 ? std::ceil(waiting / now.ended_per_second) : 1;
  return static_cast<uint32_t>(std::clamp(seconds, 1.0, 600.0));
}

void Engine::abort(RequestId id) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->aborts.ask(id);
  impl_->wake.notify_one();
}

bool Engine::drain(Nanos timeout) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  const auto idle = [this] { return impl_->active == 0; };
  const bool done = impl_->quiet.wait_for(lock, std::chrono::nanoseconds(timeout), idle);
  impl_->drained = true;
  if (!done) {
    impl_->cut_short = true;
    impl_->abort_all = true;
    impl_->wake.notify_one();
    impl_->quiet.wait(lock, idle);
  }
  return !impl_->cut_short;
}

void Engine::watch(std::shared_ptr<record::RunTap> tap) {
  const std::lock_guard lock(impl_->mutex);
  impl_->wanted_tap = std::move(tap);
  impl_->wake.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->published;
}

std::string Engine::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

std::string Engine::health_fault() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure.empty() ? impl_->sickness : impl_->failure;
}

const EngineConfig& Engine::config() const { return impl_->config; }

}  // namespace quire::engine
