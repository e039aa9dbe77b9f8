#include "tokenize/charsmap.h"

#include <algorithm>
#include <cstring>

#include <boost/unordered/unordered_flat_map.hpp>
#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::tokenize {
namespace {

// The parts of a unit of the double array (Yata's darts-clone).
uint32_t label_of(uint32_t unit) { return unit & (0x80000000U | 0xFF); }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }
bool has_leaf(uint32_t unit) { return (unit & 0x100) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }

/// Whether no path from the root is longer than CharsMap::kMaxRuleBytes; a cycle is. Each state (the value
/// that is xored with the next byte) is visited once.
bool rules_are_short(const std::vector<uint32_t>& units) {
  struct Visit {
    uint32_t state;
    uint32_t next_byte;
    size_t below;  // bytes of the longest way on
  };
  boost::unordered_flat_map<uint32_t, size_t> known;  // `below` of the states that are done
  std::vector<Visit> path = {{offset_of(units[0]), 0, 0}};
  while (true) {
    Visit& top = path.back();
    if (path.size() - 1 + top.below > CharsMap::kMaxRuleBytes) return false;
    if (top.next_byte == 256) {
      const Visit done = top;
      known.emplace(done.state, done.below);
      path.pop_back();
      if (path.empty()) return true;
      path.back().below = std::max(path.back().below, done.below + 1);
      continue;
    }
    const uint32_t byte = top.next_byte++;
    const uint32_t at = top.state ^ byte;
    if (at >= units.size() || label_of(units[at]) != byte) continue;
    const uint32_t next = at ^ offset_of(units[at]);
    if (const auto found = known.find(next); found != known.end()) {
      top.below = std::max(top.below, found->second + 1);
    } else {
      path.push_back({next, 0, 0});
    }
  }
}

}  // namespace

tl::expected<CharsMap, std::string> CharsMap::parse(std::string_view bytes) {
  uint32_t array_bytes = 0;
  if (bytes.size() < sizeof array_bytes) return tl::unexpected<std::string>("too short");
  std::memcpy(&array_bytes, bytes.data(), sizeof array_bytes);
  bytes.remove_prefix(sizeof array_bytes);
  if (array_bytes > bytes.size()) {
    return tl::unexpected<std::string>("the double array is longer than the data");
  }
  if (array_bytes % 4 != 0 || array_bytes == 0) {
    return tl::unexpected<std::string>("the size of the double array is not a multiple of 4 bytes");
  }
  CharsMap map;
  map.units_.resize(array_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data(), array_bytes);
  if (!rules_are_short(map.units_)) {
    return tl::unexpected(fmt::format("a rule of more than {} bytes", kMaxRuleBytes));
  }
  map.replacements_ = bytes.substr(array_bytes);
  if (!is_valid_utf8(map.replacements_)) {
    return tl::unexpected<std::string>("the replacements are not UTF-8");
  }
  for (uint32_t first = 0; first < 128; ++first) {
    const uint32_t at = offset_of(map.units_[0]) ^ first;
    if (at >= map.units_.size() || label_of(map.units_[at]) != first) continue;
    const uint32_t unit = map.units_[at];
    for (uint32_t second = 0; second < 128; ++second) {
      const uint32_t next = at ^ offset_of(unit) ^ second;
      const bool goes_on = next < map.units_.size() && label_of(map.units_[next]) == second;
      map.pairs_.set(size_t{first} * 128 + second, has_leaf(unit) || goes_on);
    }
  }
  return map;
}

template <class Found>
void CharsMap::walk(std::string_view text, const Found& found) const {
  uint32_t at = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size()) return;
    const uint32_t unit = units_[at];
    if (label_of(unit) != byte) return;
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size() || !found(i + 1, value_of(units_[at]))) return;
  }
}

std::string_view CharsMap::replacement_at(size_t place) const {
  if (place >= replacements_.size()) return {};
  // A place inside a character would give invalid UTF-8.
  if (continues_utf8(replacements_[place])) return {};
  return std::string_view(replacements_.c_str() + place);
}

std::optional<CharsMap::Match> CharsMap::longest(std::string_view text) const {
  std::optional<Match> best;
  walk(text, [&](size_t size, size_t place) {
    best = Match{size, replacement_at(place)};
    return true;
  });
  // A rule that ends inside a character comes from a damaged file.
  if (best && best->size < text.size() && continues_utf8(text[best->size])) {
    return std::nullopt;
  }
  return best;
}

std::optional<CharsMap::Match> CharsMap::shortest(std::string_view text) const {
  std::optional<Match> best;
  walk(text, [&](size_t size, size_t place) {
    best = Match{size, replacement_at(place)};
    return false;
  });
  return best;
}

}  // namespace quire::tokenize
