#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::record {

/// A set of 64-bit keys that are hashes and not 0: an open-addressing table with linear probing (Knuth 1973,
/// 6.4, algorithms L and R). It uses 11 to 22 bytes per key.
class KeySet {
 public:
  void insert(uint64_t key);
  /// Returns false if the set does not have it.
  bool erase(uint64_t key);
  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kNone = 0;

  size_t place(uint64_t key) const { return static_cast<size_t>(key) & (table_.size() - 1); }
  /// The place of the key, or the free place for it. REQUIRES: a free place.
  size_t search(uint64_t key) const {
    size_t at = place(key);
    while (table_[at] != kNone && table_[at] != key) at = (at + 1) & (table_.size() - 1);
    return at;
  }
  void grow();

  std::vector<uint64_t> table_;  // a power of two, or none
  size_t size_ = 0;
};

}  // namespace quire::record
