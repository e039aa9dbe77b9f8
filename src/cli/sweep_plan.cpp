#include "cli/sweep_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/amounts.h"
#include "base/error.h"
#include "control/kv/windows.h"

namespace quire::cli {
namespace {

constexpr uint32_t kTokensOfAPiece = 2048;  // of prompts; beyond, sequences share theirs if time is short
constexpr uint32_t kSteps = 12;             // of decoding, in a piece
constexpr uint32_t kFewSequences = 8;       // fewer decode in no less time: the weights are read all the same
constexpr double kPartForSwaps = 0.5;       // of the time, at most
constexpr size_t kMostFills = 3;            // of the pool, in a round
constexpr double kLeastRounds = 4;          // that there is time for, if sequences have prompts of their own

/// Works out one plan.
class Planner {
 public:
  /// `own_tokens`: of the prompts of a piece, at most, before sequences share them; at least kTokensOfAPiece.
  Planner(const control::SchedulerConfig& config, uint32_t longest, uint64_t own_tokens)
      : config_(config), longest_(longest), own_tokens_(own_tokens) {
    const uint64_t watermark = uint64_t{config.num_blocks} * config.watermark_bp / 10'000 + 1;
    usable_ = config.num_blocks - std::min<uint64_t>(watermark, config.num_blocks);
  }

  std::vector<SweepPiece> pieces() {
    const uint32_t seqs = config_.max_num_seqs;
    for (const uint32_t context : {16U, longest_ / 4, longest_ - kSteps - 1}) {
      for (uint32_t count = 1;; count = std::min(2 * count, seqs)) {
        add(decode(count, std::min(context, 4 * kTokensOfAPiece)));
        if (count == seqs) break;
      }
    }
    // Forks of a prompt that ends within a block, which each of them copies.
    for (uint32_t count = 2; count <= seqs; count *= 2) {
      add({.decoding = count, .context = config_.block_size / 2 + 1, .prompts = 1, .steps = kSteps});
    }
    const uint32_t most = std::min({config_.max_num_batched_tokens, kTokensOfAPiece, longest_ - 2});
    for (uint32_t chunk = 2; chunk <= most; chunk *= 2) {
      add({.chunk = chunk, .chunks = 1});
      add({.chunk = std::min(chunk + chunk / 2, longest_ - 2), .chunks = 1});
      add(mixed(seqs / 4, 16, chunk));
      add(mixed(seqs / 2, 64, chunk));
    }
    add({.chunk = longest_ - 2, .chunks = 1});  // many chunks, each with those before it
    return std::exchange(pieces_, {});
  }

  /// What of these the pool made smaller or left out; "" if nothing.
  std::string limited() const {
    std::vector<std::string> out;
    if (least_left_out_ < UINT32_MAX) {
      out.push_back(fmt::format("fewer than {} sequences decode at once", least_left_out_));
    }
    if (shortened_asked_ > 0) {
      out.push_back(fmt::format("{} sequences at once have {} tokens before, not {}", shortened_.decoding,
                                with_commas(shortened_.context), with_commas(shortened_asked_)));
    }
    if (chunk_left_out_ < UINT32_MAX) {
      out.push_back(fmt::format("prompts of {} tokens join no others", with_commas(chunk_left_out_)));
    }
    return fmt::format("{}", fmt::join(out, "; "));
  }
  uint64_t most_blocks() const { return most_blocks_; }
  /// Of the pieces whose sequences share prompts the most, the first; none of its sequences if none does.
  const SweepPiece& sharing() const { return sharing_; }

  /// Few sequences, and more, that fill the pool and then grow. Empty, with the reason in `why`, if that
  /// cannot be.
  std::vector<SweepPiece> swaps(std::string& why) const {
    if (config_.preemption == control::PreemptionKind::kRecompute) {
      why = "--preemption-mode recompute moves none";
      return {};
    }
    std::vector<SweepPiece> out;
    for (uint32_t count = 2; count <= config_.max_num_seqs && out.size() < kMostFills;) {
      const std::optional<SweepPiece> piece = fill(count);
      if (piece) out.push_back(*piece);
      count *= piece ? 4 : 2;
    }
    if (out.empty()) {
      why = fmt::format(
          "up to {} sequences of up to {} tokens do not fill {} blocks of the device, each of "
          "them fitting into {} blocks of the host; give fewer --num-blocks or more --swap-space",
          config_.max_num_seqs, with_commas(longest_), with_commas(config_.num_blocks),
          with_commas(config_.num_host_blocks));
    }
    return out;
  }

