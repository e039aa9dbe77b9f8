#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace quire::sim {

/// Service-level objectives: what each request is to get, and how many of a hundred must get it. An absent
/// limit is not required.
struct Slo {
  std::optional<Nanos> ttft;  // to the first token
  std::optional<Nanos> tpot;  // per further token
  std::optional<Nanos> e2e;   // to the last token
  double attainment = 99;  // per cent of all requests; those that were refused or failed do not count as met

  bool any() const { return ttft || tpot || e2e; }
  /// Whether a finished request with these times meets all limits; `its_tpot` is absent with one token.
  bool met_by(Nanos its_ttft, std::optional<Nanos> its_tpot, Nanos its_e2e) const {
    return (!ttft || its_ttft <= *ttft) && (!tpot || its_tpot.value_or(0) <= *tpot) &&
           (!e2e || its_e2e <= *e2e);
  }
  /// Whether `good` of `all` requests are enough.
  bool attained(uint64_t good, uint64_t all) const {
    return static_cast<double>(good) * 100 >= attainment * static_cast<double>(all);
  }

  /// Reads "ttft=500ms,tpot=50ms,e2e=20s,attainment=99", in any order and at least one limit; times in us, ms
  /// or s. Throws Error "FLAG: ..." naming the part that is wrong.
  static Slo parse(std::string_view text, std::string_view flag);
  /// As parse() reads it: "ttft=500ms,tpot=50ms,attainment=99".
  std::string text() const;
};

}  // namespace quire::sim
