#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/kv_tile.h"

namespace quire::backend::cuda {
namespace {

static_assert(kTileKeys == kWarp);  // in a tile, a lane is a key
constexpr uint32_t kHeadsOfWarp = kMostGroup / kWarps;
constexpr uint32_t kScores = kSpanScores;

/// Shared memory: a tile of K and one of V; the span's part of the block table; the group's queries, scaled;
/// the weights of a tile's keys for each head of the group.
template <class T, uint32_t kDim>
struct Shared {
  static constexpr uint32_t kRow = KvTile<T, kDim>::kRow;
  static constexpr uint32_t kTile = kTileKeys * kRow;

  T* keys;
  T* values;
  uint32_t* table;
  float* queries;  // [group][kDim]
  float* weights;  // [group][kTileKeys]

  __device__ Shared(unsigned char* memory, uint32_t group) {
    keys = reinterpret_cast<T*>(memory);
    values = keys + kTile;
    table = reinterpret_cast<uint32_t*>(values + kTile);
    queries = reinterpret_cast<float*>(table + kMostBlocks);
    weights = queries + group * kDim;
  }
  static constexpr uint32_t bytes(uint32_t group) {
    return 2 * kTile * sizeof(T) + 4 * (kMostBlocks + group * (kDim + kTileKeys));
  }
};

/// What a warp knows of its heads: the group's heads `warp`, `warp` + kWarps and so on. All lanes have the
/// same maxima and sums; a lane has the dimensions `lane`, `lane` + kWarp and so on of the results.
template <uint32_t kDim>
struct WarpState {
  static constexpr uint32_t kDimsOfLane = (kDim + kWarp - 1) / kWarp;
  float maxima[kHeadsOfWarp];
  float sums[kHeadsOfWarp];
  float results[kHeadsOfWarp][kDimsOfLane];

  __device__ WarpState() {
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kHeadsOfWarp; ++j) {
      maxima[j] = kMinusInfinity;
      sums[j] = 0.0F;
      QUIRE_UNROLL
      for (uint32_t i = 0; i < kDimsOfLane; ++i) results[j][i] = 0.0F;
    }
  }
};

/// The scores of the lane's key for the warp's heads, in units of log2.
template <class T, uint32_t kDim>
__device__ __forceinline__ void score_tile(const Shared<T, kDim>& shared, uint32_t group, float* scores) {
  const T* row = shared.keys + thread_x() % kWarp * Shared<T, kDim>::kRow;
  QUIRE_UNROLL
  for (uint32_t j = 0; j < kHeadsOfWarp; ++j) scores[j] = 0.0F;
  for (uint32_t d = 0; d < kDim; d += kPiece<T>) {
    const Floats<T> key = unpack<T>(ptx::load_shared_128(row + d));
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kHeadsOfWarp; ++j) {
      const uint32_t head = thread_x() / kWarp + j * kWarps;
      if (head >= group) break;
      const float* query = shared.queries + head * kDim + d;
      QUIRE_UNROLL
      for (uint32_t i = 0; i < kPiece<T>; i += kPiece<float>) {
        const Floats<float> part = unpack<float>(ptx::load_shared_128(query + i));
        QUIRE_UNROLL
        for (uint32_t k = 0; k < kPiece<float>; ++k) scores[j] += key.at[i + k] * part.at[k];
      }
    }
  }
}

/// Turns the scores of the warp's heads into cap * tanh(score / cap). `cap`: in units of log2, as they are.
__device__ __forceinline__ void cap_scores(float cap, uint32_t group, float* scores) {
  QUIRE_UNROLL
  for (uint32_t j = 0; j < kHeadsOfWarp; ++j) {
    if (thread_x() / kWarp + j * kWarps >= group) break;
    scores[j] = cap * std::tanh(scores[j] / cap);
  }
}

/// Turns scores into weights, which it leaves in shared memory, and scales what the warp has by the new
/// maxima.
template <class T, uint32_t kDim>
__device__ __forceinline__ void weigh_tile(const Shared<T, kDim>& shared, uint32_t group, bool seen,
                                           const float* scores, WarpState<kDim>& state) {
  const uint32_t lane = thread_x() % kWarp;
  QUIRE_UNROLL
  for (uint32_t j = 0; j < kHeadsOfWarp; ++j) {
    const uint32_t head = thread_x() / kWarp + j * kWarps;
    if (head >= group) break;
    const float score = seen ? scores[j] : kMinusInfinity;
    const float tile_max = warp_max(score);
    const float max = larger(state.maxima[j], tile_max);
    const float weight = ptx::exp2_approx(score - max);
    const float rescale = ptx::exp2_approx(state.maxima[j] - max);
    state.maxima[j] = max;
    state.sums[j] = state.sums[j] * rescale + warp_sum(weight);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < WarpState<kDim>::kDimsOfLane; ++i) state.results[j][i] *= rescale;
    shared.weights[head * kTileKeys + lane] = weight;
  }
  sync_warp(kWholeWarp);
}

