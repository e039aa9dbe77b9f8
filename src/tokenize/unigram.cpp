#include "tokenize/unigram.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace quire::tokenize {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr size_t kMaxUnigramBytes = size_t{1} << 30;

using Use = UnigramOptions::Use;

}  // namespace

/// Walks over a piece once. At a place that no entry crosses, the best path is settled: its tokens are
/// written and only its score is kept, so that the memory does not grow with the piece.
template <class Real>
class Unigram::ViterbiRun : public TokenModel::Run {
 public:
  explicit ViterbiRun(const Unigram& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<TokenId>& out) override {
    if (piece.size() > kMaxUnigramBytes) throw Error("a text is too long to be tokenized");
    piece_ = piece;
    unknown_begin_ = unknown_end_ = 0;
    begin_ = 0;
    Real score = 0;
    size_t reach = 0;  // where the furthest entry so far ends
    for (size_t pos = 0; pos < piece.size();) {
      if (pos == reach) {
        if (pos > begin_) score = settle(pos, out);
        begin_ = pos;
        if (ends_.empty()) ends_.resize(1);
        ends_[0].score = score;
      }
      const uint32_t size = utf8_at(piece, pos).size;
      reach = std::max(reach, extend(pos, size));
      pos += size;
    }
    settle(piece.size(), out);
    flush_unknown(out);
  }

 private:
  /// The best path to a place.
  struct End {
    Real score = 0;
    uint32_t size = 0;  // of its last entry; 0: there is none yet
    TokenId id = -1;
  };

  /// Extends by all entries that start at `pos`; returns where the furthest of them ends.
  size_t extend(size_t pos, uint32_t character_size) {
    const Real here = ends_[pos - begin_].score;
    const TokenTrie& trie = model_.trie_;
    bool single = false;
    size_t furthest = pos + character_size;
    TokenTrie::Node node = TokenTrie::kRoot;
    for (size_t end = pos; end < piece_.size();) {
      node = trie.step(node, piece_[end]);
      if (node == TokenTrie::kNone) break;
      ++end;
      const TokenId id = trie.token(node);
      if (id < 0) continue;
      offer(pos, end, id, static_cast<Real>(score_of(id, end - pos)) + here);
      single = single || end - pos == character_size;
      furthest = std::max(furthest, end);
    }
    if (!single) {
      const Real unknown = static_cast<Real>(model_.lowest_) - static_cast<Real>(kUnknownPenalty);
      offer(pos, pos + character_size, model_.options_.unknown, unknown + here);
    }
    return furthest;
  }

  double score_of(TokenId id, size_t bytes) const {
    const UnigramOptions& options = model_.options_;
    const auto i = static_cast<size_t>(id);
    if (!options.uses.empty() && options.uses[i] == Use::kAlways) {
      return static_cast<double>(bytes) * 0.1 - 0.1;  // as of SentencePiece 0.2.3
    }
    return options.scores[i];
  }

  void offer(size_t begin, size_t end, TokenId id, Real score) {
    const size_t at = end - begin_;
    if (at >= ends_.size()) ends_.resize(std::max(at + 1, 2 * ends_.size()));
    End& best = ends_[at];
    if (best.size != 0 && !(score > best.score)) return;
    best = {score, static_cast<uint32_t>(end - begin), id};
  }

  /// Writes the tokens from begin_ to `end` and gives the score there; leaves ends_ empty for the next.
  Real settle(size_t end, std::vector<TokenId>& out) {
    path_.clear();
    for (size_t at = end - begin_; at > 0; at -= ends_[at].size) path_.push_back(at);
    const Real score = ends_[end - begin_].score;
    for (auto at = path_.rbegin(); at != path_.rend(); ++at) {
      const End& last = ends_[*at];
      emit(begin_ + *at - last.size, begin_ + *at, last.id, out);
    }
    std::fill(ends_.begin(), ends_.begin() + static_cast<ptrdiff_t>(end - begin_ + 1), End{});
    return score;
  }

