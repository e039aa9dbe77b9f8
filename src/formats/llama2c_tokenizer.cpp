#include "formats/llama2c_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/file_error.h"

namespace quire::formats {
namespace {

constexpr uint32_t kFirstByteToken = 3;
constexpr uint32_t kFirstPiece = kFirstByteToken + 256;
constexpr std::array<std::string_view, kFirstByteToken> kSpecial = {"<unk>", "<s>", "</s>"};
constexpr std::string_view kSpace = "\u2581";  // how SentencePiece writes a space

struct Piece {
  std::string text;
  float score = 0.0F;
};

/// The length of the UTF-8 character that begins at text[0]; 0 if none does.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80                       ? 1
                        : byte(0) >= 0xc2 && byte(0) <= 0xdf ? 2
                        : byte(0) >= 0xe0 && byte(0) <= 0xef ? 3
                        : byte(0) >= 0xf0 && byte(0) <= 0xf4 ? 4
                                                             : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string with_visible_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += kSpace;
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<Piece> read_pieces(const std::filesystem::path& file, uint32_t vocab_size) {
  const std::string bytes = read_file(file);
  uint64_t at = sizeof(uint32_t);  // the longest token's length comes first; it is not needed
  const auto take = [&](void* to, size_t count, uint32_t token) {
    if (at > bytes.size() || count > bytes.size() - at) {
      throw file_error(file, at, fmt::format("ends within token {} of {}", token, vocab_size));
    }
    std::memcpy(to, bytes.data() + at, count);
    at += count;
  };
  std::vector<Piece> pieces;
  for (uint32_t token = 0; token < vocab_size; ++token) {
    const uint64_t start = at;
    Piece piece;
    uint32_t length = 0;
    take(&piece.score, sizeof(piece.score), token);
    take(&length, sizeof(length), token);
    if (length > bytes.size() - at) {
      throw file_error(file, start,
                       fmt::format("token {} has {} bytes and goes past the end", token, length));
    }
    std::string text(length, '\0');
    take(text.data(), length, token);
    if (!is_utf8(text) || text.empty()) {
      throw file_error(file, start, fmt::format("token {} is not UTF-8 text", token));
    }
    if (!std::isfinite(piece.score))
      throw file_error(file, start, fmt::format("token {} has no score", token));
    piece.text = with_visible_spaces(text);
    pieces.push_back(std::move(piece));
  }
  if (at != bytes.size()) {
    throw file_error(file, at, fmt::format("the file continues after the model's {} tokens", vocab_size));
  }
  if (vocab_size < kFirstPiece) {
    throw file_error(
        file, fmt::format("{} tokens, fewer than the {} special ones and bytes", vocab_size, kFirstPiece));
  }
  for (uint32_t token = 0; token < kSpecial.size(); ++token) pieces[token].text = kSpecial[token];
  for (uint32_t byte = 0; byte < 256; ++byte) {
    pieces[kFirstByteToken + byte].text = fmt::format("<0x{:02X}>", byte);
  }
  return pieces;
}

json::array merges_of(const std::vector<Piece>& pieces, const json::object& vocab) {
  struct Merge {
    float score;
    uint32_t piece;
    size_t left_bytes;
  };
  const auto is_piece = [&](std::string_view text) {
    const json::value* id = vocab.if_contains(text);
    return id != nullptr && id->to_number<uint32_t>() >= kFirstPiece;
  };
  std::vector<Merge> merges;
  for (uint32_t token = kFirstPiece; token < pieces.size(); ++token) {
    const std::string_view text = pieces[token].text;
    for (size_t cut = utf8_length(text); cut < text.size(); cut += utf8_length(text.substr(cut))) {
      if (is_piece(text.substr(0, cut)) && is_piece(text.substr(cut))) {
        merges.push_back({pieces[token].score, token, cut});
      }
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) { return a.score > b.score; });
  json::array out;
  for (const Merge& merge : merges) {
    const std::string_view text = pieces[merge.piece].text;
    out.push_back(json::array{text.substr(0, merge.left_bytes), text.substr(merge.left_bytes)});
  }
  return out;
}

}  // namespace

json::object llama2c_tokenizer_json(const std::filesystem::path& file, uint32_t vocab_size) {
  const std::vector<Piece> pieces = read_pieces(file, vocab_size);
  json::object vocab;
  for (uint32_t token = 0; token < pieces.size(); ++token) {
    if (!vocab.emplace(pieces[token].text, token).second) {
      throw file_error(file, fmt::format("token {} has the same text as another", token));
    }
  }
  json::array merges = merges_of(pieces, vocab);
  json::array added;
  for (uint32_t token = 0; token < kSpecial.size(); ++token) {
    added.push_back({{"id", token},
                     {"content", kSpecial[token]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json::object bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const auto sequence = [](const char* id, int type) {
    return json::object{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         json::array{
             json::object{{"type", "Prepend"}, {"prepend", kSpace}},
             json::object{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", json::array{bos, sequence("A", 0)}},
        {"pair", json::array{bos, sequence("A", 0), sequence("B", 1)}},
        {"special_tokens",
         {{"<s>", {{"id", "<s>"}, {"ids", json::array{1}}, {"tokens", json::array{"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         json::array{json::object{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                     json::object{{"type", "ByteFallback"}}, json::object{{"type", "Fuse"}},
                     json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"ignore_merges", false},
        {"vocab", std::move(vocab)},
        {"merges", std::move(merges)}}},
  };
}

}  // namespace quire::formats
