#include "formats/checkpoint.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "formats/gguf.h"
#include "formats/gguf_checkpoint.h"
#include "formats/kept_file.h"
#include "formats/mapped_file.h"
#include "formats/safetensors.h"
#include "formats/safetensors_header.h"

namespace quire::formats {
namespace {

class SafetensorsCheckpoint : public Checkpoint {
 public:
  SafetensorsCheckpoint(const std::filesystem::path& dir, FileAccess access)
      : Checkpoint(dir), file_(Safetensors::open(dir, access)) {
    for (const auto& [name, tensor] : file_.tensors()) {
      tensors_.emplace(name, TensorFacts{std::string(dtype_name(tensor.dtype)), tensor.dtype, tensor.shape,
                                         tensor.num_bytes()});
    }
  }

  const TensorFacts* find(std::string_view name) const override {
    // Called first, because it throws for unsupported tensors.
    return file_.find(name) == nullptr ? nullptr : &tensors_.find(name)->second;
  }

  TensorPlace place(std::string_view name) const override {
    auto [file, offset] = file_.place(name);
    return {std::move(file), std::string(name), offset, true};
  }

  void refuse_unused(const std::set<std::string, std::less<>>&) const override {}

  LoadedTensor load(std::string_view name, DType, ThreadPool&) const override {
    const TensorView& tensor = file_.at(name);
    prefetch_pages(tensor.data, tensor.num_bytes());
    return {tensor, *this};
  }

  LoadedTensor load_blocks(std::string_view name, ThreadPool&) const override {
    throw error(name, "is not in blocks");
  }

  std::vector<CheckpointFile> files() const override {
    std::vector<CheckpointFile> out;
    for (const MappedFile& file : file_.files()) {
      out.push_back({file.path().filename().string(), file.size(), file.modified(),
                     checksum(file_.header(out.size()))});
    }
    return out;
  }

 private:
  void release(const TensorView& tensor) const override { file_.release(tensor); }

  Safetensors file_;
};

}  // namespace

LoadedTensor::LoadedTensor(LoadedTensor&& other) noexcept
    : view_(std::move(other.view_)),
      copy_(std::move(other.copy_)),
      owner_(std::exchange(other.owner_, nullptr)) {}

LoadedTensor& LoadedTensor::operator=(LoadedTensor&& other) noexcept {
  std::swap(view_, other.view_);
  std::swap(copy_, other.copy_);
  std::swap(owner_, other.owner_);
  return *this;
}

void LoadedTensor::detach() {
  if (owner_ == nullptr) return;
  copy_ = Buffer(view_.num_bytes());
  if (copy_.size() != 0) std::memcpy(copy_.data(), view_.data, copy_.size());
  view_.data = copy_.data();
  owner_ = nullptr;
}

void LoadedTensor::release_pages() const {
  if (owner_ != nullptr) owner_->release(view_);
}

void LoadedTensor::release_rows(size_t first, size_t count) const {
  if (owner_ == nullptr) return;
  TensorView rows = view_;
  const size_t row_bytes = view_.num_bytes() / static_cast<size_t>(view_.shape[0]);
  rows.data += first * row_bytes;
  rows.shape[0] = static_cast<int64_t>(count);
  owner_->release(rows);
}

std::optional<WeightFormat> TensorFacts::blocks() const {
  if (dtype || shape.size() != 2) return std::nullopt;
  for (const WeightFormat each :
       {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K, WeightFormat::kQ6_K}) {
    if (format == weight_format_name(each)) return each;
  }
  return std::nullopt;
}

const TensorFacts& Checkpoint::at(std::string_view name) const {
  if (const TensorFacts* found = find(name)) return *found;
  throw file_error(path_, fmt::format("tensor {} is missing", quoted_name(name_in_file(name))));
}

Error Checkpoint::error(std::string_view name, std::string_view what) const {
  const TensorPlace where = place(name);
  return file_error(where.file, where.offset, fmt::format("tensor {} {}", quoted_name(where.name), what));
}

std::unique_ptr<Checkpoint> Checkpoint::open(const std::filesystem::path& model, FileAccess access) {
  if (is_gguf_file(model)) return open_gguf_checkpoint(model, access);
  return std::make_unique<SafetensorsCheckpoint>(model, access);
}

}  // namespace quire::formats
