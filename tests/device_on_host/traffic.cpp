#include "tests/device_on_host/traffic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

namespace quire::test::fibers {
namespace {

constexpr uintptr_t kSector = 32;
constexpr uintptr_t kWord = 4;
constexpr size_t kBanks = 32;
constexpr size_t kTurnBytes = kBanks * kWord;

/// A row needs a reason.
constexpr TrafficLimit kLimits[] = {
    {"", 0.0, 1.0},
    // Of 80 and 96 dimensions, the lanes that store 128 bytes together may have the end of one row and the
    // beginning of the next, with a piece of padding between. (A tile is stored once and read for each head.)
    {"decode_attention", 0.12, 1.0},
    // Rows of one to four pieces and their padding fill no turn of the banks, nor sectors.
    {"decode_attention_small", 0.25, 1.0},
    {"paged_attention_small", 1.75, 1.1},
    // Of its f32 factors a lane takes 32 bytes in two halves where rows are 16-bit: the second half is in the
    // L1 cache.
    {"rms_norm", 0.0, 1.4},
    // Of 80 and 96 dimensions as in decode_attention, where queries, K and V come and results go. Of maxima
    // and sums two lanes store eight bytes for a row.
    {"paged_attention", 1.0, 1.02},
    // The places of an expert's choices begin anywhere, and threads may have none or several.
    {"group_by_expert", 0.0, 1.2},
    // Rows of small models begin within sectors.
    {"expert_product", 0.0, 1.1},
    // A block's eight results of a row are half a sector, in two blocks that run at the same time.
    {"few_rows_gated", 0.0, 1.01},
    // As few_rows_gated: half sectors, here of both halves of a head.
    {"few_rows_rotated", 0.0, 1.02},
    // As expert_product; and rows of results of 16 or 32 columns, with their padding, fill no turn of the
    // banks.
    {"int8_product", 0.1, 1.1},
    // Halves of heads of 80 begin within sectors, and a warp has parts of several heads.
    {"rope", 0.0, 1.15},
    // Lanes take 16 bytes at a time of spans that lie apart: the other half of a sector is in the L1 cache.
    // When tokens are sorted, which is most of what it does in shared memory, lanes have digits of their own.
    {"sample", 0.35, 2.3},
    // At its end each thread takes the piece with its best logit again, which is half a sector somewhere.
    {"sample_best", 0.0, 1.2},
};

}  // namespace

const TrafficLimit& traffic_limit(const char* kernel) {
  for (const TrafficLimit& row : kLimits) {
    if (std::strcmp(row.kernel, kernel) == 0) return row;
  }
  return kLimits[0];
}

void Traffic::add(std::vector<LaneAccess>& accesses) {
  // The n-th access of a lane at a place between two barriers belongs to the n-th instruction there.
  using Place = std::tuple<const void*, uint16_t, uint32_t>;
  using Instruction = std::pair<Place, uint32_t>;
  std::map<Place, std::array<uint32_t, kLanes>> counts;
  // With the index, which is cheaper to move than the access.
  std::vector<std::pair<Instruction, uint32_t>> order;
  order.reserve(accesses.size());
  for (const LaneAccess& one : accesses) {
    const Place place(one.access.code, one.barriers, one.warp_syncs);
    order.push_back({{place, counts[place][one.lane()]++}, static_cast<uint32_t>(order.size())});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<LaneAccess> sorted;
  sorted.reserve(accesses.size());
  for (const auto& [_, index] : order) sorted.push_back(accesses[index]);
  accesses.swap(sorted);
  for (size_t i = 0, end = 0; i < order.size(); i = end) {
    while (end < order.size() && order[end].first == order[i].first) ++end;
    if (accesses[i].shared) {
      add_shared(accesses.data() + i, accesses.data() + end);
    } else {
      add_global(accesses.data() + i, accesses.data() + end);
    }
  }
}

void Traffic::add_shared(const LaneAccess* begin, const LaneAccess* end) {
  const size_t lanes_a_turn = kTurnBytes / std::max<size_t>(begin->access.bytes, kWord);
  size_t conflicts = 0;
  std::vector<uintptr_t> words;
  for (size_t part = 0; part < kLanes; part += lanes_a_turn) {
    words.clear();
    for (const LaneAccess* one = begin; one != end; ++one) {
      if (one->lane() < part || one->lane() >= part + lanes_a_turn) continue;
      const uintptr_t last = (one->access.address + one->access.bytes - 1) / kWord;
      for (uintptr_t word = one->access.address / kWord; word <= last; ++word) words.push_back(word);
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    size_t in_bank[kBanks] = {};
    for (const uintptr_t word : words) ++in_bank[word % kBanks];
    const size_t turns = *std::max_element(in_bank, in_bank + kBanks);
    if (turns > 1) conflicts += turns - 1;
  }
  ++shared_accesses;
  bank_conflicts += conflicts;
  if (conflicts > worst_conflicts) {
    worst_conflicts = conflicts;
    worst_bank = *begin;
  }
}

void Traffic::add_global(const LaneAccess* begin, const LaneAccess* end) {
  std::vector<std::pair<uintptr_t, uintptr_t>> spans;  // from the first byte to the one behind the last
  spans.reserve(static_cast<size_t>(end - begin));
  for (const LaneAccess* one = begin; one != end; ++one)
    spans.emplace_back(one->access.address, one->access.address + one->access.bytes);
  std::sort(spans.begin(), spans.end());
  // Those that overlap have bytes in common, and neighbours may have a sector in common.
  size_t bytes = 0;
  size_t touched = 0;
  uintptr_t next_byte = 0;
  uintptr_t next_sector = 0;
  for (const auto& [first, behind] : spans) {
    if (behind <= next_byte) continue;
    bytes += behind - std::max(first, next_byte);
    touched += (behind - 1) / kSector + 1 - std::max(first / kSector, next_sector);
    next_byte = behind;
    next_sector = (behind - 1) / kSector + 1;
  }
  // What as many bytes without a gap would touch from the same place on.
  const size_t needed = (spans.front().first % kSector + bytes + kSector - 1) / kSector;
  ++global_accesses;
  sectors += touched;
  needed_sectors += needed;
  if (touched - needed > worst_excess) {
    worst_excess = touched - needed;
    worst_sector = *begin;
  }
}

}  // namespace quire::test::fibers
