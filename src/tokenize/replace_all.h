#pragma once

#include <string>
#include <string_view>

namespace quire::tokenize {

/// `text` with each `what` replaced by `by`, from the left. REQUIRES: `what` is not empty.
inline std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, done)) {
    out += text.substr(done, at - done);
    out += by;
    done = at + what.size();
  }
  out += text.substr(done);
  return out;
}

}  // namespace quire::tokenize
