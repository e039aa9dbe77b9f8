#include "formats/gguf_writer.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file_error.h"
#include "formats/gguf.h"

namespace quire::formats {
namespace {

constexpr uint64_t kAlignment = 32;  // the format's default, so that no key is needed

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

uint64_t padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

uint64_t tensor_bytes(const GgufTensorSpec& spec) {
  uint64_t values = 1;
  for (const int64_t dim : spec.shape) values *= static_cast<uint64_t>(dim);
  return values / spec.type->block_values * spec.type->block_bytes;
}

}  // namespace

void GgufMetadata::key(std::string_view key, uint32_t type) {
  put_string(bytes_, key);
  put(bytes_, type);
  ++count_;
}

void GgufMetadata::add(std::string_view name, std::string_view value) {
  key(name, static_cast<uint32_t>(GgufType::kString));
  put_string(bytes_, value);
}

void GgufMetadata::add(std::string_view name, uint32_t value) {
  key(name, static_cast<uint32_t>(GgufType::kU32));
  put(bytes_, value);
}

void GgufMetadata::add(std::string_view name, float value) {
  key(name, static_cast<uint32_t>(GgufType::kF32));
  put(bytes_, value);
}

void GgufMetadata::add(std::string_view name, bool value) {
  key(name, static_cast<uint32_t>(GgufType::kBool));
  put(bytes_, static_cast<uint8_t>(value));
}

void GgufMetadata::add(std::string_view name, const std::vector<std::string>& values) {
  key(name, static_cast<uint32_t>(GgufType::kArray));
  put(bytes_, static_cast<uint32_t>(GgufType::kString));
  put<uint64_t>(bytes_, values.size());
  for (const std::string& value : values) put_string(bytes_, value);
}

void GgufMetadata::add(std::string_view name, const std::vector<float>& values) {
  key(name, static_cast<uint32_t>(GgufType::kArray));
  put(bytes_, static_cast<uint32_t>(GgufType::kF32));
  put<uint64_t>(bytes_, values.size());
  for (const float value : values) put(bytes_, value);
}

void GgufMetadata::add(std::string_view name, const std::vector<int32_t>& values) {
  key(name, static_cast<uint32_t>(GgufType::kArray));
  put(bytes_, static_cast<uint32_t>(GgufType::kI32));
  put<uint64_t>(bytes_, values.size());
  for (const int32_t value : values) put(bytes_, value);
}

void GgufMetadata::append(const GgufMetadata& other) {
  count_ += other.count_;
  bytes_ += other.bytes_;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       const std::vector<GgufTensorSpec>& tensors)
    : path_(path), out_(path) {
  constexpr uint32_t kVersion = 3;
  std::string head = "GGUF";
  put(head, kVersion);
  put<uint64_t>(head, tensors.size());
  put<uint64_t>(head, metadata.count());
  head += metadata.bytes();
  uint64_t offset = 0;
  for (const GgufTensorSpec& spec : tensors) {
    put_string(head, spec.name);
    put(head, static_cast<uint32_t>(spec.shape.size()));
    for (auto dim = spec.shape.rbegin(); dim != spec.shape.rend(); ++dim) put<int64_t>(head, *dim);
    put(head, spec.type->id);
    put(head, offset);
    sizes_.push_back(tensor_bytes(spec));
    offset += padded(sizes_.back());
  }
  write(head);
  pad();
}

void GgufWriter::write(std::string_view bytes) {
  out_.write(bytes);
  written_ += bytes.size();
}

void GgufWriter::pad() { write(std::string(padded(written_) - written_, '\0')); }

void GgufWriter::append(std::span<const std::byte> bytes) {
  while (tensor_ < sizes_.size() && in_tensor_ == sizes_[tensor_] && !bytes.empty()) {
    ++tensor_;
    in_tensor_ = 0;
  }
  if (bytes.empty()) return;
  if (tensor_ == sizes_.size() || bytes.size() > sizes_[tensor_] - in_tensor_) {
    throw file_error(path_, fmt::format("more data for tensor {} than announced", tensor_));
  }
  write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  in_tensor_ += bytes.size();
  if (in_tensor_ == sizes_[tensor_]) pad();
}

void GgufWriter::finish() {
  while (tensor_ < sizes_.size() && in_tensor_ == sizes_[tensor_]) {
    ++tensor_;
    in_tensor_ = 0;
  }
  if (tensor_ < sizes_.size()) {
    throw file_error(path_,
                     fmt::format("{} of the {} bytes of tensor {}", in_tensor_, sizes_[tensor_], tensor_));
  }
  out_.finish();
}

}  // namespace quire::formats
