#include "base/error.h"
#include "formats/convert_llama2c.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "model/config.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"
#include "tokenize/tokenizer.h"

namespace quire::fuzz {

/// What is converted must be a model: an Error after the conversion is a bug, but where the vocabulary itself
/// is no tokenizer.
void llama2c(std::string_view input) {
  const auto parts = parts_of(input, 2);
  const auto checkpoint = scratch_file("checkpoint.bin", parts[1]);
  const auto tokenizer = scratch_file("tokenizer.bin", parts[0]);
  const auto out = scratch_dir() / "converted";
  try {
    formats::convert_llama2c(checkpoint, tokenizer, out);
  } catch (const Error&) {
    return;
  }
  static_cast<void>(formats::load_model_config(out));
  static_cast<void>(formats::Safetensors::open(out));
  try {
    const auto made = tokenize::Tokenizer::load(out);
    static_cast<void>(made->decode(made->encode("A cat sat.", true), false));
  } catch (const Error&) {
    return;
  }
}

}  // namespace quire::fuzz
