#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"

namespace quire::tokenize {

/// The array of objects under `key`. Throws Error if it is missing or not an array of objects.
inline std::vector<JsonObject> json_objects(const JsonObject& parent, std::string_view key) {
  const json::value* list = parent.find(key);
  if (list == nullptr) throw parent.error(key, "missing");
  if (!list->is_array()) throw parent.error(key, "an array was expected");
  std::vector<JsonObject> objects;
  objects.reserve(list->get_array().size());
  for (const json::value& item : list->get_array()) {
    if (!item.is_object())
      throw parent.error(fmt::format("{}[{}]", key, objects.size()), "an object was expected");
    objects.emplace_back(item, parent.where(), parent.path(fmt::format("{}[{}]", key, objects.size())));
  }
  return objects;
}

/// The steps of a "Sequence", each made by `parse`. Nesting is bounded by the depth that parse_json allows.
template <class Step>
std::vector<std::unique_ptr<Step>> parse_steps(const JsonObject& parent, std::string_view key,
                                               std::unique_ptr<Step> (*parse)(const JsonObject&)) {
  std::vector<std::unique_ptr<Step>> steps;
  for (const JsonObject& object : json_objects(parent, key)) steps.push_back(parse(object));
  return steps;
}

}  // namespace quire::tokenize
