// The tokenizer of a Hugging Face directory in GGUF's form.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/log.h"
#include "tokenize/gguf_pre_tokenizer.h"
#include "tokenize/gguf_vocabulary.h"
#include "tokenize/json_steps.h"
#include "tokenize/sentencepiece.h"
#include "tokenize/sentencepiece_file.h"

namespace quire::tokenize {
namespace {

constexpr std::string_view kMark = "\u2581";  // how SentencePiece writes a space
constexpr float kAddedScore = -1000.0F;       // llama.cpp's, of tokens that no merge makes

/// Ids without an entry.
void add_padding(GgufVocabulary& v, size_t vocab_size) {
  for (size_t id = v.tokens.size(); id < vocab_size; ++id) v.tokens.emplace_back();
  v.types.resize(v.tokens.size(), GgufVocabulary::kUnused);
  if (!v.scores.empty()) v.scores.resize(v.tokens.size(), kAddedScore);
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (v.tokens[id].empty()) v.tokens[id] = fmt::format("[PAD{}]", id);
  }
}

void put(GgufVocabulary& v, size_t id, std::string_view text, int32_t type, const JsonObject& at,
         size_t vocab_size) {
  if (id >= vocab_size) {
    throw at.error("id", fmt::format("{} is beyond the model's {} tokens", id, vocab_size));
  }
  if (id >= v.tokens.size()) {
    v.tokens.resize(id + 1);
    v.types.resize(id + 1, GgufVocabulary::kUnused);
  }
  v.tokens[id] = text;
  v.types[id] = type;
}

std::string with_spaces(std::string text) {
  for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at))
    text.replace(at, kMark.size(), " ");
  return text;
}

void put_added(GgufVocabulary& v, const JsonObject& token, size_t id, size_t vocab_size) {
  const bool special = token.boolean_or("special", false);
  const std::string text = token.string("content");
  put(v, id, special ? text : with_spaces(text),
      special ? GgufVocabulary::kControl : GgufVocabulary::kUserDefined, token, vocab_size);
}

/// Whether a text becomes bytes that are written as characters; then the entries have GPT-2's form.
bool is_byte_level(const JsonObject& root) {
  if (!root.has("decoder")) return false;
  const JsonObject decoder = root.object("decoder");
  if (decoder.string_or("type", "") == "ByteLevel") return true;
  if (!decoder.has("decoders")) return false;
  const auto steps = json_objects(decoder, "decoders");
  return std::any_of(steps.begin(), steps.end(),
                     [](const JsonObject& step) { return step.string_or("type", "") == "ByteLevel"; });
}

/// The tokens that the post-processor adds before and after a text.
struct Surroundings {
  std::optional<TokenId> before;
  std::optional<TokenId> behind;
};

void read_surroundings(const JsonObject& processor, Surroundings& out) {
  if (processor.string("type") == "Sequence") {
    for (const JsonObject& each : json_objects(processor, "processors")) read_surroundings(each, out);
  }
  if (processor.string("type") != "TemplateProcessing") return;
  bool text_seen = false;
  for (const JsonObject& piece : json_objects(processor, "single")) {
    if (piece.has("Sequence")) {
      text_seen = true;
      continue;
    }
    const JsonObject token =
        processor.object("special_tokens").object(piece.object("SpecialToken").string("id"));
    const json::value* ids = token.find("ids");
    if (ids == nullptr || !ids->is_array() || ids->get_array().size() != 1 ||
        !ids->get_array()[0].is_int64()) {
      throw token.error("ids", "GGUF supports one token only");
    }
    (text_seen ? out.behind : out.before) = static_cast<TokenId>(ids->get_array()[0].get_int64());
  }
}

/// The vocabulary by id; its size is bounded by `vocab_size`.
void read_vocab(const JsonObject& root, GgufVocabulary& v, size_t vocab_size) {
  const JsonObject vocab = root.object("model").object("vocab");
  for (const auto& member : vocab.raw()) {
    const std::string_view text(member.key().data(), member.key().size());
    const auto id = static_cast<size_t>(vocab.integer(text, 0, std::numeric_limits<int32_t>::max()));
    put(v, id, text, GgufVocabulary::kNormal, vocab, vocab_size);
  }
}

void read_added(const JsonObject& root, GgufVocabulary& v, size_t vocab_size) {
  if (!root.has("added_tokens")) return;
  for (const JsonObject& token : json_objects(root, "added_tokens")) {
    put_added(v, token, static_cast<size_t>(token.integer("id", 0, std::numeric_limits<int32_t>::max())),
              vocab_size);
  }
}

