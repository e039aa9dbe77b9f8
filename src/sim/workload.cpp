#include "sim/workload.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "sim/generated_requests.h"
#include "sim/service_draws.h"
#include "sim/workload_streams.h"

namespace quire::sim {
namespace {

constexpr uint32_t kMostUsers = 10'000'000;

/// Token i is a hash of `key` and i. A long trace makes its prompts twice, so this is a large part of a
/// simulation: in 32 bits, of which compilers make vector code (lowbias32, Wellons 2018, with the key's other
/// half added between its rounds).
void append_tokens(std::vector<TokenId>& out, uint64_t key, uint32_t first, uint32_t count,
                   uint32_t vocab_size) {
  const size_t before = out.size();
  out.resize(before + count);
  TokenId* const token = out.data() + before;
  const auto low = static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(key >> 32);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t x = first + i + low;
    x = (x ^ (x >> 16)) * 0x7feb352dU + high;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    x ^= x >> 16;
    token[i] = static_cast<TokenId>(uint64_t{x} * vocab_size >> 32);
  }
}

}  // namespace

std::vector<TokenId> prompt_of(const WorkloadSettings& settings, size_t number, const SimRequest& request,
                               uint32_t history_length, std::span<const TokenId> history) {
  std::vector<TokenId> tokens;
  tokens.reserve(size_t{request.prompt_length} + request.output_length);  // the answer is added to it
  for (const uint64_t piece : request.pieces) {
    const auto left = static_cast<uint32_t>(request.prompt_length - tokens.size());
    append_tokens(tokens, keyed_random(settings.seed, kPiece, piece), 0,
                  std::min(settings.piece_length, left), settings.vocab_size);
  }
  uint32_t own = request.prompt_length - static_cast<uint32_t>(tokens.size());
  if (request.continues) {
    own = request.prompt_length - history_length;
    tokens.assign(history.begin(), history.end());
  }
  append_tokens(tokens, keyed_random(settings.seed, kOwnTokens, number), static_cast<uint32_t>(tokens.size()),
                own, settings.vocab_size);
  return tokens;
}

std::vector<TokenId> Workload::prompt(size_t index, std::span<const TokenId> history) const {
  const SimRequest& request = requests[index];
  uint32_t history_length = 0;
  if (request.continues) {
    const SimRequest& before = requests[request.follows];
    history_length = before.prompt_length + before.output_length;
  }
  return prompt_of(*this, index, request, history_length, history);
}

void assign_service(Workload& workload, const ServiceConfig& config) {
  const ServiceDraws draws(config);
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    SimRequest& request = workload.requests[i];
    const SimRequest* before = request.continues ? &workload.requests[request.follows] : nullptr;
    const Service service =
        before == nullptr ? draws.draw(i) : Service{before->tenant, before->priority, before->ttft_deadline};
    if (!workload.has_tenants) request.tenant = service.tenant;
    if (!workload.has_priorities) request.priority = service.priority;
    if (!workload.has_deadlines) request.ttft_deadline = service.ttft_deadline;
  }
}

Nanos TimesConfig::think_time(uint32_t number) const {
  if (!think_ms) return 0;
  SplitMix64 random(keyed_random(seed, kThinkTimes, number));
  return think_ms->draw(random) * kNanosPerMillisecond;
}

void TimesConfig::check() const {
  if (users > kMostUsers) throw Error(fmt::format("workload: {} users, not up to {}", users, kMostUsers));
}

void give_times(Workload& workload, const TimesConfig& config) {
  config.check();
  TimesConfig times = config;
  times.seed = workload.seed;
  ArrivalTimes arrivals(times);
  std::vector<uint32_t> last_of(config.users, kNoRequest);  // by user
  size_t user = 0;
  size_t conversations = 0;
  for (uint32_t i = 0; i < workload.requests.size(); ++i) {
    SimRequest& request = workload.requests[i];
    if (request.continues) {
      request.think = times.think_time(i);
    } else if (config.users == 0) {
      request.arrival = arrivals.next();
    } else {
      user = conversations++ % config.users;
      request.follows = last_of[user];
      request.think = times.think_time(i);
      request.arrival = request.follows == kNoRequest ? request.think : 0;
    }
    if (config.users > 0) last_of[user] = i;
  }
  workload.has_times = true;
}

Workload make_workload(const WorkloadConfig& config) {
  GeneratedRequests requests(config);
  return listed(requests);
}

}  // namespace quire::sim
