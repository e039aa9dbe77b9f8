#include "tokenize/bpe.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenize/bpe_run.h"
#include "tokenize/token_trie.h"

namespace quire::tokenize {
namespace {

/// Reads the merges of a tokenizer.json.
class MergeReader {
 public:
  MergeReader(const JsonObject& object, const Vocabulary& vocabulary, const std::string& prefix)
      : object_(object), vocabulary_(vocabulary), prefix_(prefix) {}

  std::vector<BpeMerge> read() {
    const json::value* list = object_.find("merges");
    if (list == nullptr) throw object_.error("merges", "missing");
    if (!list->is_array()) throw object_.error("merges", "an array was expected");
    const json::array& merges = list->get_array();
    if (merges.size() >= kNoRank) throw object_.error("merges", "too many");
    merges_.reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto refuse = [&](std::string_view what) {
        throw object_.error(fmt::format("merges[{}]", i), what);
      };
      if (const auto* text = merges[i].if_string()) {
        const std::string_view both = *text;
        if (both.starts_with("#version")) continue;
        const size_t space = both.find(' ');
        if (space == both.npos || both.find(' ', space + 1) != both.npos)
          refuse("two tokens and a space were expected");
        add(both.substr(0, space), both.substr(space + 1));
      } else if (const auto* pair = merges[i].if_array();
                 pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string()) {
        add((*pair)[0].get_string(), (*pair)[1].get_string());
      } else {
        refuse("a string or two strings were expected");
      }
    }
    return std::move(merges_);
  }

 private:
  void add(std::string_view left, std::string_view right) {
    const size_t rank = merges_.size();
    const auto id_of = [&](std::string_view text) {
      const TokenId id = vocabulary_.find(text);
      if (id < 0)
        throw object_.error("merges", fmt::format("number {}: '{}' is not in the vocabulary", rank, text));
      return id;
    };
    const TokenId left_id = id_of(left);
    const TokenId right_id = id_of(right);
    if (right.size() < prefix_.size()) {
      throw object_.error(
          "merges", fmt::format("number {}: '{}' is shorter than continuing_subword_prefix", rank, right));
    }
    joined_.assign(left);
    joined_ += right.substr(prefix_.size());
    merges_.push_back({left_id, right_id, id_of(joined_), static_cast<uint32_t>(rank)});
  }

  const JsonObject& object_;
  const Vocabulary& vocabulary_;
  const std::string& prefix_;
  std::vector<BpeMerge> merges_;
  std::string joined_;
};

}  // namespace

std::unique_ptr<Bpe> Bpe::from_json(const JsonObject& object) {
  if (object.number_or("dropout", 0) != 0) throw object.error("dropout", "random merges are not supported");
  Vocabulary vocabulary = Vocabulary::from_json(object, "vocab");
  BpeOptions options;
  options.prefix = object.string_or("continuing_subword_prefix", "");
  options.suffix = object.string_or("end_of_word_suffix", "");
  options.fuse_unknown = object.boolean_or("fuse_unk", false);
  options.byte_fallback = object.boolean_or("byte_fallback", false);
  options.ignore_merges = object.boolean_or("ignore_merges", false);
  if (object.has("unk_token")) options.unknown = vocabulary.find(object.string("unk_token"));
  const auto merges = MergeReader(object, vocabulary, options.prefix).read();
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(options), merges);
}

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options, std::span<const BpeMerge> merges)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), own_tokens_(vocabulary_.size()) {
  unused_.insert(options_.unused.begin(), options_.unused.end());
  index_characters();
  index_whole();
  merges_.reserve(merges.size());
  for (const BpeMerge& merge : merges) {
    merges_.insert_or_assign(pair_key(static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right)),
                             Merge{merge.rank, merge.result});
    if (may_cut_) note_joint(merge.left, merge.right);
  }
}

