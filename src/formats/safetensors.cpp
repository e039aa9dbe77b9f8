#include "formats/safetensors.h"

#include <cstring>
#include <functional>
#include <set>
#include <span>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_header.h"
#include "tensor/buffer.h"

namespace quire::formats {
namespace {

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

/// A shard is a file beside its index: a bare name, so that an index cannot reach out of its directory.
bool is_bare_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

struct Safetensors::Impl {
  std::filesystem::path path;
  FileAccess access = FileAccess::kMap;
  std::vector<MappedFile> files;
  std::vector<std::filesystem::path> file_paths;
  struct InFile {
    size_t file;
    uint64_t offset;
  };
  std::map<std::string, InFile, std::less<>> places;
  std::vector<Buffer> copies;  // of tensors that are not aligned in their file
  std::map<std::string, TensorView, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> unreadable;  // name to dtype
  uint64_t total_bytes = 0;

  void add_tensor(const MappedFile& file, const TensorEntry& entry) {
    places.emplace(entry.name, InFile{files.size() - 1, entry.begin});
    if (!entry.dtype) {
      unreadable.emplace(entry.name, entry.dtype_text);
      return;
    }
    const std::byte* data = file.data() + entry.begin;
    const size_t bytes = entry.end - entry.begin;
    if (entry.begin % dtype_bytes(*entry.dtype) != 0) {
      Buffer& copy = copies.emplace_back(bytes);
      if (bytes != 0) std::memcpy(copy.data(), data, bytes);
      data = copy.data();
    }
    tensors.emplace(entry.name, TensorView{*entry.dtype, entry.shape, data});
    total_bytes += bytes;
  }

  std::vector<TensorEntry> map_file(const std::filesystem::path& file_path) {
    const MappedFile& file = files.emplace_back(file_path, access);
    file_paths.push_back(file_path);
    return parse_safetensors_header(std::span(file.data(), file.size()), file_path);
  }

  void open_single(const std::filesystem::path& file_path) {
    for (const TensorEntry& entry : map_file(file_path)) add_tensor(files.back(), entry);
  }

  void open_index(const std::filesystem::path& index_path) {
    const json::value index = read_json_file(index_path);
    const JsonObject weight_map = JsonObject(index, index_path).object("weight_map");
    std::map<std::string, std::set<std::string, std::less<>>> by_shard;
    for (const auto& member : weight_map.raw()) {
      if (!member.value().is_string() || !is_bare_file_name(member.value().get_string())) {
        throw file_error(
            index_path,
            fmt::format("tensor {}: a shard must be the name of a file in the folder of the index",
                        quoted_name(member.key())));
      }
      by_shard[std::string(member.value().get_string())].emplace(member.key());
    }
    for (const auto& [shard, wanted] : by_shard) {
      const auto shard_path = index_path.parent_path() / shard;
      size_t found = 0;
      for (const TensorEntry& entry : map_file(shard_path)) {
        if (!wanted.contains(entry.name)) continue;
        add_tensor(files.back(), entry);
        ++found;
      }
      if (found == wanted.size()) continue;
      for (const std::string& name : wanted) {
        if (tensors.contains(name) || unreadable.contains(name)) continue;
        throw file_error(shard_path, fmt::format("tensor {} is missing, although {} says that it is here",
                                                 quoted_name(name), index_path.filename().string()));
      }
    }
  }
};

namespace {

/// ", but 'x.bin'": weights in another form, or without their index.
std::string others_in(const std::filesystem::path& dir) {
  std::error_code failed;
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(dir, failed)) {
    const std::filesystem::path extension = entry.path().extension();
    if (extension != ".safetensors" && extension != ".bin" && extension != ".pth" && extension != ".gguf")
      continue;
    const std::string name = entry.path().filename().string();
    if (found.empty() || name < found) found = name;
  }
  return found.empty() ? "" : fmt::format(", but {}", quoted_name(found));
}

}  // namespace

Safetensors::Safetensors() : impl_(std::make_unique<Impl>()) {}
Safetensors::~Safetensors() = default;
Safetensors::Safetensors(Safetensors&&) noexcept = default;
Safetensors& Safetensors::operator=(Safetensors&&) noexcept = default;

Safetensors Safetensors::open(const std::filesystem::path& path, FileAccess access) {
  Safetensors out;
  out.impl_->path = path;
  out.impl_->access = access;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    if (path.extension() == ".json") {
      out.impl_->open_index(path);
    } else {
      out.impl_->open_single(path);
    }
  } else if (std::filesystem::exists(path / kSingleName, ignored)) {
    out.impl_->open_single(path / kSingleName);
  } else if (std::filesystem::exists(path / kIndexName, ignored)) {
    out.impl_->open_index(path / kIndexName);
  } else {
    throw file_error(path,
                     fmt::format("neither {} nor {} exists{}", kSingleName, kIndexName, others_in(path)));
  }
  return out;
}

const TensorView* Safetensors::find(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  if (found != impl_->tensors.end()) return &found->second;
  const auto unreadable = impl_->unreadable.find(name);
  if (unreadable == impl_->unreadable.end()) return nullptr;
  const Place at = place(name);
  throw file_error(
      at.file, at.offset,
      fmt::format("tensor {} has dtype {}, which is not supported", quoted_name(name), unreadable->second));
}

const TensorView& Safetensors::at(std::string_view name) const {
  if (const TensorView* found = find(name)) return *found;
  throw file_error(impl_->path, fmt::format("tensor {} is missing", quoted_name(name)));
}

const std::map<std::string, TensorView, std::less<>>& Safetensors::tensors() const { return impl_->tensors; }
Safetensors::Place Safetensors::place(std::string_view name) const {
  const auto found = impl_->places.find(name);
  if (found == impl_->places.end()) {
    throw file_error(impl_->path, fmt::format("tensor {} is missing", quoted_name(name)));
  }
  return {impl_->file_paths[found->second.file], found->second.offset};
}

const std::vector<MappedFile>& Safetensors::files() const { return impl_->files; }

std::span<const std::byte> Safetensors::header(size_t file) const {
  const MappedFile& of = impl_->files[file];
  uint64_t bytes = 0;  // was checked when the file was opened
  std::memcpy(&bytes, of.data(), sizeof(bytes));
  return {of.data(), sizeof(bytes) + bytes};
}

uint64_t Safetensors::total_bytes() const { return impl_->total_bytes; }

void Safetensors::release(const TensorView& tensor) const {
  // A misaligned tensor is a copy: releasing its pages would lose their contents.
  for (const MappedFile& file : impl_->files) {
    const bool inside =
        !std::less<>()(tensor.data, file.data()) && std::less<>()(tensor.data, file.data() + file.size());
    if (inside) file.release_pages(tensor.data, tensor.num_bytes());
  }
}

}  // namespace quire::formats
