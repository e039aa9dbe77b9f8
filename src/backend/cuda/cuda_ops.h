#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/activations.h"
#include "backend/cuda/cuda_options.h"
#include "backend/cuda/device_sampler.h"
#include "backend/cuda/few_rows.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/paged_attention.h"
#include "backend/cuda/pass_graphs.h"
#include "backend/cuda/rope.h"
#include "backend/cuda/route.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/staging.h"
#include "backend/cuda/weights.h"
#include "decoder/ops.h"
#include "model/config.h"

namespace quire::backend::cuda {

/// A row of a batch whose token only the device knows.
struct LateRow {
  uint32_t row = 0;
  uint32_t place = 0;  // of the token: token_place()
};

/// The operations of a forward pass on an NVIDIA GPU, on one stream. Activations have the number type of the
/// weights, and all memory is allocated by the constructor. hidden() and logits() wait for the stream, the
/// others only add work to it; what fails there is reported by the next one that waits.
class CudaOps final : public decoder::Ops {
 public:
  /// All must outlive it. Throws Error if the device has too little memory, or if it has no kernel for the
  /// model's heads.
  CudaOps(const model::ModelConfig& config, const ModelWeights& weights, KvCache& cache, Gemm& gemm,
          Stream stream, const StepLimits& limits);

  /// The memory that it takes, for activations and for what it knows of a batch.
  static size_t bytes_for(const model::ModelConfig& config, DType dtype, uint32_t block_size,
                          const StepLimits& limits);

  /// Chooses how the products of steps are computed (Gemm::prepare); for each shape of matrices once. False
  /// if the device has too little memory to try that for all of them.
  static bool prepare(Gemm& gemm, const ModelWeights& weights, const StepLimits& limits);

  /// Some tokens of the next batch are those at these places of `tokens`, when it comes to them; what the
  /// batch has in their rows is not read. Both must last until then.
  void expect_late(std::span<const LateRow> rows, const TokenId* tokens) {
    late_rows_ = rows;
    late_tokens_ = tokens;
  }
  /// Throws Error if the batch exceeds the limits.
  void begin(const decoder::Batch& batch) override;
  /// Decodes whose shape was met before are a graph (PassGraphs).
  void compute_layers(const std::function<void()>& layers) override;
  bool has(decoder::Norm norm, uint32_t layer) const override { return weight_of(norm, layer) != nullptr; }
  void norm(decoder::Norm norm, uint32_t layer, decoder::Rows from, decoder::Rows to) override;
  void add(float factor) override;
  void add_and_norm(float factor, decoder::Norm then, uint32_t layer) override;
  void embed(float scale) override;
  void project_qkv(uint32_t layer, decoder::Rows from) override;
  void norm_qk(uint32_t layer) override;
  void rotate(const decoder::Rotation& rotation) override;
  void attend(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) override;
  void project_out(uint32_t layer) override;
  void feed_forward(uint32_t layer, decoder::Rows from) override;
  std::span<const float> hidden(std::span<const uint32_t> rows) override;
  std::span<const float> logits(std::span<const uint32_t> rows, float scale, float cap) override;
  /// The same, left on the device: valid until the next call of any of these three.
  DeviceLogits logits_on_device(std::span<const uint32_t> rows, float scale, float cap);

 private:
  /// Where activations lie.
  struct Arena {
    std::byte* rows[5] = {};          // by decoder::Rows
    std::byte* gate_up = nullptr;     // [rows, 2 ffn], or [choices, 2 ffn of an expert]
    std::byte* ffn = nullptr;         // [rows, ffn], likewise
    std::byte* ffn_of_few = nullptr;  // [padded_rows(kFewRows), ffn]
    std::byte* routed = nullptr;      // [rows, router_rows()] f32
    std::byte* choices = nullptr;     // choice_numbers()
    std::byte* of_experts = nullptr;  // [choices, hidden]
    std::byte* selected = nullptr;    // [logit rows, hidden]
    std::byte* logits = nullptr;      // [logit rows, vocab] f32
    std::byte* partials = nullptr;    // of attention
    std::byte* places = nullptr;      // [logit rows]: of select()
    std::byte* input = nullptr;       // Inputs
    std::byte* angles[3] = {};        // by model::LayerRope: [positions][rotary] f32
    size_t partial_bytes = 0;
    size_t input_bytes = 0;
    Arena(const Activations& all, std::byte* base);
  };
  /// What a step's kernels read of its batch: places in Arena::input, in numbers.
  struct Inputs {
    size_t tokens = 0;     // [rows]
    size_t positions = 0;  // [rows]
    size_t lengths = 0;    // [rows]: keys that the row sees, without regard to windows
    size_t seqs = 0;       // [rows]: its sequence
    size_t tiles = 0;      // [num_tiles]: QueryTile
    uint32_t num_tiles = 0;
    size_t places = 0;          // [groups][rows]: where its K/V goes
    size_t tables = 0;          // [groups][seqs][table_stride]
    uint32_t table_stride = 0;  // entries for the longest sequence of the batch
    size_t numbers = 0;         // in all
  };

