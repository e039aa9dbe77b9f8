#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "control/cause.h"

// The words for the grounds that the scheduler reports: the stories and the page take them from here.
namespace quire::record {

/// How the first in line compares with another sequence of the same ground.
enum class Order : uint8_t { kAhead, kEqual, kBehind };

/// Why the first in line comes before another sequence, by the causes that the scheduler reported. It reports
/// an order when that changes, so `order` still holds when another sequence has become the first, while the
/// values may be of different times.
struct Precedence {
  bool compared = false;  // if not, the policy did not compare this sequence, which arrived later
  control::Standing first;
  control::Standing own;
  uint64_t first_tenant = 0;
  uint64_t own_tenant = 0;
  Order order = Order::kAhead;

  /// Compares the two standings, which were reported together.
  void compare();

  /// If two are equal, the same sentence applies to both.
  uint32_t kind() const;
};

/// The name of a tenant.
using TenantName = std::function<std::string(uint64_t)>;

/// "of higher priority (-2, its own is 0)": why the first in line comes before it.
std::string precedence_text(const Precedence& of, const TenantName& tenant);

/// "no block was left for the next token of #7, and of the possible victims it was admitted last": why the
/// victim of a kVictim is preempted.
std::string preemption_text(const control::Cause& victim);

}  // namespace quire::record
