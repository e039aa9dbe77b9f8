#include "record/precedence.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/amounts.h"
#include "record/display_text.h"

namespace quire::record {
namespace {

std::string priority_text(const Precedence& of) {
  if (of.own.ground != control::Ground::kPriority) return "which had precedence";
  switch (of.order) {
    case Order::kAhead:
      return fmt::format("of higher priority ({}, its own is {})", of.first.value, of.own.value);
    case Order::kEqual:
      return "of the same priority, which arrived earlier";
    case Order::kBehind:
      break;
  }
  return fmt::format("of lower priority ({}, its own is {}), which had waited so long that it comes first",
                     of.first.value, of.own.value);
}

std::string share_text(const Precedence& of, const TenantName& tenant) {
  if (of.first_tenant == of.own_tenant) return "of the same tenant, which arrived earlier";
  const auto served = [](int64_t tokens) {
    return with_commas(static_cast<uint64_t>(std::max<int64_t>(0, tokens)));
  };
  switch (of.order) {
    case Order::kAhead:
      if (of.first.value >= of.own.value) break;  // the values are of different times
      return fmt::format("whose tenant had been served less (tenant {} {}, its own {} {})",
                         tenant(of.first_tenant), served(of.first.value), tenant(of.own_tenant),
                         served(of.own.value));
    case Order::kEqual:
      return "whose tenant had been served as much, which arrived earlier";
    case Order::kBehind:
      break;
  }
  return "whose tenant had been served less";
}

/// Why this one is the victim.
std::string victim_text(const control::Cause& victim) {
  switch (victim.ground) {
    case control::Ground::kNothingLeft:
      return "it gives way because it has nothing left to compute";
    case control::Ground::kLowest:
      return fmt::format("of the possible victims it has the lowest priority ({})", victim.value);
    case control::Ground::kLeastDone:
      return fmt::format("of the possible victims it had computed least ({})",
                         plural(static_cast<uint64_t>(std::max<int64_t>(0, victim.value)), "token"));
    default:
      return "of the possible victims it was admitted last";
  }
}

}  // namespace

void Precedence::compare() {
  compared = true;
  // For the prefix cache, more is better.
  const bool more = first.ground == control::Ground::kCached;
  const int64_t its = more ? -first.value : first.value;
  const int64_t mine = more ? -own.value : own.value;
  order = its < mine ? Order::kAhead : its == mine ? Order::kEqual : Order::kBehind;
}

uint32_t Precedence::kind() const {
  if (!compared) return 0;
  return 1 + static_cast<uint32_t>(order) + 4 * static_cast<uint32_t>(own.ground) +
         64 * static_cast<uint32_t>(first.ground) + (first_tenant == own_tenant ? 4096 : 0);
}

std::string precedence_text(const Precedence& of, const TenantName& tenant) {
  if (!of.compared) return "which arrived earlier";
  const bool equal = of.order == Order::kEqual;
  switch (of.first.ground) {
    case control::Ground::kProtected:
      return of.own.ground == control::Ground::kProtected
                 ? "preempted as often as is allowed, like itself, which arrived earlier"
                 : "preempted so often that it comes first under any policy";
    case control::Ground::kStarted:
      return of.own.ground == control::Ground::kStarted
                 ? "which had started already like itself, and arrived earlier"
                 : "which had started already";
    case control::Ground::kPassed:
      return "overtaken so often that it comes first";
    case control::Ground::kWork:
      return equal ? "with as much left to do, which arrived earlier" : "with less left to do";
    case control::Ground::kDeadline:
      return equal ? "with as much time to the deadline, which arrived earlier"
                   : "with less time to the deadline";
    case control::Ground::kPriority:
      return priority_text(of);
    case control::Ground::kShare:
      return share_text(of, tenant);
    case control::Ground::kCached:
      return equal ? "which arrived earlier and had no less in the prefix cache"
                   : "with more in the prefix cache";
    default:
      return "which arrived earlier";
  }
}

std::string preemption_text(const control::Cause& victim) {
  return fmt::format(
      "no block was left for {}, and {}",
      victim.other == victim.seq ? "its own next token" : fmt::format("the next token of #{}", victim.other),
      victim_text(victim));
}

}  // namespace quire::record
