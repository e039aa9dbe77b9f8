#pragma once

#include <list>
#include <unordered_map>

#include "base/ids.h"

namespace quire::engine {

/// Which requests somebody wants aborted, in the order of asking. A request's place is made when it is
/// submitted, so that asking, done where memory is short and in destructors, allocates nothing. Not
/// thread-safe.
class AbortQueue {
 public:
  /// Before its abort may be asked for. Throws std::bad_alloc; then nothing has changed.
  void open(RequestId id) { places_.try_emplace(id, 1, id); }
  /// It has ended. Unknown ones are ignored.
  void close(RequestId id) noexcept { places_.erase(id); }
  /// Unknown ones are ignored, as are those that were asked for before.
  void ask(RequestId id) noexcept {
    const auto found = places_.find(id);
    if (found != places_.end()) asked_.splice(asked_.end(), found->second);
  }
  bool empty() const noexcept { return asked_.empty(); }
  /// What was asked for since the last call. May name requests that have ended since.
  std::list<RequestId> take() noexcept {
    std::list<RequestId> out;
    out.swap(asked_);
    return out;
  }

 private:
  std::unordered_map<RequestId, std::list<RequestId>> places_;  // of one entry; of none once it is asked for
  std::list<RequestId> asked_;
};

}  // namespace quire::engine
