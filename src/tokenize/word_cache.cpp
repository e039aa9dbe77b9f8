#include "tokenize/word_cache.h"

namespace quire::tokenize {

WordCache::WordCache(size_t text_bytes) : capacity_(16) {
  while (capacity_ < 8192 && capacity_ * 32 < text_bytes) capacity_ *= 2;
}

bool WordCache::find(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const {
  if (slots_.empty()) return false;
  for (size_t i = hash & (slots_.size() - 1); slots_[i].bytes != 0; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.hash != hash || std::string_view(texts_).substr(slot.text, slot.bytes) != word) continue;
    out.insert(out.end(), ids_.begin() + slot.ids, ids_.begin() + slot.ids + slot.count);
    return true;
  }
  return false;
}

void WordCache::insert(std::string_view word, uint64_t hash, const TokenId* ids, size_t count) {
  if (used_ == capacity_ || count > UINT16_MAX) return;
  if (slots_.empty()) slots_.resize(2 * capacity_);
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i].bytes != 0) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {hash, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(ids_.size()),
               static_cast<uint16_t>(word.size()), static_cast<uint16_t>(count)};
  texts_ += word;
  ids_.insert(ids_.end(), ids, ids + count);
  ++used_;
}

}  // namespace quire::tokenize
