#include "record/key_set.h"

#include <algorithm>

namespace quire::record {

void KeySet::insert(uint64_t key) {
  if (4 * (size_ + 1) > 3 * table_.size()) grow();
  uint64_t& slot = table_[search(key)];
  if (slot != key) ++size_;
  slot = key;
}

bool KeySet::erase(uint64_t key) {
  if (size_ == 0) return false;
  size_t hole = search(key);
  if (table_[hole] != key) return false;
  --size_;
  const size_t last = table_.size() - 1;
  // A key that is only found across the hole moves into it.
  for (size_t at = (hole + 1) & last; table_[at] != kNone; at = (at + 1) & last) {
    const size_t away = (at - place(table_[at])) & last;
    if (away < ((at - hole) & last)) continue;
    table_[hole] = table_[at];
    hole = at;
  }
  table_[hole] = kNone;
  return true;
}

void KeySet::grow() {
  std::vector<uint64_t> before(std::max<size_t>(64, 2 * table_.size()));
  before.swap(table_);
  for (const uint64_t key : before) {
    if (key != kNone) table_[search(key)] = key;
  }
}

}  // namespace quire::record
