#include "sim/slo.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::sim {
namespace {

struct Unit {
  std::string_view name;
  double nanos;
};
constexpr Unit kUnits[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};  // "s" last: the others end with it

constexpr double kMostNanos = 1e15;

/// A number of at least 0 at the beginning of `text`, from which it is removed.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value) || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<Nanos> parse_time(std::string_view text) {
  const std::optional<double> value = take_number(text);
  if (!value) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (text != unit.name) continue;
    const double nanos = *value * unit.nanos;
    if (nanos > 0 && nanos <= kMostNanos) return static_cast<Nanos>(std::llround(nanos));
  }
  return std::nullopt;
}

std::string time_text(Nanos time) {
  const auto nanos = static_cast<double>(time);
  return nanos < 1e6   ? fmt::format("{:g}us", nanos / 1e3)
         : nanos < 1e9 ? fmt::format("{:g}ms", nanos / 1e6)
                       : fmt::format("{:g}s", nanos / 1e9);
}

}  // namespace

Slo Slo::parse(std::string_view text, std::string_view flag) {
  Slo slo;
  std::optional<double> share;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    std::string_view value = part.substr(std::min(equals + 1, part.size()));
    const auto refuse = [&](std::string_view why) {
      throw Error(fmt::format("{}: '{}': {}", flag, part, why));
    };
    if (name == "attainment") {
      if (share) refuse("is given twice");
      share = take_number(value);
      if (!share || *share <= 0 || *share > 100 || (value != "" && value != "%")) {
        refuse("is not above 0 and up to 100 per cent");
      }
      continue;
    }
    std::optional<Nanos>* const limit = name == "ttft"   ? &slo.ttft
                                        : name == "tpot" ? &slo.tpot
                                        : name == "e2e"  ? &slo.e2e
                                                         : nullptr;
    if (limit == nullptr) refuse("is none of ttft=TIME, tpot=TIME, e2e=TIME, attainment=PERCENT");
    if (*limit) refuse("is given twice");
    *limit = parse_time(value);
    if (!*limit) refuse("is not a time like 500ms, 2.5s or 800us");
  }
  if (!slo.any()) throw Error(fmt::format("{}: needs at least one of ttft=TIME, tpot=TIME, e2e=TIME", flag));
  slo.attainment = share.value_or(slo.attainment);
  return slo;
}

std::string Slo::text() const {
  std::string out;
  const auto add = [&](std::string_view name, const std::optional<Nanos>& limit) {
    if (limit) out += fmt::format("{}={},", name, time_text(*limit));
  };
  add("ttft", ttft);
  add("tpot", tpot);
  add("e2e", e2e);
  return out + fmt::format("attainment={:g}", attainment);
}

}  // namespace quire::sim
