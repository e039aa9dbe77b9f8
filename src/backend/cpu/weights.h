#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/cpu/linear.h"
#include "backend/cpu/pack_cache.h"
#include "formats/checkpoint.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace quire::backend::cpu {

struct FeedForward {
  Linear gate_up;  // [2 ffn, hidden]
  Linear down;     // [hidden, ffn]
};

/// Norms are f32, and empty if the model has none. They are factors: for families that store them minus 1,
/// the 1 is already added.
struct LayerWeights {
  Buffer attention_norm;  // [hidden]
  Linear qkv;             // [(heads + 2 kv_heads) * head_dim, hidden]
  Buffer q_norm;          // [head_dim], or [heads * head_dim] with QkNorm::kWhole
  Buffer k_norm;          // [head_dim], or [kv_heads * head_dim]
  Linear o;               // [hidden, heads * head_dim]
  Buffer post_attention_norm;
  Buffer ffn_norm;
  FeedForward ffn;  // empty in a layer with experts
  Buffer post_ffn_norm;
  kernels::PackedMatrix router;  // [experts, hidden], empty in a dense layer
  std::vector<FeedForward> experts;
};

/// A model's weights, ready for the kernels. An embedding table that is not quantized stays in the
/// checkpoint's mapped file; only the rows that are looked up become resident.
struct ModelWeights {
  WeightSetting setting;                      // own_blocks only if the file has such matrices
  std::unique_ptr<formats::Checkpoint> file;  // nullptr: no longer needed
  std::unique_ptr<PackCache> kept;            // the file of packed matrices, if there is one
  formats::LoadedTensor embedding;            // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Buffer final_norm;
  kernels::PackedMatrix head;  // [vocab, hidden]
};

/// `model`: a directory or a GGUF file. Determines the head, then packs the matrices of the layers and the
/// head; the norms are f32. Logs a warning for a tensor with a NaN or an infinity. `pack_cache`: the folder
/// in which packed matrices are kept for the next start; empty: the folder of the model. With
/// FileAccess::kRead no file is mapped, and the checkpoint is closed at the end. Throws Error naming file and
/// tensor, key or offset.
ModelWeights load_weights(const std::filesystem::path& model, model::ModelConfig& config,
                          const WeightSetting& setting, kernels::KernelContext& context,
                          const std::optional<std::filesystem::path>& pack_cache = std::nullopt,
                          formats::FileAccess access = formats::FileAccess::kMap);

/// The formats of the matrices of the layers and the head: "bf16", "Q4_K+Q6_K".
std::string formats_in_use(const ModelWeights& weights);
/// In that form.
std::string names_of(const std::set<WeightFormat>& formats);

}  // namespace quire::backend::cpu
