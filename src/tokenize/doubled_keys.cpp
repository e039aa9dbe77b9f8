#include "tokenize/doubled_keys.h"

#include <vector>

#include <boost/json/parse.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <fmt/format.h>

namespace quire::tokenize {
namespace {

/// One object or array that is open.
struct Level {
  bool is_array = false;
  size_t elements = 0;   // of an array: how many are behind us
  std::string_view key;  // of an object: the current one, in quotes
  boost::unordered_flat_set<std::string> keys{};
};

std::string unquoted(std::string_view quoted) {
  if (quoted.find('\\') == quoted.npos) return std::string(quoted.substr(1, quoted.size() - 2));
  return std::string(boost::json::parse(quoted).as_string());
}

/// Behind the string that begins at `at`.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

std::string path_of(const std::vector<Level>& levels) {
  std::string path;
  for (const Level& level : levels) {
    if (level.is_array) {
      path += fmt::format("[{}]", level.elements);
    } else {
      if (!path.empty()) path += '.';
      path += unquoted(level.key);
    }
  }
  return path;
}

}  // namespace

DoubledKeys find_doubled_keys(std::string_view text) {
  DoubledKeys found;
  std::vector<Level> levels;
  for (size_t at = 0; at < text.size();) {
    switch (text[at]) {
      case '{':
      case '[':
        levels.push_back({.is_array = text[at++] == '[', .key = {}});
        break;
      case '}':
      case ']':
        levels.pop_back();
        ++at;
        break;
      case ',':
        ++levels.back().elements;
        ++at;
        break;
      case '"': {
        const size_t end = string_end(text, at);
        const size_t next = text.find_first_not_of(" \t\r\n", end);
        if (next != text.npos && text[next] == ':') {
          Level& level = levels.back();
          level.key = text.substr(at, end - at);
          if (!level.keys.insert(unquoted(level.key)).second && found.count++ == 0) {
            found.first = path_of(levels);
          }
        }
        at = end;
        break;
      }
      default:
        ++at;
    }
  }
  return found;
}

}  // namespace quire::tokenize
