#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/inspect.h"
#include "backend/machine.h"
#include "backend/model_shape.h"
#include "backend/sim/roofline_cost.h"
#include "backend/step_work.h"
#include "startup/model_outline.h"

// What a machine carries of a model, by arithmetic alone: memory, and the ceilings that memory bandwidth and
// arithmetic set ("roofline": Williams, Waterman, Patterson 2009). Nothing is loaded or measured here. All
// functions are pure.
namespace quire::startup {

/// What is asked of a machine.
struct Demand {
  uint64_t memory = 0;  // bytes for weights and K/V
  /// Whether embeddings may stay in a mapped file, which takes none of `memory`: so on a CPU.
  bool embeddings_in_file = true;
  uint32_t context = 2048;     // tokens of each user's sequence, prompt and answer together
  uint32_t max_model_len = 0;  // tokens of the longest sequence, which a contiguous allocation reserves
  uint32_t block_size = 16;    // tokens of a K/V block
  double user_rate = 10;       // tokens per second that each user must get; 0: any
};

/// The options that decide how large a model is in memory, as `quire serve` takes them.
struct NumberFormats {
  std::string quantization = "auto";
  std::string kv_cache_dtype = "auto";
};

/// The layers that read the same number of tokens back.
struct WindowLayers {
  uint32_t window = 0;  // 0: full attention
  uint32_t layers = 0;
  uint64_t bytes_per_token = 0;  // of K/V, in these layers
};

/// One way to give K/V memory to sequences.
struct Allocation {
  uint64_t bytes = 0;   // of one sequence
  uint64_t unused = 0;  // of them, not used by a sequence of the context asked for
  uint64_t users = 0;   // sequences that fit
};

/// What limits a decode step of `batch` sequences, each with the context asked for.
struct Ceiling {
  uint32_t batch = 0;
  bool fits = false;         // whether memory holds the K/V of so many
  uint64_t bytes = 0;        // read by a step: weights and K/V
  double by_bandwidth = 0;   // tokens per second of all together, at most; 0: unknown
  double by_arithmetic = 0;  // the same

  /// The least that is known of both.
  double tokens_per_second() const;
};

enum class Limit : uint8_t { kMemory, kBandwidth, kArithmetic };
inline constexpr std::array<std::string_view, 3> kLimitNames = {"memory", "bandwidth", "arithmetic"};

/// The most users that each limit allows; kManyUsers: as many or more.
struct Users {
  uint64_t by_memory = 0;
  uint64_t by_bandwidth = 0;
  uint64_t by_arithmetic = 0;
  uint64_t all = 0;  // the least of them
  Limit limit = Limit::kMemory;
};
inline constexpr uint64_t kManyUsers = uint64_t{1} << 20;

/// docs/plan.md says what each figure counts and what it leaves out.
struct Capacity {
  backend::ModelShape shape;
  backend::cpu::WeightSizes weights;
  uint64_t weight_bytes = 0;     // of the memory
  uint64_t kv_bytes = 0;         // what is left for K/V; 0 if the weights do not fit
  std::vector<WindowLayers> kv;  // full attention first, then the shorter windows first
  uint64_t block_bytes = 0;
  uint64_t blocks = 0;            // that kv_bytes holds
  uint64_t tokens = 0;            // in these blocks, in sequences of the context asked for
  uint64_t longest_sequence = 0;  // that the blocks hold alone, at most max_model_len
  Allocation paged;               // `unused` is the mean over lengths that end in the same block
  Allocation contiguous;      // max_model_len tokens for each sequence in all layers, whatever their windows
  double arithmetic = 0;      // operations per second in matmuls with these weights; 0: unknown
  double token_flops = 0;     // operations for one token at the end of the context
  double prompt_seconds = 0;  // the least for a prompt of the whole context; 0: unknown
  std::array<Ceiling, 3> ceilings;  // of batches of 1, 8 and 64
  Users users;
  backend::sim::RooflineCost roofline;  // the time of any step; `model` and `machine` are empty
};

/// The bytes of the blocks that `max_num_seqs` sequences of `longest` tokens hold while one of them computes
/// a chunk of `chunk` tokens: the most that can be of use beside a prefix cache.
uint64_t most_kv_bytes(const backend::ModelShape& shape, uint32_t block_size, uint32_t max_num_seqs,
                       uint32_t longest, uint32_t chunk);

/// A step in which `batch` sequences decode the last token of `context`.
backend::StepWork decode_work(uint64_t batch, uint32_t context);

/// The capacity even if the weights do not fit. Throws Error if a format is unknown.
Capacity capacity_of(const ModelOutline& model, const NumberFormats& formats,
                     const backend::MachineSpeed& speed, const Demand& demand);

}  // namespace quire::startup
