#include "tokenize/tokenizer.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "chat/chat_templates.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"
#include "tokenize/tiktoken.h"
#include "tokenize/tokenizer_config.h"

using namespace std::string_view_literals;

namespace quire::fuzz {
namespace {

constexpr std::string_view kTexts[] = {
    "",
    "The quick brown fox, 1234 times!\n\n  Don't\tstop.",
    "na\xC3\xAFve \xE2\x96\x81 \xF0\x9F\x98\x80\xE4\xBD\xA0\xE5\xA5\xBD e\xCC\x81 <s></s><|im_start|>[INST]",
    "\xFF\xC0 broken \xE2\x96",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \0\0\0\0"sv,
};

void use(const tokenize::Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    const std::vector<TokenId> ids = tokenizer.encode(text, true);
    const std::string whole = tokenizer.decode(ids, false);
    tokenize::Detokenizer pieces(tokenizer, false);
    std::string joined;
    for (const TokenId id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= tokenizer.vocab_size()) {
        throw std::logic_error("an id outside the vocabulary");
      }
      joined += pieces.push(id);
    }
    joined += pieces.flush();
    if (joined != whole) throw std::logic_error("the incremental detokenizer differs from decode");
  }
}

}  // namespace

void tokenizer_json(std::string_view input) {
  try {
    use(*tokenize::Tokenizer::load(scratch_file("tokenizer.json", input)));
  } catch (const Error&) {
    return;
  }
}

void tokenizer_model(std::string_view input) {
  try {
    const auto path = scratch_file("tokenizer.model", input);
    if (tokenize::looks_like_tiktoken(input)) {
      // By the file alone only the number of ranks of a known family is taken.
      use(*tokenize::load_tiktoken(input, path, {"\\p{L}+|\\s+|.", true, "<s>", {"<s>", "</s>"}}));
    }
    use(*tokenize::Tokenizer::load(path));
  } catch (const Error&) {
    return;
  }
}

void tokenizer_config(std::string_view input) {
  static const bool prepared = [] {
    for (const auto& [folder, file] : {std::pair("config-bpe/tokenizer.model", "trained_bpe.model"),
                                       {"config-unigram/tokenizer.model", "trained_unigram.model"},
                                       {"config-json/tokenizer.json", "trained_wordpiece.json"}}) {
      scratch_file(folder, read_file(std::filesystem::path("tests/tokenize/fixtures") / file));
    }
    return true;
  }();
  static_cast<void>(prepared);
  const auto parts = parts_of(input, 3);
  for (const std::string folder : {"config-bpe/", "config-unigram/", "config-json/"}) {
    size_t i = 0;
    for (const char* name : {"tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"}) {
      const std::string_view content = parts[i++];
      if (content.empty()) {
        std::filesystem::remove(scratch_dir() / (folder + name));
      } else {
        scratch_file(folder + name, content);
      }
    }
    try {
      use(*tokenize::Tokenizer::load(scratch_dir() / folder));
    } catch (const Error&) {
    }
  }
  try {
    const chat::ChatTemplates templates = chat::ChatTemplates::find(scratch_dir() / "config-json");
    static_cast<void>(templates.faults());
    static_cast<void>(
        templates.render({{"messages", json::array{json::object{{"role", "user"}, {"content", "hi"}}}}}, 0));
  } catch (const Error&) {
    return;
  }
}

}  // namespace quire::fuzz
