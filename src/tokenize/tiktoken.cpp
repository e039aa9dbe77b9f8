#include "tokenize/tiktoken.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "tokenize/base64.h"
#include "tokenize/bpe.h"
#include "tokenize/byte_level.h"
#include "tokenize/pipeline_tokenizer.h"
#include "tokenize/tokenizer_config.h"

namespace quire::tokenize {
namespace {

constexpr size_t kLlama3Ranks = 128'000;
constexpr size_t kQwenRanks = 151'643;

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The names of Llama 3.1; 3.0 had more reserved ones at the same ids.
TiktokenFamily llama3() {
  TiktokenFamily family{kLlama3Pattern, false, "<|begin_of_text|>", {}};
  family.special_tokens = {"<|begin_of_text|>",
                           "<|end_of_text|>",
                           "<|reserved_special_token_0|>",
                           "<|reserved_special_token_1|>",
                           "<|finetune_right_pad_id|>",
                           "<|reserved_special_token_2|>",
                           "<|start_header_id|>",
                           "<|end_header_id|>",
                           "<|eom_id|>",
                           "<|eot_id|>",
                           "<|python_tag|>"};
  for (int i = 3; family.special_tokens.size() < 256; ++i) {
    family.special_tokens.push_back(fmt::format("<|reserved_special_token_{}|>", i));
  }
  return family;
}

TiktokenFamily qwen() {
  TiktokenFamily family{kQwenPattern, true, "", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}};
  for (int i = 0; i < 205; ++i) family.special_tokens.push_back(fmt::format("<|extra_{}|>", i));
  return family;
}

/// One line: "IQ== 0".
struct Line {
  std::string_view base64;
  std::string_view rank;
};

std::optional<Line> split_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0) return std::nullopt;
  return Line{line.substr(0, space), line.substr(space + 1)};
}

/// The tokens in byte-level encoding, by rank. Throws Error with file and line.
std::vector<std::string> read_ranks(std::string_view bytes, const std::filesystem::path& where) {
  std::vector<std::string> texts;
  std::string token;
  size_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view whole = bytes.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (whole.empty() || whole == "\r") continue;
    const auto refuse = [&](std::string_view what) {
      throw file_error(where, fmt::format("line {}: {}", number, what));
    };
    const auto line = split_line(whole);
    if (!line) refuse("a token in base64, a space and a rank were expected");
    token.clear();
    if (!append_from_base64(token, line->base64) || token.empty()) refuse("the token is not base64");
    size_t rank = 0;
    const char* last = line->rank.data() + line->rank.size();
    const auto [stopped, failed] = std::from_chars(line->rank.data(), last, rank);
    if (failed != std::errc() || stopped != last) refuse("the rank is not a number");
    // The merges are tried in the order of the ranks, which are also the ids: a file with missing ranks is
    // incomplete.
    if (rank != texts.size()) refuse(fmt::format("rank {} where {} was expected", rank, texts.size()));
    append_byte_level(texts.emplace_back(), token);
  }
  if (texts.size() > INT32_MAX / 2) throw file_error(where, "too many ranks");
  return texts;
}

std::unique_ptr<TokenModel> model_of(std::vector<std::string> texts, const std::filesystem::path& where) {
  std::vector<uint32_t> ranks(texts.size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<uint32_t>(i);
  auto vocabulary = Vocabulary::from_list(std::move(texts));
  if (!vocabulary) {
    throw file_error(where, fmt::format("rank {}: the same token as an earlier one", vocabulary.error()));
  }
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    text.clear();
    append_byte_level(text, {&c, 1});
    if (vocabulary->find(text) < 0) throw file_error(where, fmt::format("no token for the byte {}", byte));
  }
  const RankedMerges ranked = merges_by_rank(*vocabulary, ranks);
  BpeOptions options;
  options.ignore_merges = true;
  return std::make_unique<Bpe>(std::move(*vocabulary), std::move(options), ranked.merges);
}

json::array known_tokens(const TiktokenFamily& family, size_t ranks) {
  json::array list;
  for (const std::string& text : family.special_tokens) {
    list.push_back(json::object{
        {"id", ranks + list.size()}, {"content", text}, {"special", true}, {"normalized", false}});
  }
  return list;
}

/// The id of `text` among `tokens`, which AddedTokens numbers after the ranks.
std::optional<std::pair<std::string, TokenId>> find_token(const json::array& tokens, std::string_view text,
                                                          size_t ranks) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto* content = tokens[i].as_object().if_contains("content");
    if (content != nullptr && content->is_string() && content->get_string() == text) {
      return std::pair(std::string(text), static_cast<TokenId>(ranks + i));
    }
  }
  return std::nullopt;
}

json::array split_then_bytes(std::string_view pattern) {
  return {
      json::object{
          {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
      json::object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}};
}

}  // namespace

bool looks_like_tiktoken(std::string_view bytes) {
  const auto line = split_line(bytes.substr(0, std::min(bytes.find('\n'), bytes.size())));
  std::string token;
  return line && append_from_base64(token, line->base64) && !line->rank.empty() &&
         line->rank.find_first_not_of("0123456789") == std::string_view::npos;
}

std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::filesystem::path& where,
                                         const TiktokenFamily& family) {
  std::vector<std::string> texts = read_ranks(bytes, where);
  const size_t ranks = texts.size();
  const TokenizerConfig config = TokenizerConfig::load(where.parent_path());
  const json::array added =
      config.added_tokens.empty() ? known_tokens(family, ranks) : config.added_to_text();
  const std::string bos = config.bos.empty() ? std::string(family.bos) : config.bos;
  const bool add_bos = config.add_bos.value_or(!family.bos.empty());
  json::value root = json::object{
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", split_then_bytes(family.pattern)}}},
      {"post_processor",
       surrounding_tokens(add_bos ? find_token(added, bos, ranks) : std::nullopt, std::nullopt)},
      {"decoder", {{"type", "ByteLevel"}}}};
  if (family.nfc) root.as_object()["normalizer"] = json::object{{"type", "NFC"}};
  const JsonObject object(root, where);
  return std::make_unique<PipelineTokenizer>(parts_from_json(object, model_of(std::move(texts), where),
                                                             Normalizer::from_json(object, "normalizer")));
}

std::unique_ptr<Tokenizer> load_tiktoken(std::string_view bytes, const std::filesystem::path& where) {
  size_t lines = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    lines += end > begin ? 1 : 0;
    begin = end + 1;
  }
  if (lines == kLlama3Ranks) return load_tiktoken(bytes, where, llama3());
  if (lines == kQwenRanks) return load_tiktoken(bytes, where, qwen());
  throw file_error(where, fmt::format("{} tiktoken ranks: no known model family has this many, so the "
                                      "pattern and special tokens are unknown (Llama 3 has {}, Qwen {})",
                                      lines, kLlama3Ranks, kQwenRanks));
}

}  // namespace quire::tokenize
