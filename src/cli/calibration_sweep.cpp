#include "cli/calibration_sweep.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "cli/message_reader.h"

namespace quire::cli {
namespace {

struct Interrupted {};

class Sweep {
 public:
  explicit Sweep(startup::LocalEngine& local) : local_(local) {}
  /// Ends the requests that still run: they tell this object what becomes of them.
  ~Sweep() { local_.engine->drain(0); }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  /// Returns once all its requests have ended. Throws Interrupted after Ctrl-C.
  void run(const SweepPiece& piece) {
    uint32_t left = piece.decoding;
    for (uint32_t i = 0; i < piece.prompts; ++i) {
      const uint32_t answers = left / (piece.prompts - i);
      left -= answers;
      submit(piece.context, answers, piece.steps);
    }
    if (piece.chunks > 0 && piece.decoding > 0) wait([this] { return begun_ > 0; });
    for (uint32_t i = 0; i < piece.chunks; ++i) {
      const uint64_t before = ended_now();
      submit(piece.chunk, 1, 1);
      wait([&] { return ended_ > before; });
    }
    wait([this] { return ended_ == submitted_; });
    begun_ = 0;
  }

 private:
  uint64_t ended_now() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  template <class Done>
  void wait(const Done& done) {
    constexpr std::chrono::milliseconds kLook{50};  // a signal wakes nobody
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLook, done) && !InterruptNote::interrupted()) {
    }
    if (InterruptNote::interrupted()) throw Interrupted();
    if (!error_.empty()) throw Error("calibrate: a request failed: " + error_);
  }

  void submit(uint32_t prompt, uint32_t answers, uint32_t tokens) {
    engine::GenerationRequest request;
    for (uint32_t i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(random_.below(local_.config.vocab_size)));
    }
    request.n = answers;
    request.max_tokens = std::max(1U, tokens);
    request.ignore_eos = true;
    request.sampling.seed = random_.next();
    ++submitted_;
    const auto sink = [this](const engine::RequestOutput& output) {
      const std::lock_guard lock(mutex_);
      if (output.completion_tokens > 0) ++begun_;
      if (output.done) ++ended_;
      if (output.error && error_.empty()) error_ = output.error->message;
      changed_.notify_all();
    };
    if (const auto taken = local_.engine->submit(std::move(request), sink); !taken) {
      throw Error("calibrate: " + taken.error().message);
    }
  }

  startup::LocalEngine& local_;
  SplitMix64 random_{20260801};
  uint64_t submitted_ = 0;
  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  uint64_t begun_ = 0;  // outputs with a token, of this piece
  uint64_t ended_ = 0;
  std::string error_;
};

}  // namespace

void StepCollector::take(const backend::StepRecord& record) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    records_.push_back(record);
  } catch (const std::bad_alloc&) {
    records_.clear();  // too few are left, and the command says so
  }
}

std::vector<backend::StepRecord> StepCollector::records(size_t first) const {
  const std::lock_guard lock(mutex_);
  const auto from = static_cast<std::ptrdiff_t>(std::min(first, records_.size()));
  return {records_.begin() + from, records_.end()};
}

bool run_sweep(startup::LocalEngine& local, const SweepPlan& plan, double seconds,
               const std::function<void(double, const SweepPiece&)>& advance) {
  std::vector<SweepPiece> pieces = plan.pieces;
  SplitMix64 random(7);
  const Nanos start = local.clock.now();
  const auto passed = [&] { return static_cast<double>(local.clock.now() - start) / 1e9; };
  const InterruptNote note;
  try {
    Sweep sweep(local);
    for (uint64_t round = 0; round == 0 || passed() < seconds; ++round) {
      for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
      for (size_t i = 0; i < pieces.size() && (round == 0 || passed() < seconds); ++i) {
        sweep.run(pieces[i]);
        const double of_round = static_cast<double>(i + 1) / static_cast<double>(pieces.size());
        advance(std::min(1.0, round == 0 ? std::min(of_round, passed() / seconds) : passed() / seconds),
                pieces[i]);
      }
    }
  } catch (const Interrupted&) {
    InterruptNote::interrupted() = false;
    return false;
  }
  return true;
}

}  // namespace quire::cli
