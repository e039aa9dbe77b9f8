#include "formats/safetensors.h"

#include <cstddef>

#include "base/error.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

void read_all(const formats::Safetensors& file) {
  unsigned sum = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    for (size_t i = 0; i < tensor.num_bytes(); ++i) {
      sum += std::to_integer<unsigned>(tensor.data[i]);
    }
    file.release(tensor);
  }
  // So that the reads are not left out.
  if (sum == 1) throw Error("one");
}

}  // namespace

void safetensors(std::string_view input) {
  try {
    read_all(formats::Safetensors::open(scratch_file("model.safetensors", input)));
  } catch (const Error&) {
    return;
  }
}

void safetensors_index(std::string_view input) {
  const auto parts = parts_of(input, 3);
  const auto index = scratch_file("sharded/model.safetensors.index.json", parts[0]);
  scratch_file("sharded/1.safetensors", parts[1]);
  scratch_file("sharded/2.safetensors", parts[2]);
  try {
    read_all(formats::Safetensors::open(index));
  } catch (const Error&) {
    return;
  }
}

}  // namespace quire::fuzz