  void emit(size_t begin, size_t end, TokenId id, std::vector<TokenId>& out) {
    if (id == model_.options_.unknown) {
      if (unknown_end_ == 0) unknown_begin_ = begin;
      unknown_end_ = end;
      return;
    }
    flush_unknown(out);
    out.push_back(id);
  }

  void flush_unknown(std::vector<TokenId>& out) {
    if (unknown_end_ == 0) return;
    const std::string_view text = piece_.substr(unknown_begin_, unknown_end_ - unknown_begin_);
    unknown_end_ = 0;
    // The tokenizers library looks the whole run up.
    const TokenId entry = model_.options_.single_precision ? -1 : model_.vocabulary_.find(text);
    if (entry >= 0) {
      out.push_back(entry);
    } else if (model_.bytes_.empty() || !append_bytes(text, out)) {
      out.push_back(model_.options_.unknown);
    }
  }

  /// False, with nothing appended, if one of them has no token.
  bool append_bytes(std::string_view text, std::vector<TokenId>& out) {
    const size_t before = out.size();
    for (const char byte : text) {
      const TokenId id = model_.bytes_[static_cast<unsigned char>(byte)];
      if (id < 0) {
        out.resize(before);
        return false;
      }
      out.push_back(id);
    }
    return true;
  }

  const Unigram& model_;
  std::string_view piece_;
  size_t begin_ = 0;       // up to here the tokens are settled
  std::vector<End> ends_;  // by the distance from begin_
  std::vector<size_t> path_;
  size_t unknown_begin_ = 0;  // the run of unknown characters not yet written
  size_t unknown_end_ = 0;    // 0: there is none
};

Unigram::Unigram(Vocabulary vocabulary, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  lowest_ =
      options_.single_precision ? static_cast<double>(FLT_MAX) : std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, TokenId>> entries;
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const Use use = options_.uses.empty() ? Use::kNormal : options_.uses[i];
    if (use == Use::kNormal) lowest_ = std::min(lowest_, options_.scores[i]);
    const auto id = static_cast<TokenId>(i);
    if (use != Use::kNever) entries.emplace_back(*vocabulary_.text(id), id);
  }
  trie_ = TokenTrie(std::move(entries));
  if (!options_.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) {
    bytes_.push_back(vocabulary_.find(fmt::format("<0x{:02X}>", byte)));
  }
}

std::unique_ptr<TokenModel::Run> Unigram::start(size_t) const {
  if (options_.single_precision) return std::make_unique<ViterbiRun<float>>(*this);
  return std::make_unique<ViterbiRun<double>>(*this);
}

std::unique_ptr<Unigram> Unigram::from_json(const JsonObject& object) {
  const json::value* list = object.find("vocab");
  if (list == nullptr) throw object.error("vocab", "missing");
  if (!list->is_array()) throw object.error("vocab", "an array was expected");
  const json::array& entries = list->get_array();
  if (entries.size() > INT32_MAX / 2) throw object.error("vocab", "too many");
  std::vector<std::string> texts;
  UnigramOptions options;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto* pair = entries[i].if_array();
    json::error_code failed;
    const double score = pair != nullptr && pair->size() == 2 && (*pair)[0].is_string()
                             ? (*pair)[1].to_number<double>(failed)
                             : std::nan("");
    if (failed || !std::isfinite(score)) {
      throw object.error(fmt::format("vocab[{}]", i), "a text and its score were expected");
    }
    texts.emplace_back((*pair)[0].get_string());
    options.scores.push_back(score);
  }
  auto vocabulary = Vocabulary::from_list(std::move(texts));
  if (!vocabulary) {
    throw object.error(fmt::format("vocab[{}]", vocabulary.error()), "the same text as an earlier entry");
  }
  if (vocabulary->size() == 0) throw object.error("vocab", "empty");
  options.unknown =
      static_cast<TokenId>(object.integer("unk_id", 0, static_cast<int64_t>(vocabulary->size()) - 1));
  options.byte_fallback = object.boolean_or("byte_fallback", false);
  return std::make_unique<Unigram>(std::move(*vocabulary), std::move(options));
}

}  // namespace quire::tokenize
