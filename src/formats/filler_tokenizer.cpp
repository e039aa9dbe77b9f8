#include "formats/filler_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace quire::formats {
namespace {

/// GPT-2's way to write each byte as one visible character.
std::vector<std::string> byte_characters() {
  std::vector<std::string> out;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool visible =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    append_utf8(out.emplace_back(), visible ? byte : next++);
  }
  return out;
}

/// " ab", " zq", ...: a word for each number, none the beginning of a byte's own entry.
std::string filler_word(uint32_t number) {
  std::string word;
  for (++number; number > 0; number /= 26) word += static_cast<char>('a' + number % 26);
  return "\u0120" + word;
}

}  // namespace

json::object filler_tokenizer_json(const FillerTokens& tokens) {
  json::object vocab;
  for (const std::string& character : byte_characters()) vocab.emplace(character, vocab.size());
  for (uint32_t i = 0; vocab.size() < tokens.first_special; ++i) vocab.emplace(filler_word(i), vocab.size());
  json::array added;
  uint32_t prepended_id = 0;
  for (uint32_t i = 0; i < tokens.specials.size(); ++i) {
    if (tokens.specials[i] == tokens.prepended) prepended_id = tokens.first_special + i;
    added.push_back({{"id", tokens.first_special + i},
                     {"content", tokens.specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json::object byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  json::value post_processor = byte_level;
  if (!tokens.prepended.empty()) {
    const auto sequence = [](const char* id, int type) {
      return json::object{{"Sequence", {{"id", id}, {"type_id", type}}}};
    };
    const json::object bos = {{"SpecialToken", {{"id", tokens.prepended}, {"type_id", 0}}}};
    const json::object bos_entry = {{"id", tokens.prepended},
                                    {"ids", json::array{prepended_id}},
                                    {"tokens", json::array{json::string(tokens.prepended)}}};
    post_processor = {{"type", "TemplateProcessing"},
                      {"single", json::array{bos, sequence("A", 0)}},
                      {"pair", json::array{bos, sequence("A", 0), sequence("B", 1)}},
                      {"special_tokens", json::object{{tokens.prepended, bos_entry}}}};
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", std::move(post_processor)},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocab)},
            {"merges", json::array()}}}};
}

}  // namespace quire::formats