/// Adds the tile's values by their weights.
template <class T, uint32_t kDim>
__device__ __forceinline__ void add_values(const Shared<T, kDim>& shared, uint32_t group,
                                           WarpState<kDim>& state) {
  const uint32_t lane = thread_x() % kWarp;
  for (uint32_t first = 0; first < kTileKeys; first += kPiece<float>) {
    float values[kPiece<float>][WarpState<kDim>::kDimsOfLane];
    QUIRE_UNROLL
    for (uint32_t k = 0; k < kPiece<float>; ++k) {
      QUIRE_UNROLL
      for (uint32_t i = 0; i < WarpState<kDim>::kDimsOfLane; ++i) {
        // A lane without a dimension here takes one that it has, and drops what comes of it.
        const uint32_t d = lane + i * kWarp < kDim ? lane + i * kWarp : lane % kDim;
        values[k][i] = to_float(shared.values[(first + k) * Shared<T, kDim>::kRow + d]);
      }
    }
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kHeadsOfWarp; ++j) {
      const uint32_t head = thread_x() / kWarp + j * kWarps;
      if (head >= group) break;
      const float* weights = shared.weights + head * kTileKeys + first;
      const Floats<float> four = unpack<float>(ptx::load_shared_128(weights));
      QUIRE_UNROLL
      for (uint32_t k = 0; k < kPiece<float>; ++k) {
        QUIRE_UNROLL
        for (uint32_t i = 0; i < WarpState<kDim>::kDimsOfLane; ++i) {
          state.results[j][i] += four.at[k] * values[k][i];
        }
      }
    }
  }
}

/// Where the partials of a sequence's head lie: first all results, then all pairs of maximum and sum.
struct PartialPlace {
  float* results;  // [span][head_dim]
  float* scores;   // [span][kScores]
  __device__ PartialPlace(const DecodeAttentionArgs& args, uint32_t seq, uint32_t head) {
    const size_t which = (size_t{seq} * args.num_heads + head) * args.max_spans;
    const size_t all = size_t{args.num_queries} * args.num_heads * args.max_spans;
    results = args.partials + which * args.blocks.head_dim;
    scores = args.partials + all * args.blocks.head_dim + which * kScores;
  }
};

template <uint32_t kDim>
__device__ __forceinline__ void store_partials(const DecodeAttentionArgs& args, uint32_t group,
                                               const WarpState<kDim>& state) {
  const uint32_t lane = thread_x() % kWarp;
  QUIRE_UNROLL
  for (uint32_t j = 0; j < kHeadsOfWarp; ++j) {
    const uint32_t head = thread_x() / kWarp + j * kWarps;
    if (head >= group) break;
    const PartialPlace place(args, block_z(), block_y() * group + head);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < WarpState<kDim>::kDimsOfLane; ++i) {
      const uint32_t d = lane + i * kWarp;
      if (d < kDim) place.results[block_x() * kDim + d] = state.results[j][i];
    }
    if (lane < kScores)
      place.scores[block_x() * kScores + lane] = lane == 0 ? state.maxima[j] : state.sums[j];
  }
}

/// One block for each span (x), K/V head (y) and sequence (z).
template <class T, uint32_t kDim>
__global__ void __launch_bounds__(kThreads) attend_kernel(DecodeAttentionArgs args) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t length = args.lengths[block_z()];
  const uint32_t seen_from = first_key(length, args.window);
  const uint32_t span = seen_from / kSpanKeys + block_x();
  if (span * kSpanKeys >= length) return;
  const uint32_t group = args.num_heads / args.blocks.num_kv_heads;
  const Shared<T, kDim> shared(shared_memory<unsigned char>(), group);
  const uint32_t begin = seen_from > span * kSpanKeys ? seen_from : span * kSpanKeys;
  const uint32_t end = length < (span + 1) * kSpanKeys ? length : (span + 1) * kSpanKeys;

  const uint32_t* table = args.block_tables + size_t{args.seqs[block_z()]} * args.table_stride;
  load_table(shared.table, table, args.blocks.block_size, begin, end);
  const T* query =
      static_cast<const T*>(args.q) + size_t{block_z()} * args.q_stride + block_y() * group * kDim;
  for (uint32_t i = thread_x(); i < group * kDim; i += kThreads) {
    shared.queries[i] = to_float(query[i]) * (args.scale * kLog2E);
  }
  sync_block();

  const T* head = static_cast<const T*>(args.cache) + args.blocks.k_of_head(block_y());
  KvTile<T, kDim> next;
  WarpState<kDim> state;
  uint32_t tile = begin / kTileKeys * kTileKeys;
  next.load(head, args.blocks, shared.table, tile, begin, end);
  for (; tile < end; tile += kTileKeys) {
    next.store(shared.keys, shared.values);
    sync_block();
    if (tile + kTileKeys < end) next.load(head, args.blocks, shared.table, tile + kTileKeys, begin, end);
    const uint32_t key = tile + thread_x() % kWarp;
    float scores[kHeadsOfWarp];
    score_tile(shared, group, scores);
    if (args.soft_cap != 0.0F) cap_scores(args.soft_cap * kLog2E, group, scores);
    weigh_tile(shared, group, key >= begin && key < end, scores, state);
    add_values(shared, group, state);
    sync_block();
  }
  store_partials<kDim>(args, group, state);
}

