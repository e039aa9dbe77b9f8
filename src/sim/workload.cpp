#include "sim/workload.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "control/request.h"
#include "sim/fixed_point.h"
#include "sim/workload_streams.h"

namespace quire::sim {
namespace {

constexpr uint32_t kMostInConversation = UINT32_MAX / 4 * 3;  // so that another turn fits 32 bits
constexpr uint32_t kMostUsers = 10'000'000;

void append_tokens(std::vector<TokenId>& out, uint64_t key, uint32_t first, uint32_t count,
                   uint32_t vocab_size) {
  const size_t before = out.size();
  out.resize(before + count);
  TokenId* const token = out.data() + before;
  for (uint32_t i = 0; i < count; ++i) {
    token[i] = static_cast<TokenId>((mix64(key ^ (first + i)) >> 32) * vocab_size >> 32);
  }
}

/// Draws k in [0, n) in proportion to (k + 1)^-alpha.
class Zipf {
 public:
  Zipf(uint32_t n, uint32_t alpha_thousandths) {
    uint64_t sum = 0;
    for (uint32_t k = 1; k <= n; ++k) {
      const auto exponent = static_cast<int64_t>(int128{log2_q32(k)} * alpha_thousandths / 1000);
      sums_.push_back(sum += exp2_q32(-exponent) + 1);
    }
  }
  uint32_t draw(SplitMix64& random) const {
    const uint64_t at = random.below(sums_.back());
    return static_cast<uint32_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
  }

 private:
  std::vector<uint64_t> sums_;
};

void check(const WorkloadConfig& config) {
  if (config.vocab_size == 0 || config.vocab_size > INT32_MAX) {
    throw Error(fmt::format("workload: a vocabulary of {}", config.vocab_size));
  }
  if (config.num_prefixes == 0 || config.num_prefixes > 10'000'000) {
    throw Error(fmt::format("workload: {} shared prefixes, not 1 to 10000000", config.num_prefixes));
  }
  if (config.prefix_length > kMaxLength) {
    throw Error(fmt::format("workload: a shared prefix of {} tokens", config.prefix_length));
  }
}

}  // namespace

std::vector<TokenId> Workload::prompt(size_t index, std::span<const TokenId> history) const {
  const SimRequest& request = requests[index];
  std::vector<TokenId> tokens;
  tokens.reserve(request.prompt_length);
  for (const uint64_t piece : request.pieces) {
    const auto left = static_cast<uint32_t>(request.prompt_length - tokens.size());
    append_tokens(tokens, keyed_random(seed, kPiece, piece), 0, std::min(piece_length, left), vocab_size);
  }
  uint32_t own = request.prompt_length - static_cast<uint32_t>(tokens.size());
  if (request.continues) {
    const SimRequest& before = requests[request.follows];
    own = request.prompt_length - before.prompt_length - before.output_length;
    tokens.assign(history.begin(), history.end());
  }
  append_tokens(tokens, keyed_random(seed, kOwnTokens, index), static_cast<uint32_t>(tokens.size()), own,
                vocab_size);
  return tokens;
}

void assign_service(Workload& workload, const ServiceConfig& config) {
  if (config.num_tenants == 0 || config.num_tenants > 1'000'000 || config.num_priorities == 0 ||
      config.num_priorities > static_cast<uint32_t>(control::kMostPriority)) {
    throw Error(fmt::format("workload: {} tenants and {} priorities, not 1 to 1000000", config.num_tenants,
                            config.num_priorities));
  }
  const Zipf tenants(config.num_tenants, 1000);
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    SplitMix64 random(keyed_random(config.seed, kService, i));
    SimRequest& request = workload.requests[i];
    const SimRequest* before = request.continues ? &workload.requests[request.follows] : nullptr;
    const uint32_t tenant = tenants.draw(random);
    const auto priority = static_cast<int32_t>(random.below(config.num_priorities));
    const Nanos deadline = config.ttft_deadline_ms.draw(random) * kNanosPerMillisecond;
    if (!workload.has_tenants) request.tenant = before != nullptr ? before->tenant : tenant;
    if (!workload.has_priorities) request.priority = before != nullptr ? before->priority : priority;
    if (!workload.has_deadlines) request.ttft_deadline = before != nullptr ? before->ttft_deadline : deadline;
  }
}

void give_times(Workload& workload, const TimesConfig& config) {
  if (config.users > kMostUsers) {
    throw Error(fmt::format("workload: {} users, not up to {}", config.users, kMostUsers));
  }
  ArrivalConfig arrivals = config;
  arrivals.seed = workload.seed;
  ArrivalTimes times(arrivals);
  const auto think = [&](uint32_t index) -> Nanos {
    if (!config.think_ms) return 0;
    SplitMix64 random(keyed_random(workload.seed, kThinkTimes, index));
    return config.think_ms->draw(random) * kNanosPerMillisecond;
  };
  std::vector<uint32_t> last_of(config.users, kNoRequest);  // by user
  size_t user = 0;
  size_t conversations = 0;
  for (uint32_t i = 0; i < workload.requests.size(); ++i) {
    SimRequest& request = workload.requests[i];
    if (request.continues) {
      request.think = think(i);
    } else if (config.users == 0) {
      request.arrival = times.next();
    } else {
      user = conversations++ % config.users;
      request.follows = last_of[user];
      request.think = think(i);
      request.arrival = request.follows == kNoRequest ? request.think : 0;
    }
    if (config.users > 0) last_of[user] = i;
  }
  workload.has_times = true;
}

Workload make_workload(const WorkloadConfig& config) {
  check(config);
  Workload workload;
  workload.seed = config.seed;
  workload.vocab_size = config.vocab_size;
  workload.piece_length = config.prefix_length;
  const Zipf zipf(config.num_prefixes, config.zipf_thousandths);
  uint32_t turns_left = 0;
  for (uint32_t i = 0; i < config.num_requests; ++i) {
    SplitMix64 random(keyed_random(config.seed, kRequest, i));
    SimRequest request;
    if (turns_left == 0) {
      SplitMix64 own(keyed_random(config.seed, kTurns, i));
      turns_left = config.turns.draw(own);
      request.prompt_length = config.prefix_length + config.prompt.draw(random);
    } else {
      const SimRequest& before = workload.requests.back();
      request.follows = i - 1;
      request.continues = true;
      request.prompt_length = before.prompt_length + before.output_length +
                              config.turn_prompt.value_or(config.prompt).draw(random);
    }
    request.output_length = config.output.draw(random);
    if (!request.continues && config.prefix_length > 0) request.pieces = {zipf.draw(random)};
    if (uint64_t{request.prompt_length} + request.output_length > kMostInConversation) {
      throw Error(fmt::format("workload: a conversation of more than {} tokens", kMostInConversation));
    }
    --turns_left;
    workload.requests.push_back(std::move(request));
  }
  give_times(workload, config);
  return workload;
}

}  // namespace quire::sim