/// Each merge as its two entries.
std::vector<std::pair<std::string, std::string>> read_merges(const JsonObject& model) {
  const json::value* list = model.find("merges");
  if (list == nullptr || !list->is_array()) throw model.error("merges", "an array was expected");
  std::vector<std::pair<std::string, std::string>> out;
  for (const json::value& merge : list->get_array()) {
    if (const auto* text = merge.if_string()) {
      const std::string_view both = *text;
      if (both.starts_with("#version")) continue;
      const size_t space = both.find(' ');
      if (space == both.npos) throw model.error("merges", "two tokens and a space were expected");
      out.emplace_back(both.substr(0, space), both.substr(space + 1));
    } else if (const auto* pair = merge.if_array();
               pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string()) {
      out.emplace_back((*pair)[0].get_string(), (*pair)[1].get_string());
    } else {
      throw model.error("merges", "a string or two strings were expected");
    }
  }
  return out;
}

void read_byte_level(const JsonObject& root, GgufVocabulary& v) {
  const GgufPreTokenizer* pre = match_gguf_pre_tokenizer(root);
  if (pre == nullptr) throw root.error("pre_tokenizer", "GGUF has no name for this one");
  v.model = "gpt2";
  v.pre = pre->names.front();
  for (const auto& [left, right] : read_merges(root.object("model"))) {
    v.merges.push_back(fmt::format("{} {}", left, right));
  }
}

/// Whether some step, or a step of its, puts a space before the text.
bool prepends_space(const JsonObject& step) {
  const std::string type = step.string_or("type", "");
  if (type == "Prepend") return true;
  if (type == "Metaspace") {
    return step.string_or("prepend_scheme", step.boolean_or("add_prefix_space", true) ? "always" : "never") !=
           "never";
  }
  for (const char* list : {"normalizers", "pretokenizers"}) {
    if (!step.has(list)) continue;
    const auto steps = json_objects(step, list);
    if (std::any_of(steps.begin(), steps.end(), prepends_space)) return true;
  }
  return false;
}

/// Scores that rank the entries like the merges: SentencePiece merges the pair whose entry has the highest
/// score, a tokenizer.json the pair that is listed first.
void read_byte_fallback(const JsonObject& root, GgufVocabulary& v, size_t vocab_size) {
  v.model = "llama";
  v.pre = "default";
  v.add_space_prefix = (root.has("normalizer") && prepends_space(root.object("normalizer"))) ||
                       (root.has("pre_tokenizer") && prepends_space(root.object("pre_tokenizer")));
  const auto merges = read_merges(root.object("model"));
  const JsonObject vocab = root.object("model").object("vocab");
  v.scores.assign(v.tokens.size(), -static_cast<float>(merges.size()) - 1.0F);
  std::vector<bool> known(v.tokens.size(), false);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto id = static_cast<size_t>(
        vocab.integer(merges[rank].first + merges[rank].second, 0, static_cast<int64_t>(vocab_size) - 1));
    if (id >= known.size() || known[id]) continue;
    known[id] = true;
    v.scores[id] = -static_cast<float>(rank);
  }
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const std::string& text = v.tokens[id];
    const bool is_byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
    if (is_byte && v.types[id] == GgufVocabulary::kNormal) v.types[id] = GgufVocabulary::kByte;
  }
  const std::string unknown = root.object("model").string_or("unk_token", "");
  const auto found = std::find(v.tokens.begin(), v.tokens.end(), unknown);
  if (!unknown.empty() && found != v.tokens.end()) {
    const auto id = found - v.tokens.begin();
    v.types[static_cast<size_t>(id)] = GgufVocabulary::kUnknown;
    v.ids["unknown"] = static_cast<TokenId>(id);
  }
}

void read_tokenizer_json(const std::filesystem::path& path, GgufVocabulary& v, size_t vocab_size) {
  v.huggingface_json = read_file(path);
  const json::value value = parse_json(*v.huggingface_json, path);
  const JsonObject root(value, path);
  const JsonObject model = root.object("model");
  if (model.string_or("type", "BPE") != "BPE") {
    throw model.error("type", fmt::format("GGUF has no equivalent of '{}'", model.string("type")));
  }
  read_vocab(root, v, vocab_size);
  read_added(root, v, vocab_size);
  if (is_byte_level(root)) {
    read_byte_level(root, v);
  } else if (model.boolean_or("byte_fallback", false)) {
    read_byte_fallback(root, v, vocab_size);
  } else {
    throw root.error("decoder", "GGUF supports only byte-level BPE and BPE with byte fallback");
  }
  Surroundings around;
  if (root.has("post_processor")) read_surroundings(root.object("post_processor"), around);
  v.add_bos = around.before.has_value();
  v.add_eos = around.behind.has_value();
  if (around.before) v.ids["bos"] = *around.before;
  if (around.behind) v.ids["eos"] = *around.behind;
}

