#include "formats/model_config.h"

#include "base/error.h"
#include "model/config.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void model_config(std::string_view input) {
  scratch_file("config.json", input);
  scratch_file("generation_config.json", input);
  try {
    formats::load_model_config(scratch_dir());
  } catch (const Error&) {
  }
  try {
    formats::load_sampling_defaults(scratch_dir());
  } catch (const Error&) {
  }
}

}  // namespace quire::fuzz
