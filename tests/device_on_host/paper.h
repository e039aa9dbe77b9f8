#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/config.h"

// The tables of docs/measurements/gpu.md: what kernels must move and do, what they do as the fibers count it,
// and the times that follow from the data sheets of cards. Nothing here is measured.
namespace quire::test::fibers {

/// What a kernel asked of the memory system, caches included, and in how many launches.
struct Asked {
  double bytes = 0;  // sectors of 32
  uint32_t launches = 0;
};

/// What `run` launches on the device that there is; it returns the error of its launch, 0 if there was none.
Asked count(const std::function<int()>& run);

/// The last `rows` of `length` tokens of one sequence, with one K/V head of 4 query heads in bf16.
/// `tiled`: by paged_attention, whose blocks go through all spans; else by decode_attention.
Asked count_attention(uint32_t head_dim, uint32_t length, uint32_t rows, bool tiled);
/// rms_norm with residual, and gated, of bf16.
Asked count_norm(uint32_t rows, uint32_t width);
Asked count_gated(uint32_t rows, uint32_t width);
/// embed and add of bf16.
Asked count_embed(uint32_t rows, uint32_t width);
Asked count_add(uint32_t rows, uint32_t width);
/// rope, which scatters K and V of the rows into one block or more.
Asked count_rope(const model::ModelConfig& model, uint32_t rows);
/// copy_blocks of one block of all layers.
Asked count_copy(const model::ModelConfig& model);
/// sample, greedily, of one row.
Asked count_greedy(uint32_t vocabulary);

/// A table of the document, with the name by which it is marked there.
struct PaperTable {
  std::string name;
  std::string text;  // Markdown
};
std::vector<PaperTable> paper_tables();

}  // namespace quire::test::fibers
