#include "tokenize/sentencepiece.h"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "base/log.h"
#include "tokenize/bpe.h"
#include "tokenize/pipeline_tokenizer.h"
#include "tokenize/sentencepiece_file.h"
#include "tokenize/sentencepiece_normalizer.h"
#include "tokenize/tokenizer_config.h"
#include "tokenize/unigram.h"

namespace quire::tokenize {
namespace {

using PieceType = SentencePieceFile::Type;

/// By id; merges produce only pieces that are neither control, unknown nor byte pieces.
std::vector<uint32_t> ranks_of(const SentencePieceFile& file) {
  std::map<float, uint32_t, std::greater<>> rank_of_score;
  for (const auto& piece : file.pieces) rank_of_score.emplace(piece.score, 0);
  uint32_t next = 0;
  for (auto& [score, rank] : rank_of_score) rank = next++;
  std::vector<uint32_t> ranks;
  for (const auto& piece : file.pieces) {
    const bool made = file.model == SentencePieceFile::Model::kBpe &&
                      (piece.type == PieceType::kNormal || piece.type == PieceType::kUserDefined ||
                       piece.type == PieceType::kUnused);
    ranks.push_back(made ? rank_of_score.at(piece.score) : kNoRank);
  }
  return ranks;
}

std::unique_ptr<TokenModel> bpe_model(const SentencePieceFile& file, Vocabulary vocabulary, TokenId unknown) {
  BpeOptions options;
  options.unknown = unknown;
  options.fuse_unknown = true;
  options.byte_fallback = file.byte_fallback;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (file.pieces[i].type == PieceType::kUserDefined) options.whole.push_back(id);
    if (file.pieces[i].type == PieceType::kUnused) options.unused.push_back(id);
  }
  RankedMerges ranked = merges_by_rank(vocabulary, ranks_of(file));
  options.extra_characters = std::move(ranked.extra_characters);
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(options), ranked.merges);
}

std::unique_ptr<TokenModel> unigram_model(const SentencePieceFile& file, Vocabulary vocabulary,
                                          TokenId unknown) {
  UnigramOptions options;
  options.unknown = unknown;
  options.byte_fallback = file.byte_fallback;
  options.single_precision = true;
  for (const auto& piece : file.pieces) {
    using Use = UnigramOptions::Use;
    options.scores.push_back(static_cast<double>(piece.score));
    options.uses.push_back(piece.type == PieceType::kNormal        ? Use::kNormal
                           : piece.type == PieceType::kUserDefined ? Use::kAlways
                                                                   : Use::kNever);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(options));
}

std::unique_ptr<TokenModel> model_of(const SentencePieceFile& file, const std::filesystem::path& where) {
  std::vector<std::string> texts;
  TokenId unknown = -1;
  for (const auto& piece : file.pieces) {
    if (piece.type == PieceType::kUnknown) unknown = static_cast<TokenId>(texts.size());
    texts.push_back(piece.text);
  }
  // The reader has refused equal texts.
  Vocabulary vocabulary = Vocabulary::from_list(std::move(texts)).value();
  switch (file.model) {
    case SentencePieceFile::Model::kUnigram:
      return unigram_model(file, std::move(vocabulary), unknown);
    case SentencePieceFile::Model::kBpe:
    case SentencePieceFile::Model::kChar:
      return bpe_model(file, std::move(vocabulary), unknown);
    case SentencePieceFile::Model::kWord:
      break;
  }
  throw file_error(where, "trainer_spec.model_type WORD is not supported");
}

std::unique_ptr<Normalizer> normalizer_of(const SentencePieceFile& file, const std::filesystem::path& where,
                                          bool legacy) {
  std::optional<CharsMap> map;
  if (!file.charsmap.empty()) {
    auto parsed = CharsMap::parse(file.charsmap);
    if (!parsed) {
      throw file_error(where, fmt::format("normalizer_spec.precompiled_charsmap: {}", parsed.error()));
    }
    map = std::move(*parsed);
  }
  std::vector<std::string_view> texts;
  for (const auto& piece : file.pieces) {
    if (piece.type == PieceType::kUserDefined) texts.push_back(piece.text);
  }
  using Prefix = SentencePieceNormalizer::Prefix;
  return std::make_unique<SentencePieceNormalizer>(file, std::move(map),
                                                   TextFinder(texts, std::vector<size_t>(texts.size())),
                                                   legacy ? Prefix::kAlways : Prefix::kFirst);
}

