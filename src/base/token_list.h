#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire {

/// Makes the tokens of a list whenever they are not in memory.
class TokenMaker {
 public:
  virtual ~TokenMaker() = default;
  virtual uint32_t size() const = 0;
  /// Returns size() tokens, always the same.
  virtual std::vector<TokenId> make() const = 0;
};

/// Tokens in order. A list may be given a maker instead of tokens: then they take memory only from when they
/// are read, by anything but size() and empty(), until forget(). A copy has tokens and no maker. Not
/// thread-safe, not even for reading while there is a maker.
class TokenList {
 public:
  TokenList() = default;
  TokenList(std::vector<TokenId> tokens)
      : tokens_(std::move(tokens)) {}  // NOLINT(google-explicit-constructor)
  TokenList(std::initializer_list<TokenId> tokens) : tokens_(tokens) {}
  explicit TokenList(std::unique_ptr<const TokenMaker> maker) : maker_(std::move(maker)) {}
  TokenList(const TokenList& other) : tokens_(other.read()) {}
  TokenList(TokenList&&) noexcept = default;
  TokenList& operator=(const TokenList& other) { return *this = TokenList(other); }
  TokenList& operator=(TokenList&&) noexcept = default;
  ~TokenList() = default;

  size_t size() const { return maker_ == nullptr ? tokens_.size() : maker_->size(); }
  bool empty() const { return size() == 0; }

  const TokenId* data() const { return read().data(); }
  const TokenId* begin() const { return data(); }
  const TokenId* end() const {
    const std::vector<TokenId>& all = read();
    return all.data() + all.size();
  }
  TokenId operator[](size_t i) const { return read()[i]; }
  TokenId back() const { return read().back(); }
  /// The tokens, to be changed: they will not be made again.
  std::vector<TokenId>& write() {
    read();
    maker_ = nullptr;
    return tokens_;
  }
  void push_back(TokenId token) {
    if (maker_ == nullptr) return tokens_.push_back(token);
    write().push_back(token);
  }
  /// Gives the memory of tokens back that can be made again.
  void forget() {
    if (maker_ != nullptr) std::vector<TokenId>().swap(tokens_);  // an assignment would keep the memory
  }

 private:
  const std::vector<TokenId>& read() const {
    if (maker_ != nullptr && tokens_.empty()) [[unlikely]]
      tokens_ = maker_->make();
    return tokens_;
  }

  mutable std::vector<TokenId> tokens_;
  std::unique_ptr<const TokenMaker> maker_;  // null: tokens_ are all that there is
};

}  // namespace quire