  double seconds_of(const SweepPiece& piece) const {
    const auto prefill = static_cast<double>(config_.costs.prefill_token);
    const auto decode = static_cast<double>(config_.costs.decode_token);
    const double prompts =
        static_cast<double>(piece.prompts) * piece.context + static_cast<double>(piece.chunks) * piece.chunk;
    return (prompts * prefill + piece.steps * decode * std::max(piece.decoding, kFewSequences)) / 1e9;
  }

 private:
  uint64_t held(uint64_t tokens) const {
    return control::blocks_held(config_.kv_windows, tokens, config_.max_num_batched_tokens,
                                config_.block_size);
  }
  /// The blocks that a piece holds at most.
  uint64_t blocks_of(const SweepPiece& piece) const {
    const uint64_t grown = held(piece.steps + config_.block_size);  // also the copy of a block that is shared
    return piece.prompts * held(piece.context) + piece.decoding * grown +
           (piece.chunk > 0 ? held(uint64_t{piece.chunk} + 1) : 0);
  }
  bool fits(const SweepPiece& piece) const {
    return blocks_of(piece) <= (piece.decoding > 0 ? usable_ : config_.num_blocks);
  }
  void add(const SweepPiece& piece) {
    if (fits(piece)) {
      most_blocks_ = std::max(most_blocks_, blocks_of(piece));
      const bool shares = piece.prompts < piece.decoding && piece.context > config_.block_size;
      if (shares && piece.decoding / piece.prompts > sharing_.decoding / std::max(sharing_.prompts, 1U)) {
        sharing_ = piece;
      }
      pieces_.push_back(piece);
    } else if (piece.chunk > 0) {
      chunk_left_out_ = std::min(chunk_left_out_, piece.chunk);
    } else {
      least_left_out_ = std::min(least_left_out_, piece.decoding);
    }
  }

  /// Distinct prompts as far as they are quickly computed; beyond, a prompt has several answers.
  SweepPiece with_context(SweepPiece piece, uint32_t context) const {
    piece.context = context;
    piece.prompts = std::clamp(kTokensOfAPiece / context, 1U, piece.decoding);
    return piece;
  }
  /// With contexts as long as wanted, or as the pool holds.
  SweepPiece decode(uint32_t count, uint32_t wanted) {
    const uint32_t asked = std::clamp(wanted, 1U, longest_ - kSteps);
    SweepPiece piece = with_context({.decoding = count, .steps = kSteps}, asked);
    while (piece.context > 1 && !fits(piece)) {
      piece = with_context(piece, piece.context - (piece.context + 3) / 4);
    }
    if (piece.context < asked && fits(piece) && asked >= shortened_asked_) {
      shortened_asked_ = asked;
      shortened_ = piece;
    }
    return sharing_less(piece);
  }
  /// With more distinct prompts, as far as the pool and own_tokens_ allow.
  SweepPiece sharing_less(SweepPiece piece) const {
    const uint64_t most = std::min<uint64_t>(piece.decoding, own_tokens_ / piece.context);
    while (piece.prompts < most) {
      ++piece.prompts;
      if (fits(piece)) continue;
      --piece.prompts;
      break;
    }
    return piece;
  }
  /// With as many sequences as the pool holds beside the chunks.
  SweepPiece mixed(uint32_t wanted, uint32_t most_context, uint32_t chunk) const {
    const uint32_t context = std::min(most_context, longest_ - kSteps - 1);
    const uint32_t steps = std::min(3 * kSteps, longest_ - context);
    SweepPiece piece{.decoding = std::max(1U, wanted), .steps = steps, .chunk = chunk, .chunks = 3};
    piece = with_context(piece, context);
    while (piece.decoding > 1 && !fits(piece)) {
      piece.decoding /= 2;
      piece = with_context(piece, context);
    }
    return sharing_less(piece);
  }

