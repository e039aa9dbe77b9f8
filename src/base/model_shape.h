#pragma once

#include <cstdint>

namespace quire {

/// The sizes of a model as far as memory and time depend on them. `sim` reasons with it, without `model`.
struct ModelShape {
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t ffn_size = 0;
  uint32_t vocab_size = 0;
  uint32_t max_positions = 0;   // max_position_embeddings
  uint64_t num_parameters = 0;  // tied embeddings counted once
  uint64_t weight_bytes = 0;    // as stored in the checkpoint
  uint32_t kv_element_bytes = 0;

  /// K and V of one token in all layers.
  uint64_t kv_bytes_per_token() const {
    return uint64_t{2} * num_layers * num_kv_heads * head_dim * kv_element_bytes;
  }
};

}  // namespace quire
