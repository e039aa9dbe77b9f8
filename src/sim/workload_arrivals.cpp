#include "sim/workload_arrivals.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "sim/fixed_point.h"
#include "sim/workload_streams.h"

namespace quire::sim {
namespace {

constexpr Nanos kForever = INT64_MAX / 4;

/// The logarithm of a uniform number in (0, 1], to base 2.
int64_t draw_log2_uniform_q32(SplitMix64& random) {
  return log2_q32((random.next() >> 11) + 1) - 53 * kOneQ32;
}

/// Gamma with scale 1, by Marsaglia and Tsang (2000), for a shape of 1 or more; all in Q32.
int64_t draw_gamma_of_large_shape_q32(SplitMix64& random, int64_t shape) {
  const int64_t d = shape - kOneQ32 / 3;
  const auto root = static_cast<int64_t>(integer_sqrt(uint128{static_cast<uint64_t>(d)} << 32));
  const auto c = static_cast<int64_t>((int128{kOneQ32} * kOneQ32) / (3 * int128{root}));
  while (true) {
    const int64_t x = draw_normal_q32(random);
    const int64_t t = kOneQ32 + multiply_q32(c, x);
    if (t <= 0) continue;
    const int64_t v = multiply_q32(multiply_q32(t, t), t);
    if (v <= 0) continue;
    const int64_t ln_u = multiply_q32(draw_log2_uniform_q32(random), kLn2Q32);
    const int64_t ln_v = multiply_q32(log2_q32(static_cast<uint64_t>(v)) - 32 * kOneQ32, kLn2Q32);
    const int64_t bound = multiply_q32(x, x) / 2 + d - multiply_q32(d, v) + multiply_q32(d, ln_v);
    if (ln_u < bound) return multiply_q32(d, v);
  }
}

/// Gamma with mean 1, in Q32. A shape below 1 is one above it times a power of a uniform number.
int64_t draw_gamma_q32(SplitMix64& random, uint32_t shape_thousandths) {
  const int64_t shape = kOneQ32 * shape_thousandths / 1000;
  int64_t drawn = 0;
  if (shape >= kOneQ32) {
    drawn = draw_gamma_of_large_shape_q32(random, shape);
  } else {
    const int64_t large = draw_gamma_of_large_shape_q32(random, shape + kOneQ32);
    const int128 power = (int128{draw_log2_uniform_q32(random)} << 32) / shape;
    const auto exponent = static_cast<int64_t>(std::max<int128>(power, -64 * int128{kOneQ32}));
    drawn = multiply_q32(large, static_cast<int64_t>(exp2_q32(exponent)));
  }
  return static_cast<int64_t>((int128{drawn} << 32) / shape);
}

}  // namespace

ArrivalTimes::ArrivalTimes(const ArrivalConfig& config)
    : config_(config),
      random_(keyed_random(config.seed, kArrivals, 0)),
      phases_(keyed_random(config.seed, kPhases, 0)),
      single_at_(kForever),
      burst_at_(kForever) {
  if (config.burst_every < 0) throw Error("workload: bursts need a time between them");
  if (config.burstiness_thousandths < 10 || config.burstiness_thousandths > 1'000'000) {
    throw Error(fmt::format("workload: a burstiness of {} thousandths, not 10 to 1000000",
                            config.burstiness_thousandths));
  }
  if (config.on_ms.has_value() != config.off_ms.has_value()) {
    throw Error("workload: phases in which requests arrive need others between them");
  }
  if (config.on_ms) on_until_ = config.on_ms->draw(phases_) * kNanosPerMillisecond;
  draw_next();
  if (has_bursts()) burst_at_ = config.burst_every;
}

Nanos ArrivalTimes::next() {
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

void ArrivalTimes::draw_next() {
  if (config_.rate_thousandths == 0) return;
  constexpr uint64_t kThousandSeconds = 1'000'000'000'000;
  const int128 mean = kThousandSeconds / config_.rate_thousandths;
  const int64_t gap = config_.burstiness_thousandths == 1000
                          ? draw_exponential_q32(random_)
                          : draw_gamma_q32(random_, config_.burstiness_thousandths);
  last_single_ += static_cast<Nanos>((mean * gap) >> 32);
  single_at_ = after_phases(last_single_);
}

Nanos ArrivalTimes::after_phases(Nanos on) {
  if (!config_.on_ms) return on;
  while (on >= on_until_) {
    off_before_ += config_.off_ms->draw(phases_) * kNanosPerMillisecond;
    on_until_ += config_.on_ms->draw(phases_) * kNanosPerMillisecond;
  }
  return on + off_before_;
}

}  // namespace quire::sim
