#include "serve/logprob_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "serve/json_text.h"

namespace quire::serve {

void LogprobWriter::CharCount::add(std::string_view bytes) {
  rest_ += bytes;
  size_t at = 0;
  while (at < rest_.size()) {
    const Utf8Scan next = scan_utf8(std::string_view(rest_).substr(at));
    if (next.status == Utf8Status::kIncomplete) break;
    at += next.size;
    ++ended_;
  }
  rest_.erase(0, at);
}

void LogprobWriter::append(const std::vector<SampledToken>& tokens, std::string& out) {
  if (style_.chat) return append_chat(tokens, out);
  std::vector<Entry> entries;
  list_tokens(tokens, entries);
  append_entries(entries, out);
}

void LogprobWriter::append(const ScoredPrompt& prompt, const std::vector<SampledToken>& tokens,
                           std::string& out) {
  std::vector<Entry> entries;
  list_prompt(prompt, entries);
  list_tokens(tokens, entries);
  append_entries(entries, out);
}

void LogprobWriter::append_prompt(const ScoredPrompt& prompt, std::string& out) const {
  const auto add = [&](TokenId id, float logprob, uint32_t rank) {
    fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", id);
    append_json_logprob(out, logprob);
    fmt::format_to(std::back_inserter(out), ",\"rank\":{},\"decoded_token\":", rank);
    append_json_string(out, bytes_of(id));
    out += '}';
  };
  out += "[null";
  for (const PromptRow& row : prompt.rows) {
    out += ",{";
    add(row.next.token, row.next.logprob, row.next.rank);
    for (size_t i = 0; i < std::min(prompt.num_best, row.next.top.size()); ++i) {
      if (row.next.top[i].token == row.next.token) continue;
      out += ',';
      add(row.next.top[i].token, row.next.top[i].logprob, static_cast<uint32_t>(i) + 1);
    }
    out += '}';
  }
  out += ']';
}

std::string LogprobWriter::bytes_of(TokenId id) const {
  std::string bytes = tokenizer_->token_bytes(id);
  // What a special token stands for is itself.
  return bytes.empty() && tokenizer_->is_special(id) ? std::string(tokenizer_->token_text(id)) : bytes;
}

std::string LogprobWriter::text_of(TokenId id) const {
  return style_.tokens_as_ids ? fmt::format("token_id:{}", id) : bytes_of(id);
}

/// `"token":"...","logprob":...,"bytes":[...]`
void LogprobWriter::append_entry(const TokenLogprob& entry, std::string& out) const {
  out += "\"token\":";
  append_json_string(out, text_of(entry.token));
  out += ",\"logprob\":";
  append_json_logprob(out, entry.logprob);
  out += ",\"bytes\":";
  out += '[';
  const std::string bytes = bytes_of(entry.token);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(static_cast<uint8_t>(bytes[i]));
  }
  out += ']';
}

void LogprobWriter::append_chat(const std::vector<SampledToken>& tokens, std::string& out) const {
  out += "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += i == 0 ? "{" : ",{";
    append_entry({tokens[i].token, tokens[i].logprob}, out);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < tokens[i].top.size(); ++k) {
      out += k == 0 ? "{" : ",{";
      append_entry(tokens[i].top[k], out);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

/// The tokens of the top and the sampled one as an object of token texts. Several tokens may have the same
/// text (pieces of characters); the first of them is shown, which is the most likely where the best are
/// listed.
void LogprobWriter::append_best(const SampledToken& token, std::string& out) const {
  std::vector<std::string> written;
  const auto add = [&](const TokenLogprob& entry) {
    std::string name;
    append_json_string(name, text_of(entry.token));
    if (std::find(written.begin(), written.end(), name) != written.end()) return;
    if (!written.empty()) out += ',';
    out += name;
    out += ':';
    append_json_logprob(out, entry.logprob);
    written.push_back(std::move(name));
  };
  out += '{';
  for (const TokenLogprob& entry : token.top) add(entry);
  add({token.token, token.logprob});
  out += '}';
}

/// A special token that the text does not have, as the one before all texts of a model, is no part of it.
void LogprobWriter::list_prompt(const ScoredPrompt& prompt, std::vector<Entry>& out) const {
  CharCount chars(0);
  std::string_view rest = prompt.text;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    Entry& entry = out.emplace_back();
    entry.scored = i > 0 && i <= prompt.rows.size();
    if (entry.scored) entry.token = prompt.rows[i - 1].next;
    entry.token.token = prompt.ids[i];
    entry.token.top.resize(std::min(prompt.num_best, entry.token.top.size()));
    entry.offset = chars.begun();
    const std::string bytes = bytes_of(prompt.ids[i]);
    if (tokenizer_->is_special(prompt.ids[i]) && !rest.starts_with(bytes)) continue;
    chars.add(bytes);
    rest.remove_prefix(std::min(rest.size(), bytes.size()));
  }
}

void LogprobWriter::list_tokens(const std::vector<SampledToken>& tokens, std::vector<Entry>& out) {
  for (const SampledToken& token : tokens) {
    out.push_back({token, chars_.begun()});
    if (style_.skips_specials && tokenizer_->is_special(token.token)) continue;
    chars_.add(bytes_of(token.token));
  }
}

void LogprobWriter::append_entries(const std::vector<Entry>& entries, std::string& out) const {
  const auto list = [&](std::string_view name, auto&& append_one) {
    out += name;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += ',';
      append_one(entries[i]);
    }
    out += ']';
  };
  const auto if_scored = [&](const Entry& entry, auto&& append_one) {
    if (entry.scored) return append_one();
    out += "null";
  };
  list("{\"text_offset\":[", [&](const Entry& entry) { out += std::to_string(entry.offset); });
  list(",\"token_logprobs\":[",
       [&](const Entry& entry) { if_scored(entry, [&] { append_json_logprob(out, entry.token.logprob); }); });
  list(",\"tokens\":[", [&](const Entry& entry) { append_json_string(out, text_of(entry.token.token)); });
  list(",\"top_logprobs\":[",
       [&](const Entry& entry) { if_scored(entry, [&] { append_best(entry.token, out); }); });
  out += '}';
}

}  // namespace quire::serve
