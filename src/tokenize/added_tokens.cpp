#include "tokenize/added_tokens.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "base/utf8.h"
#include "tokenize/json_steps.h"
#include "tokenize/unicode.h"

namespace quire::tokenize {

AddedTokens::AddedTokens(const JsonObject& parent, std::string_view key, const Vocabulary& vocabulary,
                         const Normalizer* normalizer) {
  if (!parent.has(key)) return;
  auto next_id = static_cast<TokenId>(vocabulary.count());
  Growth growth(0);
  for (const JsonObject& object : json_objects(parent, key)) {
    AddedToken token;
    token.content = object.string("content");
    if (token.content.empty()) continue;
    const int64_t id_in_file = object.integer("id", 0, INT32_MAX);
    token.special = object.boolean_or("special", false);
    token.normalized = object.boolean_or("normalized", !token.special);
    token.single_word = object.boolean_or("single_word", false);
    token.lstrip = object.boolean_or("lstrip", false);
    token.rstrip = object.boolean_or("rstrip", false);
    token.normalized_content = token.content;
    if (token.normalized && normalizer != nullptr) {
      growth.allow(token.content.size());
      NormalizedText text{token.content, true, growth};
      normalizer->apply(text);
      token.normalized_content = std::move(text.text);
    }
    const auto known = by_content_.find(token.content);
    token.id = known != by_content_.end() ? tokens_[known->second].id : vocabulary.find(token.content);
    if (token.id < 0) token.id = next_id++;
    if (token.id != id_in_file) {
      log_warning(fmt::format("{}: added token '{}' has the id {} in this file, but {} in the vocabulary",
                              parent.where().string(), token.content, id_in_file, token.id));
    }
    id_end_ = std::max(id_end_, static_cast<size_t>(token.id) + 1);
    if (known != by_content_.end()) {
      token.special = token.special || tokens_[known->second].special;
      tokens_[known->second] = std::move(token);
      continue;
    }
    by_content_.emplace(token.content, tokens_.size());
    by_id_.emplace(token.id, tokens_.size());
    tokens_.push_back(std::move(token));
  }
  finders_[0] = make_finder(false);
  finders_[1] = make_finder(true);
}

TextFinder AddedTokens::make_finder(bool normalized) const {
  std::vector<std::string_view> texts;
  std::vector<size_t> values;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].normalized != normalized) continue;
    texts.push_back(normalized ? tokens_[i].normalized_content : tokens_[i].content);
    values.push_back(i);
  }
  return {texts, values};
}

void AddedTokens::cut(std::string_view text, bool normalized, std::vector<Part>& out) const {
  const TextFinder& finder = finders_[normalized ? 1 : 0];
  size_t done = 0;
  size_t from = 0;
  size_t spaces_end = 0;  // the white space before it is scanned once, however many tokens are in it
  while (const auto found = finder.find(text, from)) {
    const AddedToken& token = tokens_[found->value];
    auto [begin, end] = found->span;
    from = end;
    if (token.single_word) {
      const bool word_before = begin > 0 && is_word(utf8_before(text, begin).code);
      const bool word_behind = end < text.size() && is_word(utf8_at(text, end).code);
      if (word_before || word_behind) continue;
    }
    while (token.lstrip && begin > done) {
      const Utf8Char c = utf8_before(text, begin);
      if (!is_white_space(c.code)) break;
      begin -= c.size;
    }
    // The previous token has taken its text; the reference library drops a token without text.
    if (token.lstrip && begin < done) begin = done;
    if (token.rstrip) {
      const size_t spaces_begin = end;
      if (end < spaces_end) end = spaces_end;
      while (end < text.size()) {
        const Utf8Char c = utf8_at(text, end);
        if (!is_white_space(c.code)) break;
        end += c.size;
      }
      if (end > spaces_begin) spaces_end = end;
    }
    if (done < begin) out.push_back({{done, begin}, nullptr});
    if (begin >= end) continue;
    out.push_back({{begin, end}, &token});
    done = end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, nullptr});
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace quire::tokenize