/// The tokens that are found in a text: those marked in the model, then those added by the config.
json::array added_tokens(const SentencePieceFile& file, const TokenizerConfig& config) {
  json::array list;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const PieceType type = file.pieces[i].type;
    if (type != PieceType::kControl && type != PieceType::kUnknown) continue;
    list.push_back(
        json::object{{"id", i}, {"content", file.pieces[i].text}, {"special", true}, {"normalized", false}});
  }
  for (const json::value& token : config.added_to_text()) list.push_back(token);
  return list;
}

using Surrounding = std::optional<std::pair<std::string, TokenId>>;

/// The model's token `id`, unless `named`, the value of `key`, is a different piece or an added token.
Surrounding surrounding(const SentencePieceFile& file, const TokenizerConfig& config, std::string_view key,
                        std::string_view named, int32_t id) {
  if (!named.empty()) {
    for (const json::value& token : config.added_tokens) {
      const json::value* content = token.as_object().if_contains("content");
      if (content != nullptr && content->is_string() && std::string_view(content->as_string()) == named) {
        return std::pair(std::string(named), token.at("id").to_number<TokenId>());
      }
    }
    const auto piece =
        std::find_if(file.pieces.begin(), file.pieces.end(), [&](const auto& p) { return p.text == named; });
    if (piece != file.pieces.end()) {
      id = static_cast<int32_t>(piece - file.pieces.begin());
    } else {
      log_warning(fmt::format("{}: '{}' is not a token: the model's own is used", key, named));
    }
  }
  if (id < 0 || static_cast<size_t>(id) >= file.pieces.size()) return std::nullopt;
  if (named.empty() && file.pieces[static_cast<size_t>(id)].type != PieceType::kControl) return std::nullopt;
  return std::pair(file.pieces[static_cast<size_t>(id)].text, TokenId{id});
}

/// Restores spaces, joins bytes, and removes the space that the normalizer added at the beginning (or end).
json::object decoder_of(const SentencePieceFile& file) {
  json::array steps = {
      json::object{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
      json::object{{"type", "ByteFallback"}}, json::object{{"type", "Fuse"}}};
  if (file.dummy_prefix) {
    steps.push_back(json::object{{"type", "Strip"},
                                 {"content", " "},
                                 {"start", file.whitespace_as_suffix ? 0 : 1},
                                 {"stop", file.whitespace_as_suffix ? 1 : 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

}  // namespace

bool looks_like_sentencepiece(std::string_view bytes) {
  // The first field of the first message, both of number 1: a piece and its text. A text may begin with one
  // line feed, JSON even with two, but then its length does not fit.
  if (bytes.size() < 5 || bytes[0] != '\n') return false;
  const auto piece_bytes = static_cast<unsigned char>(bytes[1]);
  return bytes[2] == '\n' ? static_cast<unsigned char>(bytes[3]) + 2U <= piece_bytes : piece_bytes >= 0x80;
}

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view bytes, const std::filesystem::path& where) {
  return sentencepiece_tokenizer(read_sentencepiece(bytes, where), TokenizerConfig::load(where.parent_path()),
                                 where);
}

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const SentencePieceFile& file,
                                                   const TokenizerConfig& config,
                                                   const std::filesystem::path& where) {
  const Surrounding bos = config.add_bos.value_or(true)
                              ? surrounding(file, config, "bos_token", config.bos, file.bos)
                              : std::nullopt;
  const Surrounding eos = config.add_eos.value_or(false)
                              ? surrounding(file, config, "eos_token", config.eos, file.eos)
                              : std::nullopt;
  const json::value root = json::object{{"added_tokens", added_tokens(file, config)},
                                        {"post_processor", surrounding_tokens(bos, eos)},
                                        {"decoder", decoder_of(file)}};
  return std::make_unique<PipelineTokenizer>(parts_from_json(JsonObject(root, where), model_of(file, where),
                                                             normalizer_of(file, where, config.legacy)));
}

}  // namespace quire::tokenize
