#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "base/ids.h"

namespace quire::record {

/// A map by sequence id that finds the ids used recently without a search. `Map` is a std::map or
/// std::unordered_map by SeqId; its values keep their addresses. Not thread-safe, not even where it is const.
template <typename Map>
class SeqMap {
 public:
  using Value = typename Map::mapped_type;

  /// Returns nullptr if there is none.
  Value* find(SeqId id) { return const_cast<Value*>(std::as_const(*this).find(id)); }
  const Value* find(SeqId id) const {
    Recent& recent = recent_[id % recent_.size()];
    if (recent.value != nullptr && recent.id == id) return recent.value;
    const auto found = all_.find(id);
    if (found == all_.end()) return nullptr;
    recent = {id, &found->second};
    return recent.value;
  }
  /// Returns true if the id was not there.
  bool try_emplace(SeqId id, Value value) { return all_.try_emplace(id, std::move(value)).second; }
  void insert_or_assign(SeqId id, Value value) { all_.insert_or_assign(id, std::move(value)); }
  void erase(SeqId id) {
    recent_[id % recent_.size()] = {};
    all_.erase(id);
  }
  const Map& all() const { return all_; }
  Map& all() { return all_; }  // REQUIRES: nothing is erased through it

 private:
  struct Recent {
    SeqId id = 0;
    const Value* value = nullptr;
  };

  Map all_;
  mutable std::array<Recent, 8192> recent_{};
};

}  // namespace quire::record
