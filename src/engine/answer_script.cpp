#include "engine/answer_script.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace quire::engine {
namespace {

std::string text_of(std::string_view line, const std::string& where) {
  const json::value value = parse_json(line, where);
  if (!value.is_string()) throw Error(fmt::format("{}: not a JSON string", where));
  return std::string(value.get_string());
}

}  // namespace

/// Allows the next token of an answer, if `also` (which may be empty) does.
class AnswerScript::Mask final : public MaskSource {
 public:
  Mask(const AnswerScript& script, const Answer& answer, std::unique_ptr<MaskSource> also)
      : script_(script), answer_(answer), also_(std::move(also)) {}

  void fill(std::span<uint32_t> mask) override {
    if (said_ == answer_.tokens.size()) return;
    const TokenId token = answer_.tokens[said_];
    if (also_ != nullptr) also_->fill(mask);
    const bool allowed = backend::allows(mask, token);
    std::ranges::fill(mask, 0U);
    const auto id = static_cast<uint32_t>(token);
    if (allowed) {
      mask[id / 32] = 1U << (id % 32);
    } else {
      log_warning(fmt::format("{}: line {}: the grammar of the request forbids token {} of this answer",
                              script_.path_.string(), answer_.line, said_ + 1));
    }
  }

  void accept(TokenId token) override {
    if (also_ != nullptr) also_->accept(token);
    said_ += said_ < answer_.tokens.size() ? 1 : 0;
  }

 private:
  const AnswerScript& script_;
  const Answer& answer_;
  std::unique_ptr<MaskSource> also_;
  size_t said_ = 0;
};

AnswerScript::AnswerScript(const std::filesystem::path& path, const tokenize::Tokenizer& tokenizer,
                           std::span<const TokenId> ends)
    : path_(path) {
  if (ends.empty())
    throw Error(fmt::format("{}: the model names no token that ends an answer", path.string()));
  const std::string file = read_file(path);
  size_t number = 0;
  for (size_t at = 0; at < file.size();) {
    const size_t end = std::min(file.find('\n', at), file.size());
    const std::string_view line = std::string_view(file).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", path.string(), number);
    const std::string text = text_of(line, where);
    Answer answer{number, tokenizer.encode(text, false)};
    if (const std::string said = tokenizer.decode(answer.tokens, false); said != text) {
      throw Error(fmt::format("{}: the model's tokenizer writes this text otherwise: '{}'", where, said));
    }
    answer.tokens.push_back(ends.front());
    answers_.push_back(std::move(answer));
  }
  if (answers_.empty()) throw Error(fmt::format("{}: holds no answer", path.string()));
}

void AnswerScript::dictate(GenerationRequest& request) const {
  if (request.beam_search || request.max_tokens == 0) return;
  request.ignore_eos = false;  // there is nothing else to say
  request.make_mask_source = [this, also = std::move(request.make_mask_source)]() {
    const Answer& answer = answers_[next_++ % answers_.size()];
    return std::make_unique<Mask>(*this, answer, also ? also() : nullptr);
  };
}

}  // namespace quire::engine
