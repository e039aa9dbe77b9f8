#include "record/timeline_encoder.h"

#include <algorithm>
#include <unordered_map>

#include "record/leb128.h"

namespace quire::record {

uint64_t TimelineEncoder::number(size_t seq) const {
  return static_cast<uint64_t>(std::ranges::lower_bound(sequences_, seq) - sequences_.begin());
}

std::string TimelineEncoder::encode(const Changes& changes) const {
  std::string out;
  size_t at = 0;
  for (const size_t end : changes.ends) {
    const auto step = std::span(changes.list).subspan(at, end - at);
    append_leb128(out, step.size());
    int64_t block = 0;
    int64_t seq = 0;
    for (const Change& change : step) {
      append_leb128(out, change.kind);
      append_leb128(out, zigzag(int64_t{change.block} - std::exchange(block, change.block)));
      if (!has_seq(change.kind)) continue;
      const auto own = static_cast<int64_t>(number(change.seq));
      append_leb128(out, zigzag(own - std::exchange(seq, own)));
    }
    at = end;
  }
  return out;
}

std::string TimelineEncoder::encode(const Events& events) const {
  std::string out;
  size_t at = 0;
  for (const size_t end : events.ends) {
    append_leb128(out, end - at);
    for (; at < end; ++at) {
      const Event& event = events.list[at];
      append_leb128(out, static_cast<uint64_t>(event.kind));
      append_leb128(out, event.seq == kNoSequence ? 0 : number(event.seq) + 1);
      append_leb128(out, event.a);
      append_leb128(out, event.b);
      append_leb128(out, event.cause);
    }
  }
  return out;
}

std::string TimelineEncoder::encode(const Segments& segments, std::span<const Look> looks) const {
  std::string out;
  if (segments.list.empty()) return out;
  append_leb128(out, segments.from);
  for (const Segment& each : segments.list) {
    const Look& look = looks[each.look];
    append_leb128(out, static_cast<uint64_t>(look.phase) + 8 * static_cast<uint64_t>(look.waits));
    append_leb128(out, look.behind == kNoneAhead ? 0 : number(look.behind) + 1);
    append_leb128(out, look.cause);
    append_leb128(out, each.steps);
  }
  return out;
}

std::vector<uint32_t> count_cached(const Changes& changes) {
  std::vector<uint32_t> out;
  int64_t cached = 0;
  std::unordered_map<uint32_t, bool> is_cached;
  size_t at = 0;
  for (const size_t end : changes.ends) {
    for (; at < end; ++at) {
      const Change& change = changes.list[at];
      const bool now = change.kind == RunTimeline::kDropToCache || change.kind == RunTimeline::kIsCached;
      const bool was = std::exchange(is_cached[change.block], now);
      cached += (now ? 1 : 0) - (was ? 1 : 0);
    }
    out.push_back(static_cast<uint32_t>(cached));
  }
  return out;
}

}  // namespace quire::record
