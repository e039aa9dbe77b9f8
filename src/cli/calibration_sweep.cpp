#include "cli/calibration_sweep.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rng.h"

namespace quire::cli {
namespace {

constexpr uint32_t kTokensOfAPiece = 2048;  // of prompts; beyond, sequences share theirs
constexpr uint32_t kSteps = 12;             // of decoding, in a piece
constexpr uint32_t kLeastLength = 64;       // of the longest sequence

/// Some requests, one after the other or at once, and what they do beside others.
struct Piece {
  uint32_t decoding = 0;  // sequences that decode
  uint32_t context = 0;   // tokens that each of these has before
  uint32_t chunk = 0;     // a prompt of so many tokens that joins them; 0: none
};

class Sweep {
 public:
  explicit Sweep(startup::LocalEngine& local)
      : local_(local),
        most_seqs_(local.config.scheduler.max_num_seqs),
        longest_(local.config.scheduler.max_model_len),
        pool_(uint64_t{local.config.scheduler.num_blocks} * local.config.scheduler.block_size) {}

  std::vector<Piece> pieces() const {
    const uint32_t budget = local_.config.scheduler.max_num_batched_tokens;
    std::vector<Piece> out;
    for (const uint32_t context : {16U, longest_ / 4, longest_ - kSteps - 1}) {
      for (uint32_t seqs = 1;; seqs = std::min(2 * seqs, most_seqs_)) {
        out.push_back({.decoding = seqs, .context = std::min(context, 4 * kTokensOfAPiece)});
        if (seqs == most_seqs_) break;
      }
    }
    for (uint32_t chunk = 2; chunk <= std::min(budget, kTokensOfAPiece); chunk *= 2) {
      out.push_back({.chunk = chunk});
      out.push_back({.chunk = chunk + chunk / 2});
      out.push_back({.decoding = std::max(1U, most_seqs_ / 4), .context = 16, .chunk = chunk});
      out.push_back({.decoding = std::max(1U, most_seqs_ / 2), .context = 64, .chunk = chunk});
    }
    out.push_back({.chunk = longest_ - 2});  // many chunks, each with those before it
    return out;
  }

  /// Returns once all its requests have ended.
  void run(const Piece& piece) {
    if (piece.decoding > 0) {
      const uint32_t room = static_cast<uint32_t>(std::min<uint64_t>(longest_, pool_ / piece.decoding));
      const uint32_t context =
          std::clamp(std::min(piece.context, room - std::min(room, kSteps + 17)), 1U, longest_ - kSteps);
      // Distinct prompts as far as they are quickly computed; beyond, a prompt has several answers.
      const uint32_t prompts = std::clamp(kTokensOfAPiece / context, 1U, piece.decoding);
      const uint32_t steps = piece.chunk > 0 ? 3 * kSteps : kSteps;
      uint32_t left = piece.decoding;
      for (uint32_t i = 0; i < prompts; ++i) {
        const uint32_t answers = left / (prompts - i);
        left -= answers;
        submit(context, answers, std::min(steps, longest_ - context));
      }
    }
    if (piece.chunk > 0) {
      if (piece.decoding > 0) wait([this] { return begun_ > 0; });
      for (uint32_t i = 0; i < (piece.decoding > 0 ? 3U : 1U); ++i) {
        const uint64_t before = ended_now();
        submit(std::min({piece.chunk, longest_ - 2,
                         static_cast<uint32_t>(std::min<uint64_t>(pool_ / 2, UINT32_MAX))}),
               1, 1);
        wait([&] { return ended_ > before; });
      }
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
    std::unique_lock lock(mutex_);
    changed_.wait(lock, done);
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
  const uint32_t most_seqs_;
  const uint32_t longest_;
  const uint64_t pool_;
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

std::vector<backend::StepRecord> StepCollector::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

void run_sweep(startup::LocalEngine& local, double seconds, const std::function<void(double)>& advance) {
  if (local.config.scheduler.max_model_len < kLeastLength) {
    throw Error(fmt::format("calibrate: sequences of {} tokens are too short to measure: at least {}",
                            local.config.scheduler.max_model_len, kLeastLength));
  }
  Sweep sweep(local);
  std::vector<Piece> pieces = sweep.pieces();
  SplitMix64 random(7);
  const Nanos start = local.clock.now();
  const auto passed = [&] { return static_cast<double>(local.clock.now() - start) / 1e9; };
  for (uint64_t round = 0; round == 0 || passed() < seconds; ++round) {
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
    for (size_t i = 0; i < pieces.size() && (round == 0 || passed() < seconds); ++i) {
      sweep.run(pieces[i]);
      const double of_round = static_cast<double>(i + 1) / static_cast<double>(pieces.size());
      advance(std::min(1.0, round == 0 ? std::min(of_round, passed() / seconds) : passed() / seconds));
    }
  }
}

}  // namespace quire::cli
