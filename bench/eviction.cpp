// What each eviction policy keeps: hit rates of the prefix cache on a recorded trace and on drawn ones,
// request after request without a scheduler, and what a policy costs per block. See
// docs/measurements/eviction.md.
//
//   bench_eviction [--trace FILE] [--part mooncake|zipf|touch] [--json FILE]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "control/kv/block_table.h"

namespace quire {
namespace {

constexpr uint32_t kCapacities[] = {1000, 3000, 10000, 30000};  // blocks
constexpr size_t kLookAhead = 32;  // how many of the next requests wait, for queue-lru
constexpr uint32_t kNumPolicies = std::size(control::kEvictionNames);

/// Requests in order of arrival; a request is the numbers of its blocks, which have block_size tokens each.
/// Equal numbers have equal prefixes, so a number always comes after the same one.
struct Workload {
  uint32_t block_size = 0;
  std::vector<std::vector<int32_t>> requests;
};

struct Hits {
  uint64_t blocks = 0;
  uint64_t hit = 0;
  double cost =
      0;  // of computing all, a token costing 1 + position / 32,768 (as policies `cost` and `gdf` have it)
  double saved = 0;

  double hit_rate() const { return static_cast<double>(hit) / static_cast<double>(blocks); }
  double cost_saved() const { return saved / cost; }
};

/// Every token of a block is its number; a last token of its own, because a hit leaves one to compute.
std::vector<TokenId> tokens_of(const Workload& workload, size_t request) {
  std::vector<TokenId> tokens;
  tokens.reserve(workload.requests[request].size() * workload.block_size + 1);
  for (const int32_t id : workload.requests[request]) tokens.insert(tokens.end(), workload.block_size, id);
  tokens.push_back(-1);
  return tokens;
}

void count(const Workload& workload, size_t request, uint32_t hit, Hits& hits) {
  const auto num_blocks = static_cast<uint32_t>(workload.requests[request].size());
  hits.blocks += num_blocks;
  hits.hit += hit;
  for (uint32_t i = 0; i < num_blocks; ++i) {
    const double cost = 1.0 + i * workload.block_size / 32768.0;
    hits.cost += cost;
    if (i < hit) hits.saved += cost;
  }
}

/// Each request takes the blocks of its prefix that are there, publishes the others, and lets all go before
/// the next one comes.
Hits replay(const Workload& workload, control::EvictionKind kind, uint32_t capacity,
            size_t look_ahead = kLookAhead) {
  const uint32_t size = workload.block_size;
  control::BlockPool pool(control::PrefixCache(capacity, size, control::make_eviction(kind, capacity)));
  const bool looks_ahead = kind == control::EvictionKind::kQueueLru;
  const auto want = [&](size_t request, int32_t more) {
    if (looks_ahead && request < workload.requests.size()) pool.want(tokens_of(workload, request), 0, more);
  };
  for (size_t i = 0; i < look_ahead; ++i) want(i, 1);
  Hits hits;
  std::vector<control::BlockCopy> copies;
  control::Prefix prefix;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    want(i, -1);
    want(i + look_ahead, 1);
    const auto tokens = tokens_of(workload, i);
    const auto num_blocks = static_cast<uint32_t>(workload.requests[i].size());
    pool.cache().match(tokens, 0, prefix);
    count(workload, i, prefix.num_rows, hits);
    control::BlockTable table;
    table.share(pool, prefix);
    for (uint32_t row = prefix.num_rows; row < num_blocks; ++row) {
      table.prepare_write(pool, row * size, size, copies);
      table.publish(pool, row, std::span(tokens).subspan(size_t{row} * size, size), 0);
    }
    table.clear(pool);
  }
  return hits;
}

/// Belady's MIN on the sequence of blocks, with the choice not to keep a block at all: what is needed again
/// last (and of that the deepest) goes. No policy hits more blocks, whatever it knows: each is a way to page
/// this sequence, and a block that is hit in the middle of a chain counts only here. The rule respects chains
/// by itself, as who needs a block needs those before it; it does not know that a request's own blocks are
/// held while it runs.
Hits clairvoyant(const Workload& workload, uint32_t capacity) {
  using Use = std::pair<size_t, size_t>;  // the next request that needs it, its depth
  constexpr size_t kNever = SIZE_MAX;
  std::vector<std::vector<size_t>> next(workload.requests.size());  // by request and block
  std::unordered_map<int32_t, size_t> later;
  for (size_t i = workload.requests.size(); i-- > 0;) {
    for (const int32_t id : workload.requests[i]) {
      const auto [place, is_new] = later.try_emplace(id, i);
      next[i].push_back(is_new ? kNever : std::exchange(place->second, i));
    }
  }
  std::unordered_map<int32_t, Use> kept;
  std::set<std::pair<Use, int32_t>> by_use;
  Hits hits;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    uint32_t hit = 0;
    for (size_t row = 0; row < workload.requests[i].size(); ++row) {
      const int32_t id = workload.requests[i][row];
      const auto found = kept.find(id);
      if (found != kept.end()) {
        ++hit;
        by_use.erase({found->second, id});
        kept.erase(found);
      }
      if (next[i][row] == kNever) continue;
      const Use use{next[i][row], row};
      kept.emplace(id, use);
      by_use.insert({use, id});
      if (kept.size() <= capacity) continue;
      kept.erase(by_use.rbegin()->second);
      by_use.erase(std::prev(by_use.end()));
    }
    count(workload, i, hit, hits);
  }
  return hits;
}

