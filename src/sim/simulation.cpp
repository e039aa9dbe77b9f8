#include "sim/simulation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire::sim {
namespace {

backend::sim::SimTokens sim_tokens(const SimulationConfig& config, const WorkloadSettings& settings) {
  backend::sim::SimTokens tokens;
  tokens.vocab_size = settings.vocab_size;
  tokens.seed = settings.seed;
  if (config.jitter) tokens.jitter = config.jitter_seed.value_or(settings.seed);
  tokens.check_kv = config.check_kv;
  return tokens;
}

}  // namespace

Simulation::Simulation(const SimulationConfig& config, std::unique_ptr<RequestStream> requests,
                       record::RunWriter* record)
    : check_kv_(config.check_kv),
      source_(std::move(requests)),
      scheduler_(config.scheduler, record),
      executor_(config.scheduler, config.cost, sim_tokens(config, settings()), config.depth),
      latency_(config.latency),
      reception_(config.accept) {}

void Simulation::listen(SimulationListener& listener) {
  listeners_.push_back(&listener);
  wants_prompts_ = wants_prompts_ || listener.wants_prompts();
}

bool Simulation::step() {
  add_due();
  while (!scheduler_.has_work() && open_steps_.empty()) {
    if (is_stopped()) return false;
    const std::optional<Nanos> next = next_arrival();
    if (!next) {
      if (!std::exchange(ended_, true)) scheduler_.end_record();
      return false;
    }
    clock_.advance_to(*next);
    add_due();
  }
  while (open_steps_.size() < executor_.depth() && scheduler_.has_work() && plan_step()) {
  }
  const OpenStep oldest = std::move(open_steps_.front());
  open_steps_.pop_front();
  control::StepResult result = executor_.wait(oldest.ticket);
  const Nanos took = result.times.compute;
  done_ = std::max(done_, oldest.submitted) + took;
  clock_.advance_to(done_);
  step_planned_ = oldest.planned;
  note_events(scheduler_.commit(oldest.plan, std::move(result), clock_.now()));
  note_step(took);
  step_extrapolated_ = oldest.extrapolated;
  for (SimulationListener* listener : listeners_) listener->step_done(done_ - took, done_);
  return true;
}

/// False if all there is to do depends on open steps.
bool Simulation::plan_step() {
  control::StepPlan plan = scheduler_.plan(clock_.now());
  for (const SeqId id : scheduler_.preempted()) {
    ++open_.at(id / settings().choices).record.preemptions;
    for (SimulationListener* listener : listeners_) {
      listener->preempted(id / settings().choices, static_cast<uint32_t>(id % settings().choices),
                          clock_.now());
    }
  }
  if (plan.empty()) return false;
  note_plan(plan);
  const uint64_t extrapolated = executor_.extrapolated();
  const backend::Ticket ticket = executor_.submit(plan);
  const Planned planned{.running = static_cast<uint32_t>(scheduler().running().size()),
                        .blocks_held = scheduler_.blocks_held(),
                        .blocks_cached = scheduler_.blocks_cached()};
  open_steps_.push_back(
      {std::move(plan), ticket, clock_.now(), executor_.extrapolated() > extrapolated, planned});
  return true;
}

/// When the next request reaches the server or has been received.
std::optional<Nanos> Simulation::next_arrival() const {
  const std::optional<Nanos> sent = source_.next();
  const std::optional<Nanos> received = reception_.next();
  if (!sent) return received;
  return received ? std::min(*sent + latency_, *received) : *sent + latency_;
}

void Simulation::add_due() {
  for (auto next = next_arrival(); next && *next <= clock_.now() && !is_stopped(); next = next_arrival()) {
    if (reception_.next() == next) {
      receive();
      continue;
    }
    const size_t number = source_.take();
    const SimRequest& request = source_.request(number);
    reception_.send({number, *next}, request.tenant, request.prompt_length);
  }
}

/// The next request has been received: it is added, or refused.
void Simulation::receive() {
  const Nanos now = *reception_.next();
  const size_t number = reception_.take().request;
  const std::optional<Refusal> refusal = add(number);
  if (!refusal) return;
  note_refusal(number, source_.request(number), sent_record(number), *refusal, now);
  source_.gave_up(number, now, [&](const NumberedRequest& unsent) {
    note_refusal(unsent.number, unsent.request, {.prompt_tokens = unsent.request.prompt_length},
                 Refusal::kConversation, now);
  });
}

void Simulation::note_refusal(size_t number, const SimRequest& request, RequestRecord record, Refusal why,
                              Nanos now) {
  record.refused = why;
  ++totals_.refused;
  if (totals_.refused_by[static_cast<size_t>(why)]++ == 0) {
    totals_.first_refused[static_cast<size_t>(why)] = {
        static_cast<uint32_t>(number), request.line, uint64_t{request.prompt_length} + request.output_length};
  }
  for (SimulationListener* listener : listeners_) listener->refused({number, request, record}, now);
  digest_.add(number);
}

Refusal Simulation::too_long() const {
  const control::SchedulerConfig& config = scheduler().config();
  const uint64_t pool = uint64_t{config.num_blocks} * config.block_size;
  return config.max_model_len < pool ? Refusal::kTooLongForModel : Refusal::kTooLongForPool;
}

/// What there is to tell of a request until it is admitted.
RequestRecord Simulation::sent_record(size_t number) const {
  return {.arrival = source_.due(number), .prompt_tokens = source_.request(number).prompt_length};
}

