#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/runtime.h"
#include "model/config.h"
#include "tensor/weight_format.h"

// Times of work on a real device, as rows of a table in Markdown. bench.cpp is the program.
namespace quire::test::gpu {

inline constexpr size_t kBf16Bytes = 2;

/// What a measurement is compared with.
struct Ceilings {
  double copied = 0;     // bytes per second that a copy on the device reads and writes, as measured
  double bf16 = 0;       // operations per second in products of bf16: the data sheet's, or as measured
  double host_link = 0;  // bytes per second to the host's memory or back (machine.h); 0: unknown
};

/// What some work cannot do without: bytes that it reads and writes, and operations of the matrix products in
/// it, a multiply-add counting as two.
struct Needs {
  double bytes = 0;
  double operations = 0;
};

struct Step {
  uint32_t seqs = 0;
  uint32_t tokens = 0;  // of each
  uint32_t length = 0;  // of each sequence, with them
};

/// A layer of experts; by default Qwen3-30B-A3B's.
struct ExpertSizes {
  uint32_t hidden = 2048;
  uint32_t ffn = 768;  // of one expert
  uint32_t count = 128;
  uint32_t top = 8;
  std::vector<uint32_t> rows = {1, 8, 64, 2048};
};

/// Of an expert's matrices one, by which expert_product() multiplies.
struct ExpertProduct {
  std::string name;
  uint32_t n;
  uint32_t k;
  uint32_t x_choices;  // that share a row of x
};
std::vector<ExpertProduct> expert_products(const ExpertSizes& of);
/// Of all choices of so many rows. `experts`: how many different ones they are.
std::string expert_product_name(const ExpertSizes& of, const ExpertProduct& product, uint32_t rows);
Needs expert_product_needs(const ExpertSizes& of, const ExpertProduct& product, uint32_t rows,
                           double experts);

/// Of so many rows by a matrix [n, k] of int8 or int4.
Needs integer_product_needs(WeightFormat format, uint32_t n, uint32_t k, uint32_t rows, double result_bytes);

/// Llama-3.2-1B, but for its RoPE scaling, which is a table of other numbers.
model::ModelConfig llama_1b();

/// What is measured. Smaller sizes are for tests of the measurements.
struct Sizes {
  model::ModelConfig model = llama_1b();  // of which all but attention has its widths
  uint32_t heads = 32;                    // of attention
  uint32_t kv_heads = 8;
  std::vector<uint32_t> head_dims = {64, 128, 256};
  std::vector<uint32_t> decodes = {1, 8, 64};  // sequences
  uint32_t context = 4096;                     // of each
  std::vector<uint32_t> prompts = {512, 8192};
  std::vector<uint32_t> norm_rows = {64, 65'536};
  std::vector<uint32_t> gated_rows = {64, 8192};
  std::vector<uint32_t> gemm_rows = {1, 8, 64, 256};
  std::vector<uint32_t> sampled_rows = {1, 64, 256};
  std::vector<uint32_t> copied_blocks = {1, 64, 512};
  std::vector<uint32_t> swapped_blocks = {1, 64};
  std::vector<Step> steps = {{1, 1, 512},   {8, 1, 512},     {64, 1, 512},
                             {64, 1, 4096}, {8, 1024, 1024}, {1, 8192, 8192}};
  std::vector<uint32_t> served = {1, 64, 256};  // sequences that an executor decodes at once
  ExpertSizes experts;
  uint32_t served_length = 512;  // tokens of each at the beginning
  uint32_t served_room = 256;    // decoded by each before all begin again
  /// More bytes than all caches hold: what is read again after so many comes from memory.
  size_t beyond_caches = size_t{256} << 20;
};

/// The median of the seconds that one call takes, back to back on the default stream: of at least 5 samples
/// of at least 2 ms each. `run` only adds work to the stream.
double seconds_of(const std::function<void()>& run);

/// The same by the host's clock; `run` waits for the device itself.
double seconds_of_waiting(const std::function<void()>& run);

void print_head();
/// One row: the time, and the share of the ceilings that the needs come to.
void print_row(const std::string& what, double seconds, const Needs& needs, const Ceilings& ceilings);

/// Memory of the device that holds numbers in (-1, 1) of bf16, always the same.
backend::cuda::DeviceBuffer random_bf16(size_t count, const std::string& what);

/// Measures and prints the ceilings; products with cuBLASLt.
Ceilings measure_ceilings();

// Each prints its rows.
void measure_attention(const Sizes& sizes, const Ceilings& ceilings);
void measure_small_kernels(const Sizes& sizes, const Ceilings& ceilings);
/// What moves data and computes little: embeddings, RoPE with the scatter of K and V, additions, and copies
/// of blocks.
void measure_moving_kernels(const Sizes& sizes, const Ceilings& ceilings);
/// Of rows of logits.
void measure_sampling(const Sizes& sizes, const Ceilings& ceilings);
/// Blocks to the host's pool and back by a BlockMover. Shares are of the link to the host.
void measure_swap(const Sizes& sizes, const Ceilings& ceilings);
/// A step of decodes by a CudaExecutor, which samples them greedily, with one and with two in flight.
void measure_executor(const Sizes& sizes, const Ceilings& ceilings);
/// By weights of bf16, of int8 and of int4.
void measure_gemms(const Sizes& sizes, const Ceilings& ceilings);
/// Products with experts' matrices, and what finds them and adds up their results.
void measure_experts(const Sizes& sizes, const Ceilings& ceilings);
/// Whole steps of a model of the model's shape, whose weights are random.
void measure_steps(const Sizes& sizes, const Ceilings& ceilings);

}  // namespace quire::test::gpu
