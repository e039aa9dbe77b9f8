#include "sim/workload.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "control/request.h"
#include "sim/fixed_point.h"

namespace quire::sim {
namespace {

constexpr uint32_t kMaxLength = 1 << 30;
constexpr uint32_t kDefaultMost = 1 << 20;
constexpr Nanos kForever = INT64_MAX / 4;

// Streams of random numbers that must not meet.
enum Stream : uint64_t { kArrivals = 1, kRequest = 2, kPiece = 3, kOwnTokens = 4, kService = 5 };

std::optional<uint64_t> parse_whole(std::string_view text, uint64_t most) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

void append_tokens(std::vector<TokenId>& out, uint64_t key, uint32_t first, uint32_t count,
                   uint32_t vocab_size) {
  for (uint32_t i = first; i < first + count; ++i) {
    out.push_back(static_cast<TokenId>((mix64(key ^ i) >> 32) * vocab_size >> 32));
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

/// The times of a Poisson process and of bursts, merged.
class Arrivals {
 public:
  explicit Arrivals(const WorkloadConfig& config)
      : config_(config), random_(keyed_random(config.seed, kArrivals, 0)) {
    draw_next();
    if (has_bursts()) burst_at_ = config.burst_every;
  }

  Nanos next() {
    if (config_.rate_thousandths == 0 && !has_bursts()) return 0;
    if (burst_at_ <= single_at_) {
      const Nanos now = burst_at_;
      if (++in_burst_ == config_.burst) {
        in_burst_ = 0;
        burst_at_ += config_.burst_every;
      }
      return now;
    }
    const Nanos now = single_at_;
    draw_next();
    return now;
  }

 private:
  bool has_bursts() const { return config_.burst > 0 && config_.burst_every > 0; }
  void draw_next() {
    if (config_.rate_thousandths == 0) return;
    constexpr uint64_t kThousandSeconds = 1'000'000'000'000;
    const int128 mean = kThousandSeconds / config_.rate_thousandths;
    last_single_ += static_cast<Nanos>((mean * draw_exponential_q32(random_)) >> 32);
    single_at_ = last_single_;
  }

  const WorkloadConfig& config_;
  SplitMix64 random_;
  Nanos last_single_ = 0;
  Nanos single_at_ = kForever;
  Nanos burst_at_ = kForever;
  uint32_t in_burst_ = 0;
};

}  // namespace

uint64_t parse_thousandths(std::string_view text, std::string_view flag) {
  const auto parts = split(text, '.');
  const std::string_view decimals = parts.size() == 2 ? parts[1] : std::string_view("0");
  const auto whole = parse_whole(parts[0], 1'000'000'000);
  const auto fraction = parse_whole(decimals, 999);
  if (parts.size() > 2 || decimals.size() > 3 || !whole || !fraction) {
    throw Error(
        fmt::format("{}: '{}' is not a number from 0 to 1000000000 with at most three decimals", flag, text));
  }
  uint64_t thousandths = *fraction;
  for (size_t i = decimals.size(); i < 3; ++i) thousandths *= 10;
  return *whole * 1000 + thousandths;
}

Lengths Lengths::parse(std::string_view text, std::string_view flag) {
  const auto parts = split(text, ':');
  const auto fail = [&]() -> Error {
    return Error(
        fmt::format("{}: '{}' is not one of N, uniform:LOW:HIGH, lognormal:MEAN:SIGMA[:MOST], with "
                    "lengths from 1 to {} and SIGMA up to 10",
                    flag, text, kMaxLength));
  };
  const auto length = [&](size_t i) {
    const auto value = parse_whole(parts[i], kMaxLength);
    if (!value || *value == 0) throw fail();
    return static_cast<uint32_t>(*value);
  };
  Lengths lengths;
  if (parts.size() == 1) {
    lengths.low = lengths.high = length(0);
  } else if (parts[0] == "uniform" && parts.size() == 3) {
    lengths.kind = Kind::kUniform;
    lengths.low = length(1);
    lengths.high = length(2);
  } else if (parts[0] == "lognormal" && (parts.size() == 3 || parts.size() == 4)) {
    lengths.kind = Kind::kLogNormal;
    lengths.mean = length(1);
    const uint64_t sigma = parse_thousandths(parts[2], flag);
    if (sigma > 10'000) throw fail();
    lengths.sigma_thousandths = static_cast<uint32_t>(sigma);
    lengths.high = parts.size() == 4 ? length(3) : kDefaultMost;
  } else {
    throw fail();
  }
  if (lengths.low > lengths.high) throw fail();
  return lengths;
}

uint32_t Lengths::draw(SplitMix64& random) const {
  if (kind == Kind::kFixed) return low;
  if (kind == Kind::kUniform) return low + static_cast<uint32_t>(random.below(uint64_t{high} - low + 1));
  // exp(mu + sigma z) with mu = ln(mean) - sigma^2 / 2, as a power of two.
  const int64_t sigma = kOneQ32 * sigma_thousandths / 1000;
  const int64_t shift = multiply_q32(sigma, draw_normal_q32(random)) - multiply_q32(sigma, sigma) / 2;
  const uint64_t drawn = exp2_q32(log2_q32(mean) + multiply_q32(shift, kLog2eQ32));
  const uint64_t rounded = (drawn >> 32) + (drawn >> 31 & 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(rounded, low, high));
}

std::vector<TokenId> Workload::prompt(size_t index) const {
  const SimRequest& request = requests[index];
  std::vector<TokenId> tokens;
  tokens.reserve(request.prompt_length);
  for (const uint32_t piece : request.pieces) {
    const auto left = static_cast<uint32_t>(request.prompt_length - tokens.size());
    append_tokens(tokens, keyed_random(seed, kPiece, piece), 0, std::min(piece_length, left), vocab_size);
  }
  const auto shared = static_cast<uint32_t>(tokens.size());
  append_tokens(tokens, keyed_random(seed, kOwnTokens, index), shared, request.prompt_length - shared,
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
    request.tenant = tenants.draw(random);
    request.priority = static_cast<int32_t>(random.below(config.num_priorities));
    request.ttft_deadline = Nanos{config.ttft_deadline_ms.draw(random)} * 1'000'000;
  }
}

Workload make_workload(const WorkloadConfig& config) {
  if (config.vocab_size == 0 || config.vocab_size > INT32_MAX) {
    throw Error(fmt::format("workload: a vocabulary of {}", config.vocab_size));
  }
  if (config.num_prefixes == 0 || config.num_prefixes > 10'000'000) {
    throw Error(fmt::format("workload: {} shared prefixes, not 1 to 10000000", config.num_prefixes));
  }
  if (config.prefix_length > kMaxLength) {
    throw Error(fmt::format("workload: a shared prefix of {} tokens", config.prefix_length));
  }
  if (config.burst_every < 0) throw Error("workload: bursts need a time between them");
  Workload workload;
  workload.seed = config.seed;
  workload.vocab_size = config.vocab_size;
  workload.piece_length = config.prefix_length;
  Arrivals arrivals(config);
  const Zipf zipf(config.num_prefixes, config.zipf_thousandths);
  for (uint32_t i = 0; i < config.num_requests; ++i) {
    SplitMix64 random(keyed_random(config.seed, kRequest, i));
    SimRequest& request = workload.requests.emplace_back();
    request.arrival = arrivals.next();
    request.prompt_length = config.prefix_length + config.prompt.draw(random);
    request.output_length = config.output.draw(random);
    if (config.prefix_length > 0) request.pieces = {zipf.draw(random)};
  }
  return workload;
}

}  // namespace quire::sim
