#include "sim/workload_lengths.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "sim/fixed_point.h"
#include "sim/trace_lines.h"

namespace quire::sim {
namespace {

constexpr uint32_t kDefaultMost = 1 << 20;
constexpr std::string_view kFile = "file:";

LengthHistogram::Bin parse_bin(std::string_view line, uint64_t before) {
  const auto fields = split(line, ',');
  if (fields.size() != 2) throw Error(fmt::format("{} values, not the 2 of LENGTH,COUNT", fields.size()));
  const auto ends = split(fields[0], '-');
  const auto low = parse_whole(ends.front(), kMaxLength);
  const auto high = parse_whole(ends.back(), kMaxLength);
  if (ends.size() > 2 || !low || !high || *low == 0 || *low > *high) {
    throw Error(
        fmt::format("LENGTH is '{}', not N or LOW-HIGH with numbers from 1 to {}", fields[0], kMaxLength));
  }
  constexpr uint64_t kMostCount = uint64_t{1} << 40;
  const auto count = parse_whole(fields[1], kMostCount);
  if (!count) throw Error(fmt::format("COUNT is '{}', not 0 to {}", fields[1], kMostCount));
  return {static_cast<uint32_t>(*low), static_cast<uint32_t>(*high), before + *count};
}

std::shared_ptr<const LengthHistogram> read_histogram(const std::string& path) {
  constexpr uint64_t kMostBytes = 16 << 20;  // so that the sum of all counts fits 64 bits
  const std::string file = read_file(path, kMostBytes);
  auto histogram = std::make_shared<LengthHistogram>();
  uint64_t sum = 0;
  TextLines lines(file);
  std::string_view line;
  const auto where = [&] { return fmt::format("{}: line {}", path, std::max<uint64_t>(1, lines.number())); };
  for (bool is_first = true; lines.next(line); is_first = false) {
    if (is_first && (line[0] < '0' || line[0] > '9')) continue;  // a header
    try {
      const LengthHistogram::Bin bin = parse_bin(line, sum);
      if (bin.until > sum) histogram->bins.push_back(bin);
      sum = bin.until;
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", where(), error.what()));
    }
  }
  if (histogram->bins.empty()) throw Error(where() + ": the histogram ends without a count over 0");
  return histogram;
}

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
  Lengths lengths;
  if (text.starts_with(kFile)) {
    lengths.kind = Kind::kHistogram;
    if (text == kFile) throw Error(fmt::format("{}: '{}' names no file", flag, text));
    try {
      lengths.histogram = read_histogram(std::string(text.substr(kFile.size())));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", flag, error.what()));
    }
    return lengths;
  }
  const auto parts = split(text, ':');
  const auto fail = [&]() -> Error {
    return Error(
        fmt::format("{}: '{}' is not one of N, uniform:LOW:HIGH, lognormal:MEAN:SIGMA[:MOST], "
                    "exponential:MEAN[:MOST], file:PATH, with lengths from 1 to {} and SIGMA up to 10",
                    flag, text, kMaxLength));
  };
  const auto length = [&](size_t i) {
    const auto value = parse_whole(parts[i], kMaxLength);
    if (!value || *value == 0) throw fail();
    return static_cast<uint32_t>(*value);
  };
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
  } else if (parts[0] == "exponential" && (parts.size() == 2 || parts.size() == 3)) {
    lengths.kind = Kind::kExponential;
    lengths.mean = length(1);
    lengths.high = parts.size() == 3 ? length(2) : kDefaultMost;
  } else {
    throw fail();
  }
  if (lengths.low > lengths.high) throw fail();
  return lengths;
}

uint32_t Lengths::draw(SplitMix64& random) const {
  const auto between = [&](uint32_t from, uint32_t to) {
    return from + static_cast<uint32_t>(random.below(uint64_t{to} - from + 1));
  };
  switch (kind) {
    case Kind::kFixed:
      return low;
    case Kind::kUniform:
      return between(low, high);
    case Kind::kExponential: {
      const int128 drawn = int128{mean} * draw_exponential_q32(random);  // below 2^30 x 37 x 2^32
      const auto whole = static_cast<uint64_t>((drawn + (int128{1} << 31)) >> 32);
      return static_cast<uint32_t>(std::clamp<uint64_t>(whole, low, high));
    }
    case Kind::kHistogram: {
      const auto& bins = histogram->bins;
      const uint64_t at = random.below(bins.back().until);
      const auto bin = std::ranges::upper_bound(bins, at, {}, &LengthHistogram::Bin::until);
      return bin->low == bin->high ? bin->low : between(bin->low, bin->high);
    }
    case Kind::kLogNormal:
      break;
  }
  // exp(mu + sigma z) with mu = ln(mean) - sigma^2 / 2, as a power of two.
  const int64_t sigma = kOneQ32 * sigma_thousandths / 1000;
  const int64_t shift = multiply_q32(sigma, draw_normal_q32(random)) - multiply_q32(sigma, sigma) / 2;
  const uint64_t drawn = exp2_q32(log2_q32(mean) + multiply_q32(shift, kLog2eQ32));
  const uint64_t rounded = (drawn >> 32) + (drawn >> 31 & 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(rounded, low, high));
}

uint32_t Lengths::most() const {
  if (kind != Kind::kHistogram) return high;
  return std::ranges::max(histogram->bins, {}, &LengthHistogram::Bin::high).high;
}

}  // namespace quire::sim
