#include "grammar/vocabulary.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/utf8.h"

namespace quire::grammar {
namespace {

constexpr size_t kTried = 2000;  // tokens, evenly over all ids

/// Whether tokens between others have the text that they have alone.
bool joins(const tokenize::Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::optional<TokenId> letter;  // put before and behind
  for (size_t id = 0; id < tokens.size() && !letter; ++id) {
    if (tokens[id].size() == 1 && tokens[id][0] >= 'a' && tokens[id][0] <= 'z')
      letter = static_cast<TokenId>(id);
  }
  if (!letter) return false;
  const std::string before = tokenizer.decode(std::array{*letter}, false);
  const size_t stride = std::max<size_t>(1, tokens.size() / kTried);
  for (size_t id = 0; id < tokens.size(); id += stride) {
    if (tokens[id].empty() || !is_valid_utf8(tokens[id])) continue;
    const std::array ids = {*letter, static_cast<TokenId>(id), *letter};
    if (tokenizer.decode(ids, false) != before + tokens[id] + tokens[static_cast<size_t>(*letter)])
      return false;
  }
  return true;
}

}  // namespace

tl::expected<Vocabulary, std::string> vocabulary_of(const tokenize::Tokenizer& tokenizer, uint32_t size,
                                                    std::span<const TokenId> ends) {
  Vocabulary out;
  out.tokens.resize(size);
  out.ends.assign(ends.begin(), ends.end());
  std::erase_if(out.ends, [&](TokenId id) { return id < 0 || static_cast<uint32_t>(id) >= size; });
  if (out.ends.empty()) {
    return tl::unexpected(std::string("the model names no token that ends an answer, which a grammar needs"));
  }
  const size_t known = std::min<size_t>(size, tokenizer.vocab_size());
  for (size_t id = 0; id < known; ++id) {
    const auto token = static_cast<TokenId>(id);
    out.tokens[id] = tokenizer.is_special(token) ? std::string(kSpecialBytes) : tokenizer.token_bytes(token);
  }
  for (const TokenId id : out.ends) out.tokens[static_cast<size_t>(id)].clear();
  if (!joins(tokenizer, out.tokens)) {
    return tl::unexpected(std::string(
        "the text of the model's tokens depends on their neighbours, which a grammar cannot follow"));
  }
  return out;
}

}  // namespace quire::grammar