  /// So many sequences whose prompts just fit, and which then grow beyond the pool. The first ones grow while
  /// the prompts of the last are computed.
  std::optional<SweepPiece> fill(uint32_t count) const {
    const uint64_t block = config_.block_size;
    const auto share = static_cast<uint32_t>(usable_ / count);
    const uint64_t alone = control::longest_sequence(config_.kv_windows, share, config_.block_size, longest_);
    const uint64_t meanwhile = count * alone / config_.max_num_batched_tokens + count;
    if (alone < meanwhile + block || held(alone) > config_.num_host_blocks) return std::nullopt;
    const uint64_t prompt = alone - meanwhile;
    const uint64_t left = config_.num_blocks - std::min<uint64_t>(config_.num_blocks, count * held(prompt));
    const uint64_t steps = (left / (count * config_.kv_windows.size()) + 3) * block + meanwhile;
    if (prompt + steps > longest_) return std::nullopt;
    return SweepPiece{.decoding = count,
                      .context = static_cast<uint32_t>(prompt),
                      .prompts = count,
                      .steps = static_cast<uint32_t>(steps),
                      .swaps = true};
  }

  const control::SchedulerConfig& config_;
  const uint32_t longest_;
  const uint64_t own_tokens_;
  uint64_t usable_ = 0;  // blocks, below the watermark
  std::vector<SweepPiece> pieces_;
  uint64_t most_blocks_ = 0;
  SweepPiece sharing_;    // see sharing()
  SweepPiece shortened_;  // of those with the longest contexts, the one with most sequences
  uint32_t shortened_asked_ = 0;
  uint32_t least_left_out_ = UINT32_MAX;  // sequences
  uint32_t chunk_left_out_ = UINT32_MAX;  // the shortest
};

std::string summary_of(const std::vector<SweepPiece>& pieces, double round_seconds) {
  SweepPiece most;
  uint32_t swapping = 0;
  for (const SweepPiece& piece : pieces) {
    most.chunk = std::max(most.chunk, piece.chunk);
    if (piece.swaps) {
      ++swapping;
      continue;
    }
    most.decoding = std::max(most.decoding, piece.decoding);
    most.context = std::max(most.context, piece.context);
  }
  return fmt::format(
      "1 to {} sequences that decode, with up to {} tokens before; prompts of 2 to {} tokens; {}; "
      "about {:.0f} s a round",
      most.decoding, with_commas(most.context), with_commas(most.chunk),
      swapping > 0 ? "blocks moved to the host and back" : "no swaps", std::max(1.0, round_seconds));
}

/// How many tokens of prompts a piece may have: all that its sequences can have, if a round of that leaves
/// time for others.
uint64_t own_tokens(const control::SchedulerConfig& config, uint32_t longest, double seconds) {
  uint64_t tokens = uint64_t{config.max_num_seqs} * longest;
  for (; tokens > kTokensOfAPiece; tokens /= 2) {
    Planner planner(config, longest, tokens);
    double round = 0;
    for (const SweepPiece& piece : planner.pieces()) round += planner.seconds_of(piece);
    if (round <= seconds / kLeastRounds) break;
  }
  return tokens;
}

SweepPlan plan_for(const control::SchedulerConfig& config, uint32_t longest, double seconds) {
  Planner planner(config, longest, own_tokens(config, longest, seconds));
  SweepPlan plan{.pieces = planner.pieces(), .summary = {}, .notes = {}};
  const bool decodes =
      std::ranges::any_of(plan.pieces, [](const SweepPiece& each) { return each.decoding > 0; });
  if (!decodes || plan.pieces.back().chunk != longest - 2) {
    throw Error(
        fmt::format("calibrate: a pool of {} blocks is too small to measure with: at least {}, for a "
                    "sequence of {} tokens (--num-blocks, --kv-cache-memory)",
                    with_commas(config.num_blocks), with_commas(blocks_for_sweep(config, longest, 0)),
                    with_commas(longest)));
  }
  for (const SweepPiece& piece : plan.pieces) plan.round_seconds += planner.seconds_of(piece);
  if (const std::string limited = planner.limited(); !limited.empty()) {
    plan.notes.push_back(fmt::format("{}: the pool has {} blocks (--num-blocks, --kv-cache-memory)", limited,
                                     with_commas(config.num_blocks)));
  }
  if (const SweepPiece& of = planner.sharing(); of.decoding > 0) {
    plan.notes.push_back(fmt::format(
        "{} sequences share {} of {} tokens, whose K/V a processor may find in its caches: their steps are "
        "then measured too short; more --num-blocks or --seconds give more sequences a prompt of their own",
        of.decoding, of.prompts == 1 ? "a prompt" : fmt::format("{} prompts", of.prompts),
        with_commas(of.context)));
  }
  std::string why;
  const std::vector<SweepPiece> swaps = planner.swaps(why);
  double for_swaps = 0;
  for (const SweepPiece& piece : swaps) for_swaps += planner.seconds_of(piece);
  if (for_swaps > kPartForSwaps * std::max(seconds, plan.round_seconds)) {
    why = fmt::format(
        "filling the pool of {} blocks takes {:.0f} s a round; give fewer --num-blocks, or more "
        "--seconds",
        with_commas(config.num_blocks), for_swaps);
  }
  if (why.empty()) {
    plan.pieces.insert(plan.pieces.end(), swaps.begin(), swaps.end());
    plan.round_seconds += for_swaps;
  } else {
    plan.notes.push_back("what moving a block costs is not measured: " + why);
  }
  plan.summary = summary_of(plan.pieces, plan.round_seconds);
  return plan;
}

}  // namespace

SweepPlan plan_sweep(const control::SchedulerConfig& config, double seconds, bool may_shorten) {
  if (config.max_model_len < kLeastLength) {
    throw Error(
        fmt::format("calibrate: sequences of {} tokens are too short to measure: at least {} "
                    "(--max-model-len, --num-blocks)",
                    config.max_model_len, kLeastLength));
  }
  uint32_t longest = may_shorten ? std::min(config.max_model_len, kUsualLongest) : config.max_model_len;
  SweepPlan plan = plan_for(config, longest, seconds);
  while (may_shorten && plan.round_seconds > seconds && longest > kShortEnough) {
    longest = std::max(kShortEnough, longest / 2);
    plan = plan_for(config, longest, seconds);
  }
  if (longest < config.max_model_len) {
    plan.notes.insert(
        plan.notes.begin(),
        fmt::format(
            "sequences have up to {} tokens, not {}, so that a round does not take longer: beyond, times "
            "will be extrapolated; --max-model-len {} measures them",
            with_commas(longest), with_commas(config.max_model_len), config.max_model_len));
  }
  if (plan.round_seconds > seconds) {
    plan.notes.push_back(fmt::format(
        "that is longer than --seconds {:g}, and each kind of step is measured once at least; fewer "
        "--max-num-seqs or a shorter --max-model-len take less",
        seconds));
  }
  return plan;
}

uint64_t blocks_for_sweep(control::SchedulerConfig config, uint32_t longest, uint64_t own_tokens) {
  const auto blocks_with = [&](uint64_t tokens) {
    config.num_blocks = INT32_MAX;
    Planner planner(config, longest, tokens);
    planner.pieces();
    const uint64_t blocks = planner.most_blocks() + 2;
    return blocks + blocks * config.watermark_bp / (10'000 - std::min(9'000U, config.watermark_bp)) + 1;
  };
  const uint64_t least = blocks_with(0);
  uint64_t blocks = std::clamp<uint64_t>(blocks_with(own_tokens), least, INT32_MAX);
  if (config.preemption == control::PreemptionKind::kRecompute) return blocks;
  // The first sequences grow while the prompts of the last are computed, so a small budget fills least.
  config.max_num_batched_tokens = std::min(config.max_num_batched_tokens, 2 * config.max_num_seqs);
  for (; blocks > least; blocks -= std::min(blocks - least, blocks / 16 + 1)) {
    config.num_blocks = config.num_host_blocks = static_cast<uint32_t>(blocks);
    std::string why;
    if (!Planner(config, longest, 0).swaps(why).empty()) break;
  }
  return blocks;
}

}  // namespace quire::cli
