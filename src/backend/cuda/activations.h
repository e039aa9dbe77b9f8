#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/cuda/arena.h"
#include "backend/cuda/cuda_options.h"
#include "backend/cuda/gemm.h"
#include "decoder/ops.h"
#include "model/config.h"
#include "tensor/dtype.h"

// What a step keeps on the device beside weights and K/V, by arithmetic: `quire inspect` asks for it where
// there is no CUDA.
namespace quire::backend::cuda {

/// The operations of a forward pass, as lives of buffers count them: those from kNorm to kDown once a layer,
/// and from kDown on with kNorm, which takes what kDown gave. Kernels that work within a buffer belong to the
/// operation before.
enum class Operation : uint8_t {
  kEmbed,
  kNorm,     // kAdded to the residual, and the norm before attention
  kQkv,      // with the norms of heads
  kRope,     // and K and V into their blocks
  kAttend,   // all attention
  kOut,      // its projection
  kFfnNorm,  // kAdded to the residual, and the norm before the feed-forward
  kGateUp,
  kGated,
  kDown,
  kSelect,  // the rows that are asked for, and their norm
  kHead,
};
inline constexpr size_t kNumOperations = 12;

/// What activations are kept in; the first five as decoder::Rows has them. [rows] means the most of a step.
enum class Activation : uint8_t {
  kResidual,     // [rows, hidden]
  kNormed,       // [rows, hidden]
  kQkv,          // [rows, (heads + 2 kv_heads) * head_dim]
  kAttended,     // [rows, heads * head_dim]
  kAdded,        // [rows, hidden]
  kGateUp,       // [rows, 2 ffn], or [choices, 2 ffn of an expert]
  kFfn,          // [rows, ffn], likewise
  kSelected,     // [logit rows, hidden]
  kLogits,       // [logit rows, vocab] f32
  kPartials,     // of attention, f32
  kPlaces,       // [logit rows]: numbers of the rows that are asked for
  kInput,        // what kernels read of the batch
  kMainAngles,   // [positions][rotary] f32, as model::LayerRope counts them
  kLocalAngles,  // likewise; empty if the model has none
  // Empty if it has no experts. A choice is an expert that a row is sent to (route.h).
  kRouted,     // [rows, router_rows()] f32: the router's logits
  kChoices,    // numbers of 4 bytes: choice_numbers()
  kOfExperts,  // [choices, hidden]
  // [padded_rows(kFewRows), ffn]: what few_rows() leaves that applies the gates, instead of kGateUp and kFfn.
  kFfnOfFew,
};
inline constexpr size_t kNumActivations = 18;

/// All activations in one allocation, each where Operation allows it.
struct Activations {
  std::array<ArenaBuffer, kNumActivations> buffers;
  size_t bytes = 0;

  const ArenaBuffer& of(Activation which) const { return buffers[static_cast<size_t>(which)]; }
};

/// For a model whose numbers are `dtype`, in blocks of `block_size` tokens.
Activations lay_out_activations(const model::ModelConfig& config, DType dtype, uint32_t block_size,
                                const StepLimits& limits);

/// "always", or the operations between which a buffer lives: "norm to qkv, ffn norm to gate and up".
std::string describe(Lives lives);

/// Rows whose attention is computed at once: so many that they fill a device, and so few that their partial
/// results take little memory.
uint32_t attention_rows(const model::ModelConfig& config, const StepLimits& limits);

/// Where in Activation::kChoices what is known of a step's choices begins, in numbers.
struct ChoiceNumbers {
  size_t chosen = 0;   // [choices]
  size_t weights = 0;  // [choices] f32
  size_t order = 0;    // [choices]
  size_t tiles = 0;    // [tiles]: ExpertTile
  size_t all = 0;
};
ChoiceNumbers choice_numbers(const model::ModelConfig& config, const StepLimits& limits);

/// The numbers of a tile of rows within kInput: those of QueryTile.
inline constexpr size_t kNumbersOfTile = 4;

/// What load_weights takes, but for the gaps between matrices: matrices, embeddings and biases in `dtype`,
/// norms in f32; or the matrices of layers and head as int8 or int4.
uint64_t weight_bytes(const model::ModelConfig& config, DType dtype,
                      std::optional<WeightFormat> quantization = std::nullopt);

}  // namespace quire::backend::cuda
