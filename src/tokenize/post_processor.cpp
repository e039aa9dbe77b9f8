#include "tokenize/post_processor.h"

#include <optional>

#include <fmt/format.h>

#include "tokenize/json_steps.h"

namespace quire::tokenize {
namespace {

class SequencePostProcessor : public PostProcessor {
 public:
  explicit SequencePostProcessor(std::vector<std::unique_ptr<PostProcessor>> steps)
      : steps_(std::move(steps)) {}
  std::vector<TokenId> apply(std::vector<TokenId> ids, bool add_special_tokens) const override {
    for (const auto& step : steps_) ids = step->apply(std::move(ids), add_special_tokens);
    return ids;
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> steps_;
};

/// Concerns offsets only, which are not used here.
class NoPostProcessor : public PostProcessor {
 public:
  std::vector<TokenId> apply(std::vector<TokenId> ids, bool) const override { return ids; }
};

/// A row of tokens and, where nullopt stands, the text.
class TemplatePostProcessor : public PostProcessor {
 public:
  explicit TemplatePostProcessor(std::vector<std::optional<TokenId>> parts) : parts_(std::move(parts)) {}
  std::vector<TokenId> apply(std::vector<TokenId> ids, bool add_special_tokens) const override {
    std::vector<TokenId> out;
    out.reserve(ids.size() + parts_.size());
    for (const auto& part : parts_) {
      if (!part) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else if (add_special_tokens) {
        out.push_back(*part);
      }
    }
    return out;
  }

 private:
  std::vector<std::optional<TokenId>> parts_;
};

class Parser {
 public:
  explicit Parser(size_t vocab_size) : vocab_size_(vocab_size) {}

  std::unique_ptr<PostProcessor> parse(const JsonObject& object) const {
    const std::string type = object.string("type");
    if (type == "Sequence") {
      std::vector<std::unique_ptr<PostProcessor>> steps;
      for (const JsonObject& step : json_objects(object, "processors")) steps.push_back(parse(step));
      return std::make_unique<SequencePostProcessor>(std::move(steps));
    }
    if (type == "TemplateProcessing") return parse_template(object);
    if (type == "ByteLevel") return std::make_unique<NoPostProcessor>();
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      return std::make_unique<TemplatePostProcessor>(std::vector<std::optional<TokenId>>{
          text_and_id(object, "cls"), std::nullopt, text_and_id(object, "sep")});
    }
    throw object.error("type", fmt::format("post-processor '{}' is not supported", type));
  }

 private:
  TokenId checked_id(const JsonObject& object, std::string_view key, const json::value& value) const {
    json::error_code failed;
    const auto id = value.to_number<int64_t>(failed);
    if (failed || id < 0 || static_cast<uint64_t>(id) >= vocab_size_) {
      throw object.error(key, fmt::format("an id below {} was expected", vocab_size_));
    }
    return static_cast<TokenId>(id);
  }

  /// ["[CLS]", 101]
  TokenId text_and_id(const JsonObject& object, std::string_view key) const {
    const json::value* pair = object.find(key);
    if (pair == nullptr || !pair->is_array() || pair->get_array().size() != 2) {
      throw object.error(key, "a pair of text and id was expected");
    }
    return checked_id(object, key, pair->get_array()[1]);
  }

  std::unique_ptr<PostProcessor> parse_template(const JsonObject& object) const {
    std::vector<std::optional<TokenId>> parts;
    bool has_text = false;
    for (const JsonObject& piece : json_objects(object, "single")) {
      if (piece.has("Sequence")) {
        if (piece.object("Sequence").string("id") != "A")
          throw piece.error("Sequence", "the template for a single text may use only A");
        // Twice would double the prompt, again with each step of a Sequence.
        if (has_text) throw piece.error("Sequence", "the text may occur once");
        has_text = true;
        parts.emplace_back(std::nullopt);
        continue;
      }
      const std::string name = piece.object("SpecialToken").string("id");
      const JsonObject token = object.object("special_tokens").object(name);
      const json::value* ids = token.find("ids");
      if (ids == nullptr || !ids->is_array()) throw token.error("ids", "an array was expected");
      for (const json::value& id : ids->get_array()) parts.emplace_back(checked_id(token, "ids", id));
    }
    return std::make_unique<TemplatePostProcessor>(std::move(parts));
  }

  size_t vocab_size_;
};

}  // namespace

std::unique_ptr<PostProcessor> PostProcessor::from_json(const JsonObject& parent, std::string_view key,
                                                        size_t vocab_size) {
  return parent.has(key) ? Parser(vocab_size).parse(parent.object(key)) : nullptr;
}

}  // namespace quire::tokenize
