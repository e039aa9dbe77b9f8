#include "formats/safetensors_writer.h"

#include <array>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace quire::formats {
namespace {

constexpr uint64_t kDataAlignment = 64;

std::string_view file_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
  }
  return "?";
}

uint64_t spec_bytes(const TensorSpec& spec) {
  return TensorView{spec.dtype, spec.shape, nullptr}.num_bytes();
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), out_(path) {
  json::object header;
  if (!metadata.empty()) {
    json::object& entries = header["__metadata__"].emplace_object();
    for (const auto& [key, value] : metadata) entries[key] = value;
  }
  for (const TensorSpec& spec : tensors) {
    const uint64_t end = expected_ + spec_bytes(spec);
    header[spec.name] = {{"dtype", file_dtype(spec.dtype)},
                         {"shape", json::array(spec.shape.begin(), spec.shape.end())},
                         {"data_offsets", {expected_, end}}};
    expected_ = end;
  }
  std::string text = json::serialize(header);
  uint64_t length = text.size();
  // The format wants the tensors without gaps; spaces after the header align the first of them.
  length += (kDataAlignment - (length + sizeof(length)) % kDataAlignment) % kDataAlignment;
  text.resize(length, ' ');
  out_.write({reinterpret_cast<const char*>(&length), sizeof(length)});
  out_.write(text);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  out_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  if (written_ != expected_) {
    throw file_error(path_, fmt::format("{} bytes of data where {} were announced", written_, expected_));
  }
  out_.finish();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& named : tensors) {
    specs.push_back({named.name, named.tensor.dtype, named.tensor.shape});
  }
  SafetensorsWriter writer(path, specs, metadata);
  for (const NamedTensor& named : tensors) writer.append({named.tensor.data, named.tensor.num_bytes()});
  writer.finish();
}

}  // namespace quire::formats
