#include "cli/did_you_mean.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr size_t kLeastLetters = 3;  // of a name that may be meant
constexpr size_t kMostErrors = 2;    // letters that may differ, but no more than half of them

}  // namespace

std::string did_you_mean(std::string_view name, std::span<const std::string_view> names) {
  std::vector<std::string_view> meant;
  std::string_view nearest;
  size_t least = std::min(kMostErrors, name.size() / 2) + 1;
  for (const std::string_view each : names) {
    if (each.size() < kLeastLetters) continue;
    if (name.size() >= 2 && each.starts_with(name)) meant.push_back(each);
    if (const size_t distance = edit_distance(name, each); distance < least) {
      least = distance;
      nearest = each;
    }
  }
  if (meant.empty() && !nearest.empty()) meant.push_back(nearest);
  if (meant.empty()) return {};
  const std::string_view last = meant.back();
  meant.pop_back();
  return meant.empty() ? fmt::format("did you mean {}?", last)
                       : fmt::format("did you mean {} or {}?", fmt::join(meant, ", "), last);
}

}  // namespace quire::cli
