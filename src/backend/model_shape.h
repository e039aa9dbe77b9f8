#pragma once

#include <cstdint>
#include <vector>

namespace quire::backend {

/// The sizes of a model on which the memory and the time that a device needs depend.
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
  uint32_t kv_scale_bytes = 0;             // per token and head, for K and V each
  std::vector<uint32_t> kv_windows = {0};  // one per K/V group; 0: full attention
  uint32_t kv_layers = 0;                  // layers whose K/V fits into a block: those of the largest group

  /// K and V of one token in all layers.
  uint64_t kv_bytes_per_token() const { return num_layers * kv_layer_bytes(); }
  /// Bytes of a block of `block_size` tokens: the layers of one group.
  uint64_t kv_block_bytes(uint32_t block_size) const { return kv_layer_bytes() * kv_layers * block_size; }

 private:
  uint64_t kv_layer_bytes() const {
    return uint64_t{2} * num_kv_heads * (uint64_t{head_dim} * kv_element_bytes + kv_scale_bytes);
  }
};

}  // namespace quire::backend
