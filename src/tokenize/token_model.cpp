#include "tokenize/token_model.h"

#include <fmt/format.h>

#include "tokenize/bpe.h"
#include "tokenize/unigram.h"
#include "tokenize/word_piece.h"

namespace quire::tokenize {
namespace {

/// Old files name no type: only BPE has merges, only a unigram's vocabulary is a list.
std::string type_of(const JsonObject& object) {
  if (object.has("merges")) return "BPE";
  const json::value* vocab = object.find("vocab");
  if (vocab != nullptr && vocab->is_array()) return "Unigram";
  if (object.has("continuing_subword_prefix")) return "WordPiece";
  throw object.error("type", "missing");
}

}  // namespace

std::unique_ptr<TokenModel> TokenModel::from_json(const JsonObject& parent, std::string_view key) {
  const JsonObject object = parent.object(key);
  const std::string type = object.has("type") ? object.string("type") : type_of(object);
  if (type == "BPE") return Bpe::from_json(object);
  if (type == "Unigram") return Unigram::from_json(object);
  if (type == "WordPiece") return WordPiece::from_json(object);
  if (type == "WordLevel") return WordLevel::from_json(object);
  throw object.error("type", fmt::format("model '{}' is not supported", type));
}

}  // namespace quire::tokenize
