#include "formats/gguf_checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/gguf_rope.h"
#include "formats/kept_file.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_header.h"

namespace quire::formats {
namespace {

std::optional<DType> stored_dtype(const GgmlType& type) {
  switch (type.id) {
    case kGgmlF32:
      return DType::kF32;
    case kGgmlF16:
      return DType::kF16;
    case kGgmlBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

void store(const float* values, size_t count, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, values, count * sizeof(float));
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(out);
  for (size_t i = 0; i < count; ++i) {
    to[i] = dtype == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
  }
}

/// Expands a row in pieces.
void expand(const GgmlType& type, const std::byte* row, size_t count, DType dtype, std::byte* out) {
  constexpr size_t kPiece = 256;  // a multiple of every block
  std::array<float, kPiece> piece;
  for (size_t first = 0; first < count; first += kPiece) {
    const size_t values = std::min(kPiece, count - first);
    dequantize(type, row, values, piece.data());
    store(piece.data(), values, dtype, out + first * dtype_bytes(dtype));
    row += values / type.block_values * type.block_bytes;
  }
}

constexpr int64_t kMaxExperts = 1 << 12;
constexpr uint64_t kMaxSlices = 3 << 16;  // of all layers: each is a few names in a map

class GgufCheckpoint : public Checkpoint {
 public:
  GgufCheckpoint(const std::filesystem::path& path, FileAccess access)
      : Checkpoint(path), file_(Gguf::open(path, access)), family_(gguf_family(file_)) {
    const GgufHeads heads = gguf_heads(file_, family_);
    const GgufTensorNames names(family_);
    for (const auto& [name, tensor] : file_.tensors()) {
      if (is_gguf_rope_tensor(family_, name)) continue;  // a part of the config
      const auto known = names.hf(name);
      if (!known) {
        add(name, {tensor});
      } else if (known->role == GgufRole::kExperts) {
        add_experts(*known, tensor);
      } else {
        add(known->text, place_of(tensor, known->role, heads));
      }
    }
  }

  const TensorFacts* find(std::string_view name) const override {
    const auto place = places_.find(name);
    if (place == places_.end()) return nullptr;
    file_.find(place->second.tensor.name);  // throws if its type is not read
    return &tensors_.find(name)->second;
  }

  TensorPlace place(std::string_view name) const override {
    const auto found = places_.find(name);
    if (found == places_.end()) at(name);  // throws
    const Place& place = found->second;
    const bool verbatim = stored_dtype(*place.tensor.type) && place.heads == 0 && !place.plus_one;
    return {path_, place.tensor.name, file_.offset_of(place.tensor), verbatim};
  }

  LoadedTensor load(std::string_view name, DType expand_to, ThreadPool& pool) const override {
    const TensorFacts& facts = at(name);
    const Place& place = places_.find(name)->second;
    const GgufTensor& tensor = place.tensor;
    prefetch_pages(tensor.data, tensor.bytes);
    if (place.plus_one) return norm_less_one(tensor);
    if (facts.dtype && place.heads == 0) {
      return {TensorView{*facts.dtype, tensor.shape, tensor.data}, *this};
    }
    const DType dtype = facts.dtype.value_or(expand_to);
    const size_t values = rows_of(tensor).values;
    Buffer copy =
        copy_rows(place, values * dtype_bytes(dtype), pool, [&](const std::byte* row, std::byte* to) {
          if (facts.dtype) {
            std::memcpy(to, row, values * dtype_bytes(dtype));
          } else {
            expand(*tensor.type, row, values, dtype, to);
          }
        });
    return {dtype, tensor.shape, std::move(copy)};
  }

  LoadedTensor load_blocks(std::string_view name, ThreadPool& pool) const override {
    at(name);
    const Place& place = places_.find(name)->second;
    const GgufTensor& tensor = place.tensor;
    prefetch_pages(tensor.data, tensor.bytes);
    const size_t row_bytes = bytes_of_row(tensor);
    std::vector<int64_t> shape = {tensor.shape[0], static_cast<int64_t>(row_bytes)};
    if (place.heads == 0) return {TensorView{DType::kU8, std::move(shape), tensor.data}, *this};
    Buffer copy = copy_rows(place, row_bytes, pool,
                            [&](const std::byte* row, std::byte* to) { std::memcpy(to, row, row_bytes); });
    return {DType::kU8, std::move(shape), std::move(copy)};
  }

  std::vector<CheckpointFile> files() const override {
    const MappedFile& file = file_.file();
    return {{file.path().filename().string(), file.size(), file.modified(), checksum(file_.header())}};
  }

  void refuse_unused(const std::set<std::string, std::less<>>& used) const override {
    for (const auto& [name, place] : places_) {
      // The inverse frequencies that old converters wrote follow from the keys.
      if (used.contains(name) || name.ends_with(".attn_rot_embd.weight")) continue;
      throw tensor_error(place.tensor,
                         fmt::format("{} has no such tensor according to its keys", family_.architecture));
    }
  }

 private:
  std::string name_in_file(std::string_view name) const override {
    const auto own = GgufTensorNames(family_).gguf(name);
    if (!own) return std::string(name);
    // The tensor with the matrices of all experts exists, but one expert may be missing.
    return file_.tensors().contains(own->text) ? fmt::format("{} ({})", own->text, name) : own->text;
  }

  struct Place {
    GgufTensor tensor;      // or the slice of an expert
    uint32_t heads = 0;     // heads whose rows are in llama.cpp's order; 0: none
    bool plus_one = false;  // Hugging Face's values are lower by 1

    size_t row_in_model(size_t row, size_t rows) const {
      return heads == 0 ? row : half_split_row(row, rows / heads);
    }
  };
  struct Rows {
    size_t count;
    size_t values;
  };

  Error tensor_error(const GgufTensor& tensor, std::string_view what) const {
    return file_error(path_, file_.offset_of(tensor),
                      fmt::format("tensor {}: {}", quoted_name(tensor.name), what));
  }

  Place place_of(const GgufTensor& tensor, GgufRole role, const GgufHeads& heads) const {
    Place out{tensor};
    if (family_.neighbour_rope && role == GgufRole::kQuery) out.heads = heads.query;
    if (family_.neighbour_rope && role == GgufRole::kKey) out.heads = heads.kv;
    if (out.heads > 0 && rows_of(tensor).count % (2 * size_t{out.heads}) != 0) {
      throw tensor_error(tensor, fmt::format("{} rows are not an even number for each of {} heads",
                                             rows_of(tensor).count, out.heads));
    }
    out.plus_one = role == GgufRole::kNorm && family_.family().norm_adds_one;
    return out;
  }

  void add(const std::string& name, Place place) {
    const GgufTensor& tensor = place.tensor;
    if (tensor.type->dequantize != nullptr) {
      const auto dtype = place.plus_one ? DType::kF32 : stored_dtype(*tensor.type);
      tensors_.emplace(name, TensorFacts{std::string(tensor.type->name), dtype, tensor.shape, tensor.bytes});
    }
    // try_emplace moves nothing where it finds one.
    if (!places_.try_emplace(name, std::move(place)).second) {
      throw tensor_error(tensor, "occurs under two names");
    }
  }

  /// The slices of a tensor that has the matrices of all experts.
  void add_experts(const HfTensorName& name, const GgufTensor& all) {
    if (all.shape.size() != 3 || all.shape.front() < 1 || all.shape.front() > kMaxExperts) {
      throw tensor_error(all, "the matrices of 1 to 4096 experts were expected");
    }
    const auto count = static_cast<uint32_t>(all.shape.front());
    slices_ += count;
    if (slices_ > kMaxSlices) throw tensor_error(all, "there are too many experts before it");
    Place slice{all};
    slice.tensor.shape.erase(slice.tensor.shape.begin());
    slice.tensor.bytes = all.bytes / count;
    for (uint32_t expert = 0; expert < count; ++expert) {
      slice.tensor.data = all.data + expert * slice.tensor.bytes;
      add(name.of_expert(expert), slice);
    }
  }

  static LoadedTensor norm_less_one(const GgufTensor& tensor) {
    const auto [rows, values] = rows_of(tensor);
    Buffer copy(rows * values * sizeof(float));
    dequantize(*tensor.type, tensor.data, rows * values, copy.as<float>());
    for (size_t i = 0; i < rows * values; ++i) copy.as<float>()[i] -= 1.0F;
    return {DType::kF32, tensor.shape, std::move(copy)};
  }

  /// A vector is a row, unless its elements belong to heads.
  static Rows rows_of(const GgufTensor& tensor) {
    size_t values = 1;
    for (const int64_t dim : tensor.shape) values *= static_cast<size_t>(dim);
    if (values == 0) return {0, 0};
    if (tensor.shape.size() < 2) return {values, 1};
    return {values / static_cast<size_t>(tensor.row_values()), static_cast<size_t>(tensor.row_values())};
  }

  static size_t bytes_of_row(const GgufTensor& tensor) {
    return rows_of(tensor).values / tensor.type->block_values * tensor.type->block_bytes;
  }

  /// Writes each row of the file, converted with convert(row, to), in the model's order.
  template <class Convert>
  Buffer copy_rows(const Place& place, size_t loaded_bytes, ThreadPool& pool, const Convert& convert) const {
    const GgufTensor& tensor = place.tensor;
    const size_t rows = rows_of(tensor).count;
    const size_t row_bytes = bytes_of_row(tensor);
    Buffer copy(rows * loaded_bytes);
    constexpr size_t kGrain = size_t{64} << 10;  // bytes, about
    pool.parallel_for(rows, 1 + kGrain / (row_bytes + 1), [&](size_t begin, size_t end, uint32_t) {
      for (size_t row = begin; row < end; ++row) {
        convert(tensor.data + row * row_bytes, copy.data() + place.row_in_model(row, rows) * loaded_bytes);
      }
    });
    file_.file().release_pages(tensor.data, tensor.bytes);
    return copy;
  }

  void release(const TensorView& tensor) const override {
    file_.file().release_pages(tensor.data, tensor.num_bytes());
  }

  Gguf file_;
  const GgufFamily& family_;
  uint64_t slices_ = 0;
  std::map<std::string, Place, std::less<>> places_;  // by Hugging Face name
};

}  // namespace

std::unique_ptr<Checkpoint> open_gguf_checkpoint(const std::filesystem::path& file, FileAccess access) {
  return std::make_unique<GgufCheckpoint>(file, access);
}

}  // namespace quire::formats
