#include "sim/eviction_bound.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/rng.h"
#include "sim/workload.h"

namespace quire::sim {
namespace {

constexpr uint32_t kNeverAgain = UINT32_MAX;

/// Of the first `tokens` tokens of a prompt.
double work_of(uint64_t tokens) {
  const auto count = static_cast<double>(tokens);
  return count + count * count / 2 / static_cast<double>(EvictionBound::kAttention);
}

}  // namespace

EvictionBound::EvictionBound(const Simulation& simulation)
    : simulation_(simulation),
      block_size_(simulation.scheduler().config().block_size),
      prompts_(simulation.num_requests()) {}

void EvictionBound::arrived(const SimulatedRequest& of, std::span<const TokenId> prompt) {
  prompts_[of.number].length = of.request.prompt_length;
  std::vector<uint64_t>& chain = prompts_[of.number].chain;
  chain.reserve(prompt.size() / block_size_);
  uint64_t hash = 0;
  for (size_t at = 0; at + block_size_ <= prompt.size(); at += block_size_) {
    for (const TokenId token : prompt.subspan(at, block_size_)) {
      hash = mix64(hash ^ (static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1));
    }
    chain.push_back(hash);
  }
}

void EvictionBound::use(size_t request, bool is_lookup) {
  const auto count = static_cast<uint32_t>(prompts_[request].chain.size());
  uses_.push_back({static_cast<uint32_t>(request), 0, count, is_lookup});
}

void EvictionBound::admitted(size_t request) { use(request, true); }

void EvictionBound::admitted_again(size_t request, uint32_t choice, Nanos /*now*/) {
  if (choice == 0) use(request, false);  // it computes what it does not find, and publishes it
}

/// Blocks with tokens of its answer are hit by the next turn of its conversation alone, which begins with
/// them.
void EvictionBound::finished(const SimulatedRequest& of) {
  prompts_work_ += work_of(of.request.prompt_length);
  saved_work_ += work_of(of.record.cached_tokens);
  const std::optional<size_t> next = simulation_.next_turn(of.number);
  if (!next) return;
  const uint32_t computed =
      of.request.prompt_length + of.request.output_length - 1;  // but for the last token
  uses_.push_back(
      {static_cast<uint32_t>(*next), of.request.prompt_length / block_size_, computed / block_size_, false});
}

/// For each block of each use the number of the use that needs it next.
std::vector<uint32_t> EvictionBound::next_uses() const {
  size_t total = 0;
  for (const Use& use : uses_) total += use.end - use.begin;
  std::vector<uint32_t> next(total);
  std::unordered_map<uint64_t, uint32_t> later;
  size_t place = total;
  for (size_t i = uses_.size(); i-- > 0;) {
    const Use& use = uses_[i];
    for (uint32_t row = use.end; row-- > use.begin;) {
      --place;
      const std::vector<uint64_t>& chain = prompts_[use.request].chain;
      if (row >= chain.size()) {  // the next turn never came
        next[place] = kNeverAgain;
        continue;
      }
      const auto [found, is_new] = later.try_emplace(chain[row], static_cast<uint32_t>(i));
      next[place] = is_new ? kNeverAgain : std::exchange(found->second, static_cast<uint32_t>(i));
    }
  }
  return next;
}

uint64_t EvictionBound::best(uint32_t num_blocks, const std::vector<uint32_t>& next,
                             uint32_t least_depth) const {
  using Key = std::tuple<uint32_t, uint32_t, uint64_t>;  // the next use, the depth, the block
  std::unordered_map<uint64_t, Key> kept;
  std::set<Key> by_use;
  uint64_t hits = 0;
  size_t place = 0;
  for (const Use& use : uses_) {
    const auto& [length, chain] = prompts_[use.request];
    for (uint32_t row = use.begin; row < use.end; ++row, ++place) {
      if (row < least_depth || row >= chain.size()) continue;
      const auto found = kept.find(chain[row]);
      if (found != kept.end()) {
        // At least one token of a prompt is computed.
        hits += use.is_lookup && uint64_t{row + 1} * block_size_ < length ? 1 : 0;
        by_use.erase(found->second);
        kept.erase(found);
      }
      if (next[place] == kNeverAgain) continue;
      const Key key{next[place], row, chain[row]};
      kept.emplace(chain[row], key);
      by_use.insert(key);
      if (kept.size() <= num_blocks) continue;
      kept.erase(std::get<uint64_t>(*by_use.rbegin()));
      by_use.erase(std::prev(by_use.end()));
    }
  }
  return hits;
}

EvictionBound::Work EvictionBound::work(uint32_t num_blocks) const {
  Work out{.prompts = prompts_work_, .saved = saved_work_};
  size_t deepest = 0;
  for (const Prompt& prompt : prompts_) deepest = std::max(deepest, prompt.chain.size());
  const std::vector<uint32_t> next = next_uses();
  double before = 0;  // what a block of the depths before saves at most
  for (uint64_t depth = 0; depth < deepest;) {
    const uint64_t end = depth + std::max<uint64_t>(1, depth / 8);
    const double each = work_of(end * block_size_) - work_of((end - 1) * block_size_);
    out.saveable +=
        (each - before) * static_cast<double>(best(num_blocks, next, static_cast<uint32_t>(depth)));
    before = each;
    depth = end;
  }
  return out;
}

}  // namespace quire::sim