/// All choices of a request, or none; then it says why.
std::optional<Refusal> Simulation::add(size_t number) {
  const SimRequest& request = source_.request(number);
  const uint32_t choices = settings().choices;
  // Before its tokens are made, which may be many.
  if (uint64_t{request.prompt_length} + request.output_length > scheduler().config().max_model_len)
    return too_long();
  control::SeqSpec spec;
  const SeqId first = number * choices;
  spec.prompt = source_.prompt_on_demand(number);
  spec.max_tokens = request.output_length;
  spec.sampling.seed = number;
  if (check_kv_) backend::sim::tell_history(spec.sampling);
  spec.arrived = source_.due(number);
  spec.ttft_deadline = request.ttft_deadline;
  spec.priority = request.priority;
  spec.tenant = request.tenant;
  const TokenList prompt = wants_prompts_ ? spec.prompt : TokenList();
  if (settings().lengths_known) spec.expected_tokens = request.output_length;
  for (uint32_t choice = 0; choice < choices; ++choice) {
    control::SeqSpec one = choice + 1 < choices ? spec : std::move(spec);
    one.id = first + choice;
    one.sampling.choice = choice;
    if (choice > 0) one.fork_of = first;
    const auto added = scheduler_.add(std::move(one));
    if (added) continue;
    while (choice-- > 0) scheduler_.abort(first + choice);
    switch (added.error().code) {
      case RequestErrorCode::kTooLong:
        return Refusal::kTooLongForPool;
      case RequestErrorCode::kQueueFull:
        return Refusal::kQueueFull;
      default:
        throw Error("simulation: " + added.error().message);
    }
  }
  const RequestRecord record = sent_record(number);
  for (SimulationListener* listener : listeners_) listener->arrived({number, request, record}, prompt);
  return std::nullopt;
}

void Simulation::note_plan(const control::StepPlan& plan) {
  for (const control::NewSeq& seq : plan.added) {
    const size_t number = seq.sampling.seed;
    const uint32_t choice = seq.sampling.choice;
    const auto known = open_.find(number);
    OpenRequest& open = known != open_.end() ? known->second : note_admitted(number);
    if (open.was_admitted[choice]) {
      for (SimulationListener* listener : listeners_) listener->admitted_again(number, choice, clock_.now());
    }
    open.was_admitted[choice] = true;
  }
}

Simulation::OpenRequest& Simulation::note_admitted(size_t number) {
  OpenRequest& open = open_[number];
  open = {number, sent_record(number), settings().choices, std::vector<bool>(settings().choices)};
  open.record.admitted = clock_.now();
  for (SimulationListener* listener : listeners_) listener->admitted(number);
  return open;
}

void Simulation::note_events(const std::vector<control::SeqEvent>& events) {
  if (places_.size() < events.size()) places_.resize(events.size());
  const uint64_t choices = settings().choices;
  for (size_t i = 0; i < events.size(); ++i) {
    const control::SeqEvent& event = events[i];
    Place& place = places_[i];
    if (place.id != event.id) place = {event.id, &open_.at(event.id / choices)};
    OpenRequest& open = *place.open;
    if (event.token) {
      ++totals_.output_tokens;
      digest_.add(event.id << 32 ^ static_cast<uint32_t>(event.token->token));
      if (event.id == open.number * choices) source_.sampled(open.number, event.token->token);
      if (open.record.output_tokens++ == 0) note_first_token(event, open);
    }
    if (event.finish) note_end(event, open);
  }
}

void Simulation::note_first_token(const control::SeqEvent& event, OpenRequest& open) {
  RequestRecord& record = open.record;
  record.first_token = clock_.now();
  record.cached_tokens = event.cached_tokens;
  record.in_time = clock_.now() - record.arrival <= source_.request(open.number).ttft_deadline;
}

void Simulation::note_end(const control::SeqEvent& event, OpenRequest& open) {
  digest_.add(static_cast<uint64_t>(*event.finish) + 1);
  if (*event.finish == control::FinishReason::kError) throw Error("simulation: " + event.error);
  if (--open.open_choices > 0) return;
  const size_t number = open.number;
  open.record.finished = clock_.now();
  ++totals_.finished;
  for (SimulationListener* listener : listeners_) {
    listener->finished({number, source_.request(number), open.record});
  }
  source_.ended(number, clock_.now());
  open_.erase(number);
}

void Simulation::break_off() {
  const auto tell = [&](size_t number, const SimRequest& request, const RequestRecord& record) {
    for (SimulationListener* listener : listeners_) {
      listener->unfinished({number, request, record}, clock_.now());
    }
  };
  for (const size_t number : source_.sent()) {
    const auto admitted = open_.find(number);
    tell(number, source_.request(number),
         admitted != open_.end() ? admitted->second.record : sent_record(number));
  }
  source_.visit_unsent([&](const NumberedRequest& of) {
    tell(of.number, of.request, {.prompt_tokens = of.request.prompt_length});
  });
}

void Simulation::note_step(Nanos took) {
  const control::StepStats& stats = scheduler_.stats();
  digest_.add(static_cast<uint64_t>(clock_.now()));
  digest_.add(scheduler().digest());  // of all that was planned
  ++totals_.steps;
  totals_.prefill_tokens += stats.prefill_tokens;
  totals_.decode_tokens += stats.decode_tokens;
  totals_.moved_blocks += stats.swapped_out + stats.swapped_in;
  totals_.moved_out += stats.swapped_out;
  totals_.peak_running = std::max(totals_.peak_running, step_planned_.running);
  totals_.peak_waiting = std::max(totals_.peak_waiting, stats.waiting);
  totals_.peak_blocks = std::max(totals_.peak_blocks, step_planned_.blocks_held);
  totals_.busy += took;
  const auto micros = static_cast<uint64_t>(took) / 1000;
  totals_.block_micros += step_planned_.blocks_held * micros;
  totals_.running_micros += step_planned_.running * micros;
}

}  // namespace quire::sim
