#include "sim/generated_requests.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "sim/workload_streams.h"

namespace quire::sim {
namespace {

constexpr uint32_t kMostInConversation = UINT32_MAX / 4 * 3;  // so that another turn fits 32 bits
constexpr uint32_t kConversationsPerStart = 64;               // of so many conversations, one start

const WorkloadConfig& checked_workload(const WorkloadConfig& config) {
  if (config.vocab_size == 0 || config.vocab_size > INT32_MAX) {
    throw Error(fmt::format("workload: a vocabulary of {}", config.vocab_size));
  }
  if (config.num_prefixes == 0 || config.num_prefixes > 10'000'000) {
    throw Error(fmt::format("workload: {} shared prefixes, not 1 to 10000000", config.num_prefixes));
  }
  if (config.prefix_length > kMaxLength) {
    throw Error(fmt::format("workload: a shared prefix of {} tokens", config.prefix_length));
  }
  config.check();
  return config;
}

WorkloadSettings settings_of(const WorkloadConfig& config) {
  return {.seed = config.seed,
          .vocab_size = config.vocab_size,
          .piece_length = config.prefix_length,
          .choices = config.choices,
          .lengths_known = config.lengths_known,
          .notes = {}};
}

void check_length(const SimRequest& request) {
  if (uint64_t{request.prompt_length} + request.output_length > kMostInConversation) {
    throw Error(fmt::format("workload: a conversation of more than {} tokens", kMostInConversation));
  }
}

/// Whether a conversation could be too long.
bool may_be_too_long(const WorkloadConfig& config) {
  const uint64_t prompt = std::max(config.prompt.most(), config.turn_prompt.value_or(config.prompt).most());
  const uint64_t turn = prompt + config.output.most();
  return config.prefix_length + turn > kMostInConversation / config.turns.most();
}

}  // namespace

ConversationStarts::ConversationStarts(uint64_t seed, const Lengths& turns, uint32_t num_requests)
    : seed_(seed), turns_(turns), num_requests_(num_requests), every_64th_{0} {}

uint32_t ConversationStarts::turns_from(uint32_t start) const {
  SplitMix64 random(keyed_random(seed_, kTurns, start));
  return turns_.draw(random);
}

uint32_t ConversationStarts::of(uint64_t conversation) {
  if (turns_.kind == Lengths::Kind::kFixed) {
    return static_cast<uint32_t>(std::min<uint64_t>(conversation * turns_.low, num_requests_));
  }
  const uint64_t kept = std::min<uint64_t>(conversation / kConversationsPerStart, every_64th_.size() - 1);
  Known at{kept * kConversationsPerStart, every_64th_[kept]};
  if (last_.conversation <= conversation && last_.conversation > at.conversation) at = last_;
  while (at.conversation < conversation && at.start < num_requests_) {
    at.start += turns_from(static_cast<uint32_t>(at.start));
    ++at.conversation;
    if (at.start < num_requests_ && at.conversation == every_64th_.size() * kConversationsPerStart) {
      every_64th_.push_back(static_cast<uint32_t>(at.start));
    }
  }
  if (at.start >= num_requests_) return num_requests_;
  last_ = at;
  return static_cast<uint32_t>(at.start);
}

GeneratedRequests::GeneratedRequests(const WorkloadConfig& config)
    : RequestStream(settings_of(config)),
      config_(checked_workload(config)),
      prefixes_(config.num_prefixes, config.zipf_thousandths),
      times_(config),
      starts_(config.seed, config.turns, config.num_requests) {
  if (config.service) service_.emplace(*config.service);
  for (uint32_t user = 0; user < config.users; ++user) {
    const uint32_t start = starts_.of(user);
    if (start >= config.num_requests) break;
    first_sends_.emplace_back(config_.think_time(start), user);
  }
  std::sort(first_sends_.begin(), first_sends_.end());
  if (!may_be_too_long(config)) return;
  for (uint64_t i = 0; std::optional<NumberedRequest> turn = begin(i); ++i) {  // now rather than in a run
    while (turn->turns_left > 0 && turn->number + 1 < config.num_requests) turn = next_turn(*turn);
  }
}

std::optional<NumberedRequest> GeneratedRequests::begin(uint64_t conversation) {
  const uint32_t start = starts_.of(conversation);
  if (start >= config_.num_requests) return std::nullopt;
  NumberedRequest out{.number = start, .conversation = static_cast<uint32_t>(conversation)};
  out.turns_left = starts_.turns_from(start) - 1;
  SplitMix64 random(keyed_random(config_.seed, kRequest, start));
  SimRequest& request = out.request;
  request.prompt_length = config_.prefix_length + config_.prompt.draw(random);
  request.output_length = config_.output.draw(random);
  if (config_.prefix_length > 0) request.pieces = {prefixes_.draw(random)};
  check_length(request);
  if (service_) {
    const Service service = service_->draw(start);
    request.tenant = service.tenant;
    request.priority = service.priority;
    request.ttft_deadline = service.ttft_deadline;
  }
  return out;
}

NumberedRequest GeneratedRequests::next_turn(const NumberedRequest& before) const {
  NumberedRequest out{
      .number = before.number + 1, .conversation = before.conversation, .turns_left = before.turns_left - 1};
  out.history_length = before.request.prompt_length + before.request.output_length;
  SplitMix64 random(keyed_random(config_.seed, kRequest, out.number));
  SimRequest& request = out.request;
  request.follows = before.number;
  request.continues = true;
  request.think = config_.think_time(out.number);
  request.prompt_length = out.history_length + config_.turn_prompt.value_or(config_.prompt).draw(random);
  request.output_length = config_.output.draw(random);
  request.tenant = before.request.tenant;
  request.priority = before.request.priority;
  request.ttft_deadline = before.request.ttft_deadline;
  check_length(request);
  return out;
}

RequestPtr GeneratedRequests::next_first() {
  std::optional<NumberedRequest> first;
  if (config_.users == 0) {
    first = begin(next_conversation_);
    if (!first) return nullptr;
    ++next_conversation_;
    first->request.arrival = times_.next();
  } else {
    if (next_send_ == first_sends_.size()) return nullptr;
    const auto [arrival, user] = first_sends_[next_send_++];
    first = begin(user);
    first->request.arrival = first->request.think = arrival;
  }
  return std::make_shared<const NumberedRequest>(std::move(*first));
}

RequestPtr GeneratedRequests::follower(const NumberedRequest& request) {
  if (request.turns_left > 0) {
    if (request.number + 1 == config_.num_requests) return nullptr;
    return std::make_shared<const NumberedRequest>(next_turn(request));
  }
  if (config_.users == 0) return nullptr;
  std::optional<NumberedRequest> next = begin(uint64_t{request.conversation} + config_.users);
  if (!next) return nullptr;
  next->request.follows = request.number;
  next->request.think = config_.think_time(next->number);
  return std::make_shared<const NumberedRequest>(std::move(*next));
}

}  // namespace quire::sim