Workload read_mooncake(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(fmt::format("{}: cannot be read (--trace FILE)", path));
  Workload workload{.block_size = 512, .requests = {}};
  std::unordered_map<int32_t, int32_t> parents;
  for (std::string line; std::getline(file, line);) {
    const auto row = parse_json(line, path);
    auto& request = workload.requests.emplace_back();
    for (const auto& id : row.as_object().at("hash_ids").as_array()) {
      const auto number = static_cast<int32_t>(id.as_int64());
      const int32_t parent = request.empty() ? -1 : request.back();
      if (parents.try_emplace(number, parent).first->second != parent) {
        throw Error(fmt::format("{}: block {} has two predecessors", path, number));
      }
      request.push_back(number);
    }
  }
  return workload;
}

/// 20,000 requests: one of 4,000 prefixes of 16 blocks, drawn by Zipf's law, and 4 blocks of its own.
Workload draw_zipf(double alpha) {
  constexpr int32_t kPrefixes = 4000, kBlocks = 16, kOwn = 4;
  std::vector<double> below(kPrefixes);
  double total = 0;
  for (int32_t i = 0; i < kPrefixes; ++i) below[static_cast<size_t>(i)] = total += std::pow(i + 1, -alpha);
  SplitMix64 random(1);
  Workload workload{.block_size = 16, .requests = {}};
  int32_t fresh = kPrefixes * kBlocks;
  for (int i = 0; i < 20000; ++i) {
    const double where = unit_interval(random.next()) * total;
    const auto prefix = static_cast<int32_t>(std::ranges::upper_bound(below, where) - below.begin());
    auto& request = workload.requests.emplace_back();
    for (int32_t block = 0; block < kBlocks; ++block) request.push_back(prefix * kBlocks + block);
    for (int32_t block = 0; block < kOwn; ++block) request.push_back(fresh++);
  }
  return workload;
}

/// A table of hit rates, a column a capacity, and of the recomputation that they save.
json::array hit_rates(const std::string& title, const Workload& workload) {
  json::array out;
  fmt::print("\n{}\n\n| policy |", title);
  for (const uint32_t capacity : kCapacities) fmt::print(" {} |", capacity);
  fmt::print("\n|---|{}\n", "---|---|---|---|");
  const auto row = [&](std::string_view policy, const auto& measure) {
    fmt::print("| {} |", policy);
    for (const uint32_t capacity : kCapacities) {
      const Hits hits = measure(capacity);
      fmt::print(" {:.2f} ({:.2f}) |", 100 * hits.hit_rate(), 100 * hits.cost_saved());
      out.push_back(json::object{{"policy", policy},
                                 {"blocks", capacity},
                                 {"hit_rate", hits.hit_rate()},
                                 {"cost_saved", hits.cost_saved()}});
    }
    fmt::print("\n");
    std::fflush(stdout);
  };
  for (uint32_t i = 0; i < kNumPolicies; ++i) {
    const auto kind = static_cast<control::EvictionKind>(i);
    row(control::name(kind), [&](uint32_t capacity) { return replay(workload, kind, capacity); });
  }
  for (const size_t look_ahead : {size_t{8}, size_t{128}, size_t{512}}) {
    row(fmt::format("queue-lru, {} wait", look_ahead), [&](uint32_t capacity) {
      return replay(workload, control::EvictionKind::kQueueLru, capacity, look_ahead);
    });
  }
  row("clairvoyant", [&](uint32_t capacity) { return clairvoyant(workload, capacity); });
  row("unbounded", [&](uint32_t) { return clairvoyant(workload, UINT32_MAX); });
  return out;
}

