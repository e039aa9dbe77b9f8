#include "tokenize/bpe_run.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/utf8.h"

namespace quire::tokenize {
namespace {

// Below this size a piece is not worth splitting.
constexpr size_t kCutBytes = 24;
// Up to this many symbols, scanning all pairs for the best is faster than a heap.
constexpr size_t kShortSymbols = 24;
constexpr size_t kMaxBpeBytes = size_t{1} << 30;

}  // namespace

void BpeRun::encode(std::string_view piece, std::vector<TokenId>& out) {
  if (piece.size() > kMaxBpeBytes) throw Error("a text is too long to be tokenized");
  if (!model_.whole_.empty()) {
    size_t done = 0;
    while (const auto found = model_.whole_.find(piece, done)) {
      if (found->span.begin > done) encode_part(piece.substr(done, found->span.begin - done), out);
      out.push_back(static_cast<TokenId>(found->value));
      done = found->span.end;
    }
    piece.remove_prefix(done);
  }
  if (!piece.empty()) encode_part(piece, out);
}

void BpeRun::encode_part(std::string_view piece, std::vector<TokenId>& out) {
  if (model_.options_.ignore_merges) {
    if (const TokenId id = model_.vocabulary_.find(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  if (piece.size() < kCutBytes || !model_.may_cut_) return encode_cached(piece, out);
  size_t begin = 0;
  Utf8Char last = utf8_at(piece, 0);
  for (size_t pos = last.size; pos < piece.size();) {
    const Utf8Char c = utf8_at(piece, pos);
    if (!model_.may_join(last.code, c.code)) {
      encode_cached(piece.substr(begin, pos - begin), out);
      begin = pos;
    }
    last = c;
    pos += c.size;
  }
  encode_cached(piece.substr(begin), out);
}

void BpeRun::encode_cached(std::string_view word, std::vector<TokenId>& out) {
  if (word.size() > WordCache::kMaxWordBytes || !model_.unused_.empty()) return encode_word(word, out);
  const uint64_t hash = std::hash<std::string_view>{}(word);
  if (cache_.find(word, hash, out)) return;
  const size_t before = out.size();
  const TokenId entry = model_.vocabulary_.ids_are_unique() ? model_.vocabulary_.find(word) : -1;
  if (entry >= 0 && model_.is_own_token(entry)) {
    out.push_back(entry);
  } else {
    encode_word(word, out);
    if (entry >= 0 && out.size() == before + 1 && out.back() == entry) model_.note_own_token(entry);
  }
  cache_.insert(word, hash, out.data() + before, out.size() - before);
}

void BpeRun::encode_word(std::string_view word, std::vector<TokenId>& out) {
  ids_.clear();
  to_symbols(word);
  if (ids_.size() <= kShortSymbols) {
    merge_short();
  } else {
    merge_long();
  }
  after_unknown_ = false;
  for (const TokenId id : ids_) {
    if (model_.unused_.empty()) {
      emit_symbol(id, out);
    } else {
      emit_apart(id, out);
    }
  }
}

void BpeRun::emit_symbol(TokenId id, std::vector<TokenId>& out) {
  const BpeOptions& options = model_.options_;
  bool unknown = id == options.unknown;
  if (!model_.is_entry(id)) {
    // An extra character that found no partner.
    if (options.byte_fallback && append_bytes(model_.text_of(id), out)) {
      after_unknown_ = false;
      return;
    }
    if (options.unknown < 0) return;
    id = options.unknown;
    unknown = true;
  }
  // For other characters, to_symbols has already added the unknown token if needed.
  const bool again = unknown && after_unknown_ && options.fuse_unknown && !options.extra_characters.empty();
  if (!again) out.push_back(id);
  after_unknown_ = unknown;
}

void BpeRun::emit_apart(TokenId id, std::vector<TokenId>& out) {
  std::vector<TokenId> open = {id};
  while (!open.empty()) {
    const TokenId next = open.back();
    open.pop_back();
    const auto halves = halves_.find(next);
    if (model_.unused_.contains(next) && halves != halves_.end()) {
      open.push_back(halves->second.second);
      open.push_back(halves->second.first);
    } else {
      emit_symbol(next, out);
    }
  }
}

bool BpeRun::append_bytes(std::string_view text, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  for (const char c : text) {
    const TokenId id = model_.bytes_[static_cast<unsigned char>(c)];
    if (id < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(id);
  }
  return true;
}

TokenId BpeRun::symbol_of(std::string_view word, size_t pos, uint32_t size, char32_t code) {
  const std::string_view prefix = pos > 0 ? std::string_view(model_.options_.prefix) : std::string_view();
  const std::string_view suffix =
      pos + size == word.size() ? std::string_view(model_.options_.suffix) : std::string_view();
  decorated_.assign(prefix);
  decorated_ += word.substr(pos, size);
  decorated_ += suffix;
  return prefix.empty() && suffix.empty() ? model_.character(code) : model_.vocabulary_.find(decorated_);
}

void BpeRun::to_symbols(std::string_view word) {
  const BpeOptions& options = model_.options_;
  const bool plain = options.prefix.empty() && options.suffix.empty();
  bool unknown_pending = false;
  for (size_t pos = 0; pos < word.size();) {
    const Utf8Char c = utf8_at(word, pos);
    const TokenId id = plain ? model_.character(c.code) : symbol_of(word, pos, c.size, c.code);
    const std::string_view text = plain ? word.substr(pos, c.size) : std::string_view(decorated_);
    pos += c.size;
    if (id >= 0) {
      if (unknown_pending) ids_.push_back(options.unknown);
      unknown_pending = false;
      ids_.push_back(id);
      continue;
    }
    // As in the reference, bytes do not end a run of unknown characters: its token comes after them.
    if (options.byte_fallback && append_bytes(text, ids_)) continue;
    if (options.unknown < 0) continue;  // the character is dropped
    if (unknown_pending && !options.fuse_unknown) ids_.push_back(options.unknown);
    unknown_pending = true;
  }
  if (unknown_pending) ids_.push_back(options.unknown);
}

Bpe::Merge BpeRun::merge_of(TokenId left, TokenId right) {
  const Bpe::Merge* merge = model_.merge_of(left, right);
  if (merge == nullptr) return {kNoRank, -1};
  if (!model_.unused_.empty() && model_.unused_.contains(merge->result)) {
    halves_[merge->result] = {left, right};
  }
  return *merge;
}

void BpeRun::merge_short() {
  merges_.clear();
  for (size_t i = 0; i + 1 < ids_.size(); ++i) merges_.push_back(merge_of(ids_[i], ids_[i + 1]));
  while (!merges_.empty()) {
    const auto best = std::min_element(merges_.begin(), merges_.end(),
                                       [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) return;
    const auto i = static_cast<size_t>(best - merges_.begin());
    ids_[i] = best->result;
    ids_.erase(ids_.begin() + static_cast<ptrdiff_t>(i) + 1);
    merges_.erase(best);
    if (i > 0) merges_[i - 1] = merge_of(ids_[i - 1], ids_[i]);
    if (i < merges_.size()) merges_[i] = merge_of(ids_[i], ids_[i + 1]);
  }
}

void BpeRun::offer(uint32_t left) {
  const uint32_t right = symbols_[left].next;
  if (right == kNone) return;
  const Bpe::Merge merge = merge_of(symbols_[left].id, symbols_[right].id);
  if (merge.rank != kNoRank) queue_.push_back(uint64_t{merge.rank} << 32 | left);
}

void BpeRun::merge_long() {
  symbols_.clear();
  for (const TokenId id : ids_) {
    const auto index = static_cast<uint32_t>(symbols_.size());
    symbols_.push_back({id, index == 0 ? kNone : index - 1, index + 1});
  }
  symbols_.back().next = kNone;
  queue_.clear();
  for (uint32_t i = 0; i + 1 < symbols_.size(); ++i) offer(i);
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  const auto offer_later = [&](uint32_t left) {
    const size_t before = queue_.size();
    offer(left);
    if (queue_.size() > before) std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  };
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const uint64_t top = queue_.back();
    queue_.pop_back();
    const auto index = static_cast<uint32_t>(top);
    Symbol& symbol = symbols_[index];
    if (symbol.next == kGone || symbol.next == kNone) continue;
    Symbol& right = symbols_[symbol.next];
    const Bpe::Merge* merge = model_.merge_of(symbol.id, right.id);
    // The pair may have changed since it was queued; then the new pair has its own entry.
    if (merge == nullptr || merge->rank != top >> 32) continue;
    symbol.id = merge->result;
    symbol.next = right.next;
    if (right.next != kNone) symbols_[right.next].previous = index;
    right.next = kGone;
    if (symbol.previous != kNone) offer_later(symbol.previous);
    offer_later(index);
  }
  ids_.clear();
  for (const Symbol& symbol : symbols_) {
    if (symbol.next != kGone) ids_.push_back(symbol.id);
  }
}

}  // namespace quire::tokenize
