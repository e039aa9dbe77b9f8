#include "sim/simulation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire::sim {

Simulation::Simulation(const SimulationConfig& config, const Workload& workload, record::RunWriter* record)
    : workload_(workload),
      check_kv_(config.check_kv),
      scheduler_(config.scheduler, record),
      executor_(config.scheduler, config.cost,
                backend::sim::SimTokens{.vocab_size = workload.vocab_size,
                                        .seed = workload.seed,
                                        .jitter = config.jitter,
                                        .check_kv = config.check_kv},
                config.depth),
      accept_(config.accept),
      source_(workload),
      records_(workload.requests.size()),
      open_(workload.requests.size()),
      was_admitted_(workload.requests.size() * workload.choices) {
  for (size_t i = 0; i < records_.size(); ++i) {
    records_[i].prompt_tokens = workload.requests[i].prompt_length;
  }
}

bool Simulation::step() {
  add_due();
  while (!scheduler_.has_work() && open_steps_.empty()) {
    const std::optional<Nanos> next = next_accepted();
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
  for (const control::SeqEvent& event : scheduler_.commit(oldest.plan, std::move(result), clock_.now())) {
    note_event(event);
  }
  note_step(took);
  for (SimulationListener* listener : listeners_) listener->step_done(done_ - took, done_);
  return true;
}

/// False if all there is to do depends on open steps.
bool Simulation::plan_step() {
  control::StepPlan plan = scheduler_.plan(clock_.now());
  for (SimulationListener* listener : listeners_) {
    for (const SeqId id : scheduler_.preempted()) {
      listener->preempted(id / workload_.choices, static_cast<uint32_t>(id % workload_.choices),
                          clock_.now());
    }
  }
  if (plan.empty()) return false;
  note_plan(plan);
  const backend::Ticket ticket = executor_.submit(plan);
  open_steps_.push_back({std::move(plan), ticket, clock_.now()});
  return true;
}

std::optional<Nanos> Simulation::next_accepted() const {
  const std::optional<Nanos> sent = source_.next();
  if (!sent) return std::nullopt;
  return std::max(*sent, accepted_) + accept_;
}

void Simulation::add_due() {
  for (auto next = next_accepted(); next && *next <= clock_.now(); next = next_accepted()) {
    const Nanos sent = *source_.next();
    const size_t index = source_.take();
    accepted_ = *next;
    records_[index].arrival = sent;
    const std::optional<Refusal> refusal = add(index);
    if (!refusal) continue;
    note_refusal(index, *refusal, *next);
    for (const size_t unsent : source_.gave_up(index, *next))
      note_refusal(unsent, Refusal::kConversation, *next);
  }
}

void Simulation::note_refusal(size_t index, Refusal why, Nanos now) {
  records_[index].refused = why;
  ++totals_.refused;
  if (totals_.refused_by[static_cast<size_t>(why)]++ == 0) {
    totals_.first_refused_by[static_cast<size_t>(why)] = static_cast<uint32_t>(index);
  }
  for (SimulationListener* listener : listeners_) listener->refused(index, now);
  digest_.add(index);
}

Refusal Simulation::too_long() const {
  const control::SchedulerConfig& config = scheduler().config();
  const uint64_t pool = uint64_t{config.num_blocks} * config.block_size;
  return config.max_model_len < pool ? Refusal::kTooLongForModel : Refusal::kTooLongForPool;
}

/// All choices of a request, or none; then it says why.
std::optional<Refusal> Simulation::add(size_t index) {
  const SimRequest& request = workload_.requests[index];
  // Before its tokens are made, which may be many.
  if (uint64_t{request.prompt_length} + request.output_length > scheduler().config().max_model_len)
    return too_long();
  control::SeqSpec spec;
  const SeqId first = index * workload_.choices;
  spec.prompt = source_.prompt_on_demand(index);
  spec.max_tokens = request.output_length;
  spec.sampling.seed = index;
  if (check_kv_) backend::sim::tell_history(spec.sampling);
  spec.arrived = records_[index].arrival;
  spec.ttft_deadline = request.ttft_deadline;
  spec.priority = request.priority;
  spec.tenant = request.tenant;
  const TokenList prompt = listeners_.empty() ? TokenList() : spec.prompt;
  if (workload_.lengths_known) spec.expected_tokens = request.output_length;
  for (uint32_t choice = 0; choice < workload_.choices; ++choice) {
    control::SeqSpec one = choice + 1 < workload_.choices ? spec : std::move(spec);
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
  open_[index] = workload_.choices;
  for (SimulationListener* listener : listeners_) listener->arrived(index, prompt);
  return std::nullopt;
}

void Simulation::note_plan(const control::StepPlan& plan) {
  for (const control::NewSeq& seq : plan.added) {
    RequestRecord& record = records_[seq.sampling.seed];
    if (record.admitted < 0) {
      record.admitted = clock_.now();
      for (SimulationListener* listener : listeners_) listener->admitted(seq.sampling.seed);
    }
    uint8_t& before = was_admitted_[seq.sampling.seed * workload_.choices + seq.sampling.choice];
    if (before != 0) {
      for (SimulationListener* listener : listeners_) {
        listener->admitted_again(seq.sampling.seed, seq.sampling.choice, clock_.now());
      }
    }
    record.preemptions += std::exchange(before, uint8_t{1});
  }
}

void Simulation::note_event(const control::SeqEvent& event) {
  const size_t index = event.id / workload_.choices;
  RequestRecord& record = records_[index];
  if (event.token) {
    ++totals_.output_tokens;
    digest_.add(event.id << 32 ^ static_cast<uint32_t>(event.token->token));
    if (event.id == index * workload_.choices) source_.sampled(index, event.token->token);
    if (record.output_tokens++ == 0) {
      record.first_token = clock_.now();
      record.cached_tokens = event.cached_tokens;
      record.in_time = clock_.now() - record.arrival <= workload_.requests[index].ttft_deadline;
    }
  }
  if (!event.finish) return;
  digest_.add(static_cast<uint64_t>(*event.finish) + 1);
  if (*event.finish == control::FinishReason::kError) throw Error("simulation: " + event.error);
  if (--open_[index] > 0) return;
  record.finished = clock_.now();
  ++totals_.finished;
  source_.ended(index, clock_.now());
  for (SimulationListener* listener : listeners_) listener->finished(index);
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
  totals_.peak_running = std::max(totals_.peak_running, stats.running);
  totals_.peak_waiting = std::max(totals_.peak_waiting, stats.waiting);
  totals_.peak_blocks = std::max(totals_.peak_blocks, stats.blocks_referenced);
  totals_.busy += took;
  const auto micros = static_cast<uint64_t>(took) / 1000;
  totals_.block_micros += stats.blocks_referenced * micros;
  totals_.running_micros += stats.running * micros;
}

}  // namespace quire::sim
