#include "engine/forecast.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <utility>

namespace quire::engine {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// A forecast in progress. What decodes is described by numbers that stay the same from step to step: the
/// step in which it ends, and the tokens before its next one less the steps that are done.
class Foresight {
 public:
  Foresight(const ForecastState& state, const StepCosts& costs);
  Forecast run();

 private:
  enum class Stage : uint8_t { kWaits, kComputes, kDecodes, kEnded };
  struct Seq {
    ForecastSeq of;
    Stage stage = Stage::kWaits;
    bool admitted = false;
    uint32_t behind = kNone;  // the next of its tenant
    int64_t base = 0;         // while it decodes: the tokens before its next one, less step_
    uint64_t ends = 0;        // while it decodes: step_ once it has ended
    ForecastTimes times;
  };
  struct End {
    uint64_t step = 0;
    uint32_t seq = 0;
    friend bool operator>(const End& a, const End& b) { return a.step > b.step; }
  };
  /// A tenant in line: what it was served, and the first of its sequences. Both only rise.
  struct Turn {
    int64_t served = 0;
    uint32_t seq = 0;
    uint32_t tenant = 0;
    friend auto operator<=>(const Turn&, const Turn&) = default;
  };

  bool done() const { return wanted_ == 0 && (lacking_ == 0 || !state_.all_first); }
  void begin_step();
  bool make_room();
  void preempt(uint32_t index);
  void admit_more();
  void compute(uint32_t index);
  void end_step();
  void decode(uint64_t steps);
  void start_decoding(uint32_t index);
  void stop_decoding(Seq& seq);
  void settle_ends();
  void end(Seq& seq);
  void take_token(Seq& seq);
  void extrapolate();

  uint32_t next_waiting();
  void line_up(uint32_t tenant);
  Turn turn_of(uint32_t tenant) const;
  bool fits(const Seq& seq) const;
  uint64_t steps_with_room(uint64_t most) const;
  uint64_t rows(uint64_t tokens) const { return (tokens + state_.block_size - 1) / state_.block_size; }
  /// Of the decoding sequences, the blocks that this step needs.
  int64_t growth(uint64_t step) const {
    return grows_[(state_.block_size - step % state_.block_size) % state_.block_size];
  }
  int64_t growth_in(uint64_t steps) const;
  int64_t& grows_at(int64_t base) {
    const auto size = static_cast<int64_t>(state_.block_size);
    return grows_[static_cast<size_t>(((base % size) + size) % size)];
  }
  uint64_t decode_context() const {
    return static_cast<uint64_t>(base_sum_ + static_cast<int64_t>(decoding_ * step_));
  }
  Nanos at(double time) const { return state_.now + static_cast<Nanos>(time); }

  const ForecastState& state_;
  const StepCosts& costs_;
  std::vector<Seq> seqs_;             // the running ones, then the waiting ones
  std::vector<uint32_t> order_;       // of admission
  std::vector<uint32_t> partly_;      // computed, the earliest first
  std::vector<uint32_t> again_;       // wait after a preemption, the last one first in line
  std::vector<uint32_t> first_of_;    // of each tenant, those that were never admitted; kNone: there are none
  std::vector<int64_t> served_;       // of each tenant, less 2 a step that is done for each of decoding_of_
  std::vector<int64_t> decoding_of_;  // of decoding_, those of each tenant
  std::vector<Turn> turns_;           // a heap, one of each tenant that waits; some are out of date
  std::vector<End> ends_;             // a heap; those of sequences preempted since are skipped
  std::vector<int64_t>
      grows_;  // by the remainder of base: blocks that such sequences need when they need one
  int64_t grows_sum_ = 0;
  int64_t base_sum_ = 0;
  uint64_t decoding_ = 0;
  uint64_t step_ = 0;  // done
  double now_ = 0;     // since state.now
  int64_t available_;
  uint32_t free_slots_;
  uint32_t wanted_ = 0;
  uint32_t lacking_ = 0;  // sequences without their first token

