#include "tokenize/growth.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quire::tokenize {

void Growth::refuse(std::string_view step) {
  throw Error(fmt::format(
      "the tokenizer's {} makes the text too long: more than {} times its input and more than {} KiB", step,
      kTimes, kAlways >> 10));
}

}  // namespace quire::tokenize