void Bpe::index_characters() {
  low_characters_.fill(-1);
  const auto note = [&](char32_t code, TokenId id) {
    if (code < low_characters_.size()) {
      low_characters_[code] = id;
    } else {
      high_characters_.emplace(code, id);
    }
  };
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string* text = vocabulary_.text(id);
    if (text != nullptr && is_one_char(*text)) note(utf8_at(*text, 0).code, id);
  }
  for (size_t i = 0; i < options_.extra_characters.size(); ++i) {
    note(options_.extra_characters[i], static_cast<TokenId>(vocabulary_.size() + i));
  }
  for (size_t byte = 0; byte < bytes_.size(); ++byte)
    bytes_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  may_cut_ =
      options_.prefix.empty() && options_.suffix.empty() && vocabulary_.ids_are_unique() && unused_.empty();
}

void Bpe::index_whole() {
  std::vector<std::string_view> texts;
  std::vector<size_t> ids;
  for (const TokenId id : options_.whole) {
    texts.push_back(*vocabulary_.text(id));
    ids.push_back(static_cast<size_t>(id));
  }
  whole_ = TextFinder(texts, ids);
}

std::string Bpe::text_of(TokenId id) const {
  if (is_entry(id)) return *vocabulary_.text(id);
  std::string text;
  append_utf8(text, options_.extra_characters[static_cast<size_t>(id) - vocabulary_.size()]);
  return text;
}

void Bpe::note_joint(TokenId left, TokenId right) {
  const std::string left_text = text_of(left);
  const std::string right_text = text_of(right);
  if (left_text.empty() || right_text.empty()) {
    may_cut_ = false;
    return;
  }
  const char32_t a = utf8_before(left_text, left_text.size()).code;
  const char32_t b = utf8_at(right_text, 0).code;
  if (a < 128 && b < 128) {
    joints_low_.set(a * 128 + b);
  } else {
    joints_high_.insert(pair_key(a, b));
  }
}

bool Bpe::may_join(char32_t left, char32_t right) const {
  // A character that is not an entry becomes bytes or the unknown token, which has other merges and may be
  // fused with its neighbours.
  if (!is_entry(character(left)) || !is_entry(character(right))) return true;
  if (left < 128 && right < 128) return joints_low_.test(left * 128 + right);
  return joints_high_.contains(pair_key(left, right));
}

std::unique_ptr<TokenModel::Run> Bpe::start(size_t text_bytes) const {
  return std::make_unique<BpeRun>(*this, text_bytes);
}

RankedMerges merges_by_rank(const Vocabulary& vocabulary, std::span<const uint32_t> ranks) {
  std::vector<std::pair<std::string_view, TokenId>> entries;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (const std::string* text = vocabulary.text(id)) entries.emplace_back(*text, id);
  }
  const TokenTrie trie(entries);
  RankedMerges out;
  boost::unordered_flat_map<char32_t, TokenId> extra;
  const auto character = [&](std::string_view text) {
    const char32_t code = utf8_at(text, 0).code;
    const auto next = static_cast<TokenId>(vocabulary.size() + out.extra_characters.size());
    const auto [at, added] = extra.emplace(code, next);
    if (added) out.extra_characters.push_back(code);
    return at->second;
  };
  // An entry, or a character that is not an entry; -1: neither.
  const auto symbol = [&](std::string_view text) {
    const TokenId id = vocabulary.find(text);
    return id < 0 && is_one_char(text) ? character(text) : id;
  };
  for (const auto& [text, id] : entries) {
    if (ranks[static_cast<size_t>(id)] == kNoRank || text.empty()) continue;
    TokenTrie::Node node = TokenTrie::kRoot;
    const size_t first_size = utf8_at(text, 0).size;
    for (size_t size = 1; size < text.size(); ++size) {
      node = trie.step(node, text[size - 1]);
      TokenId left = trie.token(node);
      if (size == first_size && left < 0) left = symbol(text.substr(0, size));
      if (left < 0) continue;
      const TokenId right = symbol(text.substr(size));
      if (right >= 0) out.merges.push_back({left, right, id, ranks[static_cast<size_t>(id)]});
    }
  }
  return out;
}

}  // namespace quire::tokenize