  // Of the step that is planned.
  backend::StepWork work_;
  uint64_t budget_ = 0;
  uint64_t moved_ = 0;
  bool computes_ = false;
  std::vector<uint32_t> finished_;  // prompts
  uint64_t prefilled_ = 0;          // in all steps
};

Foresight::Foresight(const ForecastState& state, const StepCosts& costs)
    : state_(state),
      costs_(costs),
      grows_(state.block_size),
      available_(static_cast<int64_t>(state.available)),
      free_slots_(state.free_slots) {
  served_ = state.served.empty() ? std::vector<int64_t>(1) : state.served;
  first_of_.resize(served_.size(), kNone);
  decoding_of_.resize(served_.size());
  seqs_.reserve(state.running.size() + state.waiting.size());
  for (const auto* list : {&state.running, &state.waiting}) {
    for (const ForecastSeq& seq : *list) {
      seqs_.push_back({.of = seq, .times = {}});
      wanted_ += seq.wanted ? 1 : 0;
      lacking_ += seq.started ? 0 : 1;
    }
  }
  const auto running = static_cast<uint32_t>(state.running.size());
  for (auto i = static_cast<uint32_t>(seqs_.size()); i-- > running;) {
    seqs_[i].behind = std::exchange(first_of_[seqs_[i].of.tenant], i);
  }
  for (uint32_t tenant = 0; tenant < served_.size(); ++tenant) line_up(tenant);  // before any of them decodes
  for (uint32_t i = 0; i < running; ++i) {
    seqs_[i].admitted = true;
    order_.push_back(i);
    ForecastSeq& seq = seqs_[i].of;
    if (seq.started && seq.computed + 1 == seq.tokens) {
      start_decoding(i);
      continue;
    }
    seqs_[i].stage = Stage::kComputes;
    partly_.push_back(i);
    const uint64_t more = state_.groups * (rows(seq.tokens) - rows(seq.computed));  // it will need them
    seq.blocks += more;
    available_ -= static_cast<int64_t>(more);
  }
}

Forecast Foresight::run() {
  Forecast out;
  for (uint32_t events = 0; !done(); ++events) {
    if (events == kMostForecastEvents) {
      extrapolate();
      out.cut = true;
      break;
    }
    begin_step();
    if (computes_) {
      end_step();
    } else if (decoding_ > 0) {
      decode(steps_with_room(ends_.front().step - step_));
    } else {
      break;  // nothing is left
    }
    settle_ends();
  }
  for (const Seq& seq : seqs_) {
    (out.running.size() < state_.running.size() ? out.running : out.waiting).push_back(seq.times);
  }
  return out;
}

/// Plans the next step.
void Foresight::begin_step() {
  computes_ = false;
  finished_.clear();
  const bool preempted = make_room();
  available_ -= growth(step_);
  work_ = backend::decode_work_of(decoding_, decode_context());
  const StepTokens& has = state_.budget;
  budget_ = has.tokens - (has.besides_decodes ? 0 : std::min<uint64_t>(has.tokens, decoding_));
  const std::vector<uint32_t> partly = std::exchange(partly_, {});
  for (const uint32_t index : partly) compute(index);
  if (!preempted) admit_more();
  work_.moved_blocks = std::exchange(moved_, 0);
}

/// For the next tokens of what decodes; true if others lose their place for it, the last admitted first.
bool Foresight::make_room() {
  bool preempted = false;
  while (growth(step_) > available_ && decoding_ + partly_.size() > 1) {
    const uint32_t last = order_.back();
    order_.pop_back();
    const Stage stage = seqs_[last].stage;
    if (stage != Stage::kComputes && stage != Stage::kDecodes) continue;
    preempt(last);
    preempted = true;
  }
  return preempted;
}

void Foresight::preempt(uint32_t index) {
  Seq& seq = seqs_[index];
  if (seq.stage == Stage::kDecodes) {
    stop_decoding(seq);
  } else {
    std::erase(partly_, index);
  }
  seq.stage = Stage::kWaits;
  available_ += static_cast<int64_t>(seq.of.blocks);
  ++free_slots_;
  if (state_.swaps) {
    moved_ += seq.of.blocks;
  } else {
    seq.of.computed = 0;
  }
  seq.of.blocks = state_.groups * rows(seq.of.tokens);
  again_.push_back(index);
}

/// Of the tenant that was served least of those who wait. A turn that is noted may be out of date, but then
/// it comes later than noted; so one that is up to date when it comes first goes before all others.
uint32_t Foresight::next_waiting() {
  if (!again_.empty()) return again_.back();
  while (!turns_.empty()) {
    const Turn turn = turns_.front();
    if (turn == turn_of(turn.tenant)) return turn.seq;
    std::pop_heap(turns_.begin(), turns_.end(), std::greater());
    turns_.pop_back();
    line_up(turn.tenant);
  }
  return kNone;
}

void Foresight::line_up(uint32_t tenant) {
  if (first_of_[tenant] == kNone) return;
  turns_.push_back(turn_of(tenant));
  std::push_heap(turns_.begin(), turns_.end(), std::greater());
}

/// What decodes has its token of the step that is planned.
Foresight::Turn Foresight::turn_of(uint32_t tenant) const {
  const int64_t served = served_[tenant] + 2 * decoding_of_[tenant] * static_cast<int64_t>(step_ + 1);
  return {served, first_of_[tenant], tenant};
}

/// One that is alone is admitted whatever it needs.
bool Foresight::fits(const Seq& seq) const {
  const bool alone = decoding_ == 0 && partly_.empty() && finished_.empty();
  return alone || static_cast<int64_t>(seq.of.blocks + state_.watermark) <= available_;
}

void Foresight::admit_more() {
  while (budget_ > 0 && free_slots_ > 0) {
    const uint32_t index = next_waiting();
    if (index == kNone || !fits(seqs_[index])) return;
    Seq& seq = seqs_[index];
    if (again_.empty()) {
      first_of_[seq.of.tenant] = seq.behind;
      seq.admitted = true;
      if (!seq.of.counted) served_[seq.of.tenant] += seq.of.tokens - seq.of.computed;
    } else {
      again_.pop_back();
      if (state_.swaps) moved_ += seq.of.blocks;
    }
    --free_slots_;
    available_ -= static_cast<int64_t>(seq.of.blocks);
    seq.stage = Stage::kComputes;
    order_.push_back(index);
    compute(index);
  }
}

/// The next chunk of a sequence, as long as Scheduler::plan_chunk makes it.
void Foresight::compute(uint32_t index) {
  ForecastSeq& seq = seqs_[index].of;
  const uint64_t left = seq.tokens - seq.computed;
  constexpr uint64_t kOne = 1'000'000;
  const uint64_t price = kOne + uint64_t{seq.computed} * state_.context_cost;
  const uint64_t count = std::min(left, std::max(budget_ * kOne / price, (budget_ + 3) / 4));
  if (count < left) partly_.push_back(index);
  if (count == 0) return;
  computes_ = true;
  budget_ = count < left ? 0 : budget_ - std::min(budget_, count * price / kOne);
  if (left == 1) {
    ++work_.decoding;
    work_.decode_context += seq.computed;
  } else {
    ++work_.chunks;
    work_.prefill_tokens += count;
    work_.chunk_squares += count * count;
    work_.chunk_prefix += count * seq.computed;
  }
  prefilled_ += count;
  seq.computed += static_cast<uint32_t>(count);
  if (count < left) return;
  served_[seq.tenant] += 2;
  ++work_.logit_rows;
  ++work_.sampled_rows;
  finished_.push_back(index);
}

/// Carries out the step that was planned.
void Foresight::end_step() {
  now_ += costs_(work_).whole();
  ++step_;
  for (const uint32_t index : finished_) {
    Seq& seq = seqs_[index];
    take_token(seq);
    ++seq.of.tokens;
    if (--seq.of.to_generate == 0) {
      end(seq);
    } else {
      start_decoding(index);
    }
  }
}

/// Carries out so many steps in which the same sequences decode and nothing else happens. Each takes longer
/// than the one before by the same time, so their mean is that of the first and the last.
void Foresight::decode(uint64_t steps) {
  const double first = costs_(work_).whole();
  work_.decode_context += decoding_ * (steps - 1);
  const double last = steps > 1 ? costs_(work_).whole() : first;
  now_ += (first + last) / 2 * static_cast<double>(steps);
  available_ -= growth_in(steps) - growth(step_);  // that of the first was taken when it was planned
  step_ += steps;
}

void Foresight::start_decoding(uint32_t index) {
  Seq& seq = seqs_[index];
  seq.stage = Stage::kDecodes;
  seq.base = static_cast<int64_t>(seq.of.computed) - static_cast<int64_t>(step_);
  seq.ends = step_ + seq.of.to_generate;
  ends_.push_back({seq.ends, index});
  std::push_heap(ends_.begin(), ends_.end(), std::greater());
  grows_at(seq.base) += state_.groups;
  grows_sum_ += state_.groups;
  base_sum_ += seq.base;
  ++decoding_;
  ++decoding_of_[seq.of.tenant];
  served_[seq.of.tenant] -= 2 * static_cast<int64_t>(step_);
}

void Foresight::stop_decoding(Seq& seq) {
  const auto computed = static_cast<uint32_t>(seq.base + static_cast<int64_t>(step_));
  seq.of.blocks += state_.groups * (rows(computed) - rows(seq.of.computed));
  seq.of.computed = computed;
  seq.of.tokens = computed + 1;
  seq.of.to_generate = static_cast<uint32_t>(seq.ends - step_);
  grows_at(seq.base) -= state_.groups;
  grows_sum_ -= state_.groups;
  base_sum_ -= seq.base;
  --decoding_;
  --decoding_of_[seq.of.tenant];
  served_[seq.of.tenant] += 2 * static_cast<int64_t>(step_);
}

void Foresight::settle_ends() {
  while (!ends_.empty() && ends_.front().step <= step_) {
    const End next = ends_.front();
    std::pop_heap(ends_.begin(), ends_.end(), std::greater());
    ends_.pop_back();
    Seq& seq = seqs_[next.seq];
    if (seq.stage != Stage::kDecodes || seq.ends != next.step) continue;
    stop_decoding(seq);
    end(seq);
  }
}

void Foresight::end(Seq& seq) {
  seq.stage = Stage::kEnded;
  seq.times.end = at(now_);
  ++free_slots_;
  available_ += static_cast<int64_t>(seq.of.blocks);
  if (seq.of.wanted) --wanted_;
}

void Foresight::take_token(Seq& seq) {
  if (std::exchange(seq.of.started, true)) return;
  seq.times.first_token = at(now_);
  --lacking_;
}

int64_t Foresight::growth_in(uint64_t steps) const {
  int64_t sum = static_cast<int64_t>(steps / state_.block_size) * grows_sum_;
  for (uint64_t i = 0; i < steps % state_.block_size; ++i) sum += growth(step_ + i);
  return sum;
}

/// From 1 to `most` steps that need no more blocks than there are; `most` for one that is alone.
uint64_t Foresight::steps_with_room(uint64_t most) const {
  if (decoding_ <= 1) return most;
  const int64_t room = available_ + growth(step_);
  if (growth_in(most) <= room) return most;
  const auto cycles = static_cast<uint64_t>(std::max<int64_t>(room, 0) / grows_sum_);
  uint64_t steps = cycles * state_.block_size;
  int64_t left = room - static_cast<int64_t>(cycles) * grows_sum_;
  while (steps < most && (left -= growth(step_ + steps)) >= 0) ++steps;
  return std::max<uint64_t>(steps, 1);
}

/// What is left of the queue goes on at the speed so far.
void Foresight::extrapolate() {
  const double step = now_ / static_cast<double>(step_);
  const double token = now_ / static_cast<double>(std::max<uint64_t>(prefilled_, 1));
  double time = now_;
  const auto goes_on = [&](uint32_t index) {
    Seq& seq = seqs_[index];
    time += token * (seq.of.tokens - seq.of.computed);
    if (!seq.of.started) seq.times.first_token = at(time);
    seq.times.end = at(time + step * (seq.of.to_generate - 1));
  };
  for (const uint32_t index : partly_) goes_on(index);
  for (size_t i = again_.size(); i-- > 0;) goes_on(again_[i]);
  for (uint32_t index = 0; index < seqs_.size(); ++index) {
    if (!seqs_[index].admitted) goes_on(index);
  }
  for (Seq& seq : seqs_) {
    if (seq.stage == Stage::kDecodes) seq.times.end = at(now_ + step * static_cast<double>(seq.ends - step_));
  }
}

}  // namespace

Forecast forecast(const ForecastState& state, const StepCosts& costs) {
  return Foresight(state, costs).run();
}

}  // namespace quire::engine
