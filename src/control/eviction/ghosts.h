#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace quire::control {

/// The hashes of evicted blocks, in order of eviction. Each call is O(1).
class Ghosts {
 public:
  size_t size() const { return order_.size(); }
  /// Removes the hash. True if it was there.
  bool take(uint64_t hash) {
    const auto found = places_.find(hash);
    if (found == places_.end()) return false;
    order_.erase(found->second);
    places_.erase(found);
    return true;
  }
  void add(uint64_t hash) {
    take(hash);
    places_[hash] = order_.insert(order_.end(), hash);
  }
  /// Removes the oldest until at most `count` are left.
  void trim(size_t count) {
    while (size() > count) take(uint64_t{order_.front()});
  }

 private:
  std::list<uint64_t> order_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;  // never iterated
};

}  // namespace quire::control
