#include "model/gguf_checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "load/gguf.h"
#include "load/mapped_file.h"
#include "load/safetensors_header.h"
#include "model/gguf_config.h"
#include "model/gguf_names.h"

namespace quire {
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

/// Expands a row, a piece at a time.
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

class GgufCheckpoint : public Checkpoint {
 public:
  explicit GgufCheckpoint(const std::filesystem::path& path) : Checkpoint(path), file_(Gguf::open(path)) {
    const GgufFamily& family = gguf_family(file_);
    const GgufHeads heads = gguf_heads(file_, family);
    for (const auto& [name, tensor] : file_.tensors()) {
      if (name == kRopeFactorsTensor) continue;  // a part of the config
      const auto known = hf_tensor_name(family, name);
      Place place{&tensor, 0};
      if (family.neighbour_rope && known && known->is_q) place.heads = heads.query;
      if (family.neighbour_rope && known && known->is_k) place.heads = heads.kv;
      if (place.heads > 0) check_heads(place);
      const std::string& hf_name = known ? known->text : name;
      if (!places_.emplace(hf_name, place).second) {
        throw file_error(path, fmt::format("tensor {} is there under two names", quoted_name(name)));
      }
      if (tensor.type->dequantize == nullptr) continue;
      tensors_.emplace(hf_name, TensorFacts{std::string(tensor.type->name), stored_dtype(*tensor.type),
                                            tensor.shape, tensor.bytes});
    }
  }

  const TensorFacts* find(std::string_view name) const override {
    const auto place = places_.find(name);
    if (place == places_.end()) return nullptr;
    file_.find(place->second.tensor->name);  // throws if its type is not read
    return &tensors_.find(name)->second;
  }

  LoadedTensor load(std::string_view name, DType expand_to, ThreadPool& pool) const override {
    const TensorFacts& facts = at(name);
    const Place& place = places_.find(name)->second;
    const GgufTensor& tensor = *place.tensor;
    prefetch_pages(tensor.data, tensor.bytes);
    if (facts.dtype && place.heads == 0) {
      return {TensorView{*facts.dtype, tensor.shape, tensor.data}, *this};
    }
    const DType dtype = facts.dtype.value_or(expand_to);
    const auto [rows, values] = rows_of(tensor);
    const size_t row_bytes = values / tensor.type->block_values * tensor.type->block_bytes;
    const size_t loaded_bytes = values * dtype_bytes(dtype);
    Buffer copy(rows * loaded_bytes);
    constexpr size_t kGrain = size_t{64} << 10;  // bytes, about
    pool.parallel_for(rows, 1 + kGrain / (row_bytes + 1), [&](size_t begin, size_t end, uint32_t) {
      for (size_t row = begin; row < end; ++row) {
        std::byte* to = copy.data() + place.row_in_model(row, rows) * loaded_bytes;
        const std::byte* from = tensor.data + row * row_bytes;
        if (facts.dtype) {
          std::memcpy(to, from, row_bytes);
        } else {
          expand(*tensor.type, from, values, dtype, to);
        }
      }
    });
    release_pages(tensor.data, tensor.bytes);
    return {dtype, tensor.shape, std::move(copy)};
  }

 private:
  struct Place {
    const GgufTensor* tensor;
    uint32_t heads;  // whose rows llama.cpp has put in its order; 0: none

    size_t row_in_model(size_t row, size_t rows) const {
      return heads == 0 ? row : half_split_row(row, rows / heads);
    }
  };
  struct Rows {
    size_t count;
    size_t values;
  };

  /// A vector is a row, unless its elements belong to heads.
  static Rows rows_of(const GgufTensor& tensor) {
    size_t values = 1;
    for (const int64_t dim : tensor.shape) values *= static_cast<size_t>(dim);
    if (values == 0) return {0, 0};
    if (tensor.shape.size() < 2) return {values, 1};
    return {values / static_cast<size_t>(tensor.row_values()), static_cast<size_t>(tensor.row_values())};
  }

  void check_heads(const Place& place) const {
    const GgufTensor& tensor = *place.tensor;
    const auto refuse = [&](std::string_view what) {
      throw file_error(path_, fmt::format("tensor {}: {}", quoted_name(tensor.name), what));
    };
    if (rows_of(tensor).count % (2 * size_t{place.heads}) != 0) {
      refuse(
          fmt::format("{} rows are no even number for each of {} heads", rows_of(tensor).count, place.heads));
    }
  }

  void release(const TensorView& tensor) const override { release_pages(tensor.data, tensor.num_bytes()); }

  Gguf file_;
  std::map<std::string, Place, std::less<>> places_;  // by Hugging Face name
};

}  // namespace

std::unique_ptr<Checkpoint> open_gguf_checkpoint(const std::filesystem::path& file) {
  return std::make_unique<GgufCheckpoint>(file);
}

}  // namespace quire
