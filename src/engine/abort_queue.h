#pragma once

#include <list>
#include <unordered_map>

#include "base/ids.h"

namespace quire::engine {

/// The requests that are to be aborted, in the order of the calls of ask(). The entry of a request is
/// allocated when it is submitted, so that ask(), which is called when memory is short and in destructors,
/// allocates nothing. Not thread-safe.
class AbortQueue {
 public:
  /// To be called before ask(). If it throws std::bad_alloc, nothing has changed.
  void open(RequestId id) { places_.try_emplace(id, 1, id); }
  /// The request has ended. Unknown ids are ignored.
  void close(RequestId id) noexcept { places_.erase(id); }
  /// Asks for an abort. Ignores unknown ids and repeated calls.
  void ask(RequestId id) noexcept {
    const auto found = places_.find(id);
    if (found != places_.end()) asked_.splice(asked_.end(), found->second);
  }
  bool empty() const noexcept { return asked_.empty(); }
  /// The ids of all ask() calls since the last take(). Some of these requests may have ended since.
  std::list<RequestId> take() noexcept {
    std::list<RequestId> out;
    out.swap(asked_);
    return out;
  }

 private:
  std::unordered_map<RequestId, std::list<RequestId>> places_;  // each with one entry; with none after ask()
  std::list<RequestId> asked_;
};

}  // namespace quire::engine