/// One block for each head (x) and sequence (y); a thread has each kThreads-th dimension.
template <class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(DecodeAttentionArgs args) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t length = args.lengths[block_y()];
  const uint32_t spans = (length - 1) / kSpanKeys - first_key(length, args.window) / kSpanKeys + 1;
  const uint32_t head_dim = args.blocks.head_dim;
  if (thread_x() >= head_dim) return;
  const PartialPlace place(args, block_y(), block_x());
  float max = kMinusInfinity;
  for (uint32_t span = 0; span < spans; ++span) {
    max = larger(max, place.scores[span * kScores]);
  }
  for (uint32_t d = thread_x(); d < head_dim; d += kThreads) {
    float sum = 0.0F;
    float result = 0.0F;
    for (uint32_t span = 0; span < spans; ++span) {
      const float weight = ptx::exp2_approx(place.scores[span * kScores] - max);
      sum += weight * place.scores[span * kScores + 1];
      result += weight * place.results[span * head_dim + d];
    }
    T* out = static_cast<T*>(args.out) + (size_t{block_y()} * args.num_heads + block_x()) * head_dim;
    out[d] = from_float<T>(result / sum);
  }
}

template <class T, uint32_t kDim>
LaunchError attend(const DecodeAttentionArgs& args, Stream stream) {
  const uint32_t group = args.num_heads / args.blocks.num_kv_heads;
  const LaunchShape shape{{args.max_spans, args.blocks.num_kv_heads, args.num_queries},
                          kThreads,
                          Shared<T, kDim>::bytes(group),
                          stream,
                          Begins::kEarly};
  return launch(kDim < 64 ? "decode_attention_small" : "decode_attention", shape, attend_kernel<T, kDim>,
                args);
}

template <class T>
LaunchError attend_and_combine(const DecodeAttentionArgs& args, Stream stream) {
  LaunchError error = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (args.blocks.head_dim == 8) error = attend<T, 8>(args, stream);
  }
  if (args.blocks.head_dim == 16) error = attend<T, 16>(args, stream);
  if (args.blocks.head_dim == 32) error = attend<T, 32>(args, stream);
  if (args.blocks.head_dim == 64) error = attend<T, 64>(args, stream);
  if (args.blocks.head_dim == 80) error = attend<T, 80>(args, stream);
  if (args.blocks.head_dim == 96) error = attend<T, 96>(args, stream);
  if (args.blocks.head_dim == 128) error = attend<T, 128>(args, stream);
  if (args.blocks.head_dim == 256) error = attend<T, 256>(args, stream);
  if (error != 0) return error;
  const LaunchShape shape{{args.num_heads, args.num_queries}, kThreads, 0, stream, Begins::kEarly};
  return launch("combine_attention", shape, combine_kernel<T>, args);
}

}  // namespace

bool supports_decode_attention(const KvBlocks& blocks, uint32_t num_heads) {
  constexpr uint32_t kDims[] = {16, 32, 64, 80, 96, 128, 256};  // the first two: of small models
  const bool has_dim = std::find(std::begin(kDims), std::end(kDims), blocks.head_dim) != std::end(kDims);
  const bool is_tiny = blocks.head_dim == 8 && blocks.dtype == DType::kF32;
  return supports_attention(blocks, num_heads) && (has_dim || is_tiny);
}

size_t decode_attention_scratch(const DecodeAttentionArgs& args) {
  return args.num_queries * partial_floats(args.num_heads, args.blocks.head_dim, args.max_spans);
}

LaunchError decode_attention(const DecodeAttentionArgs& args, Stream stream) {
  return for_element(args.blocks.dtype,
                     [&](auto type) { return attend_and_combine<decltype(type)>(args, stream); });
}

}  // namespace quire::backend::cuda