void read_tokenizer_model(const std::filesystem::path& path, GgufVocabulary& v, size_t vocab_size) {
  const std::string bytes = read_file(path);
  if (!looks_like_sentencepiece(bytes)) {
    throw file_error(path, "GGUF has no equivalent of a list of ranks; a tokenizer.json is needed");
  }
  const SentencePieceFile file = read_sentencepiece(bytes, path);
  if (file.model != SentencePieceFile::Model::kBpe) {
    throw file_error(path, "GGUF supports only SentencePiece's BPE");
  }
  if (file.pieces.size() > vocab_size) {
    throw file_error(path,
                     fmt::format("{} pieces for the model's {} tokens", file.pieces.size(), vocab_size));
  }
  v.model = "llama";
  v.pre = "default";
  for (const auto& piece : file.pieces) {
    v.tokens.push_back(piece.text);
    v.scores.push_back(piece.score);
    v.types.push_back(static_cast<int32_t>(piece.type));
    if (piece.type == SentencePieceFile::Type::kUnknown) {
      v.ids["unknown"] = static_cast<TokenId>(v.tokens.size() - 1);
    }
  }
  if (file.bos >= 0) v.ids["bos"] = file.bos;
  if (file.eos >= 0) v.ids["eos"] = file.eos;
  v.add_bos = true;
  v.add_eos = false;
  v.add_space_prefix = file.dummy_prefix;
}

void read_templates(const std::filesystem::path& dir, const json::object& config, GgufVocabulary& v) {
  for (auto& [name, source] : chat::template_sources(dir, config)) {
    (name == chat::kDefaultTemplate ? v.chat_template.emplace() : v.named_templates[name]) = source.text;
  }
}

/// The additional settings of tokenizer_config.json.
void read_config(const std::filesystem::path& dir, GgufVocabulary& v, size_t vocab_size) {
  const auto path = dir / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) {
    read_templates(dir, {}, v);
    return;
  }
  const json::value value = read_json_file(path);
  const JsonObject config(value, path);
  read_templates(dir, config.raw(), v);
  if (!v.huggingface_json) {
    if (config.has("added_tokens_decoder")) {
      const JsonObject added = config.object("added_tokens_decoder");
      for (const auto& member : added.raw()) {
        const std::string key(member.key());
        const auto id = static_cast<size_t>(std::strtoull(key.c_str(), nullptr, 10));
        const bool is_unknown = id < v.types.size() && v.types[id] == GgufVocabulary::kUnknown;
        if (!is_unknown) put_added(v, added.object(key), id, vocab_size);
      }
      v.scores.resize(v.tokens.size(), kAddedScore);
    }
    v.add_bos = config.boolean_or("add_bos_token", v.add_bos.value_or(true));
    v.add_eos = config.boolean_or("add_eos_token", v.add_eos.value_or(false));
  }
  for (const auto& [key, name] : {std::pair("bos_token", "bos"), std::pair("eos_token", "eos"),
                                  std::pair("unk_token", "unknown"), std::pair("pad_token", "padding")}) {
    if (!config.has(key)) continue;
    const std::string text =
        config.find(key)->is_object() ? config.object(key).string("content") : config.string(key);
    const auto found = std::find(v.tokens.begin(), v.tokens.end(), text);
    if (found == v.tokens.end()) continue;
    const auto id = static_cast<TokenId>(found - v.tokens.begin());
    // The tokens that a tokenizer.json adds around a text take precedence; the settings of a tokenizer.model
    // do not.
    if (!v.huggingface_json || !v.ids.contains(name)) v.ids[name] = id;
  }
}

}  // namespace

GgufVocabulary gguf_vocabulary(const std::filesystem::path& dir, size_t vocab_size,
                               std::optional<TokenId> bos, const std::vector<TokenId>& eos) {
  GgufVocabulary v;
  const auto json_path = dir / "tokenizer.json";
  const auto model_path = dir / "tokenizer.model";
  if (std::filesystem::exists(json_path)) {
    read_tokenizer_json(json_path, v, vocab_size);
  } else if (std::filesystem::exists(model_path)) {
    read_tokenizer_model(model_path, v, vocab_size);
  } else {
    log_warning(fmt::format("{}: there is no tokenizer, so the file is written without one", dir.string()));
    v.model = kGgufNoVocabulary;
  }
  if (v.model != kGgufNoVocabulary) {
    read_config(dir, v, vocab_size);
    add_padding(v, vocab_size);
  }
  if (bos) v.ids.emplace("bos", *bos);
  // GGUF has keys for three tokens that end an answer.
  std::vector<TokenId> others = eos;
  if (!others.empty()) v.ids.emplace("eos", others.front());
  std::erase_if(others, [&](TokenId id) { return v.ids.contains("eos") && v.ids.at("eos") == id; });
  if (!others.empty()) v.ids.emplace("eot", others[0]);
  if (others.size() > 1) v.ids.emplace("eom", others[1]);
  return v;
}

}  // namespace quire::tokenize