  /// Of the batch, in Arena::choices.
  struct Choices {
    uint32_t count = 0;
    uint32_t* chosen = nullptr;
    float* weights = nullptr;
    uint32_t* order = nullptr;
    ExpertTile* tiles = nullptr;
  };

  size_t q_width() const { return size_t{config_.num_heads} * config_.head_dim; }
  size_t kv_width() const { return size_t{config_.num_kv_heads} * config_.head_dim; }
  size_t qkv_width() const { return q_width() + 2 * kv_width(); }
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }
  const float* weight_of(decoder::Norm norm, uint32_t layer) const;
  std::byte* at(decoder::Rows which) const { return arena_.rows[static_cast<size_t>(which)]; }
  const uint32_t* input(size_t place) const {
    return reinterpret_cast<const uint32_t*>(arena_.input) + place;
  }
  const uint32_t* tables(uint32_t group) const {
    return input(inputs_.tables + size_t{group} * seqs_of_batch_ * inputs_.table_stride);
  }
  void lay_out_inputs(const decoder::Batch& batch);
  void fill_inputs(const decoder::Batch& batch, uint32_t* to);
  void norm_rows(const void* x, void* residual, float factor, const float* weight, void* y, uint32_t rows);
  void cut_into_tiles(const decoder::Batch& batch);
  void count_spans();
  uint32_t shared_spans(uint32_t window) const;
  void rotate_and_store(const Matrix& weights, const RopeArgs& args);
  void attend_rows(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores);
  void attend_tiles(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores);
  void multiply(const Matrix& weights, const void* x, void* y, uint32_t rows, DType out);
  /// The product of the batch's rows by few_rows(), to which more is added; nullopt where that does not do
  /// it.
  std::optional<FewRowsArgs> by_few_rows(const Matrix& weights, const void* x, void* y) const;
  /// Of rows, or of the choices of rows.
  void multiply_integers(const Matrix& weights, const void* x, void* y, uint32_t rows, DType out,
                         uint32_t x_choices, const Choices& choices);
  void gate(uint32_t rows, uint32_t width);
  const void* multiply_gated(const Matrix& weights, const void* x);
  void choose_experts(const LayerWeights& layer, const void* x, const Choices& choices);
  void multiply_choices(const Matrix& weights, const void* x, uint32_t x_choices, void* y,
                        const Choices& choices);
  void select(std::span<const uint32_t> rows);

  const model::ModelConfig& config_;
  const ModelWeights& weights_;
  KvCache& cache_;
  Gemm& gemm_;
  Stream stream_;
  StepLimits limits_;
  DType dtype_;

  DeviceBuffer memory_;
  Arena arena_;
  uint32_t known_angles_[3] = {};  // positions that Arena::angles has
  const float* rotation_ = nullptr;
  uint32_t rotary_ = 0;           // of the next attend(); 0: none
  const void* qkv_of_ = nullptr;  // what the next attend() multiplies to get Rows::kQkv; null: they are there

  bool has_tiles_ = false;  // paged_attention is there for this model; else decode_attention
  uint32_t rows_of_batch_ = 0;
  uint32_t seqs_of_batch_ = 0;
  bool is_decode_ = false;  // one token of each
  uint32_t longest_ = 0;    // keys
  Inputs inputs_;
  Staging input_staging_;   // of Arena::input
  Staging places_staging_;  // of Arena::places
  std::span<const LateRow> late_rows_;
  const TokenId* late_tokens_ = nullptr;
  std::vector<QueryTile> tiles_;    // of the batch, if there are any
  uint32_t num_large_tiles_ = 0;    // the first of them
  uint32_t most_small_tokens_ = 0;  // of a tile of the others
  std::vector<uint32_t> spans_;     // by K/V group: what launches of attention get
  PassGraphs graphs_;
  std::vector<uint16_t> host_halves_;
  std::vector<float> host_rows_;  // what hidden() and logits() return
};

}  // namespace quire::backend::cuda
