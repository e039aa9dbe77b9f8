#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "record/timeline_parts.h"

namespace quire::record {

class LiveRun;

/// What a step's picture says of the whole pool; in blocks.
struct PoolNumbers {
  uint32_t held = 0;
  uint32_t shared = 0;
  uint32_t cached = 0;
  uint32_t host = 0;
  uint32_t budget = 0;  // tokens
};

/// A live run in the eyes of one reader, as JSON messages for a page; docs/live.md has their form. A reader
/// who is a tenant is told only of its own sequences, the blocks that they hold and the steps' times: nothing
/// of others, not even how many there are. Not thread-safe.
class LiveView {
 public:
  /// Without a tenant: of an operator, who sees everything.
  explicit LiveView(std::optional<uint64_t> tenant = {}) : tenant_(tenant) {}

  /// Appends what has happened since the last call, as server-sent events. `now`: on the clock of
  /// RunPlan::now. If nothing has, it appends nothing but with `always` a message of the time alone.
  void take(const LiveRun& run, Nanos now, bool always, std::string& out);

  size_t bytes() const {
    return requests_.size() + steps_.size() + text_.size() + blocks_.size();
  }  // waiting

  // For LiveRun.
  void begin(const LiveRun& run);
  void added(const LiveRun& run, const LiveSequence& seq);
  void begins(uint64_t step, Nanos now);
  void ended(uint64_t step, Nanos took);
  void changes(const Change& change, bool host);
  void decided(const Event& event);
  void looks(const LiveSequence& seq, const Look& look);
  void plan_is_told(const LiveRun& run);
  void over(const LiveSequence& seq, std::string_view how);

 private:
  struct Own {
    uint32_t number = 0;  // for the page
    std::optional<Look> look;
  };
  const Own* find(size_t seq) const {
    const auto found = own_.find(seq);
    return found == own_.end() ? nullptr : &found->second;
  }
  int64_t number_of(size_t seq) const {
    const Own* own = find(seq);
    return own == nullptr ? -1 : int64_t{own->number};
  }
  void tell_start(const LiveRun& run);
  void placed(uint32_t block) {
    if (!groups_.empty()) placed_.push_back(block);
  }
  void tell_groups(const LiveRun& run);
  void end_step();
  void end_last_step(const LiveRun& run, Nanos now);

  std::optional<uint64_t> tenant_;
  std::unordered_map<size_t, Own> own_;  // the sequences that it is told of, by their index in the run
  std::vector<size_t> over_;             // those of them that have ended and may still release blocks
  uint32_t num_sequences_ = 0;
  size_t causes_told_ = 0;
  std::vector<uint32_t>
      groups_;  // by block, its K/V group as the reader knows it; empty if there is one group

  // The next message: the inside of its lists, with a comma behind each entry.
  std::string start_;
  std::string requests_;
  std::string steps_;
  std::string took_;
  std::string ended_;

  // The step that is being told, and what changed since its plan.
  uint64_t step_ = 0;
  std::string text_;  // up to its events; empty: none
  Nanos began_ = 0;
  uint32_t running_ = 0;
  uint32_t waiting_ = 0;
  uint32_t prefill_ = 0;  // tokens
  uint32_t decode_ = 0;
  std::string blocks_;
  std::vector<uint32_t> placed_;  // of `blocks_`, those whose K/V group may be news
  std::string host_;
  std::string looks_;
  std::string events_;
};

}  // namespace quire::record