/// Nanoseconds of processor time a block: to hit it and let it go again, in chains of 8; and to evict one and
/// put in another.
json::array touches() {
  constexpr uint32_t kChain = 8, kTouches = 400'000;
  json::array out;
  fmt::print(
      "\nns a block: hit and let go; evict and put in\n\n| policy | 1000 | 10000 | 100000 | 1000000 |\n");
  fmt::print("|---|---|---|---|---|\n");
  for (uint32_t i = 0; i < kNumPolicies; ++i) {
    const auto kind = static_cast<control::EvictionKind>(i);
    fmt::print("| {} |", control::name(kind));
    for (const uint32_t num_blocks : {1000U, 10'000U, 100'000U, 1'000'000U}) {
      const auto policy = control::make_eviction(kind, num_blocks);
      const auto hit = [&](uint32_t chain) {
        for (uint32_t d = 0; d < kChain; ++d) {
          const BlockId block = chain * kChain + d;
          policy->use({block, d == 0 ? kNoBlock : block - 1, mix64(block), uint64_t{d} * 16});
        }
        for (uint32_t d = kChain; d-- > 0;) policy->idle(chain * kChain + d);
      };
      for (uint32_t chain = 0; chain < num_blocks / kChain; ++chain) hit(chain);
      SplitMix64 random(1);
      const auto start = std::clock();
      for (uint32_t t = 0; t < kTouches / kChain; ++t) {
        hit(static_cast<uint32_t>(random.below(num_blocks / kChain)));
      }
      const auto middle = std::clock();
      for (uint32_t t = 0; t < kTouches; ++t) {
        const BlockId block = policy->victim();
        policy->remove(block);
        policy->use({block, kNoBlock, mix64(num_blocks + t), 0});
        policy->idle(block);
      }
      const auto nanos = [](std::clock_t begin, std::clock_t end) {
        return static_cast<double>(end - begin) * (1e9 / CLOCKS_PER_SEC / kTouches);
      };
      const double hit_ns = nanos(start, middle);
      const double evict_ns = nanos(middle, std::clock());
      fmt::print(" {:.0f}; {:.0f} |", hit_ns, evict_ns);
      out.push_back(json::object{{"policy", control::name(kind)},
                                 {"blocks", num_blocks},
                                 {"hit_ns", hit_ns},
                                 {"evict_ns", evict_ns}});
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return out;
}

void run(int argc, char** argv) {
  const char* data = std::getenv("QUIRE_DATA");
  std::string trace =
      fmt::format("{}/traces-mooncake/conversation_trace.jsonl", data != nullptr ? data : "../shared/data");
  std::string part;
  std::string json_path;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) throw Error(fmt::format("{}: wants a value", flag));
    if (flag != "--trace" && flag != "--part" && flag != "--json")
      throw Error(fmt::format("{}: no such flag", flag));
    (flag == "--trace" ? trace : flag == "--part" ? part : json_path) = argv[i + 1];
  }
  json::object out;
  fmt::print("hit rate in percent of the blocks (share of the cost of computing them that is saved)\n");
  if (part.empty() && !std::filesystem::exists(trace)) {
    fmt::print("{} is absent: left out\n", trace);
  } else if (part.empty() || part == "mooncake") {
    out["mooncake"] = hit_rates("Mooncake conversation trace, blocks of 512 tokens", read_mooncake(trace));
  }
  if (part.empty() || part == "zipf") {
    for (const double alpha : {0.8, 1.0, 1.5}) {
      out[fmt::format("zipf_{}", alpha)] =
          hit_rates(fmt::format("Zipf prefixes, alpha {}, blocks of 16 tokens", alpha), draw_zipf(alpha));
    }
  }
  if (part.empty() || part == "touch") out["touch"] = touches();
  if (!json_path.empty()) std::ofstream(json_path) << json::serialize(out) << '\n';
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    quire::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_eviction: {}\n", error.what());
    return 1;
  }
}
