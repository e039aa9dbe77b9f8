#include "tests/tokenize/tokenizer_files.h"

#include <fstream>

#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/support/data.h"

namespace quire::test {
namespace {

const json::object& bases() {
  static const json::value file = read_json_file("tests/tokenize/fixtures/tokenizer_cases.json");
  return file.at("bases").as_object();
}

}  // namespace

std::unique_ptr<tokenize::Tokenizer> load_tokenizer(std::string_view text) {
  static const auto dir = temp_dir();
  const auto path = dir / "tokenizer.json";
  // A new file each time: some file systems wait for the disk when one is written over.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return tokenize::Tokenizer::load(path);
}

std::unique_ptr<tokenize::Tokenizer> load_tokenizer(const json::value& value) {
  return load_tokenizer(json::serialize(value));
}

json::object small_byte_level() { return bases().at("byte").as_object(); }
json::object small_sentencepiece() { return bases().at("sp").as_object(); }

std::vector<TokenId> ids_of(const json::value& array) {
  std::vector<TokenId> ids;
  for (const json::value& id : array.as_array()) ids.push_back(id.to_number<TokenId>());
  return ids;
}

std::string decode_in_pieces(const tokenize::Tokenizer& tokenizer, std::span<const TokenId> ids,
                             bool skip_special_tokens) {
  tokenize::Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::string text;
  const auto take = [&](const std::string& piece) {
    EXPECT_TRUE(is_valid_utf8(piece)) << "a piece splits a character";
    text += piece;
  };
  for (const TokenId id : ids) take(detokenizer.push(id));
  take(detokenizer.flush());
  return text;
}

std::string load_error(std::string_view text) {
  try {
    load_tokenizer(text);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "loaded: " << text.substr(0, 200);
  return {};
}

}  // namespace quire::test
