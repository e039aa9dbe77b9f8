#include "text/bpe.h"

#include <fmt/format.h>

#include "text/bpe_run.h"
#include "text/utf8.h"

namespace quire {

std::unique_ptr<Bpe> Bpe::from_json(const JsonObject& object) {
  auto bpe = std::make_unique<Bpe>();
  if (object.number_or("dropout", 0) != 0) throw object.error("dropout", "random merges are not supported");
  bpe->vocabulary_ = Vocabulary::from_json(object, "vocab");
  Options& options = bpe->options_;
  options.prefix = object.string_or("continuing_subword_prefix", "");
  options.suffix = object.string_or("end_of_word_suffix", "");
  options.fuse_unknown = object.boolean_or("fuse_unk", false);
  options.byte_fallback = object.boolean_or("byte_fallback", false);
  options.ignore_merges = object.boolean_or("ignore_merges", false);
  if (object.has("unk_token")) options.unknown = bpe->vocabulary_.find(object.string("unk_token"));
  bpe->index_characters();
  bpe->read_merges(object);
  return bpe;
}

void Bpe::index_characters() {
  low_characters_.fill(-1);
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const std::string* text = vocabulary_.text(static_cast<TokenId>(i));
    if (text == nullptr || !is_one_char(*text)) continue;
    const char32_t code = utf8_at(*text, 0).code;
    if (code < low_characters_.size()) {
      low_characters_[code] = static_cast<TokenId>(i);
    } else {
      high_characters_.emplace(code, static_cast<TokenId>(i));
    }
  }
  for (size_t byte = 0; byte < bytes_.size(); ++byte)
    bytes_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  may_cut_ = options_.prefix.empty() && options_.suffix.empty() && vocabulary_.ids_are_unique();
}

void Bpe::read_merges(const JsonObject& object) {
  const json::value* list = object.find("merges");
  if (list == nullptr) throw object.error("merges", "missing");
  if (!list->is_array()) throw object.error("merges", "an array was expected");
  const json::array& merges = list->get_array();
  if (merges.size() > UINT32_MAX) throw object.error("merges", "too many");
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto refuse = [&](std::string_view what) {
      throw object.error(fmt::format("merges[{}]", i), what);
    };
    if (const auto* text = merges[i].if_string()) {
      const std::string_view both = *text;
      if (both.starts_with("#version")) continue;
      const size_t space = both.find(' ');
      if (space == both.npos || both.find(' ', space + 1) != both.npos)
        refuse("two tokens and a space were expected");
      add_merge(object, both.substr(0, space), both.substr(space + 1), rank++);
    } else if (const auto* pair = merges[i].if_array();
               pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string()) {
      add_merge(object, (*pair)[0].get_string(), (*pair)[1].get_string(), rank++);
    } else {
      refuse("a string or two strings were expected");
    }
  }
}

void Bpe::add_merge(const JsonObject& object, std::string_view left, std::string_view right, uint32_t rank) {
  const auto id_of = [&](std::string_view text) {
    const TokenId id = vocabulary_.find(text);
    if (id < 0)
      throw object.error("merges", fmt::format("number {}: '{}' is not in the vocabulary", rank, text));
    return id;
  };
  const TokenId left_id = id_of(left);
  const TokenId right_id = id_of(right);
  if (right.size() < options_.prefix.size()) {
    throw object.error("merges",
                       fmt::format("number {}: '{}' is shorter than continuing_subword_prefix", rank, right));
  }
  const TokenId result = id_of(std::string(left) + std::string(right.substr(options_.prefix.size())));
  merges_.insert_or_assign(pair_key(static_cast<uint32_t>(left_id), static_cast<uint32_t>(right_id)),
                           Merge{rank, result});
  if (may_cut_) note_joint(left, right);
}

void Bpe::note_joint(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty()) {
    may_cut_ = false;
    return;
  }
  const char32_t a = utf8_before(left, left.size()).code;
  const char32_t b = utf8_at(right, 0).code;
  if (a < 128 && b < 128) {
    joints_low_.set(a * 128 + b);
  } else {
    joints_high_.insert(pair_key(a, b));
  }
}

bool Bpe::may_join(char32_t left, char32_t right) const {
  // What is no entry becomes bytes or the unknown token, whose merges speak of other characters.
  if (character(left) < 0 || character(right) < 0) return true;
  if (left < 128 && right < 128) return joints_low_.test(left * 128 + right);
  return joints_high_.contains(pair_key(left, right));
}

std::unique_ptr<TokenModel::Run> Bpe::start(size_t text_bytes) const {
  return std::make_unique<BpeRun>(*this, text_bytes);
}

}  // namespace quire
