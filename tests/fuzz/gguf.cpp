#include "formats/gguf.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/weights.h"
#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "model/config.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

constexpr size_t kMaxValues = 1 << 16;  // of one tensor that are computed

template <class Body>
void tolerate(const Body& body) {
  try {
    body();
  } catch (const Error&) {
    return;
  }
}

void read_all(const formats::Gguf& file) {
  for (const std::string_view key : file.keys()) {
    tolerate([&] { file.string(key); });
    tolerate([&] { file.strings(key); });
    tolerate([&] { file.integer(key, 0, 100); });
    tolerate([&] { file.integers(key); });
    tolerate([&] { file.number(key); });
    tolerate([&] { file.floats(key); });
    tolerate([&] { file.boolean(key); });
  }
  std::vector<float> values;
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.type->dequantize == nullptr || tensor.bytes == 0) continue;
    const size_t blocks = tensor.bytes / tensor.type->block_bytes;
    values.resize(std::min(blocks, kMaxValues / tensor.type->block_values) * tensor.type->block_values);
    formats::dequantize(*tensor.type, tensor.data, values.size(), values.data());
  }
}

}  // namespace

void gguf(std::string_view input) {
  const auto path = scratch_file("model.gguf", input);
  tolerate([&] { read_all(formats::Gguf::open(path)); });
  tolerate([&] { formats::load_model_config(path); });
  tolerate([&] { formats::load_sampling_defaults(path); });
  tolerate([&] {
    const auto checkpoint = formats::Checkpoint::open(path);
    formats::check_tensors(formats::load_model_config(path), *checkpoint);
  });
}

}  // namespace quire::fuzz
