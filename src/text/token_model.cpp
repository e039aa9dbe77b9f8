#include "text/token_model.h"

#include <fmt/format.h>

#include "text/bpe.h"

namespace quire {

std::unique_ptr<TokenModel> TokenModel::from_json(const JsonObject& parent, std::string_view key) {
  const JsonObject object = parent.object(key);
  // Old files name no type; only BPE has merges.
  const std::string type = object.string_or("type", object.has("merges") ? "BPE" : "");
  if (type == "BPE") return Bpe::from_json(object);
  throw object.error("type", type.empty() ? "missing" : fmt::format("model '{}' is not supported", type));
}

}  // namespace quire
